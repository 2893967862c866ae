/* SPDX-License-Identifier: MIT
 * Attention in plain f32: steps of 64 keys, a block of 16 x 16 threads.  Thread (y, x) makes the logits of ROWS rows
 * from y * ROWS on and of four keys from x * 4 on, and sums four columns from x * 4 on, and every 64 further on.
 * Few rows (ROWS 1) and many (ROWS 4) take their sums in the same order. */
#include "kernels/cuda/attend.h"
#include "kernels/cuda/row_math.h"

#define FMA_KEYS    64
#define FMA_THREADS 256
#define FMA_K_ROW   (FMA_KEYS + 4)

static __host__ __device__ constexpr int
fma_q_row(int ROWS)
{
	return 16 * ROWS + 4;
}

static __host__ __device__ constexpr size_t
fma_shared(int DP, int ROWS)
{
	return ((size_t)DP * (size_t)(fma_q_row(ROWS) + FMA_K_ROW) + (size_t)FMA_KEYS * (size_t)fma_q_row(ROWS)) *
	       sizeof(float);
}

/* Blocks whose registers are to suffice for a multiprocessor: at most four, nor more than the 227 KiB of an sm_90 have
 * room for. */
static __host__ __device__ constexpr int
fma_blocks(int DP, int ROWS)
{
	if (ROWS == 1)
		return DP <= 64 ? 4 : DP <= 128 ? 3 : 2;
	return DP <= 64 ? 3 : DP <= 128 ? 2 : 1;
}

/* The tile's queries, turned: q [D][rows]. */
template <int ROWS>
static __device__ inline void
fma_queries(const struct attend &a, const struct attend_unit &u, float *q)
{
	const int D = (int)a.D, height = 16 * ROWS;

	for (int c = (int)threadIdx.x; c < height * D; c += FMA_THREADS) {
		const int r = c / D, d = c % D;

		q[d * fma_q_row(ROWS) + r] = r < u.rows ? attend_query(a, u.g, u.r0 + (unsigned)r)[d] * a.sign : 0;
	}
}

/* Keys e .. e + 63, turned: k [D][64]; zeros for those behind the unit's last. */
template <typename T>
static __device__ inline void
fma_keys(const struct attend &a, const struct attend_unit &u, int e, float *k)
{
	const int fours = (int)((a.D + 3) / 4);

	/* lanes: eight keys, four neighbours of each */
#pragma unroll 2
	for (int c = (int)threadIdx.x; c < FMA_KEYS * ((fours + 3) / 4) * 4; c += FMA_THREADS) {
		const int d = (c / 8 % 4 + c / (FMA_KEYS * 4) * 4) * 4, key = c % 8 + c / 32 % 8 * 8;
		float4 x = make_float4(0, 0, 0, 0);

		if (d >= (int)a.D)
			continue;
		if (e + key < u.to)
			x = attend_four((const T *)a.k + (u.base + (size_t)(e + key)) * a.row + (size_t)d,
			    a.D - (size_t)d, a.vectors);
		k[d * FMA_K_ROW + key] = x.x;
		k[(d + 1) * FMA_K_ROW + key] = x.y;
		k[(d + 2) * FMA_K_ROW + key] = x.z;
		k[(d + 3) * FMA_K_ROW + key] = x.w;
	}
}

/* Values e .. e + 63: v [64][DP]. */
template <typename T, int DP>
static __device__ inline void
fma_values(const struct attend &a, const struct attend_unit &u, int e, float *v)
{
#pragma unroll 2
	for (int c = (int)threadIdx.x; c < FMA_KEYS * DP / 4; c += FMA_THREADS) {
		const int key = c / (DP / 4), d = c % (DP / 4) * 4;
		float4 x = make_float4(0, 0, 0, 0);

		if (e + key < u.to && (size_t)d < a.D)
			x = attend_four((const T *)a.v + (u.base + (size_t)(e + key)) * a.row + (size_t)d,
			    a.D - (size_t)d, a.vectors);
		*(float4 *)(v + key * DP + d) = x;
	}
}

template <int ROWS>
static __device__ inline void
fma_logits(const float *q, const float *k, int D, float (&s)[ROWS][4])
{
#pragma unroll 8
	for (int d = 0; d < D; d++) {
		const float4 y = *(const float4 *)(k + d * FMA_K_ROW);
		float x[ROWS];

		row_load<ROWS>(q + d * fma_q_row(ROWS), x);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			s[r][0] = fmaf(x[r], y.x, s[r][0]);
			s[r][1] = fmaf(x[r], y.y, s[r][1]);
			s[r][2] = fmaf(x[r], y.z, s[r][2]);
			s[r][3] = fmaf(x[r], y.w, s[r][3]);
		}
	}
}

/* Softmax of a row's step, 16 threads together: s becomes weights, m and l follow; returns the factor of what was
 * summed before.  The first `sees` of the thread's keys are seen. */
static __device__ inline float
fma_soften(float (&s)[4], int sees, float scale, float *m, float *l)
{
	float top = -INFINITY, base, old;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		s[i] = i < sees ? s[i] : -INFINITY;
		top = fmaxf(top, s[i]);
	}
#pragma unroll
	for (int step = 8; step > 0; step /= 2)
		top = fmaxf(top, __shfl_xor_sync(KV_FULL, top, step));
	top = fmaxf(*m, top * scale);
	base = attend_base(top);
	old = ptx_exp2(*m - base);
	*m = top;
#pragma unroll
	for (int i = 0; i < 4; i++)
		s[i] = ptx_exp2(fmaf(s[i], scale, -base));
	*l = fmaf(*l, old, (s[0] + s[1]) + (s[2] + s[3]));
	return old;
}

template <int ROWS, int DP>
static __device__ inline void
fma_sum(const float *p, const float *v, float (&o)[ROWS][DP / 64][4])
{
#pragma unroll 2
	for (int key = 0; key < FMA_KEYS; key++) {
		float x[ROWS];

		row_load<ROWS>(p + key * fma_q_row(ROWS), x);
#pragma unroll
		for (int c = 0; c < DP / 64; c++) {
			const float4 y = *(const float4 *)(v + key * DP + c * 64);

#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				o[r][c][0] = fmaf(x[r], y.x, o[r][c][0]);
				o[r][c][1] = fmaf(x[r], y.y, o[r][c][1]);
				o[r][c][2] = fmaf(x[r], y.z, o[r][c][2]);
				o[r][c][3] = fmaf(x[r], y.w, o[r][c][3]);
			}
		}
	}
}

/* The step of entries e .. e + 63. */
template <typename T, int ROWS, int DP>
static __device__ inline void
fma_step(const struct attend &a, const struct attend_unit &u, int e, const float *q, float *k, float *p,
    float (&o)[ROWS][DP / 64][4], float (&m)[ROWS], float (&l)[ROWS])
{
	const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
	float s[ROWS][4] = {};

	__syncthreads(); /* nobody needs the step before any more */
	fma_keys<T>(a, u, e, k);
	__syncthreads();
	fma_logits<ROWS>(q + y * ROWS, k + x * 4, (int)a.D, s);
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		const int sees = attend_sees(a, u.len, u.r0 + (unsigned)(y * ROWS + r)) - e - x * 4;
		const float old = fma_soften(s[r], sees, a.scale, &m[r], &l[r]);

#pragma unroll
		for (int i = 0; i < 4; i++)
			p[(x * 4 + i) * fma_q_row(ROWS) + y * ROWS + r] = s[r][i];
#pragma unroll
		for (int i = 0; i < DP / 16; i++)
			o[r][i / 4][i % 4] *= old;
	}
	__syncthreads(); /* the weights are there, the keys done with */
	fma_values<T, DP>(a, u, e, k);
	__syncthreads();
	fma_sum<ROWS, DP>(p + y * ROWS, k + x * 4, o);
}

/* m and l of all pieces so far; each thread has its own. */
template <int ROWS>
struct fma_sums {
	float m[ROWS][FMA_THREADS], l[ROWS][FMA_THREADS];
};

/* The end of a piece. */
template <int ROWS, int DP>
static __device__ inline void
fma_end(const struct attend &a, const struct attend_unit &u, bool first, bool last, const float (&o)[ROWS][DP / 64][4],
    const float (&m)[ROWS], const float (&l)[ROWS], struct fma_sums<ROWS> *all)
{
	const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		const unsigned row = u.r0 + (unsigned)(y * ROWS + r);
		struct attend_row w;
		float sum = l[r];

#pragma unroll
		for (int step = 8; step > 0; step /= 2)
			sum += __shfl_xor_sync(KV_FULL, sum, step);
		w = attend_row_of(first, last && a.pieces == 1, m[r], sum, &all->m[r][threadIdx.x],
		    &all->l[r][threadIdx.x]);
		if (y * ROWS + r >= u.rows)
			continue;
		if (a.pieces > 1 && x == 0)
			attend_keep(a, u, row, m[r], sum);
#pragma unroll
		for (int i = 0; i < DP / 32; i++)
			attend_store(w, attend_to(a, u, row), a.D, (size_t)(i / 2 * 64 + x * 4 + i % 2 * 2),
			    o[r][i / 2][i % 2 * 2], o[r][i / 2][i % 2 * 2 + 1]);
	}
}

template <typename T, int ROWS, int DP>
KV_KERNEL(FMA_THREADS, fma_blocks(DP, ROWS)) attend_fma(struct attend a)
{
	KV_DYN_SHARED(float, q);
	float *k = q + DP * fma_q_row(ROWS), *p = k + DP * FMA_K_ROW;
	KV_SHARED(struct attend_unit, unit, ); /* not in registers, which the loop needs */
	KV_SHARED(struct fma_sums<ROWS>, all, );

	if (threadIdx.x == 0)
		unit = attend_unit_of(a, 16 * ROWS);
	__syncthreads();
	fma_queries<ROWS>(a, unit, q);
	for (int e = unit.from, to = unit.to; e < to;) {
		float o[ROWS][DP / 64][4] = {}, m[ROWS], l[ROWS] = {};
		const int begin = e, end = attend_end(e) < to ? attend_end(e) : to;

#pragma unroll
		for (int r = 0; r < ROWS; r++)
			m[r] = -INFINITY;
		for (; e < end; e += FMA_KEYS)
			fma_step<T, ROWS, DP>(a, unit, e, q, k, p, o, m, l);
		fma_end<ROWS, DP>(a, unit, begin == unit.from, e >= to, o, m, l, &all);
	}
}

template <typename T, int ROWS, int DP>
static int
fma_launch(struct kvk_dev *dev, const struct attend *a)
{
	const size_t bytes = fma_shared(DP, ROWS);
	int rc;

	if ((rc = cuda_check(dev, cudaFuncSetAttribute(attend_fma<T, ROWS, DP>,
	                              cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attention")) != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH((attend_fma<T, ROWS, DP>), a->tiles * a->H * a->pieces, FMA_THREADS, bytes,
	                           dev->stream, *a), "attention");
}

template <typename T>
static int
fma_attend(struct kvk_dev *dev, const struct attend *a, int height)
{
	if (a->D <= 64)
		return height == 16 ? fma_launch<T, 1, 64>(dev, a) : fma_launch<T, 4, 64>(dev, a);
	if (a->D <= 128)
		return height == 16 ? fma_launch<T, 1, 128>(dev, a) : fma_launch<T, 4, 128>(dev, a);
	return height == 16 ? fma_launch<T, 1, 256>(dev, a) : fma_launch<T, 4, 256>(dev, a);
}

int
cuda_attend_fma(struct kvk_dev *dev, const struct attend *a, enum kvk_type type, int height)
{
	return CUDA_TYPED(type, fma_attend, dev, a, height);
}
