/* SPDX-License-Identifier: MIT
 * Rows behind a prompt whose keys and values are at hand: how they look at the prompt, and the gradient of that.
 *
 * As lookahead tokens with adapters they are the student of METHODS 5, as tokens of a response, without adapters, its
 * teacher.  The model is frozen.  Everything is f32.  All layers' matrices stay expanded: 4 bytes per parameter of the
 * model; activations of the rows are kept for the way back, some 12 (d + ff) floats per row and layer.
 *
 * Same input, same bytes, for any number of threads.
 */
#ifndef KV_STUDENT_H
#define KV_STUDENT_H

#include "lib/model/engine.h"
#include "lib/model/module.h"

struct kv_student;

/* Opens a device that is only planned, one that can train.  Fails: as kv_device_ready(). */
int kv_student_ready(struct kv_device *d, struct kv_err *e);

/* Keeps the engine borrowed; d is its device, of precision f32.
 * Fails: KV_EDEV (an operation the device lacks), KV_EMEM, KV_EMODEL. */
int kv_student_new(struct kv_student **out, struct kv_engine *x, struct kv_device *d,
    const struct kv_lookahead_shape *s, struct kv_err *e);
void kv_student_free(struct kv_student *s);

/* As kv_engine_fall_back(): the student and its engine go on, with the CPU maybe, from the numbers that
 * kv_student_set() is given next and without what was gathered. */
int kv_student_fall_back(struct kv_student *s, int rc, struct kv_err *e);

const struct kv_config *kv_student_config(const struct kv_student *s);

/* A prompt as a prefill left it, on the host. */
struct kv_seen {
	size_t T;
	enum kvk_type type;   /* of keys and values: F32, F16, BF16 */
	const void *const *k; /* [L] of [Hkv][T][D] */
	const void *const *v; /* [L] */
};

/* The module's numbers as they are now; m is of the student's shape. */
int kv_student_set(struct kv_student *s, const struct kv_lookahead *m, struct kv_err *e);

/* The lookahead rows behind a prompt.  score [L][Hq][T] on the host: mean over the rows of their attention weights,
 * METHODS 2.2 on query heads.  Fails: KV_EFAIL (not finite), KV_EDEV, KV_EMEM. */
int kv_student_forward(struct kv_student *s, const struct kv_seen *p, float *score, struct kv_err *e);

/* Of the last forward, same prompt: d score [L][Hq][T] on the host; the gradient of all the module's numbers is added
 * to what the student has gathered. */
int kv_student_backward(struct kv_student *s, const struct kv_seen *p, const float *dscore, struct kv_err *e);
/* What was gathered, laid out as the module's parameters, and start anew. */
int kv_student_gradient(struct kv_student *s, float *gradient, struct kv_err *e);

/* The same scores for n tokens of a response, without adapters (METHODS 2.3 on query heads). */
int kv_student_truth(
    struct kv_student *s, const struct kv_seen *p, const int32_t *tokens, size_t n, float *score, struct kv_err *e);

#endif
