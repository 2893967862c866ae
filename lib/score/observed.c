/* SPDX-License-Identifier: MIT
 * observed: attention that a token has received, per query that sees it (METHODS 2.6): the sums of h2o without their
 * preference for early tokens.  Nothing is protected. */
#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_window, "all" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.window = kv_window(p), .rows = KVK_SUM, .heads = kv_reduce(p, &kv_param_gqa)
	};
	const size_t W = a.window < l->T ? a.window : l->T;
	int rc = kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);

	for (size_t j = 0; rc == KV_OK && j < out->n; j++) {
		const size_t seen = l->T - j < W ? l->T - j : W; /* by so many of the queries */

		for (size_t h = 0; h < out->H; h++)
			out->s[h * out->n + j] /= (float)seen;
	}
	return rc;
}

const struct kv_score_method kv_score_observed = {
	.about = {
	    .name = "observed",
	    .brief = "attention received from all prompt tokens, per token that sees it",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = kv_queries_window,
	.run = run,
};
