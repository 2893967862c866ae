/* SPDX-License-Identifier: MIT
 * Eight floats at a time, by the compilers' vector extension: correct on any machine, fast where there are wide
 * registers. Vectors are passed by pointer, because their by-value ABI changes with the instruction set.
 */
#ifndef KVK_VEC_H
#define KVK_VEC_H

#include <stdint.h>

#if defined(__FMA__) && defined(__AVX__)
#include <immintrin.h>
#endif

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));
/* The same in memory of any element-aligned address. */
typedef float f32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));
typedef double f64x4_mem __attribute__((vector_size(32), aligned(8), may_alias));

#define VEC_ALL(x) ((f32x8){ (x), (x), (x), (x), (x), (x), (x), (x) })

/* acc += a * b, in one rounding where the machine can. */
static inline void
vec_madd(f32x8 *acc, const f32x8 *a, const f32x8 *b)
{
#if defined(__FMA__) && defined(__AVX__)
	*acc = (f32x8)_mm256_fmadd_ps((__m256)*a, (__m256)*b, (__m256)*acc);
#else
	*acc += *a * *b;
#endif
}

static inline void
vec_madd_f64(f64x4 *acc, const f64x4 *a, const f64x4 *b)
{
#if defined(__FMA__) && defined(__AVX__)
	*acc = (f64x4)_mm256_fmadd_pd((__m256d)*a, (__m256d)*b, (__m256d)*acc);
#else
	*acc += *a * *b;
#endif
}

/* The larger of each pair; a NaN in x is passed over. */
static inline void
vec_max(f32x8 *acc, const f32x8 *x)
{
#if defined(__FMA__) && defined(__AVX__)
	*acc = (f32x8)_mm256_max_ps((__m256)*x, (__m256)*acc);
#else
	i32x8 more = *x > *acc;

	*acc = (f32x8)(((i32x8)*x & more) | ((i32x8)*acc & ~more));
#endif
}

/* x within low .. high; NaN stays NaN. */
static inline void
vec_clamp(f32x8 *x, float low, float high)
{
#if defined(__FMA__) && defined(__AVX__)
	*x = (f32x8)_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), (__m256)*x));
#else
	const f32x8 l = VEC_ALL(low), h = VEC_ALL(high);
	const i32x8 under = *x < l, over = *x > h;

	*x = (f32x8)(((i32x8)h & over) | ((i32x8)l & under) | ((i32x8)*x & ~(over | under)));
#endif
}

/* Sum of the eight lanes, always in the same order. */
static inline float
vec_sum(const f32x8 *x)
{
	const f32x8 v = *x;

	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline float
vec_top(const f32x8 *x)
{
	float m = (*x)[0];

	for (int i = 1; i < 8; i++)
		if ((*x)[i] > m)
			m = (*x)[i];
	return m;
}

/* e^x within 2 units in the last place.  Below -87.33 exactly 0 (no subnormal results); above 88 e^88, which is all
 * that a logistic function needs; NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of
 * degree 7, whose remainder is below 2^-27. */
static inline void
vec_exp(f32x8 *x)
{
	const float to_int = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
	const f32x8 ln2_high = VEC_ALL(-0.693359375f), ln2_low = VEC_ALL(2.12194440e-4f); /* -ln 2, nine bits first */
	const float taylor[7] = { 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1 };
	const i32x8 under = *x < -87.33f;
	f32x8 t = *x, n, p = VEC_ALL(1.0f / 5040);
	u32x8 bits;

	vec_clamp(&t, -87.33f, 88.0f);
	n = t * 1.44269504f + to_int;
	bits = (u32x8)n << 23;
	n -= to_int;
	vec_madd(&t, &n, &ln2_high);
	vec_madd(&t, &n, &ln2_low);
	for (int i = 0; i < 7; i++) {
		f32x8 c = VEC_ALL(taylor[i]);

		vec_madd(&c, &p, &t);
		p = c;
	}
	*x = (f32x8)((u32x8)(p * (f32x8)(bits + (127u << 23))) & ~(u32x8)under);
}

#endif
