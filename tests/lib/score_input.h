/* SPDX-License-Identifier: MIT
 * One layer's tensors for tests of scoring methods, and the comparison that METHODS 1.3 (L1) asks for.
 */
#ifndef SCORE_INPUT_H
#define SCORE_INPUT_H

#include "lib/score/score.h"
#include "tests/lib/oracle.h"

/* The CPU with two threads, open between these two, which are a cmocka group's set-up and tear-down. */
extern struct kv_device score_device;
int score_set_up(void **state);
int score_tear_down(void **state);

/* q and k as kv-prefill would write them, f32, over the caller's numbers; q [Hq][n_q][D] holds the prompt's last n_q
 * queries (NULL: none).  Further tensors by kv_step_put(&x->step, ...); fini frees the step. */
struct score_layer {
	struct kv_config cfg;
	struct kv_sequence seq;
	struct kv_step step;
	struct kv_layer in; /* points to these: a score_layer stays where it was made */
};
void score_layer_init(struct score_layer *x, struct kv_device *d, size_t Hq, size_t Hkv, size_t T, size_t D,
    float scale, const float *q, size_t n_q, const float *k);
/* The model rotates whole heads, by plain frequencies of this theta. */
void score_rotary(struct score_layer *x, double theta);
void score_layer_fini(struct score_layer *x);

/* A tensor of the layer to look at or to spoil; fails the test when there is none. */
struct kv_tensor *score_layer_tensor(struct score_layer *x, const char *name);

/* A tensor over the caller's numbers joins the step; attrs is taken. */
void score_layer_put(struct score_layer *x, const char *name, enum kvk_type type, const char *axes, const size_t *shape,
    const void *data, json_t *attrs);

/* q.REGION [Hq][n][D] and, unless it is NULL, k.REGION [Hkv][n][D], behind the prompt. */
void score_behind(struct score_layer *x, const char *region, const float *q, const float *k, size_t n);
/* The same for "response". */
void score_response(struct score_layer *x, const float *q, const float *k, size_t n);

/* The defaults of a method with some of its options: pairs of name and text, ended by NULL ("window", "16", NULL). */
void score_params(struct kv_params *p, const char *method, ...);

/* Runs the method; the score is in the step then.  A fault ends the test. */
const struct kv_tensor *score_run(struct score_layer *x, const struct kv_params *p);

/* The same for a layer of one KV head, its n scores compared. */
const struct kv_tensor *assert_scored(struct score_layer *x, const struct kv_params *p, const float *expect, size_t n);
/* A score's attributes, typed; unreadable ones end the test. */
struct kv_score_attrs score_attributes(const struct kv_tensor *s);

/* Every record of `method` in every case of the oracle: own scores against the reference's within the tolerance,
 * attributes, and kept sets from both.  Returns the number of kept sets compared; a difference ends the test.
 * The record's parameters become options where the method takes them; the layer has q, k and what stands behind the
 * prompt.  A method whose record has another name, or that needs more, has a row in `kinds` (score_input.c). */
size_t score_oracle(struct kv_device *d, const char *method);

/* |x - y| <= 1e-7 + 2e-5 max(|x|, |y|) for all n. */
void assert_scores_near(const float *x, const float *y, size_t n, const char *where);

#endif
