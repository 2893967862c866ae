/* SPDX-License-Identifier: MIT
 * Rows of the embedding table, of any weight type, as floats. */
#include "kernels/cuda/dequant.h"

#include "kernels/cuda/weight.h"

#define THREADS 128

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

		dequant_row_group<TYPE>(x, g, v);
		dequant_put(y + g * GROUP, v);
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
			return cuda_fail(dev, KVK_ESHAPE, "rows: row %d of a matrix of %zu rows", (int)ids[i], w->rows);
	if (n == 0 || w->cols == 0)
		return 0;
	if (n > INT32_MAX)
		return cuda_fail(dev, KVK_ESHAPE, "rows: %zu rows are too many", n);
	if ((at = cuda_scratch(dev, n * sizeof *ids)) == NULL)
		return KVK_EMEM;
	if ((rc = cuda_put(dev, at, ids, n * sizeof *ids)) != 0 || (rc = cuda_weight_ready(dev, w)) != 0)
		return rc;
	l.ids = (const int32_t *)at;
	return cuda_check(dev, lookup_any(w->held, dev, &l), "rows");
}
