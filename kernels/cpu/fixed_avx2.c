/* SPDX-License-Identifier: MIT
 * Block fixed point with AVX2: vpmaddwd multiplies sixteen pairs and adds the two products of each. */
#ifdef __x86_64__
#include "kernels/cpu/fixed.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define BLOCK  CPU_FIXED_BLOCK
#define ROWS   CPU_FIXED_ROWS
#define COLS   CPU_FIXED_COLS
#define AVX2   __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline)) AVX2

INLINE uint32_t
largest(const __m256i *x)
{
	__m256i v = _mm256_max_epu32(_mm256_max_epu32(x[0], x[1]), _mm256_max_epu32(x[2], x[3]));
	__m128i h = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4e));
	h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(h);
}

INLINE void
pack_block(const float *x, int16_t *q, float *scale)
{
	__m256i magnitude[4], z[4];
	uint32_t bits;
	float top, f;

	for (int i = 0; i < 4; i++)
		magnitude[i] = _mm256_and_si256(
		    _mm256_loadu_si256((const __m256i *)(const void *)(x + 8 * i)), _mm256_set1_epi32(0x7fffffff));
	bits = largest(magnitude);
	memcpy(&top, &bits, sizeof top);
	f = CPU_FIXED_TOP / top;
	*scale = top / CPU_FIXED_TOP;
	if (bits >= 0x7f800000 || top < CPU_FIXED_LEAST) {
		*scale = bits >= 0x7f800000 ? NAN : 0;
		memset(q, 0, BLOCK * sizeof *q);
		return;
	}
	for (int i = 0; i < 4; i++)
		z[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(f)));
	for (int i = 0; i < 2; i++)
		_mm256_storeu_si256((__m256i *)(void *)(q + 16 * i),
		    _mm256_permute4x64_epi64(_mm256_packs_epi32(z[2 * i], z[2 * i + 1]), 0xd8));
}

/* Elements 0 .. n-1 of a block, zeros behind. */
INLINE void
pack_some(const float *x, size_t n, int16_t *q, float *scale)
{
	float rest[BLOCK] = { 0 };

	if (n < BLOCK)
		x = memcpy(rest, x, n * sizeof *x);
	pack_block(x, q, scale);
}

AVX2 static void
pack(const float *x, size_t n, int16_t *q, float *scale)
{
	for (size_t i = 0; i < n; i += BLOCK)
		pack_some(x + i, n - i, q + i, scale++);
}

AVX2 static void
pack_left(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_left *y)
{
	for (size_t i = 0; i < n; i += BLOCK, y++) {
		if (rows < ROWS)
			memset(y, 0, sizeof *y);
		for (size_t r = 0; r < rows; r++)
			pack_some(x + r * ldx + i, n - i, y->q[r], &y->scale[r]);
	}
}

/* Eight rows of eight pairs, to columns; distances in pairs: 16 in x and in y. */
INLINE void
transpose(const int32_t *x, int32_t *y)
{
	__m256i a[8], b[8];

	for (int i = 0; i < 8; i++)
		a[i] = _mm256_load_si256((const __m256i *)(const void *)(x + 16 * i));
	for (int i = 0; i < 8; i += 2) {
		b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
		b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
	}
	for (int i = 0; i < 8; i += 4)
		for (int j = 0; j < 2; j++) {
			a[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + 2 + j]);
			a[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + 2 + j]);
		}
	for (int i = 0; i < 4; i++) {
		_mm256_store_si256((__m256i *)(void *)(y + 16 * i), _mm256_permute2x128_si256(a[i], a[i + 4], 0x20));
		_mm256_store_si256(
		    (__m256i *)(void *)(y + 16 * (i + 4)), _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
	}
}

AVX2 static void
pack_right(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_right *y)
{
	union {
		int16_t q[COLS][BLOCK];
		int32_t pairs[COLS][BLOCK / 2];
	} __attribute__((aligned(32))) z;

	memset(&z, 0, sizeof z);
	for (size_t i = 0; i < n; i += BLOCK, y++) {
		int32_t *to = (int32_t *)(void *)y->q;

		for (size_t r = 0; r < rows; r++)
			pack_some(x + r * ldx + i, n - i, z.q[r], &y->scale[r]);
		for (size_t r = rows; r < COLS; r++)
			y->scale[r] = 0;
		for (int r = 0; r < 2; r++)
			for (int p = 0; p < 2; p++)
				transpose(&z.pairs[8 * r][8 * p], to + 8 * p * COLS + 8 * r);
	}
}

/* p, of which the compiler knows nothing: a loop up to there is not unrolled, which would spill the sums. */
INLINE const int16_t *
hidden(const int16_t *p)
{
	__asm__("" : "+r"(p));
	return p;
}

/* sum[0], sum[1] += the pair at q times w0, w1.  Spelled out because the order counts (two products, then two
 * additions: 160 instead of 130 billion operations per second on a Zen 3), and because gcc moves the sums about. */
INLINE void
multiply_pair(__m256i *sum, const int16_t *q, __m256i w0, __m256i w1)
{
	__m256i v, t;

	__asm__("vpbroadcastd %6, %2\n\t"
		"vpmaddwd %2, %4, %3\n\t"
		"vpmaddwd %2, %5, %2\n\t"
		"vpaddd %3, %0, %0\n\t"
		"vpaddd %2, %1, %1"
		: "+x"(sum[0]), "+x"(sum[1]), "=&x"(v), "=&x"(t)
		: "x"(w0), "x"(w1), "m"(*(const int16_t(*)[2])(const void *)q));
}

/* With a constant number of rows, so that the sums stay in registers. */
INLINE void
multiply_rows(const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, const int rows, float *c)
{
	__m256 total[ROWS][2];

	for (int i = 0; i < rows; i++)
		for (int h = 0; h < 2; h++)
			total[i][h] = _mm256_loadu_ps(c + i * COLS + 8 * h);
	for (; n > 0; n--, a++, b++) {
		const __m256 *scale = (const __m256 *)(const void *)b->scale;
		const __m256i *w = (const __m256i *)(const void *)b->q;
		__m256i sum[ROWS][2];

		for (int i = 0; i < rows; i++)
			sum[i][0] = sum[i][1] = _mm256_setzero_si256();
		for (const int16_t *q = a->q[0], *end = hidden(q + BLOCK); q < end; q += 2, w += 2) {
			const __m256i w0 = w[0], w1 = w[1];

			for (int i = 0; i < rows; i++)
				multiply_pair(sum[i], q + i * BLOCK, w0, w1);
		}
		for (int i = 0; i < rows; i++)
			for (int h = 0; h < 2; h++) {
				const __m256 f = _mm256_mul_ps(_mm256_set1_ps(a->scale[i]), scale[h]);

				total[i][h] =
				    _mm256_add_ps(total[i][h], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][h]), f));
			}
	}
	for (int i = 0; i < rows; i++)
		for (int h = 0; h < 2; h++)
			_mm256_storeu_ps(c + i * COLS + 8 * h, total[i][h]);
}

AVX2 static void
multiply(const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, size_t rows, float *c)
{
	switch (rows) {
	case 1: multiply_rows(a, b, n, 1, c); break;
	case 2: multiply_rows(a, b, n, 2, c); break;
	case 3: multiply_rows(a, b, n, 3, c); break;
	case 4: multiply_rows(a, b, n, 4, c); break;
	case 5: multiply_rows(a, b, n, 5, c); break;
	default: multiply_rows(a, b, n, 6, c);
	}
}

static bool
works(void)
{
	return __builtin_cpu_supports("avx2");
}

const struct cpu_fixed_ops cpu_fixed_avx2 = {
	.name = "avx2",
	.works = works,
	.pack = pack,
	.pack_left = pack_left,
	.pack_right = pack_right,
	.multiply = multiply,
};
#else
typedef int nothing; /* ISO C wants a declaration */
#endif
