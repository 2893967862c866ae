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

int
cpu_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y)
{
	const size_t r = width / 2;

	if (kind != KVK_POOL_NONE && width % 2 == 0)
		return cpu_fail(dev, CPU_ESHAPE, "pool: width %zu is not odd", width);
	if (kind == KVK_POOL_NONE) {
		if (H * n > 0)
			memcpy(y, x, H * n * sizeof *y);
		return 0;
	}
#pragma omp parallel for num_threads(dev->threads) schedule(static) if (H * n > 20000)
	for (size_t i = 0; i < H * n; i++) {
		const float *row = x + i / n * n;
		const size_t j = i % n, lo = j > r ? j - r : 0, hi = n - j > r ? j + r + 1 : n;

		y[i] = kind == KVK_POOL_MAX ? window_max(row, lo, hi) : window_avg(row, lo, hi, width);
	}
	return 0;
}
