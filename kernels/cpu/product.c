/* SPDX-License-Identifier: MIT
 * Small dense products of tiles that are in the cache, for attention.
 *
 * A block of R rows by V vectors is accumulated in registers while k runs upwards.  Rows never mix, so that a row's
 * result does not depend on which block it fell into: what oneDNN's sgemm does not promise. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/vec.h"

#define ROWS 6 /* with two vectors each: 12 of 16 registers hold sums */

/* One block at column j; R and V are constants where this is expanded. */
static inline __attribute__((always_inline)) void
block(const int R, const int V, const float *a, size_t lda, const float *b, size_t ldb, size_t K, float *c, size_t ldc,
    bool add)
{
	f32x8 sum[ROWS][8] = { 0 };

	for (size_t k = 0; k < K; k++) {
		f32x8 col[8];

		for (int v = 0; v < V; v++)
			col[v] = *(const f32x8_mem *)(b + k * ldb + 8 * (size_t)v);
		for (int r = 0; r < R; r++) {
			const f32x8 x = VEC_ALL(a[(size_t)r * lda + k]);

			for (int v = 0; v < V; v++)
				vec_madd(&sum[r][v], &x, &col[v]);
		}
	}
	for (int r = 0; r < R; r++)
		for (int v = 0; v < V; v++) {
			f32x8_mem *to = (f32x8_mem *)(c + (size_t)r * ldc + 8 * (size_t)v);

			if (add)
				*to += sum[r][v];
			else
				*to = sum[r][v];
		}
}

/* R rows, all columns: wide blocks, then single vectors. */
static inline __attribute__((always_inline)) void
band(const int R, const int V, const float *a, size_t lda, const float *b, size_t ldb, size_t K, size_t N, float *c,
    size_t ldc, bool add)
{
	size_t j = 0;

	for (; j + 8 * (size_t)V <= N; j += 8 * (size_t)V)
		block(R, V, a, lda, b + j, ldb, K, c + j, ldc, add);
	for (; j < N; j += 8)
		block(R, 1, a, lda, b + j, ldb, K, c + j, ldc, add);
}

void
cpu_product(const float *a, size_t lda, const float *b, size_t ldb, size_t n, size_t K, size_t N, float *c, size_t ldc,
    bool add)
{
	for (; n >= ROWS; n -= ROWS, a += ROWS * lda, c += ROWS * ldc)
		band(ROWS, 2, a, lda, b, ldb, K, N, c, ldc, add);
	for (; n >= 3; n -= 3, a += 3 * lda, c += 3 * ldc)
		band(3, 4, a, lda, b, ldb, K, N, c, ldc, add);
	if (n == 2)
		band(2, 4, a, lda, b, ldb, K, N, c, ldc, add);
	if (n == 1)
		band(1, 8, a, lda, b, ldb, K, N, c, ldc, add);
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
