/* SPDX-License-Identifier: MIT
 * From one float type to another, element by element, to the nearest, ties to even. */
#include "kernels/cuda/cuda.h"

#define THREADS 256
#define FEW     4 /* elements that a thread reads and writes at once, where all lies so */
#define BLOCKS  65536

template <typename T, int V>
struct alignas(sizeof(T) * V) convert_few {
	T v[V];
};

/* The n % V elements at the end one by one. */
template <typename X, typename Y, int V>
KV_KERNEL(THREADS) convert(Y *y, const X *x, size_t n)
{
	const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;

	for (size_t i = first; i < n / V; i += step) {
		const struct convert_few<X, V> in = ((const struct convert_few<X, V> *)x)[i];
		struct convert_few<Y, V> out;

		for (int k = 0; k < V; k++)
			cuda_store(out.v, (size_t)k, cuda_load(in.v, (size_t)k));
		((struct convert_few<Y, V> *)y)[i] = out;
	}
	if (first < n % V)
		cuda_store(y, n / V * V + first, cuda_load(x, n / V * V + first));
}

template <typename X, typename Y>
static cudaError_t
launch(struct kvk_dev *dev, void *y, const void *x, size_t n)
{
	const bool few = (uintptr_t)x % (sizeof(X) * FEW) == 0 && (uintptr_t)y % (sizeof(Y) * FEW) == 0;
	const size_t blocks = (n / (few ? FEW : 1) + THREADS) / THREADS;
	const unsigned grid = (unsigned)(blocks < BLOCKS ? blocks : BLOCKS);

	if (few)
		return KV_LAUNCH((convert<X, Y, FEW>), grid, THREADS, 0, dev->stream, (Y *)y, (const X *)x, n);
	return KV_LAUNCH((convert<X, Y, 1>), grid, THREADS, 0, dev->stream, (Y *)y, (const X *)x, n);
}

template <typename X>
static cudaError_t
launch_from(struct kvk_dev *dev, enum kvk_type y_type, void *y, const void *x, size_t n)
{
	return y_type == KVK_F32 ? launch<X, float>(dev, y, x, n)
	    : y_type == KVK_F16  ? launch<X, __half>(dev, y, x, n)
	                         : launch<X, __nv_bfloat16>(dev, y, x, n);
}

int
cuda_convert(struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, enum kvk_type x_type, size_t n)
{
	if (!cuda_is_float(x_type) || !cuda_is_float(y_type))
		return cuda_fail(dev, KVK_ETYPE, "convert: types are f32, f16 and bf16");
	if (n == 0)
		return 0;
	return cuda_check(dev, CUDA_TYPED(x_type, launch_from, dev, y_type, y, x, n), "convert");
}
