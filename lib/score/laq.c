/* SPDX-License-Identifier: MIT
 * laq: attention of a pseudo response, decoded from a first evicted cache, to the whole prompt (METHODS 2.4,
 * arXiv:2505.20334).  The softmax runs over prompt keys alone.  With a window (LAQ++: 8) the prompt's last tokens look
 * back as well, are not scored and stay.
 *
 * Rows see what stands before them, so that pseudo tokens see the whole prompt.  The published code lays the rows'
 * triangle over the prompt's last columns instead, as if the last row stood on the last prompt token: --mask public. */
#include "lib/attention.h"
#include "lib/score/score.h"

#define FIRST_STAGE 32 /* queries that snapkv wants for the cache of the first stage */

static const struct kv_param mask = { .name = "mask", .kind = KV_PARAM_CHOICE, .arg = "KIND",
	.choices = "causal|public", .help = "what rows see: everything before them, or as in the published code" };

static const struct kv_takes takes[] = {
	{ &kv_param_window_or_0, "0" },
	{ &mask, "causal" },
	{ &kv_param_rows, "mean" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "max" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "window" },
	{ 0 },
};

static struct kv_queries
queries(const struct kv_params *p)
{
	return kv_queries_of(kv_window(p) > FIRST_STAGE ? kv_window(p) : FIRST_STAGE);
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = kv_window(p),
		.behind = "response",
		.move_back = kv_is(p, &mask, "public"),
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_laq = {
	.about = {
	    .name = "laq",
	    .brief = "attention of a pseudo response to the prompt (kv-decode -o)",
	    .paper = "arXiv:2505.20334",
	    .takes = takes,
	},
	.needs = "k,q.response",
	.looks = "q", /* with a window */
	.queries = queries,
	.columns = kv_columns_history,
	.run = run,
};
