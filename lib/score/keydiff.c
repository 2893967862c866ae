/* SPDX-License-Identifier: MIT
 * keydiff: minus the cosine of the key with the head's mean direction, so that keys unlike the others stay (METHODS
 * 2.10, arXiv:2504.15364).  Keys as they are cached, after rotation; in one go, where the paper works block by
 * block. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/score/score.h"

#define LEAST_NORM   1e-12 /* of a key that is made a unit vector */
#define LEAST_COSINE 1e-8  /* of each norm in the cosine */

static const struct kv_takes takes[] = {
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "0" },
	{ 0 },
};

/* One head: k [n][D], s [n].  Scratch: anchor [D], norm [n]. */
static void
head(const float *k, size_t n, size_t D, double *anchor, double *norm, float *s)
{
	double length = 0;

	for (size_t d = 0; d < D; d++)
		anchor[d] = 0;
	for (size_t j = 0; j < n; j++) {
		norm[j] = sqrt(kv_dot(k + j * D, k + j * D, D));
		for (size_t d = 0; d < D; d++)
			anchor[d] += (double)k[j * D + d] / fmax(norm[j], LEAST_NORM) / (double)n;
	}
	for (size_t d = 0; d < D; d++)
		length += anchor[d] * anchor[d];
	length = fmax(sqrt(length), LEAST_COSINE);
	for (size_t j = 0; j < n; j++) {
		double product = 0;

		for (size_t d = 0; d < D; d++)
			product += (double)k[j * D + d] * anchor[d];
		s[j] = (float)(-product / (fmax(norm[j], LEAST_COSINE) * length));
	}
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const size_t D = l->cfg->D, n = out->n;
	double *scratch = NULL;
	float *k;
	int rc;

	(void)p;
	if ((rc = kv_score_floats(l, kv_step_find(l->step, "k"), &k, e)) < 0)
		return rc;
	rc = KV_EMEM;
	if ((scratch = kv_alloc(D + n, sizeof *scratch, e)) == NULL)
		goto done;
	for (size_t h = 0; h < out->H; h++)
		head(k + h * n * D, n, D, scratch, scratch + D, out->s + h * n);
	rc = KV_OK;
done:
	free(scratch);
	free(k);
	return rc;
}

const struct kv_score_method kv_score_keydiff = {
	.about = {
	    .name = "keydiff",
	    .brief = "minus the cosine of the key with the head's mean key",
	    .paper = "arXiv:2504.15364",
	    .takes = takes,
	},
	.needs = "k",
	.run = run,
};
