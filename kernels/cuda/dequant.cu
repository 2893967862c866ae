/* SPDX-License-Identifier: MIT
 * Whole matrices of any weight type to the type of products, and single rows of them to floats. */
#include "kernels/cuda/dequant.h"

#include "kernels/cuda/weight.h"

#define THREADS 128
#define BLOCKS  65536 /* of a grid; threads take several groups where there are more */

static __device__ inline void
put_group(float *y, const float *v)
{
	if ((uintptr_t)y % 16 == 0)
		for (int i = 0; i < 4; i++)
			((float4 *)y)[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
	else
		for (int j = 0; j < GROUP; j++)
			y[j] = v[j];
}

/* y is 16-byte aligned: a matrix is expanded from its beginning, or from a multiple of many elements on. */
static __device__ inline void
put_group(__nv_bfloat16 *y, const float *v)
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

		dequant_group<TYPE>(x, i, v);
		put_group(y + i * GROUP, v);
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

/* ---- rows of the embedding table */

struct lookup {
	float *y;
	const uint8_t *w;
	size_t row_bytes, cols, n;
	const int32_t *ids;
};

/* A block per row. */
template <enum kvk_type TYPE>
KV_KERNEL(THREADS) lookup_rows(struct lookup l)
{
	const size_t i = blockIdx.x, whole = l.cols / GROUP;
	const uint8_t *x = l.w + (size_t)l.ids[i] * l.row_bytes;
	float *y = l.y + i * l.cols;

	for (size_t g = threadIdx.x; g < whole; g += THREADS) {
		float v[GROUP];

		dequant_group<TYPE>(x, g, v);
		put_group(y + g * GROUP, v);
	}
	if (threadIdx.x < l.cols % GROUP)
		y[whole * GROUP + threadIdx.x] = dequant_element<TYPE>(x, whole * GROUP + threadIdx.x);
}

template <enum kvk_type TYPE>
static cudaError_t
launch_lookup(struct kvk_dev *dev, const struct lookup *l)
{
	return KV_LAUNCH((lookup_rows<TYPE>), cuda_blocks(l->n, 1), THREADS, 0, dev->stream, *l);
}

static cudaError_t
lookup_any(enum kvk_type type, struct kvk_dev *dev, const struct lookup *l)
{
	DEQUANT_TYPED(type, launch_lookup, dev, l);
}

int
cuda_rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y)
{
	struct lookup l = { y, (const uint8_t *)w->p, w->row_bytes, w->cols, n, NULL };
	void *at;
	int rc;

	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (size_t)ids[i] >= w->rows)
			return cuda_fail(dev, KVK_ESHAPE, "row %d of a matrix of %zu rows", (int)ids[i], w->rows);
	if (n == 0 || w->cols == 0)
		return 0;
	if (n > INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "%zu rows are too many", n);
	if ((at = cuda_scratch(dev, n * sizeof *ids)) == NULL)
		return KVK_EMEM;
	if ((rc = cuda_upload(dev, at, ids, n * sizeof *ids)) != 0 || (rc = cuda_weight_ready(dev, w)) != 0)
		return rc;
	l.ids = (const int32_t *)at;
	return cuda_check(dev, lookup_any(w->held, dev, &l), "rows");
}
