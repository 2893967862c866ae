/* SPDX-License-Identifier: MIT
 * nacl: attention of the prompt's last hundredth, its proxy tokens, summed up (METHODS 2.8, arXiv:2408.03675).
 * Protects the first four tokens and the proxies, eight at least.  Causal, unlike the published code, whose proxies see
 * each other's future.  The random part of the method is an allocator. */
#include "lib/attention.h"
#include "lib/score/score.h"

#define PART       100 /* of the prompt */
#define RECENT_MIN 8

static const struct kv_takes takes[] = {
	{ &kv_param_window, NULL }, /* a hundredth of the prompt */
	{ &kv_param_rows, "sum" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "4" },
	{ &kv_param_recent, NULL }, /* the proxies, RECENT_MIN at least */
	{ 0 },
};

static struct kv_queries
queries(const struct kv_params *p)
{
	if (kv_window(p) == KV_UNSET)
		return (struct kv_queries){ KV_QUERIES_PART, PART };
	return kv_queries_window(p);
}

static size_t
proxies(const struct kv_params *p, size_t T)
{
	return kv_queries_rows(queries(p), T);
}

static void
protect(const struct kv_params *p, size_t T, struct kv_protection *out)
{
	if (kv_count(p, &kv_param_recent) == KV_UNSET)
		out->n_recent = proxies(p, T) > RECENT_MIN ? proxies(p, T) : RECENT_MIN;
	else if (kv_count(p, &kv_param_recent) == KV_WINDOW)
		out->n_recent = proxies(p, T);
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = proxies(p, l->T),
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	json_object_set_new(out->attrs, "window", json_integer((json_int_t)a.window));
	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_nacl = {
	.about = {
	    .name = "nacl",
	    .brief = "attention of the last hundredth of the prompt, summed up",
	    .paper = "arXiv:2408.03675",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = queries,
	.protect = protect,
	.run = run,
};
