/* SPDX-License-Identifier: MIT
 * The query heads of a group become one row. */
#include "kernels/cpu/cpu.h"

#define SOME 64 /* places at a time */

/* y [m], m <= SOME, from x [G] rows that are n apart. */
static void
reduce(const float *x, size_t G, size_t n, size_t m, enum kvk_reduce how, float *y)
{
	double sum[SOME] = { 0 };

	if (how == KVK_MAX) {
		for (size_t i = 0; i < m; i++)
			y[i] = x[i];
		for (size_t g = 1; g < G; g++)
			for (size_t i = 0; i < m; i++)
				y[i] = x[g * n + i] <= y[i] || y[i] != y[i] ? y[i] : x[g * n + i]; /* a NaN stays */
		return;
	}
	for (size_t g = 0; g < G; g++)
		for (size_t i = 0; i < m; i++)
			sum[i] += (double)x[g * n + i];
	for (size_t i = 0; i < m; i++)
		y[i] = (float)(how == KVK_MEAN ? sum[i] / (double)G : sum[i]);
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
	for (size_t m; from < to; from += m) {
		const size_t at = from % j->n, left = j->n - at < to - from ? j->n - at : to - from;

		m = left < SOME ? left : SOME;
		reduce(j->x + from / j->n * j->G * j->n + at, j->G, j->n, m, j->how, j->y + from);
	}
}

int
cpu_reduce_heads(struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y)
{
	struct job j = { x, 0, n, how, y };

	if (Hkv == 0 || Hq == 0 || Hq % Hkv != 0)
		return cpu_fail(dev, KVK_ESHAPE, "reduce_heads: %zu query heads cannot share %zu KV heads", Hq, Hkv);
	if (how > KVK_MAX)
		return cpu_fail(dev, KVK_ESHAPE, "reduce_heads: heads are reduced by mean, sum or max");
	j.G = Hq / Hkv;
	cpu_run(dev, Hkv * n, 32768, items, &j);
	return 0;
}
