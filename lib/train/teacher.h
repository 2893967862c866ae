/* SPDX-License-Identifier: MIT
 * What a module learns from: a prompt's keys and values, the response behind it, and where that looks.
 */
#ifndef KV_TEACHER_H
#define KV_TEACHER_H

#include "lib/text/ids.h"
#include "lib/train/student.h"

/* One sample in memory. */
struct kv_lesson {
	size_t T;
	struct kv_ids response;
	uint16_t *k, *v; /* f16 [L][Hkv][T][D] */
	float *truth;    /* [L][Hq][T]; NULL when it was not wanted */
};
void kv_lesson_fini(struct kv_lesson *x);

struct kv_teach {
	const int32_t *tokens; /* [T] the prompt */
	size_t T;
	size_t generate;      /* greedy tokens of the model's own, at most; 0: lesson->response is given */
	const int32_t *stops; /* [n_stops] end tokens */
	size_t n_stops;
	bool truth; /* else keys and values alone, and nothing is generated */
};

/* Runs the prompt once through `x`, generates from its f16 cache, and has the student measure where the response looks
 * (kv_student_truth).  The response is without its end token, and without what has no place in the model's context.
 * *lesson: zeroed, but for the response.  Fails: as kv_prefill(), kv_generate(). */
int kv_teach(
    struct kv_engine *x, struct kv_student *s, const struct kv_teach *o, struct kv_lesson *lesson, struct kv_err *e);

#endif
