/* SPDX-License-Identifier: MIT
 * A layer as kv-stat sees it, out of numbers: for tests of quantities.  Failures inside end the test (cmocka).
 */
#ifndef STAT_LAYER_H
#define STAT_LAYER_H

#include "lib/stat/stat.h"

struct stat_layer {
	struct kv_tensor score, budget, index, offset, k, logits;
	size_t n_recent;          /* of the scores; for a budget that comes after them */
	struct kv_stat_view view; /* points to those that were given */
};

/* Nothing but a prompt of T tokens; layer may be KV_NO_LAYER. */
void stat_layer_init(struct stat_layer *x, struct kv_device *d, int layer, size_t T);
/* score [H][n], pooled by max of this width, the last n_recent tokens being protected. */
void stat_layer_score(struct stat_layer *x, size_t H, size_t n, const float *score, size_t width, size_t n_recent);
void stat_layer_budget(struct stat_layer *x, size_t H, const int32_t *budget);
void stat_layer_kept(struct stat_layer *x, size_t H, const int32_t *index, const int32_t *offset);
/* k of a cache that nobody evicted from, f16 [H][T][D]: its description. */
void stat_layer_cache(struct stat_layer *x, size_t H, size_t D);
/* logits [n][V], chosen from for response [n]. */
void stat_layer_logits(struct stat_layer *x, size_t n, size_t V, const float *logits, const int32_t *response);
void stat_layer_fini(struct stat_layer *x);

/* A quantity of one layer, of a and, if it compares two, of b; free cells.cell. */
struct kv_stat_cells stat_measure(
    const char *name, struct stat_layer *a, struct stat_layer *b, const struct kv_stat_options *o);
/* The same as a value of the layer. */
double stat_value(const char *name, struct stat_layer *a, struct stat_layer *b, const struct kv_stat_options *o);

/* |x - y| <= 1e-9 max(1, |y|), as the reference's own tolerance; else a message and the end of the test. */
void assert_near(double x, double y, const char *what);

#endif
