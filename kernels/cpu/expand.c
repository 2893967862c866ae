/* SPDX-License-Identifier: MIT
 * Weights as they stand in a file, expanded to floats.
 *
 * GGUF's block types: n blocks of kvk_types[t].block elements.  d and m (dmin) are half floats, `q` the small integers;
 * the order of operations is that of the format's reference reader, so that results are equal bit for bit. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/half.h"

#include <string.h>

#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* Sixteen small integers at a time.  Compilers do not find this form in plain loops over bits. */
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));

/* q = x[0..15] >> shift & mask; the mask drops what 16-bit shifts move across bytes. */
static inline void
take(const uint8_t *x, int shift, uint8_t mask, u8x16 *q)
{
	u16x8 v;

	memcpy(&v, x, sizeof v);
	*q = (u8x16)(v >> shift) & mask;
}

/* Bit j of two bytes as bit 4 of q[j]. */
static inline void
take_fifth(const uint8_t *x, u8x16 *q)
{
	const uint8_t a = x[0], b = x[1];
	const u8x16 v = { a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b };
	const u8x16 bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };

	*q = (u8x16)((v & bit) != 0) & 16;
}

/* y = d * q + m, two roundings */
static inline void
affine(const u8x16 *q, float d, float m, float *y)
{
#ifdef __AVX2__
	const __m128i v = (__m128i)*q;
	const __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
	const __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));

	_mm256_storeu_ps(y, _mm256_add_ps(_mm256_mul_ps(_mm256_set1_ps(d), lo), _mm256_set1_ps(m)));
	_mm256_storeu_ps(y + 8, _mm256_add_ps(_mm256_mul_ps(_mm256_set1_ps(d), hi), _mm256_set1_ps(m)));
#else
	for (int j = 0; j < 16; j++)
		y[j] = d * (float)(*q)[j] + m;
#endif
}

/* y = d * q */
static inline void
linear(const i8x16 *q, float d, float *y)
{
#ifdef __AVX2__
	const __m128i v = (__m128i)*q;
	const __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
	const __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));

	_mm256_storeu_ps(y, _mm256_mul_ps(_mm256_set1_ps(d), lo));
	_mm256_storeu_ps(y + 8, _mm256_mul_ps(_mm256_set1_ps(d), hi));
#else
	for (int j = 0; j < 16; j++)
		y[j] = d * (float)(*q)[j];
#endif
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

/* d, 16 bytes of nibbles: element j is the low half of byte j, element 16 + j the high one.  d * (q - 8) */
static void
expand_q4_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 18, y += 32)
		for (int h = 0; h < 2; h++) {
			u8x16 q;
			i8x16 z;

			take(x + 2, 4 * h, 15, &q);
			z = (i8x16)q - 8;
			linear(&z, half_at(x), y + 16 * h);
		}
}

/* d, m, 16 bytes of nibbles as in q4_0.  d * q + m */
static void
expand_q4_1(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 20, y += 32)
		for (int h = 0; h < 2; h++) {
			u8x16 q;

			take(x + 4, 4 * h, 15, &q);
			affine(&q, half_at(x), half_at(x + 2), y + 16 * h);
		}
}

/* d, 4 bytes of fifth bits (bit j for element j), 16 bytes of nibbles as in q4_0.  d * (q - 16) */
static void
expand_q5_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 22, y += 32)
		for (int h = 0; h < 2; h++) {
			u8x16 q, fifth;
			i8x16 z;

			take(x + 6, 4 * h, 15, &q);
			take_fifth(x + 2 + 2 * h, &fifth);
			z = (i8x16)(q | fifth) - 16;
			linear(&z, half_at(x), y + 16 * h);
		}
}

/* d, m, fifth bits and nibbles as in q5_0.  d * q + m */
static void
expand_q5_1(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 24, y += 32)
		for (int h = 0; h < 2; h++) {
			u8x16 q, fifth;

			take(x + 8, 4 * h, 15, &q);
			take_fifth(x + 4 + 2 * h, &fifth);
			q |= fifth;
			affine(&q, half_at(x), half_at(x + 2), y + 16 * h);
		}
}

/* d, 32 signed bytes.  d * q */
static void
expand_q8_0(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 34, y += 32)
		for (int h = 0; h < 2; h++) {
			i8x16 q;

			memcpy(&q, x + 2 + 16 * h, sizeof q);
			linear(&q, half_at(x), y + 16 * h);
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
			u8x16 q;

			take(x + 16 + 32 * (g / 8) + 16 * (g % 2), g % 8 / 2 * 2, 3, &q);
			affine(&q, d * (float)(x[g] & 15), -(dmin * (float)(x[g] >> 4)), y);
		}
	}
}

/* 32 bytes of high bits (bit b of byte j: element 32 b + j), 64 bytes of two-bit q as in q2_k, 12 bytes of scales, d.
 * Scale g of 16, six bits: the low four are a nibble of byte g % 8, the high two are bits 2 (g/4) of byte 8 + g % 4.
 * d * (s - 32) * (q - (high bit ? 0 : 4)) */
static void
expand_q3_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 110) {
		const float d = half_at(x + 108);
		const uint8_t *sc = x + 96;

		for (int g = 0; g < 16; g++, y += 16) {
			const int s = (sc[g % 8] >> 4 * (g / 8) & 15) | (sc[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
			u8x16 q, high;
			i8x16 z;

			take(x + 32 + 32 * (g / 8) + 16 * (g % 2), g % 8 / 2 * 2, 3, &q);
			take(x + 16 * (g % 2), g / 2, 1, &high);
			z = (i8x16)(q + high * 4) - 4;
			linear(&z, d * (float)(s - 32), y);
		}
	}
}

/* The eight six-bit scales and minima of q4_k and q5_k, in 12 bytes: bytes 0-3 scales 0-3 and bytes 4-7 minima 0-3 (low
 * six bits); for number g = 4..7 the low nibble of byte 4 + g (scale) or its high one (minimum), and the upper two bits
 * of byte g - 4 (scale) or g (minimum). */
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

/* d, dmin, 12 bytes of scales and minima, 128 bytes: groups of 32 elements, an even one in the low nibbles of 32 bytes,
 * the next in the high ones.  d * s * q - dmin * m */
static void
expand_q4_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 144) {
		const float d = half_at(x), dmin = half_at(x + 2);

		for (int g = 0; g < 8; g++, y += 32) {
			int s, m;

			scale_and_min(x + 4, g, &s, &m);
			for (int h = 0; h < 2; h++) {
				u8x16 q;

				take(x + 16 + 32 * (g / 2) + 16 * h, 4 * (g % 2), 15, &q);
				affine(&q, d * (float)s, -(dmin * (float)m), y + 16 * h);
			}
		}
	}
}

/* As q4_k, with 32 bytes of fifth bits before the nibbles: bit g of byte j belongs to element j of group g. */
static void
expand_q5_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 176) {
		const float d = half_at(x), dmin = half_at(x + 2);

		for (int g = 0; g < 8; g++, y += 32) {
			int s, m;

			scale_and_min(x + 4, g, &s, &m);
			for (int h = 0; h < 2; h++) {
				u8x16 q, fifth;

				take(x + 48 + 32 * (g / 2) + 16 * h, 4 * (g % 2), 15, &q);
				take(x + 16 + 16 * h, g, 1, &fifth);
				q += fifth * 16;
				affine(&q, d * (float)s, -(dmin * (float)m), y + 16 * h);
			}
		}
	}
}

/* 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, d.  A half (128 elements) has 64 and 32 of
 * those bytes; its group p of 32 takes bit pair p of the latter, nibbles p / 2 of bytes 32 (p % 2) ... of the former.
 * d * s * (q - 32) */
static void
expand_q6_k(const uint8_t *x, float *y, size_t n)
{
	for (; n > 0; n--, x += 210) {
		const float d = half_at(x + 208);

		for (int g = 0; g < 16; g++, y += 16) {
			const int half = g / 8, p = g % 8 / 2, j0 = 16 * (g % 2);
			u8x16 low, high;
			i8x16 z;

			take(x + 64 * half + 32 * (p % 2) + j0, 4 * (p / 2), 15, &low);
			take(x + 128 + 32 * half + j0, 2 * p, 3, &high);
			z = (i8x16)(low + high * 16) - 32;
			linear(&z, d * (float)(int8_t)x[192 + g], y);
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
