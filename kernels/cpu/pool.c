/* SPDX-License-Identifier: MIT
 * Stride-1 pooling along rows: the plain loop over the window, which is narrow (7). */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

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

struct job {
	const float *x;
	size_t n;
	enum kvk_pool kind;
	size_t width;
	float *y;
};

static void
pool_items(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const size_t n = j->n, r = j->width / 2;

	(void)worker;
	for (size_t i = from; i < to; i++) {
		const float *row = j->x + i / n * n;
		const size_t at = i % n, lo = at > r ? at - r : 0, hi = n - at > r ? at + r + 1 : n;

		j->y[i] = j->kind == KVK_POOL_MAX ? window_max(row, lo, hi) : window_avg(row, lo, hi, j->width);
	}
}

int
cpu_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y)
{
	struct job j = { x, n, kind, width, y };

	if (kind != KVK_POOL_NONE && width % 2 == 0)
		return cpu_fail(dev, CPU_ESHAPE, "pool: width %zu is not odd", width);
	if (kind == KVK_POOL_NONE) {
		if (H * n > 0)
			memcpy(y, x, H * n * sizeof *y);
		return 0;
	}
	cpu_run(dev, H * n, 16384, pool_items, &j);
	return 0;
}
