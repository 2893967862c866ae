/* SPDX-License-Identifier: MIT
 * Dense products with many rows, by oneDNN's sgemm.
 *
 * oneDNN's result for a row depends on the number of rows and columns of the call (it chooses kernels by shape), so
 * every call made here has one of two shapes: KVK_ROW_TILE rows by BLOCK columns, or by the columns left at the right
 * edge of the weight. A last tile of fewer rows is filled up with zeros.  Tiles run in parallel, each on one thread. */
#include "kernels/cpu/cpu.h"

#include <dnnl.h>
#include <omp.h>
#include <string.h>

#define BLOCK 512 /* columns of y (rows of the weight): 64 x 512 floats of result stay close to a core */

struct product {
	const struct kvk_weight *w;
	const float *x, *bias;
	size_t n;
	int add;
	float *y;
	const float *last; /* [KVK_ROW_TILE][cols]: the rows of the last tile if that is not full, zeros behind */
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

static bool
multiply_tile(const struct product *p, size_t i0, size_t j0, float *tile)
{
	const struct kvk_weight *w = p->w;
	const size_t width = w->rows - j0 < BLOCK ? w->rows - j0 : BLOCK;
	const float *x = p->n - i0 < KVK_ROW_TILE ? p->last : p->x + i0 * w->cols;
	const dnnl_dim_t K = (dnnl_dim_t)w->cols, N = (dnnl_dim_t)width;
	const float *block = w->f32 + j0 * w->cols;

	if (dnnl_sgemm('N', 'T', KVK_ROW_TILE, N, K, 1.0f, x, K, block, K, 0.0f, tile, N) != dnnl_success)
		return false;
	store(p, tile, width, i0, j0);
	return true;
}

static void
fill_last(const struct product *p, float *last)
{
	const size_t rest = p->n % KVK_ROW_TILE, cols = p->w->cols;

	memcpy(last, p->x + (p->n - rest) * cols, rest * cols * sizeof *last);
	memset(last + rest * cols, 0, (KVK_ROW_TILE - rest) * cols * sizeof *last);
}

static int
linear_many(struct kvk_dev *dev, struct product *p)
{
	const size_t tiles = (p->n + KVK_ROW_TILE - 1) / KVK_ROW_TILE, blocks = (p->w->rows + BLOCK - 1) / BLOCK;
	const size_t tile_bytes = KVK_ROW_TILE * BLOCK * sizeof(float), threads = (size_t)dev->threads;
	size_t stride, last_bytes;
	int failed = 0;
	char *scratch;

	if (__builtin_mul_overflow(KVK_ROW_TILE * sizeof(float), p->w->cols, &last_bytes))
		return cpu_fail(dev, CPU_ESHAPE, "rows of %zu elements are too long", p->w->cols);
	scratch = cpu_scratch(dev, 1, threads * tile_bytes + (p->n % KVK_ROW_TILE ? last_bytes : 0), &stride);
	if (scratch == NULL)
		return CPU_EMEM;
	if (p->n % KVK_ROW_TILE != 0) {
		p->last = (float *)(void *)(scratch + threads * tile_bytes);
		fill_last(p, (float *)(void *)(scratch + threads * tile_bytes));
	}
#pragma omp parallel num_threads(dev->threads) reduction(| : failed)
	{
		float *tile = (float *)(void *)(scratch + (size_t)omp_get_thread_num() * tile_bytes);

		/* A region of one thread does not count as parallel: oneDNN would start threads of its own. */
		omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
		for (size_t u = 0; u < tiles * blocks; u++)
			failed |= !multiply_tile(p, u % tiles * KVK_ROW_TILE, u / tiles * BLOCK, tile);
	}
	return failed ? cpu_fail(dev, CPU_EMATH, "oneDNN could not compute a product") : 0;
}

int
cpu_linear(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	struct product p = { .w = w, .x = x, .n = n, .bias = bias, .add = add, .y = y };

	if (n == 0 || w->rows == 0)
		return 0;
	if (w->use == KVK_FEW_ROWS || w->cols == 0)
		return cpu_linear_few(dev, w, x, n, bias, add, y);
	return linear_many(dev, &p);
}
