/* SPDX-License-Identifier: MIT
 * Attention of rows that stand behind a prompt, and what they see of it on average. */
#include "kernels/cuda/behind_sums.h"
#include "kernels/cuda/row_math.h"

#include <math.h>

#define BEHIND_THREADS 256
#define BEHIND_ROWS    32  /* of a block */
#define BEHIND_KEYS    64  /* of a block, or columns where keys are summed */
#define BEHIND_STEP    32  /* elements, or keys, at a time */
#define BEHIND_CHUNK   512 /* keys of a sum that is its own */

struct behind_shape
cuda_behind_shape(const struct kvk_behind *x)
{
	struct behind_shape z;

	z.n = x->n;
	z.T = x->T;
	z.all = x->T + x->n;
	z.Hq = x->Hq;
	z.G = x->Hq / x->Hkv;
	z.D = x->D;
	return z;
}

int
cuda_behind_check(struct kvk_dev *dev, const struct kvk_behind *x)
{
	if (!cuda_is_float(x->type))
		return cuda_fail(dev, KVK_ETYPE, "behind: keys and values are f32, f16 or bf16");
	if (x->Hkv == 0 || x->Hq % x->Hkv != 0)
		return cuda_fail(dev, KVK_ESHAPE, "behind: %zu query heads cannot share %zu KV heads", x->Hq, x->Hkv);
	return 0;
}

/* Element d of key j of KV head g; 0 outside. */
template <typename T>
static __device__ inline float
key_element(const struct behind_shape &z, const T *prompt, const float *behind, size_t g, size_t j, size_t d)
{
	if (j >= z.all || d >= z.D)
		return 0;
	return j < z.T ? cuda_load(prompt, (g * z.T + j) * z.D + d) : behind[(g * z.n + j - z.T) * z.D + d];
}

/* A block makes 32 x 64 products, a thread 2 x 4 of them. */
template <typename T>
KV_KERNEL(BEHIND_THREADS) behind_dots(struct behind_shape z, const T *prompt, const float *behind,
    struct behind_rows rows, float factor, float *p)
{
	KV_SHARED(float, x, [BEHIND_STEP][BEHIND_ROWS + 1]);
	KV_SHARED(float, k, [BEHIND_STEP][BEHIND_KEYS + 1]);
	const size_t across = (z.all + BEHIND_KEYS - 1) / BEHIND_KEYS, down = (z.n + BEHIND_ROWS - 1) / BEHIND_ROWS;
	const size_t j0 = blockIdx.x % across * BEHIND_KEYS, i0 = blockIdx.x / across % down * BEHIND_ROWS;
	const size_t h = blockIdx.x / across / down, g = h / z.G;
	const int a = (int)threadIdx.x / 16, b = (int)threadIdx.x % 16;
	float sum[2][4] = {};

	for (size_t d0 = 0; d0 < z.D; d0 += BEHIND_STEP) {
		for (int c = (int)threadIdx.x; c < BEHIND_ROWS * BEHIND_STEP; c += BEHIND_THREADS) {
			const size_t i = i0 + (size_t)(c / BEHIND_STEP), d = d0 + (size_t)(c % BEHIND_STEP);

			x[c % BEHIND_STEP][c / BEHIND_STEP] =
			    i < z.n && d < z.D ? rows.x[h * rows.head + i * rows.row + d] : 0;
		}
		for (int c = (int)threadIdx.x; c < BEHIND_KEYS * BEHIND_STEP; c += BEHIND_THREADS)
			k[c % BEHIND_STEP][c / BEHIND_STEP] = key_element(z, prompt, behind, g,
			    j0 + (size_t)(c / BEHIND_STEP), d0 + (size_t)(c % BEHIND_STEP));
		__syncthreads();
		for (int d = 0; d < BEHIND_STEP; d++)
			for (int u = 0; u < 2; u++)
				for (int v = 0; v < 4; v++)
					sum[u][v] = fmaf(x[d][a + 16 * u], k[d][b + 16 * v], sum[u][v]);
		__syncthreads();
	}
	for (int u = 0; u < 2; u++)
		for (int v = 0; v < 4; v++) {
			const size_t i = i0 + (size_t)(a + 16 * u), j = j0 + (size_t)(b + 16 * v);

			if (i < z.n && j < z.all)
				p[(h * z.n + i) * z.all + j] = factor * sum[u][v];
		}
}

template <typename T>
static int
dots(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys, struct behind_rows rows, float factor,
    float *p)
{
	const unsigned grid = cuda_blocks(z->all, BEHIND_KEYS) * cuda_blocks(z->n, BEHIND_ROWS) * (unsigned)z->Hq;

	return cuda_check(dev, KV_LAUNCH(behind_dots<T>, grid, BEHIND_THREADS, 0, dev->stream, *z,
	                           (const T *)keys.prompt, keys.behind, rows, factor, p), "behind");
}

int
cuda_behind_dots(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys, struct behind_rows rows,
    float factor, float *p)
{
	return CUDA_TYPED(keys.type, dots, dev, z, keys, rows, factor, p);
}

/* Softmax of row i = block % n over the T + i + 1 keys that it sees. */
KV_KERNEL(BEHIND_THREADS) behind_soften(struct behind_shape z, float *p)
{
	KV_SHARED(double, parts, [BEHIND_THREADS / 32]);
	const size_t sees = z.T + blockIdx.x % z.n + 1;
	float *row = p + (size_t)blockIdx.x * z.all, top = -INFINITY;
	double sum = 0;

	for (size_t j = threadIdx.x; j < sees; j += BEHIND_THREADS)
		top = fmaxf(top, row[j]);
	top = cuda_warp_max(top);
	if (threadIdx.x % 32 == 0)
		parts[threadIdx.x / 32] = top;
	__syncthreads();
	for (int w = 0; w < BEHIND_THREADS / 32; w++)
		top = fmaxf(top, (float)parts[w]);
	__syncthreads();
	for (size_t j = threadIdx.x; j < sees; j += BEHIND_THREADS) {
		row[j] = expf(row[j] - top);
		sum += row[j];
	}
	sum = row_block_sum(sum, parts);
	for (size_t j = threadIdx.x; j < z.all; j += BEHIND_THREADS)
		row[j] = j < sees ? row[j] * (float)(1 / sum) : 0;
}

int
cuda_behind_weights(struct kvk_dev *dev, const struct kvk_behind *x, float *p)
{
	const struct behind_shape z = cuda_behind_shape(x);
	const struct behind_keys keys = { x->k, x->type, x->k_behind };
	const struct behind_rows rows = { x->q, x->n * x->D, x->D };
	int rc = cuda_behind_dots(dev, &z, keys, rows, x->scale, p);

	if (rc != 0)
		return rc;
	return cuda_check(dev, KV_LAUNCH(behind_soften, (unsigned)(z.Hq * z.n), BEHIND_THREADS, 0, dev->stream, z, p),
	    "behind");
}

/* A block sums a chunk of keys for 32 rows and 64 of their columns, a thread 2 x 4: part [chunks][Hq][n][D]. */
template <typename T>
KV_KERNEL(BEHIND_THREADS) behind_sum(struct behind_shape z, const T *prompt, const float *behind, const float *p,
    float *part)
{
	KV_SHARED(float, w, [BEHIND_STEP][BEHIND_ROWS + 1]);
	KV_SHARED(float, k, [BEHIND_STEP][BEHIND_KEYS + 1]);
	const size_t across = (z.D + BEHIND_KEYS - 1) / BEHIND_KEYS, down = (z.n + BEHIND_ROWS - 1) / BEHIND_ROWS;
	const size_t d0 = blockIdx.x % across * BEHIND_KEYS, i0 = blockIdx.x / across % down * BEHIND_ROWS;
	const size_t h = blockIdx.x / across / down % z.Hq, chunk = blockIdx.x / across / down / z.Hq, g = h / z.G;
	const size_t end = (chunk + 1) * BEHIND_CHUNK < z.all ? (chunk + 1) * BEHIND_CHUNK : z.all;
	const int a = (int)threadIdx.x / 16, b = (int)threadIdx.x % 16;
	float sum[2][4] = {};

	for (size_t j0 = chunk * BEHIND_CHUNK; j0 < end; j0 += BEHIND_STEP) {
		for (int c = (int)threadIdx.x; c < BEHIND_ROWS * BEHIND_STEP; c += BEHIND_THREADS) {
			const size_t i = i0 + (size_t)(c / BEHIND_STEP), j = j0 + (size_t)(c % BEHIND_STEP);

			w[c % BEHIND_STEP][c / BEHIND_STEP] = i < z.n && j < end ? p[(h * z.n + i) * z.all + j] : 0;
		}
		for (int c = (int)threadIdx.x; c < BEHIND_KEYS * BEHIND_STEP; c += BEHIND_THREADS)
			k[c / BEHIND_KEYS][c % BEHIND_KEYS] = key_element(z, prompt, behind, g,
			    j0 + (size_t)(c / BEHIND_KEYS), d0 + (size_t)(c % BEHIND_KEYS));
		__syncthreads();
		for (int j = 0; j < BEHIND_STEP; j++)
			for (int u = 0; u < 2; u++)
				for (int v = 0; v < 4; v++)
					sum[u][v] = fmaf(w[j][a + 16 * u], k[j][b + 16 * v], sum[u][v]);
		__syncthreads();
	}
	for (int u = 0; u < 2; u++)
		for (int v = 0; v < 4; v++) {
			const size_t i = i0 + (size_t)(a + 16 * u), d = d0 + (size_t)(b + 16 * v);

			if (i < z.n && d < z.D)
				part[((chunk * z.Hq + h) * z.n + i) * z.D + d] = sum[u][v];
		}
}

KV_KERNEL(BEHIND_THREADS) behind_add(struct behind_shape z, const float *part, size_t chunks, float factor, float *y,
    size_t head, size_t row)
{
	const size_t e = (size_t)blockIdx.x * BEHIND_THREADS + threadIdx.x, size = z.Hq * z.n * z.D;
	double sum = 0;

	if (e >= size)
		return;
	for (size_t c = 0; c < chunks; c++)
		sum += part[c * size + e];
	y[e / z.D / z.n * head + e / z.D % z.n * row + e % z.D] = (float)(factor * sum);
}

template <typename T>
static int
sum_keys(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys, const float *p, float *part)
{
	const unsigned grid = cuda_blocks(z->D, BEHIND_KEYS) * cuda_blocks(z->n, BEHIND_ROWS) * (unsigned)z->Hq *
	                      cuda_blocks(z->all, BEHIND_CHUNK);

	return cuda_check(dev, KV_LAUNCH(behind_sum<T>, grid, BEHIND_THREADS, 0, dev->stream, *z,
	                           (const T *)keys.prompt, keys.behind, p, part), "behind");
}

size_t
cuda_behind_parts(const struct behind_shape *z)
{
	return (z->all + BEHIND_CHUNK - 1) / BEHIND_CHUNK * z->Hq * z->n * z->D;
}

int
cuda_behind_sum(struct kvk_dev *dev, const struct behind_shape *z, struct behind_keys keys, const float *p,
    float factor, float *part, float *y, size_t head, size_t row)
{
	const size_t chunks = (z->all + BEHIND_CHUNK - 1) / BEHIND_CHUNK;
	int rc;

	if (z->D == 0)
		return 0;
	if ((rc = CUDA_TYPED(keys.type, sum_keys, dev, z, keys, p, part)) != 0)
		return rc;
	return cuda_check(dev,
	    KV_LAUNCH(behind_add, cuda_blocks(z->Hq * z->n * z->D, BEHIND_THREADS), BEHIND_THREADS, 0, dev->stream, *z,
		part, chunks, factor, y, head, row),
	    "behind");
}

/* s [Hq][T]: mean over the rows. */
KV_KERNEL(BEHIND_THREADS) behind_mean(struct behind_shape z, const float *p, float *s)
{
	const size_t e = (size_t)blockIdx.x * BEHIND_THREADS + threadIdx.x;
	double sum = 0;

	if (e >= z.Hq * z.T)
		return;
	for (size_t i = 0; i < z.n; i++)
		sum += p[(e / z.T * z.n + i) * z.all + e % z.T];
	s[e] = (float)(sum / (double)z.n);
}

int
cuda_behind(struct kvk_dev *dev, const struct kvk_behind *x, float *y, float *s)
{
	const struct behind_keys values = { x->v, x->type, x->v_behind };
	struct behind_shape z;
	float *p, *part;
	char *at;
	int rc;

	if (x->n == 0 || x->Hq == 0)
		return 0;
	if ((rc = cuda_behind_check(dev, x)) != 0)
		return rc;
	z = cuda_behind_shape(x);
	at = (char *)cuda_scratch(dev, cuda_taken(z.Hq * z.n * z.all, 4) + cuda_taken(cuda_behind_parts(&z), 4));
	if (at == NULL)
		return KVK_EMEM;
	p = (float *)cuda_take(&at, z.Hq * z.n * z.all, 4);
	part = (float *)cuda_take(&at, cuda_behind_parts(&z), 4);
	if ((rc = cuda_behind_weights(dev, x, p)) != 0)
		return rc;
	if (s != NULL && z.T > 0)
		rc = cuda_check(dev, KV_LAUNCH(behind_mean, cuda_blocks(z.Hq * z.T, BEHIND_THREADS), BEHIND_THREADS, 0,
		                         dev->stream, z, p, s), "behind");
	if (rc == 0 && y != NULL)
		rc = cuda_behind_sum(dev, &z, values, p, 1, part, y, z.D, z.Hq * z.D);
	return rc;
}
