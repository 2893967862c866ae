/* SPDX-License-Identifier: MIT
 * The first element that is infinite or no number: its exponent is all ones. */
#include "kernels/cuda/cuda.h"

#define THREADS 256

static_assert(sizeof(size_t) == sizeof(unsigned long long), "places have an atomic minimum");

template <typename T>
KV_KERNEL(THREADS) search(unsigned long long *first, const T *x, T mask, size_t n)
{
	const size_t step = (size_t)gridDim.x * THREADS;

	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
		if ((x[i] & mask) == mask) {
			atomicMin(first, (unsigned long long)i);
			break;
		}
}

template <typename T>
static cudaError_t
launch(struct kvk_dev *dev, void *first, const void *x, T mask, size_t n)
{
	const size_t blocks = (n + THREADS - 1) / THREADS;

	return KV_LAUNCH((search<T>), (unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, dev->stream,
	    (unsigned long long *)first, (const T *)x, mask, n);
}

int
cuda_finite(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first)
{
	void *there;
	int rc;

	if (!cuda_is_float(type))
		return cuda_fail(dev, KVK_ETYPE, "finite: types are f32, f16 and bf16");
	*first = 0;
	if (n == 0)
		return 0;
	if ((there = cuda_scratch(dev, sizeof *first)) == NULL)
		return KVK_EMEM;
	if ((rc = cuda_put(dev, there, &n, sizeof n)) != 0 ||
	    (rc = cuda_check(dev,
		 type == KVK_F32 ? launch<uint32_t>(dev, there, x, 0x7f800000, n)
				 : launch<uint16_t>(dev, there, x, type == KVK_F16 ? 0x7c00 : 0x7f80, n),
		 "finite")) != 0)
		return rc;
	return cuda_get(dev, first, there, sizeof *first);
}
