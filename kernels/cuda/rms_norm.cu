/* SPDX-License-Identifier: MIT
 * Root-mean-square normalisation of rows, and its way back: y_j = s w_j x_j with s = (mean x^2 + eps)^(-1/2), so
 * dx_j = s (w_j dy_j - x_j s^2 mean_k(w_k dy_k x_k)).
 *
 * A block per row.  Sums are in double precision, as the CPU's, and all else is its arithmetic too. */
#include "kernels/cuda/row_math.h"

#define THREADS 512 /* the most; see threads_for() */

/* y may be x. */
template <int V>
KV_KERNEL(THREADS)
norm_row(const float *x, const float *w, float eps, size_t d, float *y)
{
	KV_SHARED(double, part, [32]);
	const size_t row = (size_t)blockIdx.x * d;
	double sum = 0;
	float v[V], u[V], scale;

	for (size_t j = threadIdx.x * V; j < d; j += blockDim.x * V) {
		row_load<V>(x + row + j, v);
		sum = row_squares<V>(sum, v);
	}
	scale = (float)row_scale(row_block_sum(sum, part), d, eps);
	for (size_t j = threadIdx.x * V; j < d; j += blockDim.x * V) {
		row_load<V>(x + row + j, v);
		row_load<V>(w + j, u);
		for (int i = 0; i < V; i++)
			v[i] = v[i] * scale * u[i];
		row_store<V>(y + row + j, v);
	}
}

/* dx [n][d]: added to, when add is not 0. */
template <int V>
KV_KERNEL(THREADS)
norm_row_back(const float *x, const float *w, float eps, const float *dy, size_t d, int add, float *dx)
{
	KV_SHARED(double, part, [32]);
	KV_SHARED(double, part_along, [32]);
	const size_t row = (size_t)blockIdx.x * d;
	double sum = 0, along = 0, s;
	float v[V], u[V], g[V], old[V], pull;

	for (size_t j = threadIdx.x * V; j < d; j += blockDim.x * V) {
		row_load<V>(x + row + j, v);
		row_load<V>(w + j, u);
		row_load<V>(dy + row + j, g);
		sum = row_squares<V>(sum, v);
		for (int i = 0; i < V; i++)
			along += (double)(u[i] * g[i]) * (double)v[i];
	}
	s = row_scale(row_block_sum(sum, part), d, eps);
	pull = (float)(s * s * s * row_block_sum(along, part_along) / (double)d);
	for (size_t j = threadIdx.x * V; j < d; j += blockDim.x * V) {
		row_load<V>(x + row + j, v);
		row_load<V>(w + j, u);
		row_load<V>(dy + row + j, g);
		for (int i = 0; i < V; i++)
			v[i] = row_norm_back((float)s, pull, v[i], u[i], g[i]);
		if (add != 0)
			row_load<V>(dx + row + j, old);
		for (int i = 0; i < V && add != 0; i++)
			v[i] = __fadd_rn(old[i], v[i]);
		row_store<V>(dx + row + j, v);
	}
}

/* Whole warps, by the row's length alone: so that a row's bits do not depend on how many there are. */
static unsigned
threads_for(size_t d, size_t step)
{
	const size_t warps = (d + 32 * step - 1) / (32 * step);

	return warps * 32 < THREADS ? (unsigned)warps * 32 : THREADS;
}

int
cuda_rms_norm(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y)
{
	const bool four = row_by_four(x, d) && row_by_four(w, d) && row_by_four(y, d);
	const unsigned threads = threads_for(d, four ? 4 : 1);
	cudaError_t status;

	if (n == 0 || d == 0)
		return 0;
	if (n > INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "rms_norm: %zu rows are more than a launch can have", n);
	if (four)
		status = KV_LAUNCH((norm_row<4>), cuda_blocks(n, 1), threads, 0, dev->stream, x, w, eps, d, y);
	else
		status = KV_LAUNCH((norm_row<1>), cuda_blocks(n, 1), threads, 0, dev->stream, x, w, eps, d, y);
	return cuda_check(dev, status, "rms_norm");
}

int
cuda_rms_norm_back(struct kvk_dev *dev, const float *x, const float *w, float eps, const float *dy, size_t n, size_t d,
    int add, float *dx)
{
	const bool four = row_by_four(x, d) && row_by_four(w, d) && row_by_four(dy, d) && row_by_four(dx, d);
	const unsigned threads = threads_for(d, four ? 4 : 1), blocks = cuda_blocks(n, 1);
	cudaError_t status;

	if (n == 0 || d == 0)
		return 0;
	if (n > INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "rms_norm_back: %zu rows are more than a launch can have", n);
	if (four)
		status = KV_LAUNCH((norm_row_back<4>), blocks, threads, 0, dev->stream, x, w, eps, dy, d, add, dx);
	else
		status = KV_LAUNCH((norm_row_back<1>), blocks, threads, 0, dev->stream, x, w, eps, dy, d, add, dx);
	return cuda_check(dev, status, "rms_norm_back");
}
