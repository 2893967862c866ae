/* SPDX-License-Identifier: MIT
 * Whole matrices of any weight type to the type of products. */
#include "kernels/cuda/dequant.h"

#include "kernels/cuda/weight.h"

#define THREADS 128
#define BLOCKS  65536 /* of a grid; threads take several groups where there are more */

/* y is 16-byte aligned: a matrix is expanded from its beginning, or from a multiple of many elements on. */
static __device__ inline void
dequant_put(__nv_bfloat16 *y, const float *v)
{
	uint32_t w[8];

	for (int i = 0; i < 8; i++)
		w[i] = (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i])) |
		    (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i + 1])) << 16;
	((uint4 *)y)[0] = make_uint4(w[0], w[1], w[2], w[3]);
	((uint4 *)y)[1] = make_uint4(w[4], w[5], w[6], w[7]);
}

template <enum kvk_type TYPE, typename Y>
KV_KERNEL(THREADS) expand(Y *y, const uint8_t *x, size_t n)
{
	const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;
	const size_t whole = n / GROUP;

	for (size_t i = first; i < whole; i += step) {
		float v[GROUP];

		dequant_row_group<TYPE>(x, i, v);
		dequant_put(y + i * GROUP, v);
	}
	if (first < n % GROUP)
		cuda_store(y, whole * GROUP + first, dequant_element<TYPE>(x, whole * GROUP + first));
}

struct expansion {
	void *y;
	enum kvk_type y_type;
	const uint8_t *x;
	size_t n;
	cudaStream_t stream;
};

template <enum kvk_type TYPE>
static cudaError_t
launch_expand(const struct expansion *e)
{
	const size_t blocks = (e->n / GROUP + THREADS) / THREADS;
	const unsigned grid = (unsigned)(blocks < BLOCKS ? blocks : BLOCKS);

	if (e->y_type == KVK_BF16)
		return KV_LAUNCH(
		    (expand<TYPE, __nv_bfloat16>), grid, THREADS, 0, e->stream, (__nv_bfloat16 *)e->y, e->x, e->n);
	return KV_LAUNCH((expand<TYPE, float>), grid, THREADS, 0, e->stream, (float *)e->y, e->x, e->n);
}

static cudaError_t
expand_any(enum kvk_type type, const struct expansion *e)
{
	DEQUANT_TYPED(type, launch_expand, e);
}

int
cuda_expand(struct kvk_dev *dev, void *y, enum kvk_type y_type, const void *x, enum kvk_type type, size_t n,
    cudaStream_t stream)
{
	const struct expansion e = { y, y_type, (const uint8_t *)x, n, stream };

	return n == 0 ? 0 : cuda_check(dev, expand_any(type, &e), "expansion of a matrix");
}
