/* SPDX-License-Identifier: MIT
 * The attention-score family: softmax rows over the visible keys, reduced to one number per key.
 *
 * Few rows (a window, a response, lookahead rows): a block takes a tile of keys, from memory once, and goes through
 * the rows of all query heads that share them; every tile is softened by itself, 2^(logit - ref) is kept together
 * with the tile's ref and sum; then tiles are weighted by their share of a row's whole sum, and rows join their
 * columns.  Many rows: kernels/cuda/scores_columns.cu. */
#include "kernels/cuda/score_tile.h"

#include <stdlib.h>

#define KEPT_ROWS  128                 /* of a query head: more are many */
#define KEPT_BYTES ((size_t)256 << 20) /* of probabilities at a time, or one KV head's */
#define KEPT_SHARE 64                  /* this part of the card's memory, if that is less */
#define THREADS    128

/* What one pass over some KV heads works with.  Rows are those of all their query heads, head after head. */
struct kept {
	size_t rows, kv_heads, first; /* rows: of one KV head */
	float *p;       /* [kv_heads][rows][columns], tiles of keys that no row of a tile of rows sees undefined */
	float *ref;     /* [kv_heads][rows][tiles] */
	double *weight; /* the same: the tile's sum, then what its probabilities are to be multiplied by */
};

/* A tile of rows that sees nothing of a tile of keys. */
static __device__ inline void
unseen(const struct score_work &w, const struct kept &k, size_t g, size_t row, size_t tile)
{
	const size_t i = row + threadIdx.x;

	if (threadIdx.x < SCORE_ROWS && i < k.rows) {
		k.ref[(g * k.rows + i) * w.tiles + tile] = -FLT_MAX;
		k.weight[(g * k.rows + i) * w.tiles + tile] = 0;
	}
}

/* Grid: tiles of keys, KV heads. */
template <int PQ, int PK>
KV_KERNEL(SCORE_THREADS, SCORE_BLOCKS(PQ, PK))
soften(struct score_work w, struct kept k)
{
	KV_DYN_SHARED(float, memory);
	const struct score_shared sh = score_cut(w, memory);
	const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 * 16 + lane / 4;
	const size_t tile = blockIdx.x, key = tile * SCORE_KEYS, g = blockIdx.y;
	int fill_k = 1;

	for (size_t row = 0; row < k.rows; row += SCORE_ROWS) {
		float high[SCORE_N][4], low[SCORE_N][4], top[2];
		int seen[2];

		if (w.reach[row / SCORE_ROWS] <= key) {
			unseen(w, k, g, row, tile);
			continue;
		}
		score_tile<PQ, PK>(w, sh, k.first + g, row, 1, k.first + g, key, fill_k, high, low);
		fill_k = 0;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const size_t r = row + (size_t)(at + 8 * i);

			seen[i] = r < k.rows ? score_seen(w.sees[r % w.n_q], key) : 0;
		}
		score_scale(sh, seen, high, low, top);
		score_raise(sh, seen, top, high, low);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const size_t r = row + (size_t)(at + 8 * i), meta = (g * k.rows + r) * w.tiles + tile;
			const double sum = score_quad_sum(score_sum(high, i));
			float *p = k.p + (g * k.rows + r) * w.columns + key + 2 * (size_t)(lane % 4);

			if (r < k.rows && lane % 4 == 0) {
				k.ref[meta] = top[i];
				k.weight[meta] = sum;
			}
			if (r < k.rows && key < w.columns)
#pragma unroll
				for (int n = 0; n < SCORE_N; n++)
					*(float2 *)(p + 8 * n) = make_float2(high[n][2 * i], high[n][2 * i + 1]);
		}
	}
}

/* Sums of tiles become their weights.  A warp for a row. */
KV_KERNEL(THREADS)
weigh(const float *ref, double *weight, size_t rows, size_t tiles)
{
	const size_t row = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
	float top = -FLT_MAX;
	double sum = 0;

	if (row < rows) { /* all lanes of a warp, or none */
		ref += row * tiles;
		weight += row * tiles;
		for (size_t i = lane; i < tiles; i += 32)
			top = fmaxf(top, ref[i]);
		top = cuda_warp_max(top);
		for (size_t i = lane; i < tiles; i += 32)
			if (weight[i] != 0) {
				const double share = exp2((double)ref[i] - (double)top);

				sum += weight[i] * share;
				weight[i] = share;
			}
		for (int step = 16; step > 0; step /= 2)
			sum += __shfl_xor_sync(KV_FULL, sum, step);
		for (size_t i = lane; i < tiles; i += 32)
			if (weight[i] != 0)
				weight[i] /= sum;
	}
}

/* Grid: columns, query heads of the pass; s and mean are those of the first. */
KV_KERNEL(THREADS)
join(struct score_work w, const float *p, const double *weight, float *s, float *mean)
{
	const size_t j = (size_t)blockIdx.x * THREADS + threadIdx.x, h = blockIdx.y;
	double total = 0, squares = 0;

	if (j >= w.n)
		return;
	p += h * w.n_q * w.columns + j;
	weight += h * w.n_q * w.tiles + j / SCORE_KEYS;
#pragma unroll 4
	for (size_t i = 0; i < w.n_q; i++) {
		const double share = weight[i * w.tiles];
		const float x = p[i * w.columns]; /* read in any case, so that several are on their way together */

		score_add(w.how, share != 0 ? (double)x * share : 0, &total, &squares);
	}
	s[h * w.n + j] = score_column(w.how, (double)w.n_q, total, squares);
	if (mean != NULL)
		mean[h * w.n + j] = score_column(KVK_MEAN, (double)w.n_q, total, squares);
}

template <int PQ, int PK>
static int
launch_soften(struct kvk_dev *dev, const struct score_work *w, const struct kept *k)
{
	const size_t bytes = score_shared_bytes(w);
	const dim3 grid((unsigned)w->tiles, (unsigned)k->kv_heads);
	int rc;

	if ((rc = cuda_check(dev, cudaFuncSetAttribute(soften<PQ, PK>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	    (int)bytes), "scores")) != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH((soften<PQ, PK>), grid, SCORE_THREADS, bytes, dev->stream, *w, *k), "scores");
}

/* Query heads of k's KV heads: s and mean are the call's. */
static int
pass(struct kvk_dev *dev, const struct score_work *w, const struct kept *k, float *s, float *mean)
{
	const size_t G = w->Hq / w->Hkv, heads = k->kv_heads * G, rows = k->kv_heads * k->rows;
	const dim3 grid(cuda_blocks(w->n, THREADS), (unsigned)heads);
	const size_t at = k->first * G * w->n;
	int rc;

	if (rows > 0) {
		if ((rc = SCORE_PARTS(w, launch_soften, dev, w, k)) != 0)
			return rc;
		if ((rc = cuda_check(dev, KV_LAUNCH(weigh, cuda_blocks(rows * 32, THREADS), THREADS, 0, dev->stream,
		    k->ref, k->weight, rows, w->tiles), "scores")) != 0)
			return rc;
	}
	return cuda_check(dev, KV_LAUNCH(join, grid, THREADS, 0, dev->stream, *w, k->p, k->weight, s + at,
	    mean != NULL ? mean + at : NULL), "scores");
}

static size_t
kept_bytes(const struct score_work *w, size_t rows)
{
	return cuda_taken(rows * w->columns, sizeof(float)) + cuda_taken(rows * w->tiles, sizeof(float)) +
	       cuda_taken(rows * w->tiles, sizeof(double));
}

/* KV heads of one pass. */
static size_t
together(const struct kvk_dev *dev, const struct score_work *w)
{
	const size_t one = kept_bytes(w, w->Hq / w->Hkv * w->n_q), part = dev->prop.totalGlobalMem / KEPT_SHARE;
	size_t heads = one > 0 ? (part < KEPT_BYTES ? part : KEPT_BYTES) / one : w->Hkv;

	heads = heads < 1 ? 1 : heads < w->Hkv ? heads : w->Hkv;
	return heads * (w->Hq / w->Hkv) <= 65535 ? heads : 1; /* the grid's y axis */
}

static int
few(struct kvk_dev *dev, const struct score_work *w, char *room, float *s, float *mean)
{
	const size_t rows = w->Hq / w->Hkv * w->n_q, step = together(dev, w);
	struct kept k = { rows, 0, 0, NULL, NULL, NULL };
	int rc = 0;

	k.p = (float *)cuda_take(&room, step * rows * w->columns, sizeof(float));
	k.ref = (float *)cuda_take(&room, step * rows * w->tiles, sizeof(float));
	k.weight = (double *)cuda_take(&room, step * rows * w->tiles, sizeof(double));
	for (; rc == 0 && k.first < w->Hkv; k.first += step) {
		k.kv_heads = w->Hkv - k.first < step ? w->Hkv - k.first : step;
		rc = pass(dev, w, &k, s, mean);
	}
	return rc;
}

static int
check(struct kvk_dev *dev, const struct kvk_scores *j)
{
	if (!cuda_is_float(j->q_type) || !cuda_is_float(j->k_type))
		return cuda_fail(dev, KVK_ETYPE, "scores: queries and keys are f32, f16 or bf16");
	if (j->Hkv == 0 || j->Hq % j->Hkv != 0)
		return cuda_fail(dev, KVK_ESHAPE, "scores: %zu query heads cannot share %zu KV heads", j->Hq, j->Hkv);
	if (j->rows > KVK_ENTROPY)
		return cuda_fail(dev, KVK_ESHAPE, "scores: no reduction %d", (int)j->rows);
	if (j->n > j->T)
		return cuda_fail(dev, KVK_ESHAPE, "scores: %zu columns of %zu keys", j->n, j->T);
	return 0;
}

static struct score_side
side(const void *x, const void *behind, enum kvk_type type, size_t n, size_t n_behind, size_t D)
{
	const size_t quad = 4 * kvk_types[type].bytes;
	struct score_side s = { x, behind, n, n_behind, type == KVK_F32 ? 3 : 2, type == KVK_BF16, 0 };

	s.quads = D % 4 == 0 && (uintptr_t)x % quad == 0 && (n_behind == 0 || (uintptr_t)behind % quad == 0);
	return s;
}

/* Dimensions in shared memory at a time: all, if they are no more than SCORE_CHUNK and the card has room for them.
 * Those of capability 8.6 and 8.9, with 99 KiB, have not for 128 of f32 on both sides. */
static int
chunk(const struct kvk_dev *dev, struct score_work w)
{
	const size_t width = (w.D + 15) / 16 * 16;

	w.width = width == 0 ? 16 : width < SCORE_CHUNK ? (int)width : SCORE_CHUNK;
	while (w.width > 16 &&
	    score_shared_bytes(&w) + SCORE_UNITED * sizeof(double) > dev->prop.sharedMemPerBlockOptin)
		w.width = (w.width / 2 + 15) / 16 * 16;
	return w.width;
}

static struct score_work
plan(const struct kvk_dev *dev, const struct kvk_scores *j, int many)
{
	const size_t rows = many ? j->n_q : j->Hq / j->Hkv * j->n_q;
	struct score_work w = {};

	w.q = side(j->q, NULL, j->q_type, rows, 0, j->D);
	w.k = side(j->k, j->k_behind, j->k_type, j->T, j->n_behind, j->D);
	w.D = j->D;
	w.n_q = j->n_q;
	w.Hq = j->Hq;
	w.Hkv = j->Hkv;
	w.n = j->n;
	w.tiles = cuda_blocks(j->T + j->n_behind, SCORE_KEYS);
	w.columns = (j->n + SCORE_KEYS - 1) / SCORE_KEYS * SCORE_KEYS;
	w.width = chunk(dev, w);
	w.base = (float)((double)j->scale * 1.44269504088896340736);
	w.how = (int)j->rows;
	return w;
}

/* sees [n_q], reach [tiles of rows]: see struct score_work. */
static void
look(const struct kvk_scores *j, size_t rows, uint32_t *sees, uint32_t *reach)
{
	const size_t all = j->T + j->n_behind;

	for (size_t i = 0; i < j->n_q; i++) {
		const size_t n = j->q_pos[i] < 0 ? 0 : (size_t)j->q_pos[i] + 1;

		sees[i] = (uint32_t)(n < all ? n : all);
	}
	for (size_t i = 0; i < rows; i++) {
		const uint32_t n = sees[i % j->n_q];

		if (i % SCORE_ROWS == 0 || reach[i / SCORE_ROWS] < n)
			reach[i / SCORE_ROWS] = n;
	}
}

static int
run(struct kvk_dev *dev, const struct kvk_scores *j, uint32_t *seen, float *s)
{
	const int many = j->n_q > KEPT_ROWS;
	struct score_work w = plan(dev, j, many);
	const size_t rows = w.q.n, reach = (rows + SCORE_ROWS - 1) / SCORE_ROWS;
	const size_t work = many ? j->Hq * cuda_taken(j->n_q, 16) : together(dev, &w) * kept_bytes(&w, rows);
	float *mean = j->rows == KVK_VAR ? j->mean : NULL;
	char *room = (char *)cuda_scratch(dev, cuda_taken(j->n_q + reach, sizeof *seen) + work);
	uint32_t *there;
	int rc;

	if (room == NULL)
		return KVK_EMEM;
	look(j, rows, seen, seen + j->n_q);
	there = (uint32_t *)cuda_take(&room, j->n_q + reach, sizeof *seen);
	if (rows > 0 && (rc = cuda_put(dev, there, seen, (j->n_q + reach) * sizeof *seen)) != 0)
		return rc;
	w.sees = there;
	w.reach = there + j->n_q;
	return many ? cuda_scores_many(dev, &w, room, s, mean) : few(dev, &w, room, s, mean);
}

int
cuda_scores(struct kvk_dev *dev, const struct kvk_scores *j, float *s)
{
	uint32_t *seen;
	int rc;

	if ((rc = check(dev, j)) != 0)
		return rc;
	if (j->n == 0 || j->Hq == 0)
		return 0;
	if ((seen = (uint32_t *)malloc((j->n_q + j->Hq / j->Hkv * j->n_q / SCORE_ROWS + 2) * sizeof *seen)) == NULL)
		return cuda_fail(dev, KVK_EMEM, "scores: no memory for %zu rows", j->n_q);
	rc = run(dev, j, seen, s);
	free(seen);
	return rc;
}
