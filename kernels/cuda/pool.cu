/* SPDX-License-Identifier: MIT
 * Stride-1 pooling along rows: a thread per place, which looks through its window from left to right as the CPU does,
 * so that both have the same bits.  Windows are narrow (7) and overlap in the first cache. */
#include "kernels/cuda/cuda.h"

#define THREADS 256

struct window {
	size_t n, r; /* of a row; to each side */
};

/* Element `at` of x [*][n]: its window lo .. hi - 1 within its row. */
static __device__ inline void
window_of(const struct window *w, size_t at, size_t *lo, size_t *hi)
{
	const size_t row = at / w->n * w->n, i = at - row;

	*lo = row + (i > w->r ? i - w->r : 0);
	*hi = w->n - i > w->r ? at + w->r + 1 : row + w->n;
}

KV_KERNEL(THREADS)
pool_max(const float *x, size_t all, struct window w, float *y)
{
	const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
	float m = -INFINITY;
	size_t lo, hi;

	if (at >= all)
		return;
	window_of(&w, at, &lo, &hi);
	for (; lo < hi; lo++)
		m = x[lo] > m ? x[lo] : m;
	y[at] = m;
}

KV_KERNEL(THREADS)
pool_avg(const float *x, size_t all, struct window w, float *y)
{
	const size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
	double sum = 0;
	size_t lo, hi;

	if (at >= all)
		return;
	window_of(&w, at, &lo, &hi);
	for (; lo < hi; lo++)
		sum += (double)x[lo];
	y[at] = (float)(sum / (double)(2 * w.r + 1));
}

int
cuda_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y)
{
	const struct window w = { n, width / 2 };
	const size_t all = H * n;
	cudaError_t status;

	if (kind != KVK_POOL_NONE && width % 2 == 0)
		return cuda_fail(dev, KVK_ESHAPE, "pool: width %zu is not odd", width);
	if (all / THREADS >= INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "pool: %zu places are more than a launch can have", all);
	if (all == 0)
		return 0;
	if (kind == KVK_POOL_NONE)
		status = cudaMemcpyAsync(y, x, all * sizeof *y, cudaMemcpyDeviceToDevice, dev->stream);
	else if (kind == KVK_POOL_MAX)
		status = KV_LAUNCH(pool_max, cuda_blocks(all, THREADS), THREADS, 0, dev->stream, x, all, w, y);
	else
		status = KV_LAUNCH(pool_avg, cuda_blocks(all, THREADS), THREADS, 0, dev->stream, x, all, w, y);
	return cuda_check(dev, status, "pool");
}
