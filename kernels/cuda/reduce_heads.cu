/* SPDX-License-Identifier: MIT
 * The query heads of a group become one row: a thread per place, heads in order and in double precision as on the
 * CPU. */
#include "kernels/cuda/cuda.h"

#define THREADS 256

/* y [Hkv][n], of which element `at` = group * n + place. */
KV_KERNEL(THREADS)
reduce(const float *x, size_t G, size_t n, size_t all, enum kvk_reduce how, float *y)
{
	const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
	double sum = 0;
	float max;

	if (at >= all)
		return;
	x += at / n * G * n + at % n;
	max = x[0];
	for (size_t g = 0; g < G; g++) {
		const float v = x[g * n];

		sum += (double)v;
		max = v <= max || max != max ? max : v; /* a NaN stays */
	}
	y[at] = how == KVK_MAX ? max : (float)(how == KVK_MEAN ? sum / (double)G : sum);
}

int
cuda_reduce_heads(struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y)
{
	const size_t all = Hkv * n;

	if (Hkv == 0 || Hq == 0 || Hq % Hkv != 0)
		return cuda_fail(dev, KVK_ESHAPE, "reduce_heads: %zu query heads cannot share %zu KV heads", Hq, Hkv);
	if (how > KVK_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "reduce_heads: heads are reduced by mean, sum or max");
	if (all / THREADS >= INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "reduce_heads: %zu places are more than a launch can have", all);
	if (all == 0)
		return 0;
	return cuda_check(dev,
	    KV_LAUNCH(reduce, cuda_blocks(all, THREADS), THREADS, 0, dev->stream, x, Hq / Hkv, n, all, how, y),
	    "reduce_heads");
}
