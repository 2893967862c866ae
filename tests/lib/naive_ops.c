/* SPDX-License-Identifier: MIT */
#include "tests/lib/naive_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

/* ---- heads */

float *
naive_frequencies(size_t dim)
{
	float *f = test_alloc(dim / 2, sizeof *f);

	for (size_t i = 0; i < dim / 2; i++)
		f[i] = (float)pow(10000, -2.0 * (double)i / (double)dim);
	return f;
}

/* One head of one row. */
static void
head(const struct head_sizes *z, const float *x, const float *norm, const float *inv_freq, size_t pos, double *y)
{
	const size_t half = z->dim / 2;
	double t[256], sum = 0;

	for (size_t d = 0; d < z->D; d++)
		sum += (double)x[d] * (double)x[d];
	for (size_t d = 0; d < z->D; d++)
		t[d] = (double)x[d] * (z->norm ? (double)norm[d] / sqrt(sum / (double)z->D + (double)NAIVE_EPS) : 1);
	memcpy(y, t, z->D * sizeof *y);
	for (size_t i = 0; i < half; i++) {
		const double a = z->interleaved ? t[2 * i] : t[i], b = z->interleaved ? t[2 * i + 1] : t[half + i];
		const double angle = (double)pos * (double)inv_freq[i];

		y[i] = a * cos(angle) - b * sin(angle);
		y[half + i] = a * sin(angle) + b * cos(angle);
	}
}

void
naive_heads_near(const struct head_sizes *z, const float *x, const float *norm, const float *inv_freq, const float *y)
{
	const double bound = z->type == KVK_F32 ? 4e-7 : z->type == KVK_F16 ? 0x1p-11 + 1e-6 : 0x1p-8 + 1e-6;
	double want[256];

	for (size_t h = 0; h < z->H; h++)
		for (size_t i = 0; i < z->n; i++) {
			head(z, x + (i * z->H + h) * z->D, norm, inv_freq, z->pos + i, want);
			test_near("heads", y + (1 + h * (z->n + 1) + i) * z->D, want, z->D, 3 * bound, bound);
		}
	for (size_t h = 0; h <= z->H; h++)
		for (size_t d = 0; d < z->D; d++)
			assert_true(y[h * (z->n + 1) * z->D + d] == 0);
}

/* ---- moments and forms */

static void
near(const char *what, double got, double want, double magnitude)
{
	if (!(fabs(got - want) <= 1e-12 * magnitude))
		fail_msg("%s: %.17g, expected %.17g", what, got, want);
}

void
naive_moments_near(const float *x, size_t n, size_t D, const double *mean, const double *cov)
{
	double *m = test_alloc(D, sizeof *m);

	for (size_t a = 0; a < D; a++) {
		for (size_t i = 0; i < n; i++)
			m[a] += (double)x[i * D + a] / (double)n;
		near("mean", mean[a], m[a], 3);
	}
	for (size_t a = 0; a < D; a++)
		for (size_t b = 0; b <= a; b++) {
			double sum = 0;

			for (size_t i = 0; i < n; i++)
				sum += ((double)x[i * D + a] - m[a]) * ((double)x[i * D + b] - m[b]) / (double)n;
			near("covariance", cov[a * D + b], sum, 9);
			assert_true(cov[b * D + a] == cov[a * D + b]);
		}
	free(m);
}

void
form_job_init(struct form_job *x, size_t Hq, size_t Hkv, size_t T, size_t D, enum kvk_type type)
{
	float *some = test_floats(Hq * D * D, 1, 5), *line = test_floats(Hq * D, 1, 6);

	x->k = test_typed(Hkv * T * D, 1, T + D, type, &x->values);
	x->a = test_alloc(Hq * D * D, sizeof *x->a);
	x->b = test_alloc(Hq * D, sizeof *x->b);
	for (size_t i = 0; i < Hq * D; i++)
		x->b[i] = (double)line[i];
	for (size_t h = 0; h < Hq; h++)
		for (size_t i = 0; i < D; i++)
			for (size_t j = 0; j < D; j++)
				x->a[(h * D + i) * D + j] =
				    (double)some[(h * D + (i < j ? i : j)) * D + (i < j ? j : i)];
	x->job = (struct kvk_forms){ x->k, type, Hq, Hkv, T, D, x->b, x->a };
	free(line);
	free(some);
}

void
form_job_fini(struct form_job *x)
{
	free(x->k);
	free(x->values);
	free(x->a);
	free(x->b);
}

static double
form(const double *key, const double *b, const double *a, size_t D)
{
	double sum = 0;

	for (size_t i = 0; i < D; i++) {
		sum += b[i] * key[i];
		for (size_t j = 0; j < D; j++)
			sum += key[i] * a[i * D + j] * key[j];
	}
	return sum;
}

void
naive_forms_near(const struct form_job *x, const double *z)
{
	const size_t Hq = x->job.Hq, G = Hq / x->job.Hkv, T = x->job.T, D = x->job.D;

	for (size_t h = 0; h < Hq; h++)
		for (size_t j = 0; j < T; j++)
			near("form", z[h * T + j], form(x->values + (h / G * T + j) * D, x->b + h * D, x->a + h * D * D, D),
			    0.1 * (double)(D * D));
}
