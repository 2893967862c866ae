/* SPDX-License-Identifier: MIT
 * Mean and covariance of each head's rows, two passes in double precision.  Rows are taken in pieces by blocks of
 * their own; pieces are added up in order. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tile_sums.h"

#define THREADS   SUMS_THREADS
#define MEAN_ROWS 512
#define COV_ROWS  4096
#define TILE      SUMS_TILE /* rows and columns of a covariance, a block's */
#define STEP      SUMS_STEP /* rows in shared memory */

/* Grid: pieces, heads.  part [H][pieces][D]. */
KV_KERNEL(THREADS)
add_rows(const float *x, size_t n, size_t D, double *part)
{
	const size_t from = (size_t)blockIdx.x * MEAN_ROWS, end = n - from < MEAN_ROWS ? n : from + MEAN_ROWS;

	x += (size_t)blockIdx.y * n * D;
	part += ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * D;
	for (size_t d = threadIdx.x; d < D; d += THREADS) {
		double sum = 0;

#pragma unroll 8
		for (size_t i = from; i < end; i++)
			sum += (double)x[i * D + d];
		part[d] = sum;
	}
}

KV_KERNEL(THREADS)
mean_of(const double *part, size_t H, size_t n, size_t D, size_t pieces, double *mean)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	double sum = 0;

	if (i >= H * D)
		return;
	for (size_t p = 0; p < pieces; p++)
		sum += part[(i / D * pieces + p) * D + i % D];
	mean[i] = n > 0 ? sum / (double)n : 0;
}

/* Rows i .. i + STEP - 1, columns d .. d + TILE - 1 of x less their means; zeros where there are none. */
static __device__ inline void
centre(const float *x, const double *mean, size_t i, size_t end, size_t d, size_t D, double (*to)[TILE])
{
	for (size_t e = threadIdx.x; e < STEP * TILE; e += THREADS) {
		const size_t row = i + e / TILE, column = d + e % TILE;

		to[e / TILE][e % TILE] = row < end && column < D ? (double)x[row * D + column] - mean[column] : 0;
	}
}

/* Grid: tiles of a covariance, of which those below the diagonal do nothing; pieces; heads.  part [H][pieces][D][D]. */
KV_KERNEL(THREADS)
multiply_rows(const float *x, const double *mean, size_t n, size_t D, double *part)
{
	KV_SHARED(double, left, [STEP][TILE]);
	KV_SHARED(double, right, [STEP][TILE]);
	const size_t across = (D + TILE - 1) / TILE, a = blockIdx.x / across * TILE, b = blockIdx.x % across * TILE;
	const size_t from = (size_t)blockIdx.y * COV_ROWS;
	const size_t end = b < a ? from : n - from < COV_ROWS ? n : from + COV_ROWS;
	double sum[SUMS_EACH][SUMS_EACH] = {};

	x += (size_t)blockIdx.z * n * D;
	mean += (size_t)blockIdx.z * D;
	part += ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * D * D;
	for (size_t i = from; i < end; i += STEP) {
		__syncthreads();
		centre(x, mean, i, end, a, D, left);
		centre(x, mean, i, end, b, D, right);
		__syncthreads();
		sums_add<TILE>(left, right, sum);
	}
#pragma unroll
	for (int p = 0; p < SUMS_EACH; p++)
#pragma unroll
		for (int q = 0; q < SUMS_EACH; q++) {
			const size_t row = a + sums_row() + 16 * (size_t)p, column = b + sums_column() + 16 * (size_t)q;

			if (row <= column && column < D)
				part[row * D + column] = sum[p][q];
		}
}

KV_KERNEL(THREADS)
covariance_of(const double *part, size_t H, size_t n, size_t D, size_t pieces, double *cov)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, h = i / (D * D), a = i / D % D, b = i % D;
	double sum = 0;

	if (h >= H || b < a)
		return;
	for (size_t p = 0; p < pieces; p++)
		sum += part[((h * pieces + p) * D + a) * D + b];
	sum = n > 0 ? sum / (double)n : 0;
	cov[(h * D + a) * D + b] = sum;
	cov[(h * D + b) * D + a] = sum;
}

static int
means(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *part, double *mean)
{
	const size_t pieces = (n + MEAN_ROWS - 1) / MEAN_ROWS;
	int rc = 0;

	if (pieces > 0)
		rc = cuda_check(dev, KV_LAUNCH(add_rows, dim3((unsigned)pieces, (unsigned)H), THREADS, 0, dev->stream,
		    x, n, D, part), "row_moments");
	if (rc != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH(mean_of, cuda_blocks(H * D, THREADS), THREADS, 0, dev->stream, part, H, n, D,
	    pieces, mean), "row_moments");
}

static int
covariances(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *part, const double *mean,
    double *cov)
{
	const size_t pieces = (n + COV_ROWS - 1) / COV_ROWS, across = (D + TILE - 1) / TILE;
	const dim3 grid((unsigned)(across * across), (unsigned)pieces, (unsigned)H);
	int rc = 0;

	if (pieces > 0)
		rc = cuda_check(dev, KV_LAUNCH(multiply_rows, grid, THREADS, 0, dev->stream, x, mean, n, D, part),
		    "row_moments");
	if (rc != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH(covariance_of, cuda_blocks(H * D * D, THREADS), THREADS, 0, dev->stream, part,
	    H, n, D, pieces, cov), "row_moments");
}

int
cuda_row_moments(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *mean, double *cov)
{
	const size_t sums = H * ((n + MEAN_ROWS - 1) / MEAN_ROWS) * D;
	const size_t products = H * ((n + COV_ROWS - 1) / COV_ROWS) * D * D;
	char *room;
	double *part;
	int rc;

	if (H == 0 || D == 0)
		return 0;
	room = (char *)cuda_scratch(dev, cuda_taken(sums, sizeof *part) + cuda_taken(products, sizeof *part));
	if (room == NULL)
		return KVK_EMEM;
	part = (double *)cuda_take(&room, sums, sizeof *part);
	if ((rc = means(dev, x, H, n, D, part, mean)) != 0)
		return rc;
	part = (double *)cuda_take(&room, products, sizeof *part);
	return covariances(dev, x, H, n, D, part, mean, cov);
}
