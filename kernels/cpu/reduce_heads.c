/* SPDX-License-Identifier: MIT
 * The query heads of a group become one row. */
#include "kernels/cpu/cpu.h"

static float
reduce(const float *x, size_t G, size_t n, enum kvk_reduce how)
{
	double sum = 0;
	float max = x[0];

	if (how == KVK_MAX) {
		for (size_t i = 1; i < G; i++)
			max = x[i * n] <= max ? max : x[i * n]; /* a NaN stays */
		return max;
	}
	for (size_t i = 0; i < G; i++)
		sum += (double)x[i * n];
	return (float)(how == KVK_MEAN ? sum / (double)G : sum);
}

int
cpu_reduce_heads(struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y)
{
	size_t G;

	if (Hkv == 0 || Hq == 0 || Hq % Hkv != 0)
		return cpu_fail(dev, CPU_ESHAPE, "reduce_heads: %zu query heads cannot share %zu KV heads", Hq, Hkv);
	if (how > KVK_MAX)
		return cpu_fail(dev, CPU_ESHAPE, "reduce_heads: heads are reduced by mean, sum or max");
	G = Hq / Hkv;
#pragma omp parallel for num_threads(dev->threads) schedule(static) if (Hq * n > 20000)
	for (size_t i = 0; i < Hkv * n; i++)
		y[i] = reduce(x + i / n * G * n + i % n, G, n, how);
	return 0;
}
