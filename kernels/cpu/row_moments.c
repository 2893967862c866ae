/* SPDX-License-Identifier: MIT
 * Mean and covariance of each head's rows, two passes in double precision. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#define ROWS   256        /* of one piece: with D = 128 they are 256 KiB, twice */
#define TURNED (ROWS + 8) /* stride of turned rows: a power of two would put a column into few cache lines */

struct scratch {
	double *rows;    /* [ROWS][N] centred */
	double *columns; /* [D][TURNED] the same, turned */
	double *product; /* [D][N] */
};

static size_t
padded(size_t D)
{
	return (D + CPU_PRODUCT_STEP - 1) / CPU_PRODUCT_STEP * CPU_PRODUCT_STEP;
}

static void
mean_of(const float *x, size_t n, size_t D, double *mean)
{
	memset(mean, 0, D * sizeof *mean);
	for (size_t i = 0; i < n; i++)
		for (size_t d = 0; d < D; d++)
			mean[d] += (double)x[i * D + d];
	for (size_t d = 0; n > 0 && d < D; d++)
		mean[d] /= (double)n;
}

static void
centre(const float *x, const double *mean, size_t n, size_t D, const struct scratch *s)
{
	const size_t N = padded(D);

	memset(s->rows, 0, n * N * sizeof *s->rows);
	for (size_t i = 0; i < n; i++)
		for (size_t d = 0; d < D; d++)
			s->columns[d * TURNED + i] = s->rows[i * N + d] = (double)x[i * D + d] - mean[d];
}

/* One head.  Of the products only the upper triangle, a band of columns at a time. */
static void
head(const float *x, size_t n, size_t D, const struct scratch *s, double *mean, double *cov)
{
	const size_t N = padded(D);

	mean_of(x, n, D, mean);
	memset(cov, 0, D * D * sizeof *cov);
	for (size_t i = 0; i < n; i += ROWS) {
		const size_t m = n - i < ROWS ? n - i : ROWS;

		centre(x + i * D, mean, m, D, s);
		for (size_t j = 0; j < N; j += CPU_PRODUCT_STEP) {
			const size_t rows = j + CPU_PRODUCT_STEP < D ? j + CPU_PRODUCT_STEP : D;

			cpu_product_f64(
			    s->columns, TURNED, s->rows + j, N, rows, m, CPU_PRODUCT_STEP, s->product + j, N);
		}
		for (size_t a = 0; a < D; a++)
			for (size_t b = a; b < D; b++)
				cov[a * D + b] += s->product[a * N + b] / (double)n;
	}
	for (size_t a = 0; a < D; a++)
		for (size_t b = 0; b < a; b++)
			cov[a * D + b] = cov[b * D + a];
}

struct job {
	const float *x;
	size_t n, D;
	double *mean, *cov;
	char *scratch;
	size_t stride;
};

static void
heads(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const size_t n = j->n, D = j->D, N = padded(D);
	char *at = j->scratch + worker * j->stride;
	struct scratch s;

	s.rows = cpu_take_f64(&at, ROWS * N);
	s.columns = cpu_take_f64(&at, D * TURNED);
	s.product = cpu_take_f64(&at, D * N);
	for (size_t h = from; h < to; h++)
		head(j->x + h * n * D, n, D, &s, j->mean + h * D, j->cov + h * D * D);
}

int
cpu_row_moments(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *mean, double *cov)
{
	const size_t N = padded(D);
	const size_t bytes = cpu_taken(ROWS * N, sizeof(double)) + cpu_taken(D * TURNED, sizeof(double)) +
	    cpu_taken(D * N, sizeof(double));
	struct job j = { x, n, D, mean, cov, NULL, 0 };

	if ((j.scratch = cpu_scratch(dev, (size_t)dev->threads, bytes, &j.stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, H, 1, heads, &j);
	return 0;
}
