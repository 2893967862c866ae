/* SPDX-License-Identifier: MIT
 * Lookahead rows behind a prompt and their loss as METHODS 2.2 and 5 have them: double precision, one loop per formula,
 * nothing shared with lib/train.  For small models only.
 */
#ifndef NAIVE_STUDENT_H
#define NAIVE_STUDENT_H

#include "lib/model/module.h"

struct naive_student {
	const struct kv_model *m;
	const struct kv_lookahead *shape; /* the layout of theta; its numbers are not used */
	size_t T;
	const float *k, *v; /* [L][Hkv][T][D], the prompt's, after rotation */
	const float *truth; /* [L][Hq][T] */
};

/* The loss with the module's numbers theta; score [L][Hq][T] may be NULL.  Aborts when there is no memory. */
double naive_student_loss(const struct naive_student *s, const double *theta, double *score);

#endif
