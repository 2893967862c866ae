/* SPDX-License-Identifier: MIT
 * Blocks of a and b are copied so that the inner loop reads both in order and keeps ROWS x COLS sums in registers.
 */
#include "gemm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector>

enum { ROWS = 16, COLS = 6, DEPTH = 256, TALL = 128 }; /* of c: a tile; of k and m: a block of a */

struct half {
	uint16_t bits;

	operator float() const
	{
		/* Exponent and mantissa in their places, then times 2^(127 - 15): exact, subnormal ones too. */
		const uint32_t moved = (uint32_t)(bits & 0x7fffu) << 13;
		float y;

		memcpy(&y, &moved, sizeof(y));
		y *= 0x1p112f;
		if ((bits & 0x7c00u) == 0x7c00u)
			y = (bits & 0x3ffu) ? NAN : INFINITY;
		return (bits & 0x8000u) ? -y : y;
	}
};

struct bfloat {
	uint16_t bits;

	operator float() const
	{
		const uint32_t moved = (uint32_t)bits << 16;
		float y;

		memcpy(&y, &moved, sizeof(y));
		return y;
	}
};

/* rows x depth of a matrix from p on, steps between rows and columns given: tiles of TILE rows, in each k by k; what is
 * not there is 0. */
template <typename T, typename S, int TILE>
static void
pack_typed(T *to, const S *p, size_t row_step, size_t k_step, size_t rows, size_t depth)
{
	for (size_t r = 0; r < rows; r += TILE)
		for (size_t k = 0; k < depth; k++)
			for (size_t i = 0; i < TILE; i++)
				*to++ = r + i < rows ? (T)p[(r + i) * row_step + k * k_step] : (T)0;
}

/* Of x from (row, col) on; across: rows x depth is a part of x turned. */
template <typename T, int TILE>
static void
pack(T *to, const struct matrix *x, size_t row, size_t col, bool across, size_t rows, size_t depth)
{
	const size_t row_step = x->turned ? x->ld : 1, col_step = x->turned ? 1 : x->ld;
	const size_t at = row * row_step + col * col_step;
	const size_t step = across ? col_step : row_step, k_step = across ? row_step : col_step;

	if (x->type == CUDA_R_16F)
		pack_typed<T, struct half, TILE>(to, (const struct half *)x->p + at, step, k_step, rows, depth);
	else if (x->type == CUDA_R_16BF)
		pack_typed<T, struct bfloat, TILE>(to, (const struct bfloat *)x->p + at, step, k_step, rows, depth);
	else
		pack_typed<T, T, TILE>(to, (const T *)x->p + at, step, k_step, rows, depth);
}

/* Vectors of 32 bytes by name: compilers do not find them all by themselves. */
template <typename T>
static void
multiply(T sum[COLS][ROWS], const T *__restrict a, const T *__restrict b, size_t depth)
{
	typedef T vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
	constexpr int N = ROWS * (int)sizeof(T) / 32, WIDTH = ROWS / N;
	vector s[COLS][N] = {};

	for (size_t k = 0; k < depth; k++, a += ROWS, b += COLS)
		for (int j = 0; j < COLS; j++)
			for (int i = 0; i < N; i++)
				s[j][i] += *(const vector *)(a + i * WIDTH) * b[j];
	for (int j = 0; j < COLS; j++)
		for (int i = 0; i < N; i++)
			*(vector *)(sum[j] + i * WIDTH) = s[j][i];
}

/* rows x cols of c from one packed block of each. */
template <typename T>
static void
add_block(T *c, size_t ldc, size_t rows, size_t cols, T alpha, const T *a, const T *b, size_t depth)
{
	T sum[COLS][ROWS];

	for (size_t col = 0; col < cols; col += COLS)
		for (size_t row = 0; row < rows; row += ROWS) {
			multiply<T>(sum, a + row * depth, b + col * depth, depth);
			for (size_t j = 0; j < COLS && col + j < cols; j++)
				for (size_t i = 0; i < ROWS && row + i < rows; i++)
					c[row + i + (col + j) * ldc] += alpha * sum[j][i];
		}
}

template <typename T>
static void
gemm(size_t m, size_t n, size_t k, T alpha, const struct matrix *a, const struct matrix *b, T beta, T *c, size_t ldc)
{
	const size_t wide = (n + COLS - 1) / COLS * COLS;
	std::vector<T> packed_a(TALL * DEPTH), packed_b(wide * DEPTH);

	for (size_t j = 0; j < n; j++)
		for (size_t i = 0; i < m; i++)
			c[i + j * ldc] = beta == (T)0 ? (T)0 : beta * c[i + j * ldc];
	for (size_t at = 0; at < k; at += DEPTH) {
		const size_t depth = k - at < DEPTH ? k - at : (size_t)DEPTH;

		pack<T, COLS>(packed_b.data(), b, at, 0, true, n, depth);
		for (size_t row = 0; row < m; row += TALL) {
			const size_t rows = m - row < TALL ? m - row : (size_t)TALL;

			pack<T, ROWS>(packed_a.data(), a, row, at, false, rows, depth);
			add_block<T>(c + row, ldc, rows, n, alpha, packed_a.data(), packed_b.data(), depth);
		}
	}
}

void
gemm_f32(size_t m, size_t n, size_t k, float alpha, const struct matrix *a, const struct matrix *b, float beta,
    float *c, size_t ldc)
{
	gemm<float>(m, n, k, alpha, a, b, beta, c, ldc);
}

void
gemm_f64(size_t m, size_t n, size_t k, double alpha, const struct matrix *a, const struct matrix *b, double beta,
    double *c, size_t ldc)
{
	gemm<double>(m, n, k, alpha, a, b, beta, c, ldc);
}
