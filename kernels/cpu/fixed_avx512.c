/* SPDX-License-Identifier: MIT
 * Block fixed point with AVX-512 VNNI: vpdpwssd multiplies thirty-two elements and adds them to sixteen sums.  A
 * product is bound by these alone, so packing is left to AVX2. */
#ifdef __x86_64__
#include "kernels/cpu/fixed.h"

#include <immintrin.h>
#include <string.h>

#define BLOCK  CPU_FIXED_BLOCK
#define ROWS   CPU_FIXED_ROWS
#define COLS   CPU_FIXED_COLS
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) AVX512

INLINE __m512i
pair(const int16_t *q)
{
	int32_t v;

	memcpy(&v, q, sizeof v);
	return _mm512_set1_epi32(v);
}

/* Two sums of each row, over the even and the odd pairs: the latency is about five times the throughput. */
INLINE void
multiply_rows(const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, const int rows, float *c)
{
	for (; n > 0; n--, a++, b++) {
		const __m512 scale = _mm512_load_ps(b->scale);
		__m512i even[ROWS], odd[ROWS];

		for (int i = 0; i < rows; i++)
			even[i] = odd[i] = _mm512_setzero_si512();
		for (int p = 0; p < BLOCK / 2; p += 2) {
			const __m512i w0 = _mm512_load_si512(b->q[p]), w1 = _mm512_load_si512(b->q[p + 1]);

			for (int i = 0; i < rows; i++) {
				even[i] = _mm512_dpwssd_epi32(even[i], pair(&a->q[i][2 * p]), w0);
				odd[i] = _mm512_dpwssd_epi32(odd[i], pair(&a->q[i][2 * p + 2]), w1);
			}
		}
		for (int i = 0; i < rows; i++) {
			const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(even[i], odd[i]));
			const __m512 f = _mm512_mul_ps(_mm512_set1_ps(a->scale[i]), scale);

			_mm512_storeu_ps(
			    c + i * COLS, _mm512_add_ps(_mm512_loadu_ps(c + i * COLS), _mm512_mul_ps(sum, f)));
		}
	}
}

AVX512 static void
multiply(const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, size_t rows, float *c)
{
	if (rows == ROWS)
		multiply_rows(a, b, n, ROWS, c);
	else
		multiply_rows(a, b, n, (int)rows, c);
}

static void
pack(const float *x, size_t n, int16_t *q, float *scale)
{
	cpu_fixed_avx2.pack(x, n, q, scale);
}

static void
pack_left(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_left *y)
{
	cpu_fixed_avx2.pack_left(x, ldx, rows, n, y);
}

static void
pack_right(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_right *y)
{
	cpu_fixed_avx2.pack_right(x, ldx, rows, n, y);
}

static bool
works(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

const struct cpu_fixed_ops cpu_fixed_avx512 = {
	.name = "avx512",
	.works = works,
	.pack = pack,
	.pack_left = pack_left,
	.pack_right = pack_right,
	.multiply = multiply,
};
#else
typedef int nothing; /* ISO C wants a declaration */
#endif
