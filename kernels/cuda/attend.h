/* SPDX-License-Identifier: MIT
 * Causal attention over a ragged cache, what its kernels share.
 *
 * The rows of a cache head are its query rows, flattened: r = i * G + j is row i of the head's j-th query head, so
 * that the heads of a group read keys and values once.  A block takes a tile of rows that follow each other.
 *
 * A head's entries are cut into pieces at fixed places, counted from its first entry.  Every piece has sums of its
 * own (a maximum m, the weights' sum l, and o, the weighted values), and the pieces of a row are merged in ascending
 * order.  A block does the pieces of its tile one after the other, or, where there are few tiles, each piece is a
 * block and a kernel of its own merges.  Both make the same bits, and all kernels of one precision take the sums of
 * a piece in the same order: a row's result does not depend on how many rows a call has.  (Entries that a row does
 * not see count with weight 0: a NaN or an infinity among the values of a step may reach rows before it.)
 */
#ifndef KVK_CUDA_ATTEND_H
#define KVK_CUDA_ATTEND_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.h"

#define ATTEND_MAX_D ((size_t)256)

/* One call; passed to kernels by value. */
struct attend {
	const float *q; /* [*][D] */
	const void *k, *v; /* [*][row] */
	const size_t *q_at, *start, *len; /* device: [H * G], [H], [H] */
	unsigned n, G, H; /* n * G < 2^31, as are the entries of a head */
	size_t D;
	size_t row;   /* elements from entry to entry */
	int vectors;  /* k and v may be read four elements at a time */
	float scale;  /* > 0, times log2 e: weights are powers of two */
	float sign;   /* of the scale: factor of q */
	float *y;     /* [n][H * G][D] */
	unsigned tiles; /* of rows, per cache head */
	unsigned pieces; /* of the longest head: as many blocks share a tile; 1: a block does a tile's pieces */
	float *o;     /* [H][pieces][n * G][D] of shared tiles */
	float *ml;    /* [H][pieces][n * G][2] of shared tiles */
};

/* What a block has to do. */
struct attend_unit {
	size_t base;    /* the head's first entry in k and v */
	unsigned len;   /* its entries */
	unsigned g;     /* cache head */
	unsigned r0;    /* first row */
	int rows;       /* <= the tile's height */
	int from, to;   /* entries */
	unsigned piece; /* of a shared tile */
	int all_see;    /* entries that every row sees */
};

/* Where piece p begins: short ones first, for caches from which most was evicted; then long ones, as every piece
 * costs a pass over the tile's sums. */
static __host__ __device__ inline size_t
attend_begin(size_t p)
{
	return p < 3 ? p * 512 : (p - 2) * 2048;
}

/* The first place behind entry e where a piece ends. */
static __device__ inline int
attend_end(int e)
{
	return e < 1024 ? (e / 512 + 1) * 512 : (e / 2048 + 1) * 2048;
}

/* How many entries row r of a head with len entries sees. */
static __device__ inline int
attend_sees(const struct attend &a, unsigned len, unsigned r)
{
	return (int)(len - a.n + r / a.G + 1);
}

/* The last rows see most: they begin. */
static __device__ inline struct attend_unit
attend_unit_of(const struct attend &a, int height)
{
	const unsigned b = blockIdx.x / a.pieces, R = a.n * a.G;
	struct attend_unit u;

	u.piece = blockIdx.x % a.pieces;
	u.g = b % a.H;
	u.r0 = (a.tiles - 1 - b / a.H) * (unsigned)height;
	u.rows = (int)(R - u.r0 < (unsigned)height ? R - u.r0 : (unsigned)height);
	u.base = a.start[u.g];
	u.len = (unsigned)a.len[u.g];
	u.from = (int)attend_begin(u.piece);
	u.all_see = attend_sees(a, u.len, u.r0);
	u.to = attend_sees(a, u.len, u.r0 + (unsigned)u.rows - 1);
	if (a.pieces > 1 && (size_t)u.to > attend_begin(u.piece + 1))
		u.to = (int)attend_begin(u.piece + 1);
	return u;
}

/* Four elements of a row as floats, zeros behind its end. */
static __device__ inline float4
attend_four(const float *x, size_t left, int vectors)
{
	if (vectors)
		return *(const float4 *)x;
	return make_float4(x[0], left > 1 ? x[1] : 0, left > 2 ? x[2] : 0, left > 3 ? x[3] : 0);
}

template <typename T>
static __device__ inline float4
attend_four(const T *x, size_t left, int vectors)
{
	T four[4] = { x[0] };

	if (vectors) {
		const uint2 bits = *(const uint2 *)x;

		memcpy((void *)four, &bits, sizeof bits);
		left = 4;
	}
	for (size_t i = 1; i < 4 && !vectors; i++)
		four[i] = i < left ? x[i] : (T)0.0f;
	return make_float4((float)four[0], (float)four[1], (float)four[2], (float)four[3]);
}

static __device__ inline const float *
attend_query(const struct attend &a, unsigned g, unsigned r)
{
	return a.q + (a.q_at[g * a.G + r % a.G] + r / a.G) * a.D;
}

/* exp2(x - top), where nothing seen yet (-inf) is no reason for NaN. */
static __device__ inline float
attend_base(float top)
{
	return top == -INFINITY ? 0.0f : top;
}

/* Sums m, l meet those of the next piece; o becomes fma(o, *old, its o * *own). */
static __device__ inline void
attend_merge(float *m, float *l, float m_own, float l_own, float *old, float *own)
{
	const float top = fmaxf(*m, m_own), base = attend_base(top);

	*old = ptx_exp2(*m - base);
	*own = ptx_exp2(m_own - base);
	*l = fmaf(*l, *old, l_own * *own);
	*m = top;
}

/* What becomes of a row's o at the end of a piece. */
struct attend_row {
	float old, own;   /* factors of what there is, and of the piece's o */
	float l;          /* 1 / l, in the end */
	bool first, last; /* piece of those that a block merges */
};

/* m and l: sums of the piece; m_all, l_all: of all pieces before it, and then of it as well. */
static __device__ inline struct attend_row
attend_row_of(bool first, bool last, float m, float l, float *m_all, float *l_all)
{
	struct attend_row w;

	w.old = 0;
	w.own = 1;
	w.first = first;
	w.last = last;
	if (first) {
		*m_all = m;
		*l_all = l;
	} else {
		attend_merge(m_all, l_all, m, l, &w.old, &w.own);
	}
	w.l = ptx_reciprocal(*l_all);
	return w;
}

/* Where row r of the unit goes: y, or its place among the sums of shared tiles. */
static __device__ inline float *
attend_to(const struct attend &a, const struct attend_unit &u, unsigned r)
{
	if (a.pieces == 1)
		return a.y + (((size_t)(r / a.G) * a.H + u.g) * a.G + r % a.G) * a.D;
	return a.o + ((size_t)(u.g * a.pieces + u.piece) * (a.n * a.G) + r) * a.D;
}

static __device__ inline void
attend_keep(const struct attend &a, const struct attend_unit &u, unsigned r, float m, float l)
{
	float *to = a.ml + ((size_t)(u.g * a.pieces + u.piece) * (a.n * a.G) + r) * 2;

	to[0] = m;
	to[1] = l;
}

static __device__ inline float
attend_element(const struct attend_row &w, float before, float x)
{
	if (!w.first)
		x = fmaf(before, w.old, x * w.own);
	return w.last ? x * w.l + 0.0f : x; /* + 0: never -0, which a step without weight would undo */
}

/* Elements d (even) and d + 1 of a row. */
static __device__ inline void
attend_store(const struct attend_row &w, float *row, size_t D, size_t d, float x0, float x1)
{
	if (D % 2 == 0 && d < D) {
		float2 *to = (float2 *)(row + d);
		const float2 before = w.first ? make_float2(0, 0) : *to;

		*to = make_float2(attend_element(w, before.x, x0), attend_element(w, before.y, x1));
	} else if (d < D) {
		row[d] = attend_element(w, w.first ? 0 : row[d], x0);
		if (d + 1 < D)
			row[d + 1] = attend_element(w, w.first ? 0 : row[d + 1], x1);
	}
}

/* Queue the kernel of that arithmetic; height: rows of a tile, which the plan has from cuda_attend_height(): 16 for
 * few rows. */
int cuda_attend_fma(struct kvk_dev *dev, const struct attend *a, enum kvk_type type, int height);
int cuda_attend_bf16(struct kvk_dev *dev, const struct attend *a, int height);
int cuda_attend_f16(struct kvk_dev *dev, const struct attend *a, int height);
static inline int
cuda_attend_height(bool mma, size_t rows, size_t D)
{
	if (rows <= 16)
		return 16;
	return mma && D <= 128 ? 128 : 64;
}

#endif
