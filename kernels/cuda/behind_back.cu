/* SPDX-License-Identifier: MIT
 * The way back of attention behind a prompt, to the rows behind.  Weights are made anew. */
#include "kernels/cuda/behind_sums.h"
#include "kernels/cuda/row_math.h"

#define BACK_THREADS 256

/* dp [Hq][n][all], what dy gives the weights (not read where there is no dy), becomes the gradient of the logits: p
 * (dp - sum of p dp over the keys), where ds adds its part to the prompt's. */
KV_KERNEL(BACK_THREADS) behind_soften_back(struct behind_shape z, const float *p, const float *ds, int with_dy,
    float *dp)
{
	KV_SHARED(double, parts, [BACK_THREADS / 32]);
	const size_t at = (size_t)blockIdx.x * z.all;
	const float *gift = ds + blockIdx.x / z.n * z.T;
	double sum = 0;

	for (size_t j = threadIdx.x; j < z.all; j += BACK_THREADS) {
		const float x = (with_dy ? dp[at + j] : 0) + (j < z.T ? gift[j] / (float)z.n : 0);

		dp[at + j] = x;
		sum += (double)p[at + j] * x;
	}
	sum = row_block_sum(sum, parts);
	for (size_t j = threadIdx.x; j < z.all; j += BACK_THREADS)
		dp[at + j] = (float)(p[at + j] * (dp[at + j] - sum));
}

/* y [Hkv][n][D]: of the key or value behind number j of a KV head, factor * the sum over the rows of its query heads
 * of w [Hq][n][all] times row. */
KV_KERNEL(BACK_THREADS) behind_rows_back(struct behind_shape z, const float *w, struct behind_rows rows, float factor,
    float *y)
{
	const size_t e = (size_t)blockIdx.x * BACK_THREADS + threadIdx.x, d = e % z.D, j = e / z.D % z.n;
	const size_t g = e / z.D / z.n;
	double sum = 0;

	if (e >= z.Hq / z.G * z.n * z.D)
		return;
	for (size_t h = g * z.G; h < (g + 1) * z.G; h++)
		for (size_t i = j; i < z.n; i++) /* those before it do not see it */
			sum += (double)w[(h * z.n + i) * z.all + z.T + j] * rows.x[h * rows.head + i * rows.row + d];
	y[e] = (float)(factor * sum);
}

static int
rows_back(struct kvk_dev *dev, const struct behind_shape *z, const float *w, struct behind_rows rows, float factor,
    float *y)
{
	const unsigned grid = cuda_blocks(z->Hq / z->G * z->n * z->D, BACK_THREADS);

	if (grid == 0)
		return 0;
	return cuda_check(
	    dev, KV_LAUNCH(behind_rows_back, grid, BACK_THREADS, 0, dev->stream, *z, w, rows, factor, y), "behind");
}

int
cuda_behind_back(struct kvk_dev *dev, const struct kvk_behind *x, const float *dy, const float *ds, float *dq,
    float *dk, float *dv)
{
	const struct behind_keys keys = { x->k, x->type, x->k_behind }, values = { x->v, x->type, x->v_behind };
	const struct behind_rows q_rows = { x->q, x->n * x->D, x->D }, y_rows = { dy, x->D, x->Hq * x->D };
	struct behind_shape z;
	float *p, *dp, *part;
	char *at;
	int rc;

	if (x->n == 0 || x->Hq == 0)
		return 0;
	if ((rc = cuda_behind_check(dev, x)) != 0)
		return rc;
	z = cuda_behind_shape(x);
	at = (char *)cuda_scratch(dev, 2 * cuda_taken(z.Hq * z.n * z.all, 4) + cuda_taken(cuda_behind_parts(&z), 4));
	if (at == NULL)
		return KVK_EMEM;
	p = (float *)cuda_take(&at, z.Hq * z.n * z.all, 4);
	dp = (float *)cuda_take(&at, z.Hq * z.n * z.all, 4);
	part = (float *)cuda_take(&at, cuda_behind_parts(&z), 4);
	if ((rc = cuda_behind_weights(dev, x, p)) != 0 ||
	    (dy != NULL && (rc = cuda_behind_dots(dev, &z, values, y_rows, 1, dp)) != 0))
		return rc;
	rc = cuda_check(dev,
	    KV_LAUNCH(
		behind_soften_back, (unsigned)(z.Hq * z.n), BACK_THREADS, 0, dev->stream, z, p, ds, dy != NULL, dp),
	    "behind");
	if (rc != 0 || (rc = cuda_behind_sum(dev, &z, keys, dp, x->scale, part, dq, z.n * z.D, z.D)) != 0 ||
	    (rc = rows_back(dev, &z, dp, q_rows, x->scale, dk)) != 0 || dy == NULL)
		return rc;
	return rows_back(dev, &z, p, y_rows, 1, dv);
}
