/* SPDX-License-Identifier: MIT
 * moments and forms: odd sizes against the definition, symmetry, threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/naive_ops.h"

static void
check_moments(size_t H, size_t n, size_t D, int threads)
{
	float *x = test_floats(H * n * D, 3, n + D);
	double *mean = test_alloc(H * D, sizeof *mean), *cov = test_alloc(H * D * D, sizeof *cov);
	struct kvk_dev *dev = test_dev(threads);

	assert_int_equal(kvk_cpu.row_moments(dev, x, H, n, D, mean, cov), 0);
	for (size_t h = 0; h < H; h++)
		naive_moments_near(x + h * n * D, n, D, mean + h * D, cov + h * D * D);
	kvk_cpu.close(dev);
	free(cov);
	free(mean);
	free(x);
}

static void
moments(void **state)
{
	static const size_t sizes[][3] = { { 1, 0, 4 }, { 1, 1, 2 }, { 3, 31, 8 }, { 2, 257, 17 }, { 2, 700, 6 },
		{ 5, 33, 24 } };

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int threads = 1; threads < 3; threads++)
			check_moments(sizes[i][0], sizes[i][1], sizes[i][2], threads);
}

static void
check_forms(size_t Hq, size_t Hkv, size_t T, size_t D, enum kvk_type type)
{
	struct form_job x;
	double *z[2];

	form_job_init(&x, Hq, Hkv, T, D, type);
	for (int t = 0; t < 2; t++) {
		struct kvk_dev *dev = test_dev(t + 1);

		z[t] = test_alloc(Hq * T, sizeof **z);
		assert_int_equal(kvk_cpu.forms(dev, &x.job, z[t]), 0);
		kvk_cpu.close(dev);
	}
	assert_memory_equal(z[0], z[1], Hq * T * sizeof **z);
	naive_forms_near(&x, z[0]);
	free(z[0]);
	free(z[1]);
	form_job_fini(&x);
}

static void
forms(void **state)
{
	(void)state;
	check_forms(1, 1, 1, 2, KVK_F32);
	check_forms(4, 2, 129, 17, KVK_F32);
	check_forms(3, 1, 31, 8, KVK_F16);
	check_forms(2, 2, 300, 12, KVK_BF16);
	check_forms(2, 2, 0, 8, KVK_F32);
}

/* The triangle below the diagonal is not looked at. */
static void
upper(void **state)
{
	const float k[] = { 2, 3 };
	const double b[] = { 0, 0 }, a[] = { 1, 10, NAN, 100 };
	const struct kvk_forms job = { k, KVK_F32, 1, 1, 1, 2, b, a };
	struct kvk_dev *dev = test_dev(1);
	double z;

	(void)state;
	assert_int_equal(kvk_cpu.forms(dev, &job, &z), 0);
	assert_true(z == 4 + 2 * 60 + 900);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments),
		cmocka_unit_test(forms),
		cmocka_unit_test(upper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
