/* SPDX-License-Identifier: MIT
 * Logits of 64 query rows by 64 keys on tensor cores, precise whatever the size of the numbers.
 *
 * An error d of a logit moves a probability by a share d (1 - p) of itself: some 1e-5 at most are allowed, also
 * where keys have a large common part and logits are in the hundreds.  Single precision, with an error of 2^-24 of
 * |q||k| and more, does not do.  So every row x (query or key) is cut into parts against its own power of two f, such
 * that |x f| < 256:
 *
 *	x f = s + r + t    s = the nearest integer; r = f16(x f - s), |r| <= 1/2; t = f16(x f - s - r)
 *
 * - Sums of s s are integers up to 2^16 D: exact in f32 for D <= 256, in whatever order and with whatever rounding
 *   the card adds.
 * - The other products are a 2^-8 of the whole at most.  They are added up over 16 dimensions at a time from zero,
 *   so that tensor cores, which truncate, do it to short sums only.
 * - r holds what is left of an f16 or bf16 element exactly, so those need two parts.  f32 needs three.  t t is
 *   dropped.
 *
 * With D = 128 and adders that truncate to 24 bits, logits up to 33 err by 3e-8 at most, up to 670 by 1e-6, up to 9000
 * by 1.3e-5; single precision by 1e-5, 3e-4 and 4e-3.
 *
 * A block has four warps of 16 rows each.  A lane holds of n-tile n the elements e = 0..3: row lane / 4 + 8 (e / 2)
 * of its warp's, key 8 n + 2 (lane % 4) + e % 2.
 */
#ifndef KVK_SCORE_TILE_H
#define KVK_SCORE_TILE_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.h"

#define SCORE_ROWS    64
#define SCORE_KEYS    64
#define SCORE_THREADS 128
#define SCORE_CHUNK   128 /* dimensions in shared memory at a time, at most */
#define SCORE_N       (SCORE_KEYS / 8)

/* Blocks of a multiprocessor that the 227 KiB of an sm_90 have room for; their registers are to suffice for them. */
#define SCORE_BLOCKS(pq, pk) ((pq) + (pk) == 4 ? 3 : 2)

/* Rows of one side, head after head: n of them in x, then n_behind in another place. */
struct score_side {
	const void *x, *behind;
	size_t n, n_behind;
	int parts; /* 3: f32; 2: f16 or bf16 */
	int bf16;
	int quads; /* rows can be read four elements at a time */
};

struct score_work {
	struct score_side q, k;
	const uint32_t *sees;  /* [n_q] how many keys, from the first on */
	const uint32_t *reach; /* per tile of SCORE_ROWS rows: the most that one of them sees */
	size_t D, n_q, Hq, Hkv, n;
	size_t tiles; /* of all keys */
	size_t columns; /* n in whole tiles */
	int width;  /* of a chunk: a multiple of 16, at most SCORE_CHUNK */
	float base; /* scale log2 e: probabilities are powers of two */
	int how;    /* enum kvk_reduce */
};

static inline size_t
score_stride(const struct score_work *w)
{
	return (size_t)w->width + 8; /* an odd number of 16 bytes: rows of an ldmatrix lie in different banks */
}

static inline size_t
score_shared_bytes(const struct score_work *w)
{
	return (size_t)(w->q.parts + w->k.parts) * SCORE_ROWS * score_stride(w) * sizeof(__half) +
	       (SCORE_ROWS + SCORE_KEYS) * sizeof(float);
}

/* What column_sums() has beside it. */
#define SCORE_UNITED (SCORE_THREADS / 32 * SCORE_KEYS)

/* A block's dynamic shared memory. */
struct score_shared {
	__half *q, *k;            /* [parts][64][stride] */
	float *q_factor, *k_factor; /* [64]: 1 / f; of queries times base */
};

static __device__ inline struct score_shared
score_cut(const struct score_work &w, float *memory)
{
	const size_t plane = SCORE_ROWS * ((size_t)w.width + 8);
	struct score_shared s;

	s.q_factor = memory;
	s.k_factor = s.q_factor + SCORE_ROWS;
	s.q = (__half *)(s.k_factor + SCORE_KEYS);
	s.k = s.q + (size_t)w.q.parts * plane;
	return s;
}

static __device__ inline float
score_power(int e)
{
	const uint32_t bits = (uint32_t)(e + 127) << 23;
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

/* The exponent e of the smallest power of two above x >= 0, as far as 2^(8 - e) and 2^(e - 8) are normal numbers. */
static __device__ inline int
score_exponent(float x)
{
	uint32_t bits;
	int e;

	memcpy(&bits, &x, sizeof bits);
	e = (int)(bits >> 23) - 126;
	return e < -86 ? -86 : e;
}

static __device__ inline float
score_narrow(uint16_t bits, int bf16)
{
	const uint32_t wide = (uint32_t)bits << 16;
	__half_raw raw;
	float x;

	if (bf16) {
		memcpy(&x, &wide, sizeof x);
		return x;
	}
	raw.x = bits;
	return __half2float(raw);
}

template <int PARTS>
static __device__ inline float
score_element(const struct score_side &s, const void *row, size_t d)
{
	return PARTS == 3 ? ((const float *)row)[d] : score_narrow(((const uint16_t *)row)[d], s.bf16);
}

/* Elements d .. d + 3 of a row of D, zeros behind it. */
template <int PARTS>
static __device__ inline void
score_quad(const struct score_side &s, const void *row, size_t d, size_t D, float y[4])
{
	y[0] = y[1] = y[2] = y[3] = 0;
	if (s.quads && d < D && PARTS == 3) {
		const float4 x = *(const float4 *)((const float *)row + d);

		y[0] = x.x, y[1] = x.y, y[2] = x.z, y[3] = x.w;
	} else if (s.quads && d < D) {
		const uint2 x = *(const uint2 *)((const uint16_t *)row + d);

		y[0] = score_narrow((uint16_t)x.x, s.bf16);
		y[1] = score_narrow((uint16_t)(x.x >> 16), s.bf16);
		y[2] = score_narrow((uint16_t)x.y, s.bf16);
		y[3] = score_narrow((uint16_t)(x.y >> 16), s.bf16);
	} else {
#pragma unroll
		for (size_t i = 0; i < 4; i++)
			if (d + i < D)
				y[i] = score_element<PARTS>(s, row, d + i);
	}
}

static __device__ inline void
score_put(__half *to, const float x[4])
{
	const __half2 low = __floats2half2_rn(x[0], x[1]), high = __floats2half2_rn(x[2], x[3]);
	uint2 both;

	memcpy(&both.x, &low, sizeof low);
	memcpy(&both.y, &high, sizeof high);
	*(uint2 *)to = both;
}

/* Four elements of a row as its parts, plane after plane. */
template <int PARTS>
static __device__ inline void
score_split(float x[4], float f, __half *to, size_t plane)
{
	float s[4];

#pragma unroll
	for (int i = 0; i < 4; i++) {
		s[i] = rintf(x[i] * f);
		x[i] = x[i] * f - s[i];
	}
	score_put(to, s);
	score_put(to + plane, x);
	if (PARTS == 3) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[i] -= __half2float(__float2half_rn(x[i]));
		score_put(to + 2 * plane, x);
	}
}

/* Dimensions from .. from + width - 1 of rows first .. first + 63 of a head, a warp for a row at a time, four of its
 * rows on their way together; rows that are not there are zeros.  factor [64] = base / f. */
template <int PARTS>
static __device__ inline void
score_fill(const struct score_work &w, const struct score_side &s, size_t head, size_t first, size_t from, float base,
    __half *to, float *factor)
{
	const size_t size = PARTS == 3 ? 4 : 2, D = w.D, stride = (size_t)w.width + 8;
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const size_t d = from + 4 * (size_t)lane;

	for (int r = 4 * warp; r < SCORE_ROWS; r += 16) {
		float x[4][4];

#pragma unroll
		for (int u = 0; u < 4; u++) {
			const size_t i = first + (size_t)(r + u);
			const char *row = i < s.n ? (const char *)s.x + (head * s.n + i) * D * size
						  : (const char *)s.behind + (head * s.n_behind + i - s.n) * D * size;

			score_quad<PARTS>(s, row, d, i < s.n + s.n_behind ? D : 0, x[u]);
		}
#pragma unroll
		for (int u = 0; u < 4; u++) {
			float top = fmaxf(
			    fmaxf(fabsf(x[u][0]), fabsf(x[u][1])), fmaxf(fabsf(x[u][2]), fabsf(x[u][3])));
			const size_t i = first + (size_t)(r + u);
			int e;

			if (D > (size_t)w.width && i < s.n + s.n_behind) { /* the other chunks count as well */
				const char *row =
				    i < s.n ? (const char *)s.x + (head * s.n + i) * D * size
					    : (const char *)s.behind + (head * s.n_behind + i - s.n) * D * size;

				for (size_t j = (size_t)lane; j < D; j += 32)
					top = fmaxf(top, fabsf(score_element<PARTS>(s, row, j)));
			}
			e = score_exponent(cuda_warp_max(top));
			if (4 * lane < w.width)
				score_split<PARTS>(x[u], score_power(8 - e), to + (size_t)(r + u) * stride + 4 * lane,
				    SCORE_ROWS * stride);
			if (lane == 0)
				factor[r + u] = base * score_power(e - 8);
		}
	}
}

/* Of a warp's 16 rows and a block's 64 keys, over one chunk: high += s s, low += the rest. */
template <int PQ, int PK>
static __device__ inline void
score_multiply(const struct score_shared &sh, int width, float high[SCORE_N][4], float low[SCORE_N][4])
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const size_t stride = (size_t)width + 8, plane = SCORE_ROWS * stride;
	const __half *q = sh.q + (size_t)(16 * warp + lane % 16) * stride + lane / 16 * 8;
	const __half *k = sh.k + (size_t)(lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;

#pragma unroll 1
	for (int d = 0; d < width; d += 16) {
		uint32_t a[PQ][4];

#pragma unroll
		for (int i = 0; i < PQ; i++)
			ptx_ldmatrix(a[i], q + (size_t)i * plane + d);
#pragma unroll
		for (int n = 0; n < SCORE_N; n += 2) {
			uint32_t b[PK][4];

#pragma unroll
			for (int i = 0; i < PK; i++)
				ptx_ldmatrix(b[i], k + (size_t)i * plane + (size_t)(8 * n) * stride + d);
#pragma unroll
			for (int m = 0; m < 2; m++) {
				float c[4] = { 0, 0, 0, 0 };

				ptx_mma_f16(high[n + m], a[0], b[0] + 2 * m);
#pragma unroll
				for (int i = PQ + PK - 2; i > 0; i--) /* the smallest first */
#pragma unroll
					for (int j = 0; j < PQ; j++)
						if (i - j >= 0 && i - j < PK && !(j == 2 && i - j == 2))
							ptx_mma_f16(c, a[j], b[i - j] + 2 * m);
#pragma unroll
				for (int e = 0; e < 4; e++)
					low[n + m][e] += c[e];
			}
		}
	}
}

/* One tile: rows from `row` on of head hq of the queries, keys from `key` on of head hk.  A side whose fill is 0 is
 * still in shared memory from the tile before. */
template <int PQ, int PK>
static __device__ inline void
score_tile(const struct score_work &w, const struct score_shared &sh, size_t hq, size_t row, int fill_q, size_t hk,
    size_t key, int fill_k, float high[SCORE_N][4], float low[SCORE_N][4])
{
#pragma unroll
	for (int n = 0; n < SCORE_N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			high[n][e] = low[n][e] = 0;
	for (size_t from = 0; from == 0 || from < w.D; from += (size_t)w.width) {
		__syncthreads(); /* nobody reads the tile before any more */
		if (fill_q || w.D > (size_t)w.width)
			score_fill<PQ>(w, w.q, hq, row, from, w.base, sh.q, sh.q_factor);
		if (fill_k || w.D > (size_t)w.width)
			score_fill<PK>(w, w.k, hk, key, from, 1, sh.k, sh.k_factor);
		__syncthreads();
		score_multiply<PQ, PK>(sh, w.width, high, low);
	}
}

/* What a lane's two rows see of a tile, as a number of keys. */
static __device__ inline int
score_seen(uint32_t sees, size_t key)
{
	return sees <= key ? 0 : sees - key < SCORE_KEYS ? (int)(sees - key) : SCORE_KEYS;
}

/* low becomes part of the logit, high remains an integer; top: of a row, the highest logit that it sees, for all
 * four lanes that share it; -FLT_MAX where it sees none. */
static __device__ inline void
score_scale(const struct score_shared &sh, const int seen[2], const float high[SCORE_N][4], float low[SCORE_N][4],
    float top[2])
{
	const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
	const float fq[2] = { sh.q_factor[row], sh.q_factor[row + 8] };

	top[0] = top[1] = -FLT_MAX;
#pragma unroll
	for (int n = 0; n < SCORE_N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int j = 8 * n + 2 * (lane % 4) + e % 2;
			const float f = fq[e / 2] * sh.k_factor[j];

			low[n][e] *= f;
			if (j < seen[e / 2])
				top[e / 2] = fmaxf(top[e / 2], fmaf(high[n][e], f, low[n][e]));
		}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		top[i] = fmaxf(top[i], __shfl_xor_sync(KV_FULL, top[i], 1));
		top[i] = fmaxf(top[i], __shfl_xor_sync(KV_FULL, top[i], 2));
	}
}

/* high = 2^(logit - ref), 0 where a row does not see the key.  The product is subtracted before it is rounded. */
static __device__ inline void
score_raise(const struct score_shared &sh, const int seen[2], const float ref[2], float high[SCORE_N][4],
    const float low[SCORE_N][4])
{
	const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
	const float fq[2] = { sh.q_factor[row], sh.q_factor[row + 8] };

#pragma unroll
	for (int n = 0; n < SCORE_N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int j = 8 * n + 2 * (lane % 4) + e % 2;
			const float f = fq[e / 2] * sh.k_factor[j];

			high[n][e] = j < seen[e / 2] ? exp2f(fmaf(high[n][e], f, -ref[e / 2]) + low[n][e]) : 0;
		}
}

/* Sum of a lane's elements in row i of its two. */
static __device__ inline double
score_sum(const float p[SCORE_N][4], int i)
{
	double sum = 0;

#pragma unroll
	for (int n = 0; n < SCORE_N; n++)
		sum += (double)p[n][2 * i] + (double)p[n][2 * i + 1];
	return sum;
}

/* Over the four lanes that share a row. */
static __device__ inline double
score_quad_sum(double x)
{
	x += __shfl_xor_sync(KV_FULL, x, 1);
	x += __shfl_xor_sync(KV_FULL, x, 2);
	return x;
}

/* One probability joins its column. */
static __device__ inline void
score_add(int how, double x, double *total, double *squares)
{
	if (how == KVK_MAX) {
		*total = x <= *total || *total != *total ? *total : x; /* a NaN stays */
	} else if (how == KVK_ENTROPY) {
		*total -= x * log(x + 1e-10);
	} else {
		*total += x;
		*squares += x * x;
	}
}

/* A column over n_q rows as the number that is asked for. */
static __device__ inline float
score_column(int how, double n_q, double total, double squares)
{
	double var;

	if (how == KVK_MEAN)
		return (float)(n_q > 0 ? total * (1.0 / n_q) : total);
	if (how != KVK_VAR)
		return (float)total;
	var = n_q > 1 ? (squares - total * total / n_q) / (n_q - 1) : 0;
	return (float)(var < 0 ? 0 : var);
}

/* Call WHAT<PQ, PK>(...) for the parts of both sides. */
#define SCORE_PARTS(w, what, ...)                                                                                      \
	((w)->q.parts == 3 ? ((w)->k.parts == 3 ? what<3, 3>(__VA_ARGS__) : what<3, 2>(__VA_ARGS__))                   \
			   : ((w)->k.parts == 3 ? what<2, 3>(__VA_ARGS__) : what<2, 2>(__VA_ARGS__)))

/* Many rows (scores_columns.cu): two passes over tiles, no probability is kept.  room: 16 bytes for each row of each
 * query head.  mean may be NULL. */
int cuda_scores_many(struct kvk_dev *dev, const struct score_work *w, char *room, float *s, float *mean);

#endif
