/* SPDX-License-Identifier: MIT
 * Quantised weights, as they stand in the file, times rows in block fixed point (kernels/cpu/fixed.h): a weight's small
 * integers are multiplied as they are, so that only x is rounded.
 *
 * Within a block of 32, lane l of eight adds up elements 2l, 2l + 1, 16 + 2l and 17 + 2l: exact, in integers; then
 * lane[l] += (float)sum * (scale of w * scale of x), in ascending order of the blocks.  Minima are added as
 * minimum * sum of x, by themselves.  The lanes are summed as vec_sum() does, and the minima come last.  So every
 * instruction set gives the same bits, and a row's result does not depend on the other rows. */
#ifndef KVK_CPU_DOTS_H
#define KVK_CPU_DOTS_H

#include "kernels/backend.h"

/* n rows of `blocks` blocks.  Sums are those of the integers, times the scale. */
struct cpu_dots_x {
	size_t n, blocks;
	int16_t *q;       /* [n][blocks][32] */
	float *scale;     /* [n][blocks] */
	float *sum;       /* [n][blocks] */
	float (*half)[2]; /* [n][blocks]: sums of either half of a block */
};

/* For all i: y[i * ldy] = row i of x times one row of a weight; with add, y[i * ldy] + that; plus *bias where that is
 * not NULL. */
typedef void cpu_dots_fn(
    const uint8_t *w, const struct cpu_dots_x *x, const float *bias, int add, float *y, size_t ldy);

/* By type of the weight; NULL where the weight is made of floats. */
extern cpu_dots_fn *const cpu_dots_portable[KVK_N_TYPES], *const cpu_dots_avx2[KVK_N_TYPES];
/* The fastest that works here. */
cpu_dots_fn *const *cpu_dots_best(void);

#endif
