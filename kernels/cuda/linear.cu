/* SPDX-License-Identifier: MIT
 * Dense products with a weight: cuBLAS for many rows, few_rows.cu for few. */
#include "kernels/cuda/weight.h"

#define THREADS 256
#define FEW     16                   /* rows up to which a weight opened for few is not worth expanding */
#define PART    ((size_t)64 << 20)   /* bytes of it that are expanded at a time, beyond */

/* y [n][rows] += bias */
KV_KERNEL(THREADS) add_bias(float *y, const float *bias, size_t rows, size_t n)
{
	const size_t step = (size_t)gridDim.x * THREADS;

	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n * rows; i += step)
		y[i] += bias[i % rows];
}

static int
finish(struct kvk_dev *dev, const struct kvk_weight *w, size_t n, const float *bias, float *y)
{
	const unsigned blocks = cuda_blocks(n * w->rows, THREADS) < 65536 ? cuda_blocks(n * w->rows, THREADS) : 65536;

	if (bias == NULL)
		return 0;
	return cuda_check(
	    dev, KV_LAUNCH(add_bias, blocks, THREADS, 0, dev->stream, y, bias, w->rows, n), "linear");
}

/* y = x m^T (+ y) for the rows of w that stand in m, which has the type of x. */
static int
multiply(struct kvk_dev *dev, const struct kvk_weight *w, const void *x, const void *m, size_t rows,
    enum kvk_type type, size_t n, int add, float *y)
{
	const struct cuda_gemm_job g = { x, m, w->cols, 1, 1, w->cols, type, y, w->rows, n, rows, w->cols, 1,
		add != 0 };

	return cuda_gemm(dev, &g);
}

/* Are its elements such as products take? */
static bool
is_expanded(const struct kvk_dev *dev, const struct kvk_weight *w)
{
	return w->use == KVK_MANY_ROWS || w->held == KVK_F32 ||
	    (w->held == KVK_BF16 && dev->precision == KVK_PRECISION_BF16);
}

/* Through a matrix of f32 or bf16 elements, x rounded to these. */
static int
linear_many(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, int add, float *y)
{
	void *rounded;
	int rc;

	if (w->held == KVK_F32)
		return multiply(dev, w, x, w->p, w->rows, KVK_F32, n, add, y);
	if ((rounded = cuda_scratch(dev, n * w->cols * kvk_types[KVK_BF16].bytes)) == NULL)
		return KVK_EMEM;
	if ((rc = cuda_convert(dev, rounded, KVK_BF16, x, KVK_F32, n * w->cols)) != 0)
		return rc;
	return multiply(dev, w, rounded, w->p, w->rows, KVK_BF16, n, add, y);
}

/* Through a matrix that was opened for few rows: expanded part by part. */
static int
linear_parts(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, int add, float *y)
{
	const enum kvk_type type = dev->precision == KVK_PRECISION_BF16 ? KVK_BF16 : KVK_F32;
	const size_t size = kvk_types[type].bytes;
	size_t part = PART / (w->cols * size) + 1;
	const void *factor = x;
	char *at;
	void *m;
	int rc = 0;

	part = part < w->rows ? part : w->rows;
	if ((at = (char *)cuda_scratch(dev, cuda_taken(part * w->cols, size) + cuda_taken(n * w->cols, size))) == NULL)
		return KVK_EMEM;
	m = cuda_take(&at, part * w->cols, size);
	if (type == KVK_BF16) {
		rc = cuda_convert(dev, at, KVK_BF16, x, KVK_F32, n * w->cols);
		factor = at;
	}
	for (size_t r = 0; r < w->rows && rc == 0; r += part) {
		const size_t rows = w->rows - r < part ? w->rows - r : part;

		rc = cuda_expand(
		    dev, m, type, (const char *)w->p + r * w->row_bytes, w->type, rows * w->cols, dev->stream);
		if (rc == 0)
			rc = multiply(dev, w, factor, m, rows, type, n, add, y + r);
	}
	return rc;
}

int
cuda_linear(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add,
    float *y)
{
	int rc;

	if (n == 0 || w->rows == 0)
		return 0;
	if ((w->use == KVK_FEW_ROWS && n <= FEW) || w->cols == 0)
		return cuda_linear_few(dev, w, x, n, bias, add, y);
	if ((rc = cuda_weight_ready(dev, w)) != 0)
		return rc;
	rc = is_expanded(dev, w) ? linear_many(dev, w, x, n, add, y) : linear_parts(dev, w, x, n, add, y);
	return rc == 0 ? finish(dev, w, n, bias, y) : rc;
}

int
cuda_linear_rows(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add,
    float *y)
{
	if (w->use != KVK_MANY_ROWS || w->held != KVK_F32)
		return cuda_fail(
		    dev, KVK_ETYPE, "linear_rows: a weight opened for many rows in f32 is needed");
	return cuda_linear(dev, w, x, n, bias, add, y);
}

int
cuda_linear_back(struct kvk_dev *dev, const struct kvk_weight *w, const float *dy, size_t n, int add, float *dx)
{
	const struct kvk_product p = { dy, w->rows, 1, (const float *)w->p, w->cols, 1, dx, w->cols, n, w->cols,
		w->rows, 1, add };
	int rc;

	if (w->use != KVK_MANY_ROWS || w->held != KVK_F32)
		return cuda_fail(
		    dev, KVK_ETYPE, "linear_back: the way back needs a weight opened for many rows in f32");
	if ((rc = cuda_weight_ready(dev, w)) != 0)
		return rc;
	return cuda_product(dev, &p);
}
