/* SPDX-License-Identifier: MIT
 * lookahead: attention of learned tokens that stand behind the prompt (METHODS 2.2, arXiv:2603.10899): what they attend
 * to is what the response will, after training. */
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
		.behind = "lookahead",
		.behind_keys = true,
		.rows = kv_reduce(p, &kv_param_rows),
		.heads = kv_reduce(p, &kv_param_gqa),
	};

	return kv_attention(l, p->method->name, &a, out->H, out->n, out->s, e);
}

const struct kv_score_method kv_score_lookahead = {
	.about = {
	    .name = "lookahead",
	    .brief = "attention of learned tokens behind the prompt (kv-prefill --lookahead)",
	    .paper = "arXiv:2603.10899",
	    .takes = takes,
	},
	.needs = "k,q.lookahead,k.lookahead",
	.run = run,
};
