/* SPDX-License-Identifier: MIT
 * snapkv: attention of the last W prompt tokens to the tokens before them (METHODS 2.1, arXiv:2404.14469). */
#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_window, "32" },
	{ &kv_param_rows, "mean" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "max" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "window" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = kv_count(p, &kv_param_window),
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_snapkv = {
	.about = {
	    .name = "snapkv",
	    .brief = "attention of the last W prompt tokens (the observation window)",
	    .paper = "arXiv:2404.14469",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = kv_queries_window,
	.columns = kv_columns_history,
	.run = run,
};
