/* SPDX-License-Identifier: MIT
 * Stride-1 pooling along rows: the plain loop over the window, which is narrow (7), for eight places at a time. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

static float
window_max(const float *x, size_t lo, size_t hi)
{
	float m = -INFINITY;

	for (size_t i = lo; i < hi; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

static float
window_avg(const float *x, size_t lo, size_t hi, size_t width)
{
	double sum = 0;

	for (size_t i = lo; i < hi; i++)
		sum += (double)x[i];
	return (float)(sum / (double)width);
}

/* Whole windows that begin at x, x + 1, ... x + 7. */
static inline void
eight_max(const float *x, size_t width, float *y)
{
	f32x8 m = VEC_ALL(-INFINITY);

	for (size_t i = 0; i < width; i++) {
		const f32x8 v = *(const f32x8_mem *)(x + i);

		vec_max(&m, &v);
	}
	*(f32x8_mem *)y = m;
}

static inline void
eight_avg(const float *x, size_t width, float *y)
{
	double sum[8] = { 0 };

	for (size_t i = 0; i < width; i++)
		for (size_t l = 0; l < 8; l++)
			sum[l] += (double)x[i + l];
	for (size_t l = 0; l < 8; l++)
		y[l] = (float)(sum[l] / (double)width);
}

struct job {
	const float *x;
	size_t n;
	enum kvk_pool kind;
	size_t width;
	float *y;
};

/* Places from .. to - 1 of a row. */
static void
pool_row(const struct job *j, const float *x, size_t from, size_t to, float *y)
{
	const size_t n = j->n, r = j->width / 2;

	for (size_t i = from, step; i < to; i += step) {
		const size_t lo = i > r ? i - r : 0, hi = n - i > r ? i + r + 1 : n;

		step = i >= r && to - i >= 8 && n - i >= r + 8 ? 8 : 1;
		if (step == 8 && j->kind == KVK_POOL_MAX)
			eight_max(x + lo, j->width, y + i);
		else if (step == 8)
			eight_avg(x + lo, j->width, y + i);
		else
			y[i] = j->kind == KVK_POOL_MAX ? window_max(x, lo, hi) : window_avg(x, lo, hi, j->width);
	}
}

static void
pool_items(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;

	(void)worker;
	for (size_t end; from < to; from = end) {
		const size_t row = from / j->n * j->n;

		end = row + j->n < to ? row + j->n : to;
		pool_row(j, j->x + row, from - row, end - row, j->y + row);
	}
}

int
cpu_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y)
{
	struct job j = { x, n, kind, width, y };

	if (kind != KVK_POOL_NONE && width % 2 == 0)
		return cpu_fail(dev, KVK_ESHAPE, "pool: width %zu is not odd", width);
	if (kind == KVK_POOL_NONE) {
		if (H * n > 0)
			memcpy(y, x, H * n * sizeof *y);
		return 0;
	}
	cpu_run(dev, H * n, 65536, pool_items, &j);
	return 0;
}
