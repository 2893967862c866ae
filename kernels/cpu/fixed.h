/* SPDX-License-Identifier: MIT
 * Block fixed point: precision i16 (kernels/backend.h).
 *
 * A row of factors is cut along the sum into blocks of CPU_FIXED_BLOCK neighbours; a block is a scale and integers of
 * -CPU_FIXED_TOP .. CPU_FIXED_TOP, factor = integer * scale, wrong by at most half a scale: 2^-14 of the block's
 * largest. A row's end is filled up with zeros.  A block with a NaN or an infinity has the scale NaN, so that what it
 * enters comes out as NaN; a block of nothing above CPU_FIXED_LEAST has the scale 0. 32 products of two such integers
 * fit an int32_t, so that a sum within a block is exact, in any order.
 *
 * For products the blocks of several rows stand together: CPU_FIXED_ROWS rows of the left factor in a struct
 * cpu_fixed_left, CPU_FIXED_COLS rows of the right one (columns of the product) in a struct cpu_fixed_right.
 *
 * Every instruction set has its own form of the operations, in fixed_NAME.c; all give the same bits: integer sums are
 * exact, and the floats follow one order, without fused multiply-adds. */
#ifndef KVK_CPU_FIXED_H
#define KVK_CPU_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_FIXED_BLOCK 32
#define CPU_FIXED_TOP   8191
#define CPU_FIXED_LEAST 0x1p-100f
#define CPU_FIXED_ROWS  6
#define CPU_FIXED_COLS  16

/* One block of six rows; rows that are not there are zero. */
struct cpu_fixed_left {
	int16_t q[CPU_FIXED_ROWS][CPU_FIXED_BLOCK];
	float scale[8]; /* the last two unused */
} __attribute__((aligned(32)));

/* One block of sixteen rows; q[p][j]: elements 2p and 2p + 1 of row j. */
struct cpu_fixed_right {
	int16_t q[CPU_FIXED_BLOCK / 2][CPU_FIXED_COLS][2];
	float scale[CPU_FIXED_COLS];
} __attribute__((aligned(64)));

struct cpu_fixed_ops {
	const char *name;    /* "portable", "avx2", "avx512" */
	bool (*works)(void); /* on this processor */

	/* x [n] as whole blocks: q [blocks * 32], scale [blocks]. */
	void (*pack)(const float *x, size_t n, int16_t *q, float *scale);
	/* `rows` (1 .. 6, or 1 .. 16) rows of n floats, at distances of ldx, as cpu_fixed_blocks(n) blocks y. */
	void (*pack_left)(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_left *y);
	void (*pack_right)(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_right *y);
	/* c [6][16] += a b^T over n blocks in ascending order: c = c + (float)sum * (scale a * scale b) for each.
	 * rows, 1 .. 6: how many are wanted; the others are left as they are. */
	void (*multiply)(
	    const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, size_t rows, float *c);
};

extern const struct cpu_fixed_ops cpu_fixed_portable, cpu_fixed_avx2, cpu_fixed_avx512;

/* The fastest first, NULL behind the last, which works everywhere. */
extern const struct cpu_fixed_ops *const cpu_fixed_all[];
/* The first of them that works here. */
const struct cpu_fixed_ops *cpu_fixed_best(void);

static inline size_t
cpu_fixed_blocks(size_t n)
{
	return n / CPU_FIXED_BLOCK + (n % CPU_FIXED_BLOCK != 0);
}

#endif
