/* SPDX-License-Identifier: MIT
 * Rows from one array to another: some lanes of a warp for each, of words where nothing is converted. */
#include "kernels/cuda/cuda.h"

#define THREADS 256

struct shape {
	size_t rows, n, words; /* rows of all heads, of each; words of a row */
	size_t x_stride, y_stride;
	unsigned lanes; /* of a row: a power of two */
};

template <typename X, typename Y>
static __device__ inline void
put(Y *y, X x)
{
	*y = (Y)(float)x;
}

template <typename T>
static __device__ inline void
put(T *y, T x)
{
	*y = x;
}

template <typename X, typename Y>
KV_KERNEL(THREADS) copy_rows(Y *y, const X *x, const size_t *list, struct shape s)
{
	const size_t lane = threadIdx.x % s.lanes, step = (size_t)gridDim.x * (THREADS / s.lanes);

	for (size_t r = (size_t)blockIdx.x * (THREADS / s.lanes) + threadIdx.x / s.lanes; r < s.rows; r += step) {
		const size_t h = r / s.n, i = r % s.n;
		const X *from = x + (list != NULL ? list[r] : h * s.x_stride + i) * s.words;
		Y *to = y + (h * s.y_stride + i) * s.words;

		for (size_t k = lane; k < s.words; k += s.lanes)
			put(to + k, from[k]);
	}
}

template <typename X, typename Y>
static cudaError_t
launch(struct kvk_dev *dev, const struct kvk_copy *j, const size_t *list, size_t words)
{
	struct shape s = { j->H * j->n, j->n, words, j->x_stride, j->y_stride, 1 };
	size_t blocks;

	while (s.lanes < 32 && s.lanes < words)
		s.lanes *= 2;
	blocks = (s.rows * s.lanes + THREADS - 1) / THREADS;
	return KV_LAUNCH((copy_rows<X, Y>), (unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, dev->stream,
	    (Y *)j->y, (const X *)j->x, list, s);
}

template <typename X>
static cudaError_t
launch_from(struct kvk_dev *dev, const struct kvk_copy *j, const size_t *list)
{
	return j->y_type == KVK_F32 ? launch<X, float>(dev, j, list, j->D)
	    : j->y_type == KVK_F16  ? launch<X, __half>(dev, j, list, j->D)
				    : launch<X, __nv_bfloat16>(dev, j, list, j->D);
}

/* In the widest words that rows consist of. */
static cudaError_t
launch_words(struct kvk_dev *dev, const struct kvk_copy *j, const size_t *list)
{
	const size_t bytes = j->D * kvk_types[j->x_type].bytes;
	const size_t aligned = (size_t)(uintptr_t)j->x | (size_t)(uintptr_t)j->y | bytes;

	return aligned % 16 == 0 ? launch<uint4, uint4>(dev, j, list, bytes / 16)
	    : aligned % 4 == 0   ? launch<uint32_t, uint32_t>(dev, j, list, bytes / 4)
	    : aligned % 2 == 0   ? launch<uint16_t, uint16_t>(dev, j, list, bytes / 2)
				 : launch<uint8_t, uint8_t>(dev, j, list, bytes);
}

/* All rows one behind the other, on both sides? */
static bool
is_dense(const struct kvk_copy *j)
{
	return j->rows == NULL && (j->H < 2 || (j->x_stride == j->n && j->y_stride == j->n));
}

/* The list on the card, in scratch memory. */
static int
send_list(struct kvk_dev *dev, const struct kvk_copy *j, const size_t **list)
{
	const size_t bytes = j->H * j->n * sizeof *j->rows;
	void *there;

	*list = NULL;
	if (j->rows == NULL)
		return 0;
	if ((there = cuda_scratch(dev, bytes)) == NULL)
		return KVK_EMEM;
	*list = (const size_t *)there;
	return cuda_put(dev, there, j->rows, bytes);
}

int
cuda_copy_rows(struct kvk_dev *dev, const struct kvk_copy *job)
{
	const bool same = job->x_type == job->y_type;
	const size_t *list;
	int rc;

	if (same ? kvk_types[job->x_type].block != 1 : !cuda_is_float(job->x_type) || !cuda_is_float(job->y_type))
		return cuda_fail(
		    dev, KVK_ETYPE, "copy_rows: types are f32, f16 and bf16, or the same plain type on both sides");
	if (job->H > 1 && job->y_stride < job->n)
		return cuda_fail(dev, KVK_ESHAPE, "copy_rows: %zu rows of a head, and the next one %zu rows behind it",
		    job->n, job->y_stride);
	if (job->H * job->n * job->D == 0)
		return 0;
	if (!same && is_dense(job))
		return cuda_convert(dev, job->y, job->y_type, job->x, job->x_type, job->H * job->n * job->D);
	if ((rc = send_list(dev, job, &list)) != 0)
		return rc;
	return cuda_check(dev,
	    same ? launch_words(dev, job, list) : CUDA_TYPED(job->x_type, launch_from, dev, job, list), "copy_rows");
}
