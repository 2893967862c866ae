/* SPDX-License-Identifier: MIT
 * rms_norm and its way back, against the formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

#define EPS 1e-5f

static void
naive(const float *x, const float *w, size_t n, size_t d, double *y)
{
	for (size_t i = 0; i < n; i++) {
		double sum = 0;

		for (size_t j = 0; j < d; j++)
			sum += (double)x[i * d + j] * (double)x[i * d + j];
		for (size_t j = 0; j < d; j++)
			y[i * d + j] = (double)x[i * d + j] / sqrt(sum / (double)d + (double)EPS) * (double)w[j];
	}
}

/* y = s w x, s = (mean x^2 + eps)^(-1/2): the derivative of s is -s^3 x / d. */
static void
naive_back(const float *x, const float *w, const float *dy, size_t n, size_t d, double *dx)
{
	for (size_t i = 0; i < n; i++) {
		double sum = 0, along = 0, s;

		for (size_t j = 0; j < d; j++) {
			sum += (double)x[i * d + j] * (double)x[i * d + j];
			along += (double)w[j] * (double)dy[i * d + j] * (double)x[i * d + j];
		}
		s = 1 / sqrt(sum / (double)d + (double)EPS);
		for (size_t j = 0; j < d; j++)
			dx[i * d + j] += s * (double)w[j] * (double)dy[i * d + j] -
			    s * s * s * along / (double)d * (double)x[i * d + j];
	}
}

/* skew: floats by which all rows miss the alignment of vectors. */
static void
norm_case(struct pair *p, size_t n, size_t d, size_t skew)
{
	float *x = test_floats(n * d + skew, 3, n + d), *w = test_floats(d + skew, 1, d);
	double *want = test_alloc(n * d, sizeof *want);
	float *dx = pair_put(p, x, (n * d + skew) * sizeof *x), *dw = pair_put(p, w, (d + skew) * sizeof *w);
	float *dy = pair_put(p, NULL, (n * d + skew) * sizeof *x), *first, *second;

	naive(x + skew, w + skew, n, d, want);
	pair_ok(p, p->op->rms_norm(p->dev, dx + skew, dw + skew, EPS, n, d, dy + skew));
	pair_near(p, "rms_norm", dy + skew, want, n * d, 1e-30, 4e-7);
	pair_ok(p, p->op->rms_norm(p->dev, dx + skew, dw + skew, EPS, n, d, dx + skew));
	first = pair_get(p, dy + skew, n * d * sizeof *first);
	second = pair_get(p, dx + skew, n * d * sizeof *second);
	test_same("in place", second, first, n * d);
	free(first);
	free(second);
	pair_free(p, dx);
	pair_free(p, dw);
	pair_free(p, dy);
	free(want);
	free(x);
	free(w);
}

static void
norms(void **state)
{
	static const size_t rows[] = { 0, 1, 3, 33 }, sizes[] = { 1, 26, 31, 32, 33, 63, 64, 65, 80,
		95, 96, 97, 127, 128, 129, 255, 256, 257, 577, 2304, 4100 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
			norm_case(&p, rows[i], sizes[j], (i + j) % 7 == 5);
	pair_close(&p);
}

static void
back_case(struct pair *p, size_t n, size_t d, int add)
{
	float *x = test_floats(n * d, 2, n + d), *w = test_floats(d, 1, d), *g = test_floats(n * d, 1, 3),
	      *old = test_floats(n * d, 1, 4);
	double *want = test_alloc(n * d, sizeof *want);
	void *dx = pair_put(p, x, n * d * sizeof *x), *dw = pair_put(p, w, d * sizeof *w),
	     *dy = pair_put(p, g, n * d * sizeof *g), *out = pair_put(p, add ? old : NULL, n * d * sizeof *x);

	for (size_t i = 0; i < n * d && add; i++)
		want[i] = (double)old[i];
	naive_back(x, w, g, n, d, want);
	pair_ok(p, p->op->rms_norm_back(p->dev, dx, dw, EPS, dy, n, d, add, out));
	pair_near(p, "rms_norm_back", out, want, n * d, 2e-6, 1e-6);
	pair_free(p, out);
	pair_free(p, dy);
	pair_free(p, dw);
	pair_free(p, dx);
	free(want);
	free(old);
	free(g);
	free(w);
	free(x);
}

static void
ways_back(void **state)
{
	static const size_t sizes[][2] = { { 0, 8 }, { 1, 1 }, { 3, 7 }, { 5, 40 }, { 33, 64 }, { 2, 2304 },
		{ 2, 1030 }, { 27, 26 }, { 32, 31 }, { 2, 33 }, { 4, 63 }, { 3, 80 }, { 3, 96 }, { 2, 97 }, { 2, 127 },
		{ 3, 128 }, { 2, 129 }, { 2, 255 }, { 3, 256 }, { 2, 257 } };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
		back_case(&p, sizes[i / 2][0], sizes[i / 2][1], i % 2);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norms),
		cmocka_unit_test(ways_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
