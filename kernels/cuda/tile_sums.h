/* SPDX-License-Identifier: MIT
 * Sums of products in double precision, 64 rows by 64 columns of them by a block of 256 threads: 16 x 16, of which each
 * has every 16th row and every 16th column.  Factors come through shared memory, SUMS_STEP of each sum at a time.
 */
#ifndef KVK_CUDA_TILE_SUMS_H
#define KVK_CUDA_TILE_SUMS_H

#include "kernels/cuda/launch.h"

#define SUMS_THREADS 256
#define SUMS_TILE    64
#define SUMS_STEP    16
#define SUMS_EACH    (SUMS_TILE / 16)

/* A thread's first row and column. */
static __device__ inline size_t
sums_row(void)
{
	return threadIdx.x / 16;
}

static __device__ inline size_t
sums_column(void)
{
	return threadIdx.x % 16;
}

/* sum [p][q], of row sums_row() + 16 p and column sums_column() + 16 q, += x [r][row] y [r][column] over the steps r.
 * WIDTH: of a row of x, SUMS_TILE or more. */
template <int WIDTH>
static __device__ inline void
sums_add(const double (*x)[WIDTH], const double (*y)[SUMS_TILE], double sum[SUMS_EACH][SUMS_EACH])
{
	const size_t row = sums_row(), column = sums_column();

#pragma unroll 4
	for (int r = 0; r < SUMS_STEP; r++)
#pragma unroll
		for (int p = 0; p < SUMS_EACH; p++)
#pragma unroll
			for (int q = 0; q < SUMS_EACH; q++)
				sum[p][q] += x[r][row + 16 * p] * y[r][column + 16 * q];
}

#endif
