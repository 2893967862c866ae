/* SPDX-License-Identifier: MIT
 * Weights as they stand in a file, expanded to floats.
 *
 * GGUF's block types: n blocks of kvk_types[t].block elements.  d and m (dmin) are half floats, `q` the small integers; the
 * order of operations is that of the format's reference reader, so that results are equal bit for bit. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

static float
half_at(const uint8_t *x)
{
	uint16_t h;

	memcpy(&h, x, sizeof h);
	return cpu_f16(h);
}

static void
expand_f32(const uint8_t *x, float *y, size_t n)
{
	if (n > 0)
		memcpy(y, x, n * sizeof *y);
}

static void
expand_f16(const uint8_t *x, float *y, size_t n)
{
	size_t i = 0;

#ifdef __F16C__
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 2 * i))));
#endif
	for (; i < n; i++)
		y[i] = half_at(x + 2 * i);
}

static void
expand_bf16(const uint8_t *x, float *y, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t h;
		uint32_t u;

		memcpy(&h, x + 2 * i, sizeof h);
		u = (uint32_t)h << 16;
		memcpy(y + i, &u, sizeof u);
	}
}

/* d, 16 bytes: element j is the low nibble of byte j, element 16 + j the high one.  d * (q - 8) */
static void
expand_q4_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 18, y += 32) {
		const float d = half_at(x);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)((x[2 + j] & 15) - 8);
			y[16 + j] = d * (float)((x[2 + j] >> 4) - 8);
		}
	}
}

/* d, m, 16 bytes as in q4_0.  d * q + m */
static void
expand_q4_1(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 20, y += 32) {
		const float d = half_at(x), m = half_at(x + 2);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)(x[4 + j] & 15) + m;
			y[16 + j] = d * (float)(x[4 + j] >> 4) + m;
		}
	}
}

/* The fifth bits of q5_0 and q5_1: bit j of a 32-bit word belongs to element j. */
static uint32_t
fifth_bits(const uint8_t *x)
{
	return (uint32_t)x[0] | (uint32_t)x[1] << 8 | (uint32_t)x[2] << 16 | (uint32_t)x[3] << 24;
}

/* d, fifth bits, 16 bytes as in q4_0.  d * (q - 16) */
static void
expand_q5_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 22, y += 32) {
		const float d = half_at(x);
		const uint32_t h = fifth_bits(x + 2);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)((int)((x[6 + j] & 15) | (h >> j & 1) << 4) - 16);
			y[16 + j] = d * (float)((int)(x[6 + j] >> 4 | (h >> (16 + j) & 1) << 4) - 16);
		}
	}
}

/* d, m, fifth bits, 16 bytes as in q4_0.  d * q + m */
static void
expand_q5_1(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 24, y += 32) {
		const float d = half_at(x), m = half_at(x + 2);
		const uint32_t h = fifth_bits(x + 4);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)(int)((x[8 + j] & 15) | (h >> j & 1) << 4) + m;
			y[16 + j] = d * (float)(int)(x[8 + j] >> 4 | (h >> (16 + j) & 1) << 4) + m;
		}
	}
}

/* d, 32 signed bytes.  d * q */
static void
expand_q8_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 34, y += 32) {
		const float d = half_at(x);

		for (int j = 0; j < 32; j++)
			y[j] = d * (float)(int8_t)x[2 + j];
	}
}

/* 16 bytes (scale low nibble, minimum high nibble of 16 elements), 64 bytes of two-bit q, d, dmin.
 * q: two halves of 32 bytes; bits 2p, 2p+1 of a half's byte j are element 32 p + j of its 128.  d * s * q - dmin * m */
static void
expand_q2_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 84) {
		const float d = half_at(x + 80), dmin = half_at(x + 82);

		for (int g = 0; g < 16; g++, y += 16) {
			const uint8_t *q = x + 16 + 32 * (g / 8) + 16 * (g % 2);
			const int shift = g % 8 / 2 * 2;
			const float s = d * (float)(x[g] & 15), m = dmin * (float)(x[g] >> 4);

			for (int j = 0; j < 16; j++)
				y[j] = s * (float)(q[j] >> shift & 3) - m;
		}
	}
}

/* 32 bytes of high bits (bit b of byte j: element 32 b + j), 64 bytes of two-bit q as in q2_k, 12 bytes of six-bit scales, d.
 * Scale g of 16: its low four bits are a nibble of byte g % 8, its high two are bits 2 (g/4) of byte 8 + g % 4.
 * d * (s - 32) * (q - (high bit ? 0 : 4)) */
static void
expand_q3_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 110) {
		const float d = half_at(x + 108);
		const uint8_t *sc = x + 96;

		for (int g = 0; g < 16; g++, y += 16) {
			const uint8_t *q = x + 32 + 32 * (g / 8) + 16 * (g % 2), *h = x + 16 * (g % 2);
			const int shift = g % 8 / 2 * 2, bit = g / 2;
			const int s = (sc[g % 8] >> 4 * (g / 8) & 15) | (sc[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
			const float ds = d * (float)(s - 32);

			for (int j = 0; j < 16; j++)
				y[j] = ds * (float)((q[j] >> shift & 3) - 4 + (h[j] >> bit & 1) * 4);
		}
	}
}

/* The eight six-bit scales and minima of q4_k and q5_k, in 12 bytes: bytes 0-3 scales 0-3 and bytes 4-7 minima 0-3 (low six
 * bits); for number g = 4..7 the low nibble of byte 4 + g (scale) or its high one (minimum), and the upper two bits of byte
 * g - 4 (scale) or g (minimum). */
static void
scale_and_min(const uint8_t *x, int g, int *scale, int *min)
{
	if (g < 4) {
		*scale = x[g] & 63;
		*min = x[g + 4] & 63;
	} else {
		*scale = (x[g + 4] & 15) | x[g - 4] >> 6 << 4;
		*min = x[g + 4] >> 4 | x[g] >> 6 << 4;
	}
}

/* d, dmin, 12 bytes of scales and minima, 128 bytes: groups of 32 elements, an even one in the low nibbles of 32 bytes, the
 * next in the high ones.  d * s * q - dmin * m */
static void
expand_q4_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 144) {
		const float d = half_at(x), dmin = half_at(x + 2);

		for (int g = 0; g < 8; g++, y += 32) {
			const uint8_t *q = x + 16 + 32 * (g / 2);
			const int shift = 4 * (g % 2);
			int s, m;
			float ds, dm;

			scale_and_min(x + 4, g, &s, &m);
			ds = d * (float)s;
			dm = dmin * (float)m;
			for (int j = 0; j < 32; j++)
				y[j] = ds * (float)(q[j] >> shift & 15) - dm;
		}
	}
}

/* As q4_k, with 32 bytes of fifth bits before the nibbles: bit g of byte j belongs to element j of group g. */
static void
expand_q5_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 176) {
		const float d = half_at(x), dmin = half_at(x + 2);
		const uint8_t *h = x + 16;

		for (int g = 0; g < 8; g++, y += 32) {
			const uint8_t *q = x + 48 + 32 * (g / 2);
			const int shift = 4 * (g % 2);
			int s, m;
			float ds, dm;

			scale_and_min(x + 4, g, &s, &m);
			ds = d * (float)s;
			dm = dmin * (float)m;
			for (int j = 0; j < 32; j++)
				y[j] = ds * (float)((q[j] >> shift & 15) | (h[j] >> g & 1) << 4) - dm;
		}
	}
}

/* 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, d.  Each half (128 elements) has 64 and 32 of those
 * bytes; its group p of 32 takes bit pair p of the latter, and nibbles p / 2 of bytes 32 (p % 2) ... of the former.
 * d * s * (q - 32) */
static void
expand_q6_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 210) {
		const float d = half_at(x + 208);

		for (int g = 0; g < 16; g++, y += 16) {
			const int half = g / 8, p = g % 8 / 2, j0 = 16 * (g % 2);
			const uint8_t *l = x + 64 * half + 32 * (p % 2) + j0, *h = x + 128 + 32 * half + j0;
			const float ds = d * (float)(int8_t)x[192 + g];

			for (int j = 0; j < 16; j++)
				y[j] = ds * (float)(((l[j] >> 4 * (p / 2) & 15) | (h[j] >> 2 * p & 3) << 4) - 32);
		}
	}
}

cpu_expand_fn *const cpu_expand[KVK_N_TYPES] = {
	[KVK_F32] = expand_f32,
	[KVK_F16] = expand_f16,
	[KVK_BF16] = expand_bf16,
	[KVK_Q4_0] = expand_q4_0,
	[KVK_Q4_1] = expand_q4_1,
	[KVK_Q5_0] = expand_q5_0,
	[KVK_Q5_1] = expand_q5_1,
	[KVK_Q8_0] = expand_q8_0,
	[KVK_Q2_K] = expand_q2_k,
	[KVK_Q3_K] = expand_q3_k,
	[KVK_Q4_K] = expand_q4_k,
	[KVK_Q5_K] = expand_q5_k,
	[KVK_Q6_K] = expand_q6_k,
};
