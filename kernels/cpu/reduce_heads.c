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

struct job {
	const float *x;
	size_t G, n;
	enum kvk_reduce how;
	float *y;
};

static void
items(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;

	(void)worker;
	for (size_t i = from; i < to; i++)
		j->y[i] = reduce(j->x + i / j->n * j->G * j->n + i % j->n, j->G, j->n, j->how);
}

int
cpu_reduce_heads(struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y)
{
	struct job j = { x, 0, n, how, y };

	if (Hkv == 0 || Hq == 0 || Hq % Hkv != 0)
		return cpu_fail(dev, CPU_ESHAPE, "reduce_heads: %zu query heads cannot share %zu KV heads", Hq, Hkv);
	if (how > KVK_MAX)
		return cpu_fail(dev, CPU_ESHAPE, "reduce_heads: heads are reduced by mean, sum or max");
	j.G = Hq / Hkv;
	cpu_run(dev, Hkv * n, 16384, items, &j);
	return 0;
}
