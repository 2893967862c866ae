/* SPDX-License-Identifier: MIT
 * One layer's tensors for tests of scoring methods, and the comparison that METHODS 1.3 (L1) asks for.
 */
#ifndef SCORE_INPUT_H
#define SCORE_INPUT_H

#include "lib/score/score.h"
#include "tests/lib/oracle.h"

/* q and k as kv-prefill would write them, f32, over the caller's numbers; q [Hq][n_q][D] holds the prompt's last n_q
 * queries. */
struct score_layer {
	struct kv_tensor q, k;
	struct kv_score_input in; /* points to both */
};
void score_layer_init(struct score_layer *x, const struct kv_device *d, size_t Hq, size_t Hkv, size_t T, size_t D,
    float scale, const float *q, size_t n_q, const float *k);
void score_layer_fini(struct score_layer *x);

/* Every record of `method` in every case of the oracle: own scores against the reference's within the tolerance,
 * attributes, and kept sets from both.  Returns the number of kept sets compared; a difference ends the test. */
size_t score_oracle(const struct kv_device *d, const char *method);

/* |x - y| <= 1e-7 + 2e-5 max(|x|, |y|) for all n. */
void assert_scores_near(const float *x, const float *y, size_t n, const char *where);

#endif
