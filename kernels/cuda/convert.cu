/* SPDX-License-Identifier: MIT
 * From one float type to another, element by element, to the nearest, ties to even. */
#include "kernels/cuda/cuda.h"

#define THREADS 256

template <typename X, typename Y>
KV_KERNEL(THREADS) convert(Y *y, const X *x, size_t n)
{
	const size_t step = (size_t)gridDim.x * THREADS;

	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
		cuda_store(y, i, cuda_load(x, i));
}

template <typename X, typename Y>
static cudaError_t
launch(struct kvk_dev *dev, void *y, const void *x, size_t n)
{
	const size_t blocks = (n + THREADS - 1) / THREADS;

	return KV_LAUNCH((convert<X, Y>), (unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, dev->stream, (Y *)y,
	    (const X *)x, n);
}

template <typename X>
static cudaError_t
launch_from(struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, size_t n)
{
	return y_type == KVK_F32 ? launch<X, float>(dev, y, x, n)
	    : y_type == KVK_F16  ? launch<X, __half>(dev, y, x, n)
	                         : launch<X, __nv_bfloat16>(dev, y, x, n);
}

int
cuda_convert(struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, enum kvk_type x_type, size_t n)
{
	if (!cuda_is_float(x_type) || !cuda_is_float(y_type))
		return cuda_fail(dev, CUDA_ETYPE, "convert: types are f32, f16 and bf16");
	if (n == 0)
		return 0;
	return cuda_check(dev, CUDA_TYPED(x_type, launch_from, dev, y, y_type, x, n), "convert");
}
