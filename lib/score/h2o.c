/* SPDX-License-Identifier: MIT
 * h2o: attention that a token has received from all prompt tokens at or behind it, summed up (METHODS 2.6,
 * arXiv:2306.14048).  Half of the budget goes to the last tokens.  Heavy hitters are chosen by causal sums over the
 * whole prompt, as in the original's cache; its simulation, which ranks by sums that include the future, is not
 * followed. */
#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_window, "all" },
	{ &kv_param_rows, "sum" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, NULL },
	{ &kv_param_recent_share, "0.5" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = kv_window(p),
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_h2o = {
	.about = {
	    .name = "h2o",
	    .brief = "attention received from all prompt tokens, summed up",
	    .paper = "arXiv:2306.14048",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = kv_queries_window,
	.run = run,
};
