/* SPDX-License-Identifier: MIT
 * Rows that stand behind a prompt: what the way there and the way back share.
 *
 * Weights are [Hq][n][all], all = T + n keys: the prompt's, then those behind.  Sums over all keys are cut into
 * chunks, which are added up in ascending order.
 */
#ifndef KVK_CUDA_BEHIND_SUMS_H
#define KVK_CUDA_BEHIND_SUMS_H

#include "kernels/cuda/cuda.h"

/* One of keys or values of all heads. */
struct behind_keys {
	const void *prompt; /* [Hkv][T][D] */
	enum kvk_type type;
	const float *behind; /* [Hkv][n][D] */
};

/* Rows of all heads: row i of head h begins at x + h * head + i * row. */
struct behind_rows {
	const float *x;
	size_t head, row;
};

/* Sizes. */
struct behind_shape {
	size_t n, T, all, Hq, G, D;
};

struct behind_shape cuda_behind_shape(const struct kvk_behind *x);
/* 0, or the error of a job that cannot be done. */
int cuda_behind_check(struct kvk_dev *dev, const struct kvk_behind *x);
/* p [Hq][n][all] = factor * rows times keys. */
int cuda_behind_dots(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys,
    struct behind_rows rows, float factor, float *p);
/* p: logits of q and the keys, then weights; 0 where a row does not see. */
int cuda_behind_weights(struct kvk_dev *dev, const struct kvk_behind *x, float *p);
/* Row i of head h of y, [D] at h * head + i * row, = factor * sum over the keys of p times key; part: scratch of
 * cuda_behind_parts() floats. */
int cuda_behind_sum(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys, const float *p,
    float factor, float *part, float *y, size_t head, size_t row);
size_t cuda_behind_parts(const struct behind_shape *z);

#endif
