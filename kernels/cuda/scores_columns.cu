/* SPDX-License-Identifier: MIT
 * Scores of many rows, as h2o has them: a tile's logits are computed twice, and no probability goes to memory.
 *
 * First a block takes 64 rows of a query head and goes through the keys that they see, with a running ref and sum of
 * each row.  Then a block takes 64 columns of a query head and goes through the rows that see them.  Tiles that
 * nobody sees are passed over; the heaviest blocks come first. */
#include "kernels/cuda/score_tile.h"

/* Grid: tiles of rows, query heads.  ref, factor [Hq][n_q]: factor is 1 / the sum of 2^(logit - ref). */
template <int PQ, int PK>
KV_KERNEL(SCORE_THREADS, SCORE_BLOCKS(PQ, PK))
row_sums(struct score_work w, float *ref, double *factor)
{
	KV_DYN_SHARED(float, memory);
	const struct score_shared sh = score_cut(w, memory);
	const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 * 16 + lane / 4;
	const size_t tile = gridDim.x - 1 - blockIdx.x, row = tile * SCORE_ROWS, h = blockIdx.y, end = w.reach[tile];
	float last[2] = { -FLT_MAX, -FLT_MAX };
	double sum[2] = { 0, 0 };
	uint32_t sees[2];

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const size_t r = row + (size_t)(at + 8 * i);

		sees[i] = r < w.n_q ? w.sees[r] : 0;
	}
	for (size_t key = 0; key < end; key += SCORE_KEYS) {
		float high[SCORE_N][4], low[SCORE_N][4], top[2];
		const int seen[2] = { score_seen(sees[0], key), score_seen(sees[1], key) };

		score_tile<PQ, PK>(w, sh, h, row, key == 0, h / (w.Hq / w.Hkv), key, 1, high, low);
		score_scale(sh, seen, high, low, top);
#pragma unroll
		for (int i = 0; i < 2; i++)
			top[i] = fmaxf(top[i], last[i]);
		score_raise(sh, seen, top, high, low);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			sum[i] = sum[i] * (double)exp2f(last[i] - top[i]) + score_sum(high, i);
			last[i] = top[i];
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const size_t r = row + (size_t)(at + 8 * i);
		const double all = score_quad_sum(sum[i]);

		if (r < w.n_q && lane % 4 == 0) {
			ref[h * w.n_q + r] = last[i];
			factor[h * w.n_q + r] = all != 0 ? 1 / all : 0;
		}
	}
}

template <typename T>
static __device__ inline T
unite(int how, T x, T y)
{
	if (how != KVK_MAX)
		return x + y;
	return y <= x || x != x ? x : y; /* a NaN stays */
}

/* v [2 n + e] of the eight lanes that hold the same columns, united: a lane keeps one half and gives the other away,
 * three times, until own_column() and the next one are left in v[0] and v[1]. */
template <int HALF, typename T>
static __device__ inline void
scatter(int how, T v[2 * HALF])
{
	const int bit = 4 * (SCORE_N / HALF), upper = (int)threadIdx.x & bit;

#pragma unroll
	for (int i = 0; i < HALF; i++) {
		const T keep = upper ? v[i + HALF] : v[i], give = upper ? v[i] : v[i + HALF];

		v[i] = unite(how, keep, __shfl_xor_sync(KV_FULL, give, bit));
	}
	if constexpr (HALF > 2)
		scatter<HALF / 2>(how, v);
}

/* The first of a lane's two columns. */
static __device__ inline int
own_column(int lane)
{
	return (lane & 4 ? 32 : 0) + (lane & 8 ? 16 : 0) + (lane & 16 ? 8 : 0) + 2 * (lane % 4);
}

/* A tile joins the lane's columns.  Means and sums. */
static __device__ inline void
join_sums(const float p[SCORE_N][4], const double factor[2], double total[2])
{
	const float f[2] = { (float)factor[0], (float)factor[1] };
	float v[2 * SCORE_N];

#pragma unroll
	for (int i = 0; i < 2 * SCORE_N; i++)
		v[i] = fmaf(p[i / 2][i % 2], f[0], p[i / 2][i % 2 + 2] * f[1]);
	scatter<SCORE_N>(KVK_SUM, v);
	total[0] += (double)v[0];
	total[1] += (double)v[1];
}

/* The other reductions, in double precision: what is small for numbers near 1 or like each other. */
static __device__ inline void
join_others(int how, const float p[SCORE_N][4], const double factor[2], double total[2], double squares[2])
{
	double v[2 * SCORE_N];

#pragma unroll
	for (int i = 0; i < 2 * SCORE_N; i++) {
		double unused = 0;

		v[i] = 0;
		score_add(how, (double)p[i / 2][i % 2] * factor[0], &v[i], &unused);
		score_add(how, (double)p[i / 2][i % 2 + 2] * factor[1], &v[i], &unused);
	}
	scatter<SCORE_N>(how, v);
	total[0] = unite(how, total[0], v[0]);
	total[1] = unite(how, total[1], v[1]);
	if (how != KVK_VAR)
		return;
#pragma unroll
	for (int i = 0; i < 2 * SCORE_N; i++) {
		const double x = (double)p[i / 2][i % 2] * factor[0], y = (double)p[i / 2][i % 2 + 2] * factor[1];

		v[i] = x * x + y * y;
	}
	scatter<SCORE_N>(how, v);
	squares[0] += v[0];
	squares[1] += v[1];
}

/* Over the four warps, for the threads 0 .. 63, a column each. */
static __device__ inline double
unite_warps(int how, const double total[2], double *memory)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, j = (int)threadIdx.x % SCORE_KEYS;
	double x;

	__syncthreads();
	memory[warp * SCORE_KEYS + own_column(lane)] = total[0];
	memory[warp * SCORE_KEYS + own_column(lane) + 1] = total[1];
	__syncthreads();
	x = memory[j];
	for (int i = 1; i < SCORE_THREADS / 32; i++)
		x = unite(how, x, memory[i * SCORE_KEYS + j]);
	return x;
}

/* Grid: tiles of columns, query heads. */
template <int PQ, int PK, bool PLAIN>
KV_KERNEL(SCORE_THREADS, SCORE_BLOCKS(PQ, PK))
column_sums(struct score_work w, const float *ref, const double *factor, float *s, float *mean)
{
	KV_DYN_SHARED(float, memory);
	KV_SHARED(double, united, [SCORE_UNITED]);
	const struct score_shared sh = score_cut(w, memory);
	const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 * 16 + lane / 4;
	const size_t key = (size_t)blockIdx.x * SCORE_KEYS, h = blockIdx.y;
	double total[2] = { 0, 0 }, squares[2] = { 0, 0 }, all, all_squares;
	int fill_k = 1;

	for (size_t row = 0; row < w.n_q; row += SCORE_ROWS) {
		float high[SCORE_N][4], low[SCORE_N][4], top[2];
		double f[2];
		int seen[2];

		if (w.reach[row / SCORE_ROWS] <= key)
			continue;
		score_tile<PQ, PK>(w, sh, h, row, 1, h / (w.Hq / w.Hkv), key, fill_k, high, low);
		fill_k = 0;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const size_t r = row + (size_t)(at + 8 * i), there = r < w.n_q ? r : row;

			seen[i] = r < w.n_q ? score_seen(w.sees[r], key) : 0;
			f[i] = factor[h * w.n_q + there];
		}
		score_scale(sh, seen, high, low, top);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const size_t r = row + (size_t)(at + 8 * i), there = r < w.n_q ? r : row;

			top[i] = ref[h * w.n_q + there];
		}
		score_raise(sh, seen, top, high, low);
		if (PLAIN)
			join_sums(high, f, total);
		else
			join_others(w.how, high, f, total, squares);
	}
	all = unite_warps(w.how, total, united);
	all_squares = PLAIN ? 0 : unite_warps(KVK_SUM, squares, united);
	if (threadIdx.x < SCORE_KEYS && key + threadIdx.x < w.n) {
		const size_t j = h * w.n + key + threadIdx.x;

		s[j] = score_column(w.how, (double)w.n_q, all, all_squares);
		if (mean != NULL)
			mean[j] = score_column(KVK_MEAN, (double)w.n_q, all, all_squares);
	}
}

template <int PQ, int PK>
static int
launch_rows(struct kvk_dev *dev, const struct score_work *w, float *ref, double *factor)
{
	const dim3 grid(cuda_blocks(w->n_q, SCORE_ROWS), (unsigned)w->Hq);
	const size_t bytes = score_shared_bytes(w);
	int rc;

	if ((rc = cuda_check(dev, cudaFuncSetAttribute(row_sums<PQ, PK>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	    (int)bytes), "scores")) != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH((row_sums<PQ, PK>), grid, SCORE_THREADS, bytes, dev->stream, *w, ref, factor),
	    "scores");
}

template <int PQ, int PK, bool PLAIN>
static int
launch_columns_of(struct kvk_dev *dev, const struct score_work *w, const float *ref, const double *factor, float *s,
    float *mean)
{
	const dim3 grid(cuda_blocks(w->n, SCORE_KEYS), (unsigned)w->Hq);
	const size_t bytes = score_shared_bytes(w);
	int rc;

	if ((rc = cuda_check(dev, cudaFuncSetAttribute(column_sums<PQ, PK, PLAIN>,
	    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "scores")) != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH((column_sums<PQ, PK, PLAIN>), grid, SCORE_THREADS, bytes, dev->stream, *w, ref,
	    factor, s, mean), "scores");
}

template <int PQ, int PK>
static int
launch_columns(struct kvk_dev *dev, const struct score_work *w, const float *ref, const double *factor, float *s,
    float *mean)
{
	return w->how == KVK_MEAN || w->how == KVK_SUM
		   ? launch_columns_of<PQ, PK, true>(dev, w, ref, factor, s, mean)
		   : launch_columns_of<PQ, PK, false>(dev, w, ref, factor, s, mean);
}

int
cuda_scores_many(struct kvk_dev *dev, const struct score_work *w, char *room, float *s, float *mean)
{
	double *factor = (double *)cuda_take(&room, w->Hq * w->n_q, sizeof *factor);
	float *ref = (float *)cuda_take(&room, w->Hq * w->n_q, sizeof *ref);
	int rc;

	if ((rc = SCORE_PARTS(w, launch_rows, dev, w, ref, factor)) != 0)
		return rc;
	return SCORE_PARTS(w, launch_columns, dev, w, ref, factor, s, mean);
}
