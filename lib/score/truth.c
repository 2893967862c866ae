/* SPDX-License-Identifier: MIT
 * truth: attention of the response itself, which stands behind the prompt (METHODS 2.3): what the other methods guess.
 * The training target of lookahead tokens per query head, an upper bound as a method. */
#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_rows, "mean" },
	{ &kv_param_gqa, "mean" },
	{ &kv_param_granularity, "kv-head" },
	{ &kv_param_pool, "max" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = {
		.behind = "response",
		.behind_keys = true,
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_truth = {
	.about = {
	    .name = "truth",
	    .brief = "attention of the response behind the prompt (kv-prefill --response)",
	    .takes = takes,
	},
	.needs = "k,q.response,k.response",
	.run = run,
};
