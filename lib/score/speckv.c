/* SPDX-License-Identifier: MIT
 * speckv: attention of a draft response and of the last W + 1 prompt tokens, the largest of all these rows and of the
 * query heads of a group (METHODS 2.5, arXiv:2506.08373).  The original drops the last prompt token and feeds it again;
 * here it stays, so that a budget is one entry more than its max_capacity_prompt. */
#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_param reduce = { .name = "reduce", .kind = KV_PARAM_CHOICE, .arg = "HOW", .choices = "max|mean",
	.help = "how rows and query heads together become one number" };

static const struct kv_takes takes[] = {
	{ &kv_param_window, "32" },
	{ &reduce, "max" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "max" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "window" },
	{ 0 },
};

/* The window and the last token. */
static size_t
looking(const struct kv_params *p)
{
	return kv_window(p) == KV_ALL ? KV_ALL : kv_window(p) + 1;
}

static struct kv_queries
queries(const struct kv_params *p)
{
	return kv_queries_of(looking(p));
}

static size_t
columns(const struct kv_params *p, size_t T)
{
	return T > looking(p) ? T - looking(p) : 0;
}

static void
protect(const struct kv_params *p, size_t T, struct kv_protection *out)
{
	(void)T;
	if (kv_count(p, &kv_param_recent) == KV_WINDOW && (double)out->n_recent < KV_COUNT_MAX)
		out->n_recent++;
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = looking(p),
		.behind = "response",
		.behind_keys = true,
		.rows = kv_reduce(p, &reduce),
		.heads = kv_reduce(p, &reduce),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_speckv = {
	.about = {
	    .name = "speckv",
	    .brief = "attention of a draft response and the last W + 1 prompt tokens",
	    .paper = "arXiv:2506.08373",
	    .takes = takes,
	},
	.needs = "k,q,q.response,k.response",
	.queries = queries,
	.columns = columns,
	.protect = protect,
	.run = run,
};
