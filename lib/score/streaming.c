/* SPDX-License-Identifier: MIT
 * streaming: attention sinks and the most recent tokens (METHODS 2.9, arXiv:2309.17453).  No scores: a tensor without
 * columns that protects the first tokens and gives the rest of the budget to the last ones.  Positions stay as they
 * are, where the paper counts them anew inside the cache. */
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_sink, "4" },
	{ &kv_param_recent, NULL },
	{ &kv_param_recent_share, "1" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	(void)l;
	(void)p;
	(void)out;
	(void)e;
	return KV_OK;
}

const struct kv_score_method kv_score_streaming = {
	.about = {
	    .name = "streaming",
	    .brief = "no scores: the first tokens and the last ones stay (StreamingLLM)",
	    .paper = "arXiv:2309.17453",
	    .takes = takes,
	},
	.columns = kv_columns_none,
	.run = run,
};
