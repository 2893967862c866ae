/* SPDX-License-Identifier: MIT
 * Small dense products of tiles that are in the cache, for attention.
 *
 * A block of R rows by V vectors is accumulated in registers while k runs upwards.  Rows never mix, so that a row's
 * result does not depend on which block it fell into: what oneDNN's sgemm does not promise. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/vec.h"

#define ROWS 6 /* with two vectors each: 12 of 16 registers hold sums */

/* x = eight elements of b, from element i on. */
static inline __attribute__((always_inline)) void
load(const void *b, enum kvk_type type, size_t i, f32x8 *x)
{
	const uint16_t *narrow = (const uint16_t *)b + i;

	if (type == KVK_F32)
		*x = *(const f32x8_mem *)((const float *)b + i);
#if defined __F16C__ && defined __AVX2__
	else if (type == KVK_F16)
		*x = (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)narrow));
	else
		*x = (f32x8)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)narrow)), 16);
#else
	else
		cpu_expand[type]((const uint8_t *)narrow, (float *)x, 8);
#endif
}

struct factors {
	const float *a;
	size_t lda;
	const void *b;
	size_t ldb, K, N;
	float *c;
	size_t ldc;
	bool add;
};

/* R rows from row i on, V vectors from column j on; R, V and type are constants where this is expanded. */
static inline __attribute__((always_inline)) void
block(const struct factors *f, const size_t R, const size_t V, const enum kvk_type type, size_t i, size_t j)
{
	const float *a = f->a + i * f->lda;
	f32x8 sum[ROWS][8] = { 0 };

	for (size_t k = 0; k < f->K; k++) {
		f32x8 col[8];

		for (size_t v = 0; v < V; v++)
			load(f->b, type, k * f->ldb + j + 8 * v, &col[v]);
		for (size_t r = 0; r < R; r++) {
			const f32x8 x = VEC_ALL(a[r * f->lda + k]);

			for (size_t v = 0; v < V; v++)
				vec_madd(&sum[r][v], &x, &col[v]);
		}
	}
	for (size_t r = 0; r < R; r++)
		for (size_t v = 0; v < V; v++) {
			f32x8_mem *to = (f32x8_mem *)(f->c + (i + r) * f->ldc + j + 8 * v);

			if (f->add)
				*to += sum[r][v];
			else
				*to = sum[r][v];
		}
}

/* R rows, all columns: wide blocks, then single vectors. */
static inline __attribute__((always_inline)) size_t
band(const struct factors *f, const size_t R, const size_t V, const enum kvk_type type, size_t i)
{
	size_t j = 0;

	for (; j + 8 * V <= f->N; j += 8 * V)
		block(f, R, V, type, i, j);
	for (; j < f->N; j += 8)
		block(f, R, 1, type, i, j);
	return i + R;
}

static inline __attribute__((always_inline)) void
bands(const struct factors *f, const enum kvk_type type, size_t n)
{
	size_t i = 0;

	while (n - i >= 9 || n - i == 6)
		i = band(f, 6, 2, type, i);
	while (n - i == 4 || n - i == 7 || n - i == 8)
		i = band(f, 4, 2, type, i);
	if (n - i == 5)
		i = band(f, 5, 2, type, i);
	if (n - i == 3)
		i = band(f, 3, 4, type, i);
	if (n - i == 2)
		i = band(f, 2, 4, type, i);
	if (n - i == 1)
		band(f, 1, 8, type, i);
}

void
cpu_product_typed(const float *a, size_t lda, const void *b, enum kvk_type type, size_t ldb, size_t n, size_t K,
    size_t N, float *c, size_t ldc, bool add)
{
	const struct factors f = { a, lda, b, ldb, K, N, c, ldc, add };

	if (type == KVK_F16)
		bands(&f, KVK_F16, n);
	else if (type == KVK_BF16)
		bands(&f, KVK_BF16, n);
	else
		bands(&f, KVK_F32, n);
}

void
cpu_product(const float *a, size_t lda, const float *b, size_t ldb, size_t n, size_t K, size_t N, float *c, size_t ldc,
    bool add)
{
	cpu_product_typed(a, lda, b, KVK_F32, ldb, n, K, N, c, ldc, add);
}

static inline __attribute__((always_inline)) void
block_f64(const int R, const double *a, size_t lda, const double *b, size_t ldb, size_t K, double *c, size_t ldc)
{
	f64x4 sum[4][2] = { 0 };

	for (size_t k = 0; k < K; k++) {
		const f64x4 left = *(const f64x4_mem *)(b + k * ldb), right = *(const f64x4_mem *)(b + k * ldb + 4);

		for (int r = 0; r < R; r++) {
			const double x = a[(size_t)r * lda + k];
			const f64x4 all = { x, x, x, x };

			vec_madd_f64(&sum[r][0], &all, &left);
			vec_madd_f64(&sum[r][1], &all, &right);
		}
	}
	for (int r = 0; r < R; r++) {
		*(f64x4_mem *)(c + (size_t)r * ldc) = sum[r][0];
		*(f64x4_mem *)(c + (size_t)r * ldc + 4) = sum[r][1];
	}
}

void
cpu_product_f64(
    const double *a, size_t lda, const double *b, size_t ldb, size_t n, size_t K, size_t N, double *c, size_t ldc)
{
	for (; n >= 4; n -= 4, a += 4 * lda, c += 4 * ldc)
		for (size_t j = 0; j < N; j += 8)
			block_f64(4, a, lda, b + j, ldb, K, c + j, ldc);
	for (; n > 0; n--, a += lda, c += ldc)
		for (size_t j = 0; j < N; j += 8)
			block_f64(1, a, lda, b + j, ldb, K, c + j, ldc);
}
