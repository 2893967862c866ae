/* SPDX-License-Identifier: MIT
 * What operations on rows share: floats one or four at a time, sums over warps and blocks in double precision, and the
 * arithmetic of the CPU: products and sums rounded one by one, where the compiler would fuse them.
 */
#ifndef KVK_CUDA_ROW_MATH_H
#define KVK_CUDA_ROW_MATH_H

#include "kernels/cuda/cuda.h"

/* Whether rows of d floats at p can be read four at a time. */
static inline bool
row_by_four(const void *p, size_t d)
{
	return (uintptr_t)p % 16 == 0 && d % 4 == 0;
}

/* V floats from p, V 1 or 4; p 16-byte aligned for 4. */
template <int V>
static __device__ inline void
row_load(const float *p, float v[V])
{
	if constexpr (V == 4) {
		const float4 f = *(const float4 *)p;

		v[0] = f.x;
		v[1] = f.y;
		v[2] = f.z;
		v[3] = f.w;
	} else {
		v[0] = p[0];
	}
}

template <int V>
static __device__ inline void
row_store(float *p, const float v[V])
{
	if constexpr (V == 4)
		*(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
	else
		p[0] = v[0];
}

static __device__ inline double
row_warp_sum(double x)
{
	for (int step = 16; step > 0; step /= 2)
		x += __shfl_xor_sync(KV_FULL, x, step);
	return x;
}

/* The sum over a block of whole warps, for every thread; part in shared memory, an
 * element for each warp, for this sum alone. */
static __device__ inline double
row_block_sum(double x, double *part)
{
	double sum = 0;

	x = row_warp_sum(x);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		sum += part[i];
	return sum;
}

/* x + the square of every v. */
template <int V>
static __device__ inline double
row_squares(double x, const float v[V])
{
	for (int i = 0; i < V; i++)
		x += (double)v[i] * (double)v[i];
	return x;
}

/* 1 / sqrt(mean square + eps) */
static __device__ inline double
row_scale(double squares, size_t d, float eps)
{
	return 1.0 / sqrt(squares / (double)d + (double)eps);
}

/* An element of the way back through the norm: scale w dy - pull x. */
static __device__ inline float
row_norm_back(float scale, float pull, float x, float w, float dy)
{
	return __fsub_rn(__fmul_rn(__fmul_rn(scale, w), dy), __fmul_rn(pull, x));
}

#endif
