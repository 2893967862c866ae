/* SPDX-License-Identifier: MIT
 * Dense products with many rows: by oneDNN's sgemm, or in block fixed point.  Precision bf16 rounds both factors and
 * multiplies them as f32, which gives what a bf16 unit with f32 sums gives, at f32's speed.
 *
 * oneDNN's result for a row depends on the number of rows and columns of the call (it chooses kernels by shape), so
 * every call made here has one of two shapes: KVK_ROW_TILE rows by BLOCK columns, or by the columns left at the right
 * edge of the weight. A last tile of fewer rows is filled up with zeros.  Tiles run in parallel, each on one thread. */
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <string.h>

#define BLOCK 512 /* columns of y (rows of the weight): 64 x 512 floats of result stay close to a core */

struct product {
	const struct kvk_weight *w;
	const float *x, *bias;
	size_t n;
	int add;
	float *y;
	float *last;    /* [KVK_ROW_TILE][cols]: the rows of the last tile if that is not full, zeros behind */
	float *scratch; /* a tile [KVK_ROW_TILE][BLOCK] per thread */
	size_t tiles;
	float *rounded; /* [n][cols]: x, where precision bf16 wants that */
	struct kvk_dev *dev;
	_Atomic int failed;
};

/* y += or =, with the bias; the order of the additions is fixed: (y + product) + bias. */
static void
store(const struct product *p, const float *tile, size_t width, size_t i0, size_t j0)
{
	const size_t rows = p->n - i0 < KVK_ROW_TILE ? p->n - i0 : KVK_ROW_TILE;

	for (size_t i = 0; i < rows; i++) {
		const float *t = tile + i * width;
		float *y = p->y + (i0 + i) * p->w->rows + j0;

		if (p->add)
			for (size_t j = 0; j < width; j++)
				y[j] += t[j];
		else
			memcpy(y, t, width * sizeof *y);
		if (p->bias != NULL)
			for (size_t j = 0; j < width; j++)
				y[j] += p->bias[j0 + j];
	}
}

static int
multiply_tile(const struct product *p, size_t i0, size_t j0, float *tile)
{
	const struct kvk_weight *w = p->w;
	const size_t width = w->rows - j0 < BLOCK ? w->rows - j0 : BLOCK;
	const float *x = p->n - i0 < KVK_ROW_TILE ? p->last : p->x + i0 * w->cols;
	int status = cpu_sgemm_nt(p->dev, KVK_ROW_TILE, width, w->cols, x, w->f32 + j0 * w->cols, tile);

	if (status == 0)
		store(p, tile, width, i0, j0);
	return status;
}

/* Items: tiles, those of a block of columns together. */
static void
multiply_tiles(void *ctx, size_t from, size_t to, size_t worker)
{
	struct product *p = ctx;
	float *tile = p->scratch + worker * KVK_ROW_TILE * BLOCK;
	int status;

	for (size_t u = from; u < to; u++)
		if ((status = multiply_tile(p, u % p->tiles * KVK_ROW_TILE, u / p->tiles * BLOCK, tile)) != 0)
			p->failed = status;
}

static void
fill_last(const struct product *p)
{
	const size_t rest = p->n % KVK_ROW_TILE, cols = p->w->cols;
	float *last = p->last;

	memcpy(last, p->x + (p->n - rest) * cols, rest * cols * sizeof *last);
	memset(last + rest * cols, 0, (KVK_ROW_TILE - rest) * cols * sizeof *last);
}

/* Items: rows of x. */
static void
round_rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;
	const size_t cols = p->w->cols;

	(void)worker;
	cpu_round_bf16(p->x + from * cols, p->rounded + from * cols, (to - from) * cols);
}

/* Scratch: a tile per thread, then the rows of the last tile, then rounded rows; the latter two where needed. */
static int
take_scratch(struct kvk_dev *dev, struct product *p)
{
	const size_t cols = p->w->cols, tiles = (size_t)dev->threads * KVK_ROW_TILE * BLOCK;
	const size_t last = p->n % KVK_ROW_TILE != 0 ? KVK_ROW_TILE : 0;
	const size_t rounded = dev->precision == KVK_PRECISION_BF16 ? p->n : 0;
	size_t floats, stride;
	float *at;

	if (__builtin_mul_overflow(last + rounded, cols, &floats) || floats > SIZE_MAX / 8)
		return cpu_fail(dev, KVK_ESHAPE, "linear: rows of %zu elements are too long", cols);
	if ((at = cpu_scratch(dev, 1, (tiles + floats) * sizeof *at, &stride)) == NULL)
		return KVK_EMEM;
	p->scratch = at;
	p->last = last > 0 ? at + tiles : NULL;
	p->rounded = rounded > 0 ? at + tiles + last * cols : NULL;
	return 0;
}

static int
linear_many(struct kvk_dev *dev, struct product *p)
{
	const size_t blocks = (p->w->rows + BLOCK - 1) / BLOCK;
	const int rc = take_scratch(dev, p);

	if (rc != 0)
		return rc;
	if (p->rounded != NULL) {
		cpu_run(dev, p->n, 16384 / p->w->cols + 1, round_rows, p);
		p->x = p->rounded;
	}
	if (p->last != NULL)
		fill_last(p);
	p->tiles = (p->n + KVK_ROW_TILE - 1) / KVK_ROW_TILE;
	cpu_run(dev, p->tiles * blocks, 1, multiply_tiles, p);
	return p->failed;
}

int
cpu_linear(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	struct product p = { .w = w, .x = x, .n = n, .bias = bias, .add = add, .y = y, .dev = dev };

	if (n == 0 || w->rows == 0)
		return 0;
	if (w->use == KVK_FEW_ROWS && w->cols > 0 && cpu_has_dots(dev, w))
		return cpu_linear_dots(dev, w, x, n, bias, add, y);
	if (w->use == KVK_FEW_ROWS || w->cols == 0)
		return cpu_linear_few(dev, w, x, n, bias, add, y);
	if (w->fixed != NULL)
		return cpu_linear_fixed(dev, w, x, n, bias, add, y);
	return linear_many(dev, &p);
}
