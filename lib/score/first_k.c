/* SPDX-License-Identifier: MIT
 * first-k: minus the position, so that the first tokens stay (METHODS 2.14).  A negative control. */
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	(void)l;
	(void)p;
	(void)e;
	for (size_t h = 0; h < out->H; h++)
		for (size_t j = 0; j < out->n; j++)
			out->s[h * out->n + j] = -(float)j;
	return KV_OK;
}

const struct kv_score_method kv_score_first_k = {
	.about = {
	    .name = "first-k",
	    .brief = "minus the position: the first tokens stay (a control)",
	    .takes = takes,
	},
	.run = run,
};
