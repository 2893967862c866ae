/* SPDX-License-Identifier: MIT
 * The gate of a SwiGLU feed-forward layer, silu(g) * u with silu(g) = g / (1 + e^-g), and its way back: with s the
 * logistic function of the gate, dup = dy gate s and dgate = dy up s (1 + gate (1 - s)). */
#include "kernels/cuda/row_math.h"

#define THREADS 256

/* e^-g, at most e^88, which is all that a logistic function needs: -inf / inf would not be a number. */
static __device__ inline float
exp_minus(float g)
{
	return expf(fminf(-g, 88.0f));
}

/* V elements per thread; y may be gate or up. */
template <int V>
KV_KERNEL(THREADS)
gate_elements(const float *gate, const float *up, size_t n, float *y)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * V;
	float g[V], u[V];

	if (i >= n)
		return;
	row_load<V>(gate + i, g);
	row_load<V>(up + i, u);
	for (int k = 0; k < V; k++)
		g[k] = g[k] / (exp_minus(g[k]) + 1.0f) * u[k];
	row_store<V>(y + i, g);
}

template <int V>
KV_KERNEL(THREADS)
gate_elements_back(const float *gate, const float *up, const float *dy, size_t n, float *dgate, float *dup)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * V;
	float g[V], u[V], d[V];

	if (i >= n)
		return;
	row_load<V>(gate + i, g);
	row_load<V>(up + i, u);
	row_load<V>(dy + i, d);
	for (int k = 0; k < V; k++) {
		const float s = 1.0f / (1.0f + exp_minus(g[k]));
		const float du = d[k] * g[k] * s;

		g[k] = d[k] * u[k] * s * __fadd_rn(1.0f, __fmul_rn(g[k], 1.0f - s));
		u[k] = du;
	}
	row_store<V>(dgate + i, g);
	row_store<V>(dup + i, u);
}

/* The elements that come in fours, if all arrays are aligned. */
static size_t
whole(const void *a, const void *b, const void *c, size_t n)
{
	return row_by_four(a, 0) && row_by_four(b, 0) && row_by_four(c, 0) ? n / 4 * 4 : 0;
}

static int
too_many(struct kvk_dev *dev, size_t n)
{
	return cuda_fail(dev, KVK_ESHAPE, "silu_mul: %zu elements are more than a launch can have", n);
}

int
cuda_silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y)
{
	const size_t fours = whole(gate, up, y, n), rest = n - fours;
	cudaError_t status = cudaSuccess;

	if (n / THREADS >= INT32_MAX)
		return too_many(dev, n);
	if (fours > 0)
		status = KV_LAUNCH(
		    (gate_elements<4>), cuda_blocks(fours, 4 * THREADS), THREADS, 0, dev->stream, gate, up, fours, y);
	if (rest > 0 && status == cudaSuccess)
		status = KV_LAUNCH((gate_elements<1>), cuda_blocks(rest, THREADS), THREADS, 0, dev->stream,
		    gate + fours, up + fours, rest, y + fours);
	return cuda_check(dev, status, "silu_mul");
}

int
cuda_silu_mul_back(struct kvk_dev *dev, const float *gate, const float *up, const float *dy, size_t n, float *dgate,
    float *dup)
{
	const size_t fours = row_by_four(dy, 0) && row_by_four(dup, 0) ? whole(gate, up, dgate, n) : 0;
	const size_t rest = n - fours;
	cudaError_t status = cudaSuccess;

	if (n / THREADS >= INT32_MAX)
		return too_many(dev, n);
	if (fours > 0)
		status = KV_LAUNCH((gate_elements_back<4>), cuda_blocks(fours, 4 * THREADS), THREADS, 0, dev->stream,
		    gate, up, dy, fours, dgate, dup);
	if (rest > 0 && status == cudaSuccess)
		status = KV_LAUNCH((gate_elements_back<1>), cuda_blocks(rest, THREADS), THREADS, 0, dev->stream,
		    gate + fours, up + fours, dy + fours, rest, dgate + fours, dup + fours);
	return cuda_check(dev, status, "silu_mul_back");
}
