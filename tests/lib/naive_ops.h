/* SPDX-License-Identifier: MIT
 * Operations by their definitions in double precision: one loop per formula.
 */
#ifndef NAIVE_OPS_H
#define NAIVE_OPS_H

#include "kernels/backend.h"

/* ---- heads */

struct head_sizes {
	size_t n, H, D, dim, pos; /* D at most 256; dim 0: no rotation */
	int interleaved, norm;
	enum kvk_type type; /* of the result */
};
#define NAIVE_EPS 1e-6f /* of the norm */

/* inv_freq [dim/2] of theta 10,000; free() it. */
float *naive_frequencies(size_t dim);
/* y, as floats, is what heads() makes of x with head h at rows 1 + h * (n + 1) of zeros: within the roundings of its
 * type, and the rows between heads are zeros still. */
void naive_heads_near(
    const struct head_sizes *z, const float *x, const float *norm, const float *inv_freq, const float *y);

/* ---- moments and forms */

/* Of the rows of one head, x [n][D], of elements up to 3. */
void naive_moments_near(const float *x, size_t n, size_t D, const double *mean, const double *cov);

/* What forms() is asked: a [Hq][D][D] symmetric, b [Hq][D]; k [Hkv][T][D] as bytes of a type, and as doubles. */
struct form_job {
	struct kvk_forms job; /* over these, host memory */
	void *k;
	double *values, *a, *b;
};
void form_job_init(struct form_job *x, size_t Hq, size_t Hkv, size_t T, size_t D, enum kvk_type type);
void form_job_fini(struct form_job *x);
/* z [Hq][T], of elements up to 1. */
void naive_forms_near(const struct form_job *x, const double *z);

#endif
