/* SPDX-License-Identifier: MIT
 * rms_norm and silu_mul: against double precision, in place, and for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

static const size_t sizes[] = { 0, 1, 31, 33, 64, 130, 577 };
#define N_SIZES (sizeof sizes / sizeof *sizes)

static void
norm_case(size_t n, size_t d)
{
	struct kvk_dev *one = test_dev(1), *two = test_dev(2);
	float *x = test_floats(n * d, 3, n + d), *w = test_floats(d, 1, d), *y = test_alloc(n * d, sizeof *y);

	assert_int_equal(kvk_cpu.rms_norm(one, x, w, 1e-5f, n, d, y), 0);
	for (size_t i = 0; i < n; i++) {
		double sum = 0, want;

		for (size_t j = 0; j < d; j++)
			sum += (double)x[i * d + j] * (double)x[i * d + j];
		for (size_t j = 0; j < d; j++) {
			want = (double)x[i * d + j] / sqrt(sum / (double)d + (double)1e-5f) * (double)w[j];
			test_near("rms_norm", y + i * d + j, &want, 1, 1e-30, 4e-7);
		}
	}
	assert_int_equal(kvk_cpu.rms_norm(two, x, w, 1e-5f, n, d, x), 0);
	test_same("in place, 2 threads", x, y, n * d);
	kvk_cpu.close(one);
	kvk_cpu.close(two);
	free(x);
	free(w);
	free(y);
}

static void
norms(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SIZES; i++)
		for (size_t j = 1; j < N_SIZES; j++)
			norm_case(sizes[i], sizes[j]);
}

static void
gate_case(size_t n, float scale)
{
	struct kvk_dev *one = test_dev(1), *two = test_dev(2);
	float *g = test_floats(n, scale, n + 1), *u = test_floats(n, 2, n + 2), *y = test_alloc(n, sizeof *y);

	assert_int_equal(kvk_cpu.silu_mul(one, g, u, n, y), 0);
	for (size_t i = 0; i < n; i++) {
		double want = (double)g[i] / (1 + exp(-(double)g[i])) * (double)u[i];

		test_near("silu_mul", y + i, &want, 1, 1e-36, 6e-7);
	}
	assert_int_equal(kvk_cpu.silu_mul(two, g, u, n, u), 0);
	test_same("in place, 2 threads", u, y, n);
	kvk_cpu.close(one);
	kvk_cpu.close(two);
	free(g);
	free(u);
	free(y);
}

static void
gates(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SIZES; i++)
		gate_case(sizes[i], i % 2 ? 8 : 80);
	gate_case(30001, 8);
}

static void
extremes(void **state)
{
	const float g[] = { -1e30f, 1e30f, -200, 200, 0, -0.0f, INFINITY, NAN }, u[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct kvk_dev *dev = test_dev(1);
	float y[8];

	(void)state;
	assert_int_equal(kvk_cpu.silu_mul(dev, g, u, 8, y), 0);
	assert_true(fabsf(y[0]) < 1e-7f && fabsf(y[2]) < 1e-30f);
	assert_true(y[1] == 1e30f && y[3] == 200 && y[4] == 0 && y[5] == 0 && isinf(y[6]) && isnan(y[7]));
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norms),
		cmocka_unit_test(gates),
		cmocka_unit_test(extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
