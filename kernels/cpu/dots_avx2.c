/* SPDX-License-Identifier: MIT
 * Quantised weights times fixed-point rows with AVX2. */
#ifdef __x86_64__
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define AVX2 __attribute__((target("avx2,f16c")))

typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) AVX2 void
halves_at(const uint8_t *x, float *y)
{
	int32_t v;
	__m128 f;

	memcpy(&v, x, sizeof v);
	f = _mm_cvtph_ps(_mm_cvtsi32_si128(v));
	y[0] = _mm_cvtss_f32(f);
	y[1] = _mm_cvtss_f32(_mm_movehdup_ps(f));
}

static inline __attribute__((always_inline)) AVX2 void
widen(const i8x16 *x, i16x16 *y)
{
	*y = (i16x16)_mm256_cvtepi8_epi16((__m128i)*x);
}

static inline __attribute__((always_inline)) AVX2 void
multiply32(const i16x16 *w, const int16_t *x, i32x8 *sum)
{
	const __m256i *v = (const __m256i *)(const void *)x;
	const __m256i low = _mm256_madd_epi16((__m256i)w[0], _mm256_loadu_si256(v));

	*sum = (i32x8)_mm256_add_epi32(low, _mm256_madd_epi16((__m256i)w[1], _mm256_loadu_si256(v + 1)));
}

#define DOTS        cpu_dots_avx2
#define DOTS_TARGET AVX2
#include "kernels/cpu/dots_form.h"
#else
typedef int nothing; /* ISO C wants a declaration */
#endif
