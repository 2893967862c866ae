/* SPDX-License-Identifier: MIT
 * Small dense products of matrices laid out in any way, and the way back through a weight, which is one of them.
 *
 * A band of columns of b is copied into panels of sixteen, DEEP rows at a time, and blocks of rows of c are summed in
 * registers over ascending k.  An element's sum does not depend on the other rows and columns of the call. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/cpu/vec.h"

#define BAND  64  /* columns of a piece */
#define TALL  192 /* rows of a piece */
#define DEEP  256 /* rows of b that are packed at once: 64 KiB */
#define PANEL 16  /* columns: two vectors */
#define ROWS  6   /* of a block: with two vectors each, 12 of 16 registers hold sums */

struct job {
	struct kvk_product p;
	size_t bands;
	char *scratch; /* [DEEP][BAND] floats per thread, at multiples of stride */
	size_t stride;
};

/* Eight rows of eight at distance ldx, turned, to rows at distance PANEL. */
static inline void
turn_eight(const float *x, size_t ldx, float *to)
{
	f32x8 a[8], b[8];

	for (size_t i = 0; i < 8; i++)
		a[i] = *(const f32x8_mem *)(x + i * ldx);
	for (int i = 0; i < 8; i += 2) {
		b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	for (int i = 0; i < 8; i += 4)
		for (int j = 0; j < 2; j++) {
			a[i + 2 * j] = __builtin_shufflevector(b[i + j], b[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
			a[i + 2 * j + 1] = __builtin_shufflevector(b[i + j], b[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
		}
	for (int i = 0; i < 4; i++) {
		*(f32x8_mem *)(to + (size_t)i * PANEL) =
		    __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		*(f32x8_mem *)(to + (size_t)(i + 4) * PANEL) =
		    __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
}

/* Columns j0 .. j0 + PANEL - 1 of depth rows of b; zeros where b has no more. */
static void
pack(const struct kvk_product *p, size_t k0, size_t depth, size_t j0, float *to)
{
	const size_t width = p->n - j0 < PANEL ? p->n - j0 : PANEL;
	const size_t wide = p->b_row == 1 ? width / 8 * 8 : 0, deep = wide > 0 ? depth / 8 * 8 : 0;

	if (p->b_col == 1 && width == PANEL) {
		for (size_t k = 0; k < depth; k++)
			memcpy(to + k * PANEL, p->b + (k0 + k) * p->b_row + j0, PANEL * sizeof *to);
		return;
	}
	if (width < PANEL)
		memset(to, 0, depth * PANEL * sizeof *to);
	for (size_t k = 0; k < deep; k += 8)
		for (size_t j = 0; j < wide; j += 8)
			turn_eight(p->b + k0 + k + (j0 + j) * p->b_col, p->b_col, to + k * PANEL + j);
	for (size_t k = 0; k < depth; k++)
		for (size_t j = k < deep ? wide : 0; j < width; j++)
			to[k * PANEL + j] = p->b[(k0 + k) * p->b_row + (j0 + j) * p->b_col];
}

/* R rows by V vectors; constants where this is expanded. */
static inline __attribute__((always_inline)) void
sums(const int R, const int V, const float *a, size_t a_row, size_t a_col, const float *b, size_t depth,
    f32x8 sum[12][2])
{
	for (size_t k = 0; k < depth; k++) {
		f32x8 col[2];

		for (int v = 0; v < V; v++)
			col[v] = *(const f32x8_mem *)(b + k * PANEL + 8 * (size_t)v);
		for (int r = 0; r < R; r++) {
			const f32x8 x = VEC_ALL(a[(size_t)r * a_row + k * a_col]);

			for (int v = 0; v < V; v++)
				vec_madd(&sum[r][v], &x, &col[v]);
		}
	}
}

/* The block's sums join c, `width` columns of it. */
static inline __attribute__((always_inline)) void
block(const int R, const int V, const struct kvk_product *p, const float *a, const float *b, size_t depth, bool add,
    size_t width, float *c)
{
	const f32x8 factor = VEC_ALL(p->factor);
	f32x8 sum[12][2] = { 0 };

	sums(R, V, a, p->a_row, p->a_col, b, depth, sum);
	for (int r = 0; r < R; r++, c += p->c_row)
		for (int v = 0; v < V; v++) {
			const f32x8 x = sum[r][v] * factor;
			const size_t from = 8 * (size_t)v;

			if (from + 8 <= width && add)
				*(f32x8_mem *)(c + from) += x;
			else if (from + 8 <= width)
				*(f32x8_mem *)(c + from) = x;
			for (size_t i = from; from + 8 > width && i < width; i++)
				c[i] = (add ? c[i] : 0) + x[i - from];
		}
}

/* Rows from .. to-1 of c by one panel. */
static void
panel(const struct kvk_product *p, size_t from, size_t to, size_t k0, const float *b, size_t depth, size_t j0)
{
	const size_t width = p->n - j0 < PANEL ? p->n - j0 : PANEL;
	const bool add = p->add || k0 > 0;
	const float *a = p->a + from * p->a_row + k0 * p->a_col;
	float *c = p->c + from * p->c_row + j0;
	size_t i = from;

	for (; width <= 8 && i + 12 <= to; i += 12, a += 12 * p->a_row, c += 12 * p->c_row)
		block(12, 1, p, a, b, depth, add, width, c);
	for (; i + ROWS <= to && i + 8 != to; i += ROWS, a += ROWS * p->a_row, c += ROWS * p->c_row)
		block(ROWS, 2, p, a, b, depth, add, width, c);
	for (; i + 4 <= to; i += 4, a += 4 * p->a_row, c += 4 * p->c_row) /* 8 rows are 4 and 4, not 6 and a slow 2 */
		block(4, 2, p, a, b, depth, add, width, c);
	for (; i + 2 <= to; i += 2, a += 2 * p->a_row, c += 2 * p->c_row)
		block(2, 2, p, a, b, depth, add, width, c);
	if (i < to)
		block(1, 2, p, a, b, depth, add, width, c);
}

/* Items: bands of columns, of TALL rows each. */
static void
pieces(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct kvk_product *p = &j->p;
	float *packed = (float *)(void *)(j->scratch + worker * j->stride);

	for (size_t u = from; u < to; u++) {
		const size_t j0 = u % j->bands * BAND, end = p->n - j0 < BAND ? p->n : j0 + BAND;
		const size_t i0 = u / j->bands * TALL, i1 = p->m - i0 < TALL ? p->m : i0 + TALL;

		for (size_t k0 = 0; k0 < p->k; k0 += DEEP) {
			const size_t depth = p->k - k0 < DEEP ? p->k - k0 : DEEP;

			for (size_t at = j0; at < end; at += PANEL) {
				pack(p, k0, depth, at, packed);
				panel(p, i0, i1, k0, packed, depth, at);
			}
		}
	}
}

static void
clear(const struct kvk_product *p)
{
	for (size_t i = 0; i < p->m && !p->add; i++)
		memset(p->c + i * p->c_row, 0, p->n * sizeof *p->c);
}

int
cpu_dense_product(struct kvk_dev *dev, const struct kvk_product *p)
{
	struct job j = { .p = *p, .bands = (p->n + BAND - 1) / BAND };
	const size_t tall = (p->m + TALL - 1) / TALL, work = p->m * BAND * p->k;

	if (p->m == 0 || p->n == 0)
		return 0;
	if (p->k == 0) {
		clear(p);
		return 0;
	}
	j.scratch = cpu_scratch(dev, (size_t)dev->threads, DEEP * PANEL * sizeof(float), &j.stride);
	if (j.scratch == NULL)
		return KVK_EMEM;
	cpu_run(dev, j.bands * tall, 100000 / (work + 1) + 1, pieces, &j);
	return 0;
}

/* A row's bias is there first, so that one pass over y is enough. */
static void
begin_rows(const struct kvk_weight *w, const float *bias, int add, size_t n, float *y)
{
	for (size_t i = 0; i < n && bias != NULL; i++, y += w->rows)
		for (size_t j = 0; j < w->rows; j++)
			y[j] = add ? y[j] + bias[j] : bias[j];
}

int
cpu_linear_rows(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	const struct kvk_product p = { .a = x,
		.a_row = w->cols,
		.a_col = 1,
		.b = w->f32,
		.b_row = 1,
		.b_col = w->cols,
		.c = y,
		.c_row = w->rows,
		.m = n,
		.n = w->rows,
		.k = w->cols,
		.factor = 1,
		.add = add || bias != NULL };

	if (w->f32 == NULL)
		return cpu_fail(dev, KVK_ETYPE, "linear_rows: a weight opened for many rows in f32 is needed");
	begin_rows(w, bias, add, n, y);
	return cpu_dense_product(dev, &p);
}

int
cpu_linear_back(struct kvk_dev *dev, const struct kvk_weight *w, const float *dy, size_t n, int add, float *dx)
{
	const struct kvk_product p = { .a = dy,
		.a_row = w->rows,
		.a_col = 1,
		.b = w->f32,
		.b_row = w->cols,
		.b_col = 1,
		.c = dx,
		.c_row = w->cols,
		.m = n,
		.n = w->cols,
		.k = w->rows,
		.factor = 1,
		.add = add };

	if (w->f32 == NULL)
		return cpu_fail(dev, KVK_ETYPE, "linear_back: the way back needs a weight opened for many rows in f32");
	return cpu_dense_product(dev, &p);
}
