/* SPDX-License-Identifier: MIT
 * A linear and a quadratic form of every key: z = sum_j k_j (b_j + sum_{i <= j} u_ij k_i), u the upper triangle of a
 * with what is beside the diagonal twice. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tile_sums.h"

#define THREADS SUMS_THREADS
#define TILE    SUMS_TILE /* keys, and dimensions j, of a block's product */
#define STEP    SUMS_STEP /* dimensions i in shared memory */

/* to [i][key]: dimensions i .. i + STEP - 1 of keys j .. j + TILE - 1, zeros where there are none. */
template <typename T>
static __device__ inline void
load_keys(const T *k, size_t j, size_t n, size_t i, size_t D, double (*to)[TILE + 1])
{
	for (size_t e = threadIdx.x; e < STEP * TILE; e += THREADS) {
		const size_t d = i + e % STEP, key = j + e / STEP;

		to[e % STEP][e / STEP] = key < n && d < D ? (double)cuda_load(k, key * D + d) : 0;
	}
}

static __device__ inline void
load_form(const double *a, size_t i, size_t j, size_t D, double (*to)[TILE])
{
	for (size_t e = threadIdx.x; e < STEP * TILE; e += THREADS) {
		const size_t row = i + e / TILE, column = j + e % TILE;

		to[e / TILE][e % TILE] =
		    row <= column && column < D ? a[row * D + column] * (row == column ? 1 : 2) : 0;
	}
}

/* Grid: tiles of keys, query heads. */
template <typename T>
KV_KERNEL(THREADS)
forms(const T *k, const double *b, const double *a, size_t n, size_t D, size_t group, double *z)
{
	KV_SHARED(double, keys, [STEP][TILE + 1]);
	KV_SHARED(double, form, [STEP][TILE]);
	const size_t h = blockIdx.y, key = (size_t)blockIdx.x * TILE, ty = sums_row(), tx = sums_column();
	double all[SUMS_EACH] = {};

	k += h / group * n * D;
	b += h * D;
	a += h * D * D;
	for (size_t j = 0; j < D; j += TILE) {
		double sum[SUMS_EACH][SUMS_EACH];

#pragma unroll
		for (int q = 0; q < SUMS_EACH; q++) {
			const size_t column = j + tx + 16 * (size_t)q;

#pragma unroll
			for (int p = 0; p < SUMS_EACH; p++)
				sum[p][q] = column < D ? b[column] : 0;
		}
		for (size_t i = 0; i < j + TILE && i < D; i += STEP) {
			__syncthreads();
			load_keys(k, key, n, i, D, keys);
			load_form(a, i, j, D, form);
			__syncthreads();
			sums_add<TILE + 1>(keys, form, sum);
		}
#pragma unroll
		for (int p = 0; p < SUMS_EACH; p++)
#pragma unroll
			for (int q = 0; q < SUMS_EACH; q++) {
				const size_t row = key + ty + 16 * (size_t)p, column = j + tx + 16 * (size_t)q;

				if (row < n && column < D)
					all[p] += sum[p][q] * (double)cuda_load(k, row * D + column);
			}
	}
#pragma unroll
	for (int p = 0; p < SUMS_EACH; p++) {
		const size_t row = key + ty + 16 * (size_t)p;

		for (int step = 8; step > 0; step /= 2)
			all[p] += __shfl_xor_sync(KV_FULL, all[p], step);
		if (tx == 0 && row < n)
			z[h * n + row] = all[p];
	}
}

template <typename T>
static int
launch(struct kvk_dev *dev, const struct kvk_forms *job, double *z)
{
	const dim3 grid(cuda_blocks(job->T, TILE), (unsigned)job->Hq);

	return cuda_check(dev, KV_LAUNCH((forms<T>), grid, THREADS, 0, dev->stream, (const T *)job->k, job->b, job->a,
	    job->T, job->D, job->Hq / job->Hkv, z), "forms");
}

int
cuda_forms(struct kvk_dev *dev, const struct kvk_forms *job, double *z)
{
	if (!cuda_is_float(job->k_type))
		return cuda_fail(dev, KVK_ETYPE, "forms: types are f32, f16 and bf16");
	if (job->Hkv == 0 || job->Hq % job->Hkv != 0)
		return cuda_fail(
		    dev, KVK_ESHAPE, "forms: %zu query heads cannot share %zu KV heads", job->Hq, job->Hkv);
	if (job->Hq == 0 || job->T == 0)
		return 0;
	return CUDA_TYPED(job->k_type, launch, dev, job, z);
}
