/* SPDX-License-Identifier: MIT
 * Attention on tensor cores: keys and values of 16 bits, factors (queries and weights too) rounded to their type,
 * sums in f32.  Included by one file per type.
 *
 * Four warps take steps of 32 keys, copied ahead in a ring.  Many rows: each warp has 16 MT rows and all of their
 * columns.  Few rows (PARTS 4): all warps have the same 16 rows; each makes the logits of 8 keys, they exchange
 * them, and each sums a quarter of the columns.  So two warps each share 32 rows of heads too wide for one (PARTS
 * 2).  Every logit and every sum is made by the same instructions in the same order both ways.
 *
 * Rows in shared memory are 8 elements longer than a head, an odd number of 16-byte pieces: ldmatrix meets no bank
 * twice.
 */
#ifndef KVK_CUDA_ATTENTION_MMA_H
#define KVK_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attend.h"

#define MMA_KEYS    32
#define MMA_THREADS 128
#define MMA_S_ROW   40 /* floats: rows of exchanged logits, on banks of their own */

static __device__ inline uint32_t
mma_pack(float x, float y, __nv_bfloat16)
{
	const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
	uint32_t bits;

	memcpy(&bits, &both, sizeof bits);
	return bits;
}

static __device__ inline uint32_t
mma_pack(float x, float y, __half)
{
	const __half2 both = __floats2half2_rn(x, y);
	uint32_t bits;

	memcpy(&bits, &both, sizeof bits);
	return bits;
}

static __device__ inline void
mma_madd(float c[4], const uint32_t a[4], const uint32_t b[2], __nv_bfloat16)
{
	ptx_mma_bf16(c, a, b);
}

static __device__ inline void
mma_madd(float c[4], const uint32_t a[4], const uint32_t b[2], __half)
{
	ptx_mma_f16(c, a, b);
}

/* Steps of keys and values in the ring. */
static __host__ __device__ constexpr int
mma_stages(int DP, int PARTS)
{
	return PARTS == 1 ? 2 : DP > 128 ? 3 : 5;
}

static __host__ __device__ constexpr int
mma_height(int MT, int PARTS)
{
	return 16 * MT * 4 / PARTS;
}

static __host__ __device__ constexpr size_t
mma_shared(int DP, int MT, int PARTS)
{
	return ((size_t)mma_height(MT, PARTS) + (size_t)mma_stages(DP, PARTS) * 2 * MMA_KEYS) * (size_t)(DP + 8) * 2 +
	       (PARTS > 1 ? (size_t)mma_height(MT, PARTS) * MMA_S_ROW * sizeof(float) : 0);
}

/* Blocks whose registers are to suffice for a multiprocessor: ptxas is not to save any for more than shared memory has
 * room for. */
static __host__ __device__ constexpr int
mma_blocks(int DP)
{
	return DP <= 64 ? 3 : 2;
}

/* Entries e .. e + 31 of k and v into a step of the ring, zeros for those behind the unit's last. */
template <typename T, int DP>
static __device__ inline void
mma_fetch(const struct attend &a, const struct attend_unit &u, int e, T *ring)
{
	constexpr int PER = DP <= 64 ? 8 : DP <= 128 ? 16 : 32; /* threads of a row */
	constexpr int ROWS = MMA_THREADS / PER;
	const int key = (int)threadIdx.x / PER, d = (int)threadIdx.x % PER * 8;

	if (e < u.to && d < DP) {
		const int left = (size_t)d < a.row ? u.to - e - key : 0;
		size_t at = (u.base + (size_t)(e + key)) * a.row + (size_t)d;
		T *k = ring + key * (DP + 8) + d;

#pragma unroll
		for (int i = 0; i < MMA_KEYS; i += ROWS, at += ROWS * a.row) {
			const size_t from = i < left ? at : 0;

			ptx_copy_async(k + i * (DP + 8), (const T *)a.k + from, i < left ? 16 : 0);
			ptx_copy_async(k + (MMA_KEYS + i) * (DP + 8), (const T *)a.v + from, i < left ? 16 : 0);
		}
	}
	ptx_copy_commit();
}

/* The tile's queries, rounded; zeros below the last row.  A warp has several rows on their way at a time. */
template <typename T, int DP, int HEIGHT>
static __device__ inline void
mma_queries(const struct attend &a, const struct attend_unit &u, T *q)
{
	constexpr int ROWS = HEIGHT < 32 ? HEIGHT / 4 : 8, PAIRS = (DP + 63) / 64;
	const int lane = (int)threadIdx.x % 32;

	for (int r0 = (int)threadIdx.x / 32 * ROWS; r0 < HEIGHT; r0 += 4 * ROWS) {
		float x[ROWS][PAIRS], y[ROWS][PAIRS];

#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const bool there = r0 + i < u.rows;
			const float *from = attend_query(a, u.g, u.r0 + (unsigned)(there ? r0 + i : 0)) + lane * 2;

#pragma unroll
			for (int j = 0; j < PAIRS; j++) {
				const size_t d = (size_t)(lane * 2 + j * 64);

				x[i][j] = there && d < a.D ? from[j * 64] : 0;
				y[i][j] = there && d + 1 < a.D ? from[j * 64 + 1] : 0;
			}
		}
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < PAIRS; j++)
				if (lane * 2 + j * 64 < DP)
					*(uint32_t *)(q + (r0 + i) * (DP + 8) + lane * 2 + j * 64) =
					    mma_pack(x[i][j] * a.sign, y[i][j] * a.sign, T());
	}
}

/* s += logits of rows of q (the warp's first) and 8 TILES keys. */
template <typename T, int DP, int MT, int TILES>
static __device__ inline void
mma_logits(const T *q, const T *k, float (&s)[MT][TILES][4])
{
	const int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int d = 0; d < DP; d += 32) {
		uint32_t x[MT][2][4], y[4];

#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int j = 0; j < 2; j++)
				ptx_ldmatrix(x[i][j], q + (i * 16 + lane % 16) * (DP + 8) + d + j * 16 + lane / 16 * 8);
#pragma unroll
		for (int t = 0; t < TILES; t++) {
			ptx_ldmatrix(y, k + (t * 8 + lane % 8) * (DP + 8) + d + lane / 8 * 8);
#pragma unroll
			for (int j = 0; j < 2; j++)
#pragma unroll
				for (int i = 0; i < MT; i++)
					mma_madd(s[i][t], x[i][j], y + 2 * j, T());
		}
	}
}

/* o += weights p of 32 keys times their values, columns of v from the warp's first on. */
template <typename T, int DP, int MT, int COLS>
static __device__ inline void
mma_values(const uint32_t (&p)[MT][2][4], const T *v, float (&o)[MT][COLS][4])
{
	const int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int c = 0; c < COLS; c++) {
		uint32_t y[4];

		ptx_ldmatrix_t(y, v + lane * (DP + 8) + c * 8);
#pragma unroll
		for (int j = 0; j < 2; j++)
#pragma unroll
			for (int i = 0; i < MT; i++)
				mma_madd(o[i][c], p[i][j], y + 2 * j, T());
	}
}

/* Softmax of one row (side 0: g, 1: g + 8) over its part of 32 logits, four lanes together: s becomes weights, m and
 * l follow; returns the factor of what was summed before. */
static __device__ inline float
mma_soften(float (&s)[4][4], int side, float scale, float *m, float *l)
{
	float top = -INFINITY, sum = 0, base, old;

#pragma unroll
	for (int t = 0; t < 4; t++)
		top = fmaxf(top, fmaxf(s[t][2 * side], s[t][2 * side + 1]));
	top = fmaxf(top, __shfl_xor_sync(KV_FULL, top, 1));
	top = fmaxf(top, __shfl_xor_sync(KV_FULL, top, 2));
	top = fmaxf(*m, top * scale);
	base = attend_base(top);
	old = ptx_exp2(*m - base);
	*m = top;
#pragma unroll
	for (int t = 0; t < 4; t++)
#pragma unroll
		for (int i = 2 * side; i < 2 * side + 2; i++) {
			s[t][i] = ptx_exp2(fmaf(s[t][i], scale, -base));
			sum += s[t][i];
		}
	*l = fmaf(*l, old, sum);
	return old;
}

/* The logits of 32 keys from those that the warp made: all of them, or each warp of the same rows a part. */
template <int MT, int TILES>
static __device__ inline void
mma_exchange(const float (&own)[MT][TILES][4], float (&s)[MT][4][4], float *room, int part)
{
	float *at = room + (int)threadIdx.x % 32 / 4 * MMA_S_ROW + (int)threadIdx.x % 4 * 2;

	if constexpr (TILES < 4) {
#pragma unroll
		for (int i = 0; i < MT * TILES * 2; i++) {
			const int m = i / 2 / TILES, t = i / 2 % TILES, side = i % 2;

			*(float2 *)(at + (m * 16 + side * 8) * MMA_S_ROW + (part * TILES + t) * 8) =
			    make_float2(own[m][t][side * 2], own[m][t][side * 2 + 1]);
		}
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < MT * 8; i++) {
		const int m = i / 8, t = i / 2 % 4, side = i % 2;

		if constexpr (TILES < 4) {
			const float2 x = *(float2 *)(at + (m * 16 + side * 8) * MMA_S_ROW + t * 8);

			s[m][t][side * 2] = x.x;
			s[m][t][side * 2 + 1] = x.y;
		} else {
			s[m][t][side * 2] = own[m][t][side * 2];
			s[m][t][side * 2 + 1] = own[m][t][side * 2 + 1];
		}
	}
}

/* Keys from `sees` on, counted from the step's first, are hidden. */
static __device__ inline void
mma_hide(float (&s)[4][4], int side, int sees)
{
	const int first = (int)threadIdx.x % 4 * 2;

#pragma unroll
	for (int t = 0; t < 4; t++)
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (t * 8 + first + i >= sees)
				s[t][2 * side + i] = -INFINITY;
}

/* One row of each four lanes, o of side 0 or 1, to room [8][DP + 8] of the warp. */
template <int DP, int COLS>
static __device__ inline void
mma_stage(const float (&o)[COLS][4], int side, float *room)
{
	const int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int c = 0; c < COLS; c++)
		*(float2 *)(room + lane / 4 * (DP + 8) + c * 8 + lane % 4 * 2) =
		    make_float2(o[c][2 * side], o[c][2 * side + 1]);
}

/* Out with 8 rows, of which there are `rows`, and with WIDTH columns from col on.  Row lane / 4 is the lane's: `to` is
 * its place, `mine` what becomes of it.  Several rows are read before any is written, as the way there is long. */
template <int DP, int WIDTH>
static __device__ inline void
mma_out(int rows, size_t D, int col, float *to, struct attend_row mine, const float *room)
{
	constexpr int ROWS = 4, EACH = (WIDTH + 31) / 32; /* neighbouring lanes have neighbouring elements */
	const int width = D < (size_t)(col + WIDTH) ? (int)D - col : WIDTH, lane = (int)threadIdx.x % 32;
	struct attend_row w = mine;

#pragma unroll 1
	for (int r = 0; r < 8; r += ROWS) {
		float before[ROWS][EACH] = {}, *row[ROWS];

#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			row[i] = (float *)__shfl_sync(KV_FULL, (unsigned long long)to, (r + i) * 4) + col + lane;
#pragma unroll
			for (int j = 0; j < EACH; j++)
				if (!w.first && r + i < rows && lane + j * 32 < width)
					before[i][j] = row[i][j * 32];
		}
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			w.old = __shfl_sync(KV_FULL, mine.old, (r + i) * 4);
			w.own = __shfl_sync(KV_FULL, mine.own, (r + i) * 4);
			w.l = __shfl_sync(KV_FULL, mine.l, (r + i) * 4);
#pragma unroll
			for (int j = 0; j < EACH; j++)
				if (r + i < rows && lane + j * 32 < width)
					row[i][j * 32] =
					    attend_element(w, before[i][j], room[(r + i) * (DP + 8) + lane + j * 32]);
		}
	}
}

/* m and l of all pieces so far; each thread has its own. */
template <int MT>
struct mma_sums {
	float m[MT * 2][MMA_THREADS], l[MT * 2][MMA_THREADS];
};

/* The end of a piece, by way of room [4][8][DP + 8]. */
template <int DP, int MT, int PARTS>
static __device__ inline void
mma_end(const struct attend &a, const struct attend_unit &u, bool first, bool last,
    const float (&o)[MT][DP / 8 / PARTS][4], const float (&m)[MT][2], const float (&l)[MT][2], struct mma_sums<MT> *all,
    float *room)
{
	constexpr int COLS = DP / 8 / PARTS;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, part = warp % PARTS;

	room += warp * 8 * (DP + 8);
#pragma unroll
	for (int i = 0; i < MT * 2; i++) {
		const int r = warp / PARTS * 16 * MT + i * 8 + lane / 4;
		float sum = l[i / 2][i % 2];

		sum += __shfl_xor_sync(KV_FULL, sum, 1);
		sum += __shfl_xor_sync(KV_FULL, sum, 2);
		if (a.pieces > 1 && part == 0 && lane % 4 == 0 && r < u.rows)
			attend_keep(a, u, u.r0 + (unsigned)r, m[i / 2][i % 2], sum);
		mma_stage<DP, COLS>(o[i / 2], i % 2, room);
		__syncwarp();
		mma_out<DP, COLS * 8>(u.rows - (r - lane / 4), a.D, part * COLS * 8,
		    attend_to(a, u, u.r0 + (unsigned)(r < u.rows ? r : 0)),
		    attend_row_of(first, last && a.pieces == 1, m[i / 2][i % 2], sum, &all->m[i][threadIdx.x],
		        &all->l[i][threadIdx.x]), room);
		__syncwarp();
	}
}

/* The step of entries e .. e + 31, at k (and v behind it): o, and m and l of a row in each side, follow. */
template <typename T, int DP, int MT, int PARTS>
static __device__ inline void
mma_step(const struct attend &a, const struct attend_unit &u, int e, const T *q, const T *k, float *exchange,
    float (&o)[MT][DP / 8 / PARTS][4], float (&m)[MT][2], float (&l)[MT][2])
{
	constexpr int COLS = DP / 8 / PARTS, TILES = 4 / PARTS;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int r0 = warp / PARTS * 16 * MT, part = warp % PARTS; /* the warp's rows and part of the columns */
	float own[MT][TILES][4] = {}, s[MT][4][4];
	uint32_t p[MT][2][4];

	mma_logits<T, DP, MT, TILES>(q + r0 * (DP + 8), k + part * TILES * 8 * (DP + 8), own);
	mma_exchange<MT, TILES>(own, s, exchange + r0 * MMA_S_ROW, part);
	if (u.all_see < e + MMA_KEYS)
#pragma unroll
		for (int i = 0; i < MT * 2; i++)
			mma_hide(s[i / 2], i % 2, attend_sees(a, u.len, u.r0 + (unsigned)(r0 + lane / 4 + i * 8)) - e);
#pragma unroll
	for (int i = 0; i < MT; i++) {
		const float up = mma_soften(s[i], 0, a.scale, &m[i][0], &l[i][0]);
		const float low = mma_soften(s[i], 1, a.scale, &m[i][1], &l[i][1]);

		if (__any_sync(KV_FULL, up != 1 || low != 1)) { /* times 1 changes nothing */
#pragma unroll
			for (int c = 0; c < COLS; c++)
#pragma unroll
				for (int j = 0; j < 4; j++)
					o[i][c][j] *= j < 2 ? up : low;
		}
#pragma unroll
		for (int j = 0; j < 4; j++) {
			p[i][j / 2][j % 2 * 2] = mma_pack(s[i][j][0], s[i][j][1], T());
			p[i][j / 2][j % 2 * 2 + 1] = mma_pack(s[i][j][2], s[i][j][3], T());
		}
	}
	mma_values<T, DP, MT, COLS>(p, k + MMA_KEYS * (DP + 8) + part * COLS * 8, o);
}

template <typename T, int DP, int MT, int PARTS>
KV_KERNEL(MMA_THREADS, mma_blocks(DP)) attend_mma(struct attend a)
{
	constexpr int HEIGHT = mma_height(MT, PARTS), STAGES = mma_stages(DP, PARTS), COLS = DP / 8 / PARTS;
	constexpr int STEP = 2 * MMA_KEYS * (DP + 8);
	KV_DYN_SHARED(T, shared);
	KV_SHARED(struct attend_unit, unit, ); /* not in registers, which the loop needs */
	KV_SHARED(struct mma_sums<MT>, all, );
	T *q = shared, *ring = q + HEIGHT * (DP + 8);
	float *exchange = (float *)(ring + STAGES * STEP);
	int e, ahead;

	if (threadIdx.x == 0)
		unit = attend_unit_of(a, HEIGHT);
	__syncthreads();
	mma_queries<T, DP, HEIGHT>(a, unit, q);
	e = ahead = unit.from;
	for (int i = 0; i < STAGES - 1; i++, ahead += MMA_KEYS)
		mma_fetch<T, DP>(a, unit, ahead, ring + i * STEP);
	for (int to = unit.to; e < to;) {
		float o[MT][COLS][4] = {}, m[MT][2], l[MT][2] = {};
		const int begin = e, end = attend_end(e) < to ? attend_end(e) : to;

#pragma unroll
		for (int i = 0; i < MT * 2; i++)
			m[i / 2][i % 2] = -INFINITY;
		for (; e < end; e += MMA_KEYS, ahead += MMA_KEYS) {
			const int stage = (e - unit.from) / MMA_KEYS % STAGES;

			ptx_copy_wait<STAGES - 2>();
			__syncthreads(); /* the step is there, and all have done the one whose place is filled now */
			mma_fetch<T, DP>(a, unit, ahead, ring + (stage + STAGES - 1) % STAGES * STEP);
			mma_step<T, DP, MT, PARTS>(a, unit, e, q, ring + stage * STEP, exchange, o, m, l);
		}
		__syncthreads(); /* nobody reads the last step any more: room for o */
		mma_end<DP, MT, PARTS>(a, unit, begin == unit.from, e >= to, o, m, l, &all,
		    (float *)(ring + (e - MMA_KEYS - unit.from) / MMA_KEYS % STAGES * STEP));
	}
	ptx_copy_wait<0>();
}

template <typename T, int DP, int MT, int PARTS>
static int
mma_launch(struct kvk_dev *dev, const struct attend *a)
{
	const size_t bytes = mma_shared(DP, MT, PARTS);
	const unsigned grid = a->tiles * a->H * a->pieces;
	int rc;

	if ((rc = cuda_check(dev, cudaFuncSetAttribute(attend_mma<T, DP, MT, PARTS>,
	                              cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attention")) != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH((attend_mma<T, DP, MT, PARTS>), grid, MMA_THREADS, bytes, dev->stream, *a),
	    "attention");
}

template <typename T>
static int
mma_attend(struct kvk_dev *dev, const struct attend *a, int height)
{
	if (a->D <= 64)
		return height == 16 ? mma_launch<T, 64, 1, 4>(dev, a) : mma_launch<T, 64, 2, 1>(dev, a);
	if (a->D <= 96)
		return height == 16 ? mma_launch<T, 96, 1, 4>(dev, a) : mma_launch<T, 96, 2, 1>(dev, a);
	if (a->D <= 128)
		return height == 16 ? mma_launch<T, 128, 1, 4>(dev, a) : mma_launch<T, 128, 2, 1>(dev, a);
	return height == 16 ? mma_launch<T, 256, 1, 4>(dev, a) : mma_launch<T, 256, 2, 2>(dev, a);
}

#endif
