/* SPDX-License-Identifier: MIT
 * Keys of a cache to columns, as floats: squares of 8 x 8 change places in registers. */
#include "kernels/cpu/ragged.h"

#include <string.h>

#if defined __AVX2__ && defined __F16C__
#include <immintrin.h>
#endif

#define STEP 16 /* keys of a strip; BLOCK is a multiple */

/* Elements from .. D-1 of n keys, any type. */
static void
turn_plainly(const uint8_t *k, enum kvk_type type, size_t n, size_t D, size_t from, float *kt)
{
	const size_t size = kvk_types[type].bytes;
	float x[8];

	for (size_t i = 0; i < n; i++)
		for (size_t d = from; d < D; d += 8) {
			const size_t m = D - d < 8 ? D - d : 8;

			cpu_expand[type](k + (i * D + d) * size, x, m);
			for (size_t e = 0; e < m; e++)
				kt[(d + e) * ATTENTION_BLOCK + i] = x[e];
		}
	for (size_t d = from; d < D; d++)
		for (size_t i = n; i % STEP != 0; i++)
			kt[d * ATTENTION_BLOCK + i] = 0;
}

#if defined __AVX2__ && defined __F16C__
static inline __m256
from_f16(__m128i x)
{
	return _mm256_cvtph_ps(x);
}

static inline __m256
from_bf16(__m128i x)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Eight elements of sixteen keys row[i], of 16 bits each.  Keys 8 .. 15 are in the upper halves of the registers. */
static inline __attribute__((always_inline)) void
turn_narrow(const uint8_t *const *row, __m256 (*widen)(__m128i), float *kt)
{
	__m256i a[8], b[8];

	for (int i = 0; i < 8; i++)
		a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)row[i])),
		    _mm_loadu_si128((const __m128i *)row[i + 8]), 1);
	for (int i = 0; i < 4; i++) { /* b: pairs of keys */
		b[i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
		b[i + 4] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) { /* a: fours; [0..3] of keys 0-3, [4..7] of keys 4-7, two elements each */
		a[i] = i % 2 ? _mm256_unpackhi_epi32(b[i / 2 * 4], b[i / 2 * 4 + 1])
		             : _mm256_unpacklo_epi32(b[i / 2 * 4], b[i / 2 * 4 + 1]);
		a[i + 4] = i % 2 ? _mm256_unpackhi_epi32(b[i / 2 * 4 + 2], b[i / 2 * 4 + 3])
		                 : _mm256_unpacklo_epi32(b[i / 2 * 4 + 2], b[i / 2 * 4 + 3]);
	}
	for (int d = 0; d < 8; d++) {
		const __m256i x = d % 2 ? _mm256_unpackhi_epi64(a[d / 2], a[d / 2 + 4])
		                        : _mm256_unpacklo_epi64(a[d / 2], a[d / 2 + 4]);

		_mm256_storeu_ps(kt + d * ATTENTION_BLOCK, widen(_mm256_castsi256_si128(x)));
		_mm256_storeu_ps(kt + d * ATTENTION_BLOCK + 8, widen(_mm256_extracti128_si256(x, 1)));
	}
}

/* The same of eight keys of 32 bits. */
static inline void
turn_wide(const uint8_t *const *row, float *kt)
{
	__m256 a[8], b[8];

	/* a[0..3]: elements 0-3 of keys i and i+4; a[4..7]: elements 4-7 */
	for (int i = 0; i < 4; i++)
		for (int half = 0; half < 2; half++)
			a[i + 4 * half] = _mm256_insertf128_ps(
			    _mm256_castps128_ps256(_mm_loadu_ps((const float *)row[i] + 4 * half)),
			    _mm_loadu_ps((const float *)row[i + 4] + 4 * half), 1);
	for (int i = 0; i < 8; i += 2) {
		b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
		b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
	}
	for (int d = 0; d < 8; d++) {
		const __m256 x = b[d / 4 * 4 + d / 2 % 2], y = b[d / 4 * 4 + 2 + d / 2 % 2];

		_mm256_storeu_ps(kt + d * ATTENTION_BLOCK,
		    d % 2 ? _mm256_shuffle_ps(x, y, 0xee) : _mm256_shuffle_ps(x, y, 0x44));
	}
}

/* A strip of n <= 16 keys, D - D % 8 elements; the last key stands for those that are missing. */
static inline __attribute__((always_inline)) void
turn_strip(const uint8_t *k, enum kvk_type type, size_t n, size_t D, float *kt)
{
	const size_t size = type == KVK_F32 ? 4 : 2;
	const uint8_t *row[STEP];

	for (size_t i = 0; i < STEP; i++)
		row[i] = k + (i < n ? i : n - 1) * D * size;
	for (size_t d = 0; d + 8 <= D; d += 8, kt += 8 * ATTENTION_BLOCK) {
		if (type == KVK_F32) {
			turn_wide(row, kt);
			turn_wide(row + 8, kt + 8);
		} else {
			turn_narrow(row, type == KVK_F16 ? from_f16 : from_bf16, kt);
		}
		for (size_t i = 0; i < STEP; i++)
			row[i] += 8 * size;
	}
}

static size_t
turn_squares(const uint8_t *k, enum kvk_type type, size_t n, size_t D, float *kt)
{
	for (size_t i = 0; i < n; i += STEP) {
		const uint8_t *at = k + i * D * kvk_types[type].bytes;
		const size_t m = n - i < STEP ? n - i : STEP;

		if (type == KVK_F32)
			turn_strip(at, KVK_F32, m, D, kt + i);
		else if (type == KVK_F16)
			turn_strip(at, KVK_F16, m, D, kt + i);
		else
			turn_strip(at, KVK_BF16, m, D, kt + i);
	}
	return D / 8 * 8;
}
#else
static size_t
turn_squares(const uint8_t *k, enum kvk_type type, size_t n, size_t D, float *kt)
{
	(void)k, (void)type, (void)n, (void)D, (void)kt;
	return 0;
}
#endif

void
cpu_turn_keys(const void *k, enum kvk_type type, size_t n, size_t D, float *kt)
{
	const size_t done = turn_squares(k, type, n, D, kt);

	if (done < D)
		turn_plainly(k, type, n, D, done, kt);
}
