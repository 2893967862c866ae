/* SPDX-License-Identifier: MIT
 * Adam with its first and second moments (arXiv:1412.6980), and how the rate of learning runs.
 */
#ifndef KV_ADAM_H
#define KV_ADAM_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kv_adam {
	double beta1, beta2, eps;
	size_t n;
	float *m, *v; /* [n] moments; owned */
	uint64_t t;   /* steps taken */
};

/* Moments of zero.  Fails: KV_EMEM. */
int kv_adam_init(struct kv_adam *a, size_t n, struct kv_err *e);
void kv_adam_fini(struct kv_adam *a);

/* One step: x -= rate * m^ / (sqrt(v^) + eps), in double precision per number. */
void kv_adam_step(struct kv_adam *a, float *x, const float *gradient, double rate);

/* sqrt of the sum of squares; and gradient scaled down to a norm of `most` if it is larger (most 0: as it is). */
double kv_gradient_clip(float *gradient, size_t n, double most);

enum kv_decay { KV_DECAY_COSINE, KV_DECAY_LINEAR, KV_DECAY_NONE };
struct kv_schedule {
	double rate;    /* the highest */
	double last;    /* at the last step, as a share of it */
	size_t warm_up; /* steps that climb to it */
	size_t steps;   /* of the whole run */
	enum kv_decay decay;
};
/* Of step 0 .. steps - 1. */
double kv_schedule_rate(const struct kv_schedule *s, size_t step);

#endif
