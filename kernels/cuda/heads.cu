/* SPDX-License-Identifier: MIT
 * From rows [n][H][D] to heads: optional norm of each head, rotary embedding, and the store in the cache's type; and
 * the way back.
 *
 * A block has a row, or some heads of it; a warp has a head.  Angles are formed in double precision and their sines
 * taken there: in single precision they are off by 1e-3 and more at position 20,000.  All sums are the CPU's, rounded
 * one by one. */
#include "kernels/cuda/row_math.h"

#include <math.h>

#define THREADS 256
#define WARPS   (THREADS / 32)
#define PLACES  128 /* heads of a launch */
#define ROWS    256 /* from so many on a block has all heads of its row, which share the angles */

struct places {
	size_t at[PLACES];
};

struct shape {
	size_t n, H, D, dim, pos; /* dim 0: no rotation */
	int interleaved;
	size_t first, end; /* heads of this launch */
	size_t share;      /* heads of a block */
	unsigned blocks;   /* of a row */
};

/* Sine and cosine, to 1e-13, of angles below 2^50: the nearest multiple of pi/2 (in two pieces; the first product is
 * exact) is taken away, then come Taylor's polynomials to r^13 and r^14.  The library's sincos would do, but for the
 * memory that its way for huge angles sets aside. */
static __device__ inline void
sine_cosine(double angle, double *sine, double *cosine)
{
	const double sin_terms[6] = { 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0,
		-1.0 / 6.0 };
	const double cos_terms[7] = { -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0,
		-1.0 / 720.0, 1.0 / 24.0, -0.5 };
	const double k = rint(angle * 0.63661977236758134308);
	const double r = fma(-k, 6.123233995736766036e-17, fma(-k, 1.57079632679489661923, angle)), square = r * r;
	const int quarter = (int)((long long)k & 3);
	double s = 0, c = 0;

	for (int i = 0; i < 6; i++)
		s = fma(s, square, sin_terms[i]);
	for (int i = 0; i < 7; i++)
		c = fma(c, square, cos_terms[i]);
	s = fma(s * square, r, r);
	c = fma(c, square, 1.0);
	*sine = quarter & 1 ? c : s;
	*cosine = quarter & 1 ? s : c;
	if (quarter & 2)
		*sine = -*sine;
	if (quarter == 1 || quarter == 2)
		*cosine = -*cosine;
}

/* The cosines of a row's angles in turn [dim/2], then their sines; by the whole block. */
static __device__ inline void
row_turns(const struct shape *z, const float *inv_freq, size_t row, float *turn)
{
	const size_t pairs = z->dim / 2;

	for (size_t i = threadIdx.x; i < pairs; i += THREADS) {
		const double angle = (double)(z->pos + row) * (double)inv_freq[i];
		double s, c;

		sine_cosine(angle, &s, &c);
		turn[i] = (float)c;
		turn[pairs + i] = (float)s;
	}
	__syncthreads();
}

/* Sum of squares of x [D], by a warp. */
static __device__ inline double
head_squares(const float *x, size_t D)
{
	double sum = 0;

	for (size_t d = threadIdx.x % 32; d < D; d += 32)
		sum += (double)x[d] * (double)x[d];
	return row_warp_sum(sum);
}

/* One head of a row, by a warp. */
template <typename T, bool NORM>
static __device__ inline void
store_head(const struct shape *z, const float *x, const float *norm, float eps, const float *turn, T *y)
{
	const unsigned D = (unsigned)z->D, dim = (unsigned)z->dim, pairs = dim / 2, lane = threadIdx.x % 32;
	const unsigned step = z->interleaved ? 2 : 1, other = z->interleaved ? 1 : pairs;
	const float scale = NORM ? (float)row_scale(head_squares(x, z->D), z->D, eps) : 1;

	for (unsigned i = lane; i < pairs; i += 32) {
		const unsigned p = i * step, q = p + other;
		const float c = turn[i], s = turn[pairs + i];
		const float a = NORM ? x[p] * scale * norm[p] : x[p];
		const float b = NORM ? x[q] * scale * norm[q] : x[q];

		cuda_store(y, i, __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)));
		cuda_store(y, pairs + i, __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s)));
	}
	for (unsigned d = dim + lane; d < D; d += 32)
		cuda_store(y, d, NORM ? x[d] * scale * norm[d] : x[d]);
}

template <typename T, bool NORM>
KV_KERNEL(THREADS)
store_heads(struct shape z, const float *x, const float *norm, float eps, const float *inv_freq, struct places places,
    T *y)
{
	KV_DYN_SHARED(float, turn); /* [dim] */
	const size_t row = blockIdx.x / z.blocks, from = z.first + blockIdx.x % z.blocks * z.share;
	const size_t end = from + z.share < z.end ? from + z.share : z.end;

	row_turns(&z, inv_freq, row, turn);
	for (size_t h = from + threadIdx.x / 32; h < end; h += WARPS)
		store_head<T, NORM>(
		    &z, x + (row * z.H + h) * z.D, norm, eps, turn, y + (places.at[h - z.first] + row) * z.D);
}

/* Heads from z->first on, as many as one launch takes. */
static void
next_heads(struct shape *z, size_t most)
{
	z->end = z->H - z->first < most ? z->H : z->first + most;
	z->share = z->n < ROWS ? (size_t)WARPS : z->end - z->first;
	z->blocks = cuda_blocks(z->end - z->first, z->share);
}

template <typename T>
static cudaError_t
launch_heads(struct kvk_dev *dev, struct shape *z, const float *x, const float *norm, float eps,
    const struct kvk_rope *rope, const size_t *at, void *y)
{
	const float *inv_freq = rope != NULL ? rope->inv_freq : NULL;
	cudaError_t status = cudaSuccess;
	struct places p = {};

	for (z->first = 0; z->first < z->H && status == cudaSuccess; z->first = z->end) {
		next_heads(z, PLACES);
		for (size_t h = z->first; h < z->end; h++)
			p.at[h - z->first] = at[h];
		if (norm != NULL)
			status = KV_LAUNCH((store_heads<T, true>), (unsigned)(z->n * z->blocks), THREADS,
			    z->dim * sizeof(float), dev->stream, *z, x, norm, eps, inv_freq, p, (T *)y);
		else
			status = KV_LAUNCH((store_heads<T, false>), (unsigned)(z->n * z->blocks), THREADS,
			    z->dim * sizeof(float), dev->stream, *z, x, norm, eps, inv_freq, p, (T *)y);
	}
	return status;
}

/* The angles of a row are held in shared memory, of which a block has this without asking. */
static int
refuse(struct kvk_dev *dev, const char *what, const struct shape *z)
{
	if (z->dim % 2 != 0 || z->dim > z->D)
		return cuda_fail(
		    dev, KVK_ESHAPE, "%s: %zu of %zu elements cannot be rotated", what, z->dim, z->D);
	if (z->dim * sizeof(float) > dev->prop.sharedMemPerBlock)
		return cuda_fail(
		    dev, KVK_ESHAPE, "%s: %zu rotated elements are more than this card takes", what, z->dim);
	if (z->n * z->H >= INT32_MAX)
		return cuda_fail(
		    dev, KVK_ESHAPE, "%s: %zu rows of %zu heads are more than a launch can have", what, z->n, z->H);
	return 0;
}

static struct shape
shape_of(size_t n, size_t H, size_t D, const struct kvk_rope *rope, size_t pos)
{
	struct shape z = {};

	z.n = n;
	z.H = H;
	z.D = D;
	z.dim = rope != NULL ? rope->dim : 0;
	z.pos = pos;
	z.interleaved = rope != NULL && rope->interleaved;
	return z;
}

int
cuda_heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at)
{
	struct shape z = shape_of(n, H, D, rope, pos);
	int rc;

	if (!cuda_is_float(y_type))
		return cuda_fail(dev, KVK_ETYPE, "heads: rows are stored as f32, f16 or bf16");
	if ((rc = refuse(dev, "heads", &z)) != 0 || n * H * D == 0)
		return rc;
	return cuda_check(dev, CUDA_TYPED(y_type, launch_heads, dev, &z, x, norm, eps, rope, at, y), "heads");
}

/* ---- the way back */

/* Element d of dy [D], turned back to the order of x. */
static __device__ inline float
turned_back(const struct shape *z, const float *turn, const float *dy, size_t d)
{
	const size_t pairs = z->dim / 2;
	const size_t i = z->interleaved ? d / 2 : d % (pairs > 0 ? pairs : 1);
	const bool second = z->interleaved ? d % 2 : d >= pairs;
	float a, b;

	if (d >= z->dim)
		return dy[d];
	a = dy[i];
	b = dy[pairs + i];
	return second ? __fsub_rn(__fmul_rn(b, turn[i]), __fmul_rn(a, turn[pairs + i]))
	              : __fadd_rn(__fmul_rn(a, turn[i]), __fmul_rn(b, turn[pairs + i]));
}

static __device__ inline void
head_back(const struct shape *z, const float *x, const float *norm, float eps, const float *turn, const float *dy,
    float *dx)
{
	const unsigned lane = threadIdx.x % 32;
	double along = 0, s;
	float pull;

	if (norm == NULL) {
		for (size_t d = lane; d < z->D; d += 32)
			dx[d] = turned_back(z, turn, dy, d);
		return;
	}
	for (size_t d = lane; d < z->D; d += 32)
		along += (double)__fmul_rn(norm[d], turned_back(z, turn, dy, d)) * (double)x[d];
	s = row_scale(head_squares(x, z->D), z->D, eps);
	pull = (float)(s * s * s * row_warp_sum(along) / (double)z->D);
	for (size_t d = lane; d < z->D; d += 32)
		dx[d] = row_norm_back((float)s, pull, x[d], norm[d], turned_back(z, turn, dy, d));
}

KV_KERNEL(THREADS)
heads_back(struct shape z, const float *x, const float *norm, float eps, const float *inv_freq, const float *dy,
    float *dx)
{
	KV_DYN_SHARED(float, turn); /* [dim] */
	const size_t row = blockIdx.x / z.blocks, from = z.first + blockIdx.x % z.blocks * z.share;
	const size_t end = from + z.share < z.end ? from + z.share : z.end;

	row_turns(&z, inv_freq, row, turn);
	for (size_t h = from + threadIdx.x / 32; h < end; h += WARPS) {
		const size_t at = (row * z.H + h) * z.D;

		head_back(&z, norm != NULL ? x + at : NULL, norm, eps, turn, dy + (h * z.n + row) * z.D, dx + at);
	}
}

int
cuda_heads_back(struct kvk_dev *dev, const struct kvk_heads_back *j, float *dx)
{
	struct shape z = shape_of(j->n, j->H, j->D, j->rope, j->pos);
	const float *inv_freq = j->rope != NULL ? j->rope->inv_freq : NULL;
	int rc;

	if ((rc = refuse(dev, "heads_back", &z)) != 0 || j->n * j->H * j->D == 0)
		return rc;
	next_heads(&z, z.H);
	return cuda_check(dev,
	    KV_LAUNCH(heads_back, (unsigned)(z.n * z.blocks), THREADS, z.dim * sizeof(float), dev->stream, z, j->x,
	        j->norm, j->eps, inv_freq, j->dy, dx),
	    "heads_back");
}
