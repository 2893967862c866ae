/* SPDX-License-Identifier: MIT
 * Weights as they stand in a file, sixteen elements at a time, on the card: the twin of kernels/cpu/expand.c, which
 * describes GGUF's blocks, with the same order of operations and no contraction, so that results are the same bits.
 *
 * dequant_block_group<TYPE>(x, g, y): elements 16 g .. 16 g + 15 of the block at x.  All sizes of blocks are even, and
 * memory of the card begins at a multiple of 256, so that a block is 2-byte aligned; those whose size is a multiple of
 * four are read by words.
 */
#ifndef KVK_CUDA_DEQUANT_H
#define KVK_CUDA_DEQUANT_H

#include "kernels/cuda/cuda.h"

#define GROUP 16 /* elements */

static __device__ inline float
dequant_half(const uint8_t *x)
{
	return __half2float(*(const __half *)x);
}

/* q = x[0..15] >> shift & mask, four at a time. */
static __device__ inline void
dequant_take(const uint8_t *x, int shift, uint32_t mask, uint32_t q[4])
{
	const uint16_t *h = (const uint16_t *)x;

	for (int i = 0; i < 4; i++)
		q[i] = ((uint32_t)h[2 * i] | (uint32_t)h[2 * i + 1] << 16) >> shift & mask * 0x01010101u;
}

/* Bits 0 .. 15 of x as bit 4 of q[0..15]. */
static __device__ inline void
dequant_add_fifth(uint32_t x, uint32_t q[4])
{
	for (int i = 0; i < 4; i++) {
		const uint32_t b = x >> 4 * i;

		q[i] |= (b & 1) << 4 | (b & 2) << 11 | (b & 4) << 18 | (b & 8) << 25;
	}
}

/* y = d * q + m, two roundings; y = d * (q - zero) */
static __device__ inline void
dequant_affine(const uint32_t q[4], float d, float m, float *y)
{
	for (int j = 0; j < GROUP; j++)
		y[j] = __fadd_rn(__fmul_rn(d, (float)(q[j / 4] >> 8 * (j % 4) & 255)), m);
}

static __device__ inline void
dequant_centred(const uint32_t q[4], int zero, float d, float *y)
{
	for (int j = 0; j < GROUP; j++)
		y[j] = __fmul_rn(d, (float)((int)(q[j / 4] >> 8 * (j % 4) & 255) - zero));
}

static __device__ inline uint32_t
dequant_u16(const uint8_t *x)
{
	return *(const uint16_t *)x;
}

/* The eight six-bit scales and minima of q4_k and q5_k. */
static __device__ inline void
dequant_scale_and_min(const uint8_t *x, int g, float d, float dmin, float *scale, float *min)
{
	const int s = g < 4 ? x[g] & 63 : (x[g + 4] & 15) | x[g - 4] >> 6 << 4;
	const int m = g < 4 ? x[g + 4] & 63 : x[g + 4] >> 4 | x[g] >> 6 << 4;

	*scale = __fmul_rn(d, (float)s);
	*min = -__fmul_rn(dmin, (float)m);
}

template <enum kvk_type TYPE>
static __device__ void dequant_block_group(const uint8_t *x, int g, float *y);

/* Sixteen floats, by fours where they lie so. */
template <>
__device__ inline void
dequant_block_group<KVK_F32>(const uint8_t *x, int g, float *y)
{
	const float *f = (const float *)x + GROUP * g;

	if ((uintptr_t)f % 16 == 0)
		for (int i = 0; i < 4; i++) {
			const float4 v = ((const float4 *)f)[i];

			y[4 * i] = v.x, y[4 * i + 1] = v.y, y[4 * i + 2] = v.z, y[4 * i + 3] = v.w;
		}
	else
		for (int j = 0; j < GROUP; j++)
			y[j] = f[j];
}

/* Sixteen 16-bit words, by eights where they lie so. */
static __device__ inline void
dequant_words(const uint8_t *x, uint32_t w[8])
{
	if ((uintptr_t)x % 16 == 0)
		for (int i = 0; i < 2; i++) {
			const uint4 v = ((const uint4 *)x)[i];

			w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
		}
	else
		for (int i = 0; i < 8; i++)
			w[i] = dequant_u16(x + 4 * i) | dequant_u16(x + 4 * i + 2) << 16;
}

template <>
__device__ inline void
dequant_block_group<KVK_F16>(const uint8_t *x, int g, float *y)
{
	uint32_t w[8];

	dequant_words(x + 2 * GROUP * g, w);
	for (int j = 0; j < GROUP; j++)
		y[j] = __half2float(__ushort_as_half((unsigned short)(w[j / 2] >> 16 * (j % 2))));
}

template <>
__device__ inline void
dequant_block_group<KVK_BF16>(const uint8_t *x, int g, float *y)
{
	uint32_t w[8];

	dequant_words(x + 2 * GROUP * g, w);
	for (int j = 0; j < GROUP; j++)
		y[j] = __uint_as_float(j % 2 ? w[j / 2] & 0xffff0000u : w[j / 2] << 16);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q4_0>(const uint8_t *x, int g, float *y)
{
	uint32_t q[4];

	dequant_take(x + 2, 4 * g, 15, q);
	dequant_centred(q, 8, dequant_half(x), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q4_1>(const uint8_t *x, int g, float *y)
{
	uint32_t q[4];

	dequant_take(x + 4, 4 * g, 15, q);
	dequant_affine(q, dequant_half(x), dequant_half(x + 2), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q5_0>(const uint8_t *x, int g, float *y)
{
	uint32_t q[4];

	dequant_take(x + 6, 4 * g, 15, q);
	dequant_add_fifth(dequant_u16(x + 2 + 2 * g), q);
	dequant_centred(q, 16, dequant_half(x), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q5_1>(const uint8_t *x, int g, float *y)
{
	uint32_t q[4];

	dequant_take(x + 8, 4 * g, 15, q);
	dequant_add_fifth(dequant_u16(x + 4 + 2 * g), q);
	dequant_affine(q, dequant_half(x), dequant_half(x + 2), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q8_0>(const uint8_t *x, int g, float *y)
{
	const float d = dequant_half(x);
	uint32_t q[4];

	dequant_take(x + 2 + GROUP * g, 0, 255, q);
	for (int j = 0; j < GROUP; j++)
		y[j] = __fmul_rn(d, (float)(int8_t)(q[j / 4] >> 8 * (j % 4)));
}

template <>
__device__ inline void
dequant_block_group<KVK_Q2_K>(const uint8_t *x, int g, float *y)
{
	const float d = dequant_half(x + 80), dmin = dequant_half(x + 82);
	uint32_t q[4];

	dequant_take(x + 16 + 32 * (g / 8) + 16 * (g % 2), g % 8 / 2 * 2, 3, q);
	dequant_affine(q, __fmul_rn(d, (float)(x[g] & 15)), -__fmul_rn(dmin, (float)(x[g] >> 4)), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q3_K>(const uint8_t *x, int g, float *y)
{
	const uint8_t *sc = x + 96;
	const int s = (sc[g % 8] >> 4 * (g / 8) & 15) | (sc[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
	uint32_t q[4], high[4];

	dequant_take(x + 32 + 32 * (g / 8) + 16 * (g % 2), g % 8 / 2 * 2, 3, q);
	dequant_take(x + 16 * (g % 2), g / 2, 1, high);
	for (int i = 0; i < 4; i++)
		q[i] |= high[i] << 2;
	dequant_centred(q, 4, __fmul_rn(dequant_half(x + 108), (float)(s - 32)), y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q4_K>(const uint8_t *x, int g, float *y)
{
	float scale, min;
	uint32_t q[4];

	dequant_scale_and_min(x + 4, g / 2, dequant_half(x), dequant_half(x + 2), &scale, &min);
	dequant_take(x + 16 + 32 * (g / 4) + 16 * (g % 2), 4 * (g / 2 % 2), 15, q);
	dequant_affine(q, scale, min, y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q5_K>(const uint8_t *x, int g, float *y)
{
	float scale, min;
	uint32_t q[4], fifth[4];

	dequant_scale_and_min(x + 4, g / 2, dequant_half(x), dequant_half(x + 2), &scale, &min);
	dequant_take(x + 48 + 32 * (g / 4) + 16 * (g % 2), 4 * (g / 2 % 2), 15, q);
	dequant_take(x + 16 + 16 * (g % 2), g / 2, 1, fifth);
	for (int i = 0; i < 4; i++)
		q[i] |= fifth[i] << 4;
	dequant_affine(q, scale, min, y);
}

template <>
__device__ inline void
dequant_block_group<KVK_Q6_K>(const uint8_t *x, int g, float *y)
{
	const int side = g / 8, p = g % 8 / 2, j0 = 16 * (g % 2);
	uint32_t low[4], high[4];

	dequant_take(x + 64 * side + 32 * (p % 2) + j0, 4 * (p / 2), 15, low);
	dequant_take(x + 128 + 32 * side + j0, 2 * p, 3, high);
	for (int i = 0; i < 4; i++)
		low[i] |= high[i] << 4;
	dequant_centred(low, 32, __fmul_rn(dequant_half(x + 208), (float)(int8_t)x[192 + g]), y);
}

/* Elements and bytes of a block, as in kvk_types; plain types are read in groups, the elements left over one by one. */
template <enum kvk_type TYPE>
struct dequant_block;
#define DEQUANT_BLOCK(type, n, size)                                                                                   \
	template <>                                                                                                    \
	struct dequant_block<type> {                                                                                   \
		static constexpr int elements = n, bytes = size;                                                       \
	}
DEQUANT_BLOCK(KVK_F32, 16, 64);
DEQUANT_BLOCK(KVK_F16, 16, 32);
DEQUANT_BLOCK(KVK_BF16, 16, 32);
DEQUANT_BLOCK(KVK_Q4_0, 32, 18);
DEQUANT_BLOCK(KVK_Q4_1, 32, 20);
DEQUANT_BLOCK(KVK_Q5_0, 32, 22);
DEQUANT_BLOCK(KVK_Q5_1, 32, 24);
DEQUANT_BLOCK(KVK_Q8_0, 32, 34);
DEQUANT_BLOCK(KVK_Q2_K, 256, 84);
DEQUANT_BLOCK(KVK_Q3_K, 256, 110);
DEQUANT_BLOCK(KVK_Q4_K, 256, 144);
DEQUANT_BLOCK(KVK_Q5_K, 256, 176);
DEQUANT_BLOCK(KVK_Q6_K, 256, 210);

/* Group number i of a row that begins at x. */
template <enum kvk_type TYPE>
static __device__ inline void
dequant_row_group(const uint8_t *x, size_t i, float *y)
{
	constexpr unsigned groups = dequant_block<TYPE>::elements / GROUP;

	dequant_block_group<TYPE>(x + i / groups * dequant_block<TYPE>::bytes, (int)(i % groups), y);
}

/* Element j of a row of a plain type; for the ends that are no whole group, which other types do not have. */
template <enum kvk_type TYPE>
static __device__ inline float
dequant_element(const uint8_t *x, size_t j)
{
	if (TYPE == KVK_F32)
		return ((const float *)x)[j];
	if (TYPE == KVK_F16)
		return __half2float(((const __half *)x)[j]);
	if (TYPE == KVK_BF16)
		return __bfloat162float(((const __nv_bfloat16 *)x)[j]);
	return 0;
}

/* A group to where it belongs, by fours where that lies so. */
static __device__ inline void
dequant_put(float *y, const float *v)
{
	if ((uintptr_t)y % 16 == 0)
		for (int i = 0; i < 4; i++)
			((float4 *)y)[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
	else
		for (int j = 0; j < GROUP; j++)
			y[j] = v[j];
}

/* Call WHAT<TYPE>(...) for a weight type; the default is unreachable, weight_open() refuses the others. */
#define DEQUANT_CASE(type, what, ...)                                                                                  \
	case type: return what<type>(__VA_ARGS__)
#define DEQUANT_TYPED(type, what, ...)                                                                                 \
	switch (type) {                                                                                                \
		DEQUANT_CASE(KVK_F32, what, __VA_ARGS__);                                                              \
		DEQUANT_CASE(KVK_F16, what, __VA_ARGS__);                                                              \
		DEQUANT_CASE(KVK_BF16, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q4_0, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q4_1, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q5_0, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q5_1, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q8_0, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q2_K, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q3_K, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q4_K, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q5_K, what, __VA_ARGS__);                                                             \
		DEQUANT_CASE(KVK_Q6_K, what, __VA_ARGS__);                                                             \
	default: return cudaErrorInvalidValue;                                                                         \
	}

#endif
