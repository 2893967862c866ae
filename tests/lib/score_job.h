/* SPDX-License-Identifier: MIT
 * Jobs for the operation scores, and what they give by the definition, in double precision.
 */
#ifndef SCORE_JOB_H
#define SCORE_JOB_H

#include "kernels/backend.h"

struct score_sizes {
	size_t T, behind, n_q, first; /* row i stands at position first + i * step */
	size_t step, n, G, Hkv, D;
	enum kvk_type q_type, k_type;
	float size; /* of the elements of q and k: logits are of the order of size^2 * D / 12 */
	float bias; /* of every seventh element of all keys, up to so much: a large common part */
};

/* job: over arrays of this struct, host memory; a test may put other places for them.  Scale 0.25, means of rows. */
struct score_job {
	struct kvk_scores job;
	void *q, *k, *behind;
	double *q_values, *k_values, *behind_values; /* the same elements */
	int32_t *pos;                                /* what job.q_pos points to */
};
void score_job_init(struct score_job *x, const struct score_sizes *z);
void score_job_fini(struct score_job *x);

/* p [n_q][T + n_behind]: the probabilities of head h, zero where a row does not see. */
void score_probabilities(const struct score_job *x, size_t h, double *p);
/* want [n], of one head's p: the reduction `how`. */
void score_columns(const struct score_job *x, enum kvk_reduce how, const double *p, double *want);

#endif
