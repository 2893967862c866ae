/* SPDX-License-Identifier: MIT
 * knorm: minus the length of the key; keys with a small norm tend to be attended to (METHODS 2.10, arXiv:2406.11430).
 * All layers alike, where one public implementation leaves the first two whole: use --layers 2- for that. */
#include <math.h>
#include <stdlib.h>

#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const size_t D = l->cfg->D;
	float *k;
	int rc;

	(void)p;
	if ((rc = kv_score_floats(l, kv_step_find(l->step, "k"), &k, e)) < 0)
		return rc;
	for (size_t i = 0; i < out->H * out->n; i++)
		out->s[i] = (float)-sqrt(kv_dot(k + i * D, k + i * D, D));
	free(k);
	return KV_OK;
}

const struct kv_score_method kv_score_knorm = {
	.about = {
	    .name = "knorm",
	    .brief = "minus the norm of the key",
	    .paper = "arXiv:2406.11430",
	    .takes = takes,
	},
	.needs = "k",
	.run = run,
};
