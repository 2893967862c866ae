/* SPDX-License-Identifier: MIT
 * pool and reduce_heads: cases small enough for paper, then odd sizes against the definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

static void
pool_on_paper(void **state)
{
	const float x[] = { 1, 5, 2, 0, -3, NAN, 4, /* second row */ -1, -2, -3, -4, -5, -6, -7 };
	const float max3[] = { 5, 5, 5, 2, 0, 4, 4, -1, -1, -2, -3, -4, -5, -6 };
	const float avg3[] = { 2, 8 / 3.0f, 7 / 3.0f, -1 / 3.0f, NAN, NAN, NAN, -1, -2, -3, -4, -5, -6, -13 / 3.0f };
	struct kvk_dev *dev = test_dev(1);
	float y[14], none[14];

	(void)state;
	assert_int_equal(kvk_cpu.pool(dev, x, 2, 7, KVK_POOL_MAX, 3, y), 0);
	assert_memory_equal(y, max3, sizeof y);
	assert_int_equal(kvk_cpu.pool(dev, x, 2, 7, KVK_POOL_AVG, 3, y), 0);
	for (int i = 0; i < 14; i++)
		assert_true(y[i] == avg3[i] || (isnan(y[i]) && isnan(avg3[i])));
	assert_int_equal(kvk_cpu.pool(dev, x, 2, 7, KVK_POOL_NONE, 0, none), 0);
	assert_memory_equal(none, x, sizeof none);
	assert_int_not_equal(kvk_cpu.pool(dev, x, 2, 7, KVK_POOL_MAX, 4, y), 0);
	assert_string_equal(kvk_cpu.error(dev), "pool: width 4 is not odd");
	kvk_cpu.close(dev);
}

/* Element (h, j) by the definition. */
static double
pooled(const float *x, size_t n, size_t j, enum kvk_pool kind, size_t width)
{
	const long r = (long)width / 2;
	double max = -INFINITY, sum = 0;

	for (long i = (long)j - r; i <= (long)j + r; i++)
		if (i >= 0 && i < (long)n) {
			max = fmax(max, (double)x[i]);
			sum += (double)x[i];
		}
	return kind == KVK_POOL_MAX ? max : sum / (double)width;
}

static void
pool_sizes(void **state)
{
	static const size_t sizes[] = { 0, 1, 2, 31, 33, 130, 9001 }, widths[] = { 1, 3, 7, 63 };

	(void)state;
	for (size_t i = 0; i < 7; i++)
		for (size_t k = 0; k < 8; k++) {
			const size_t n = sizes[i], width = widths[k / 2];
			const enum kvk_pool kind = k % 2 ? KVK_POOL_MAX : KVK_POOL_AVG;
			float *x = test_floats(3 * n, 1, i), *y = test_alloc(3 * n, sizeof *y);
			struct kvk_dev *dev = test_dev(2);

			assert_int_equal(kvk_cpu.pool(dev, x, 3, n, kind, width, y), 0);
			for (size_t j = 0; j < 3 * n; j++) {
				double want = pooled(x + j / n * n, n, j % n, kind, width);

				test_near("pool", y + j, &want, 1, 1e-9, kind == KVK_POOL_MAX ? 0 : 1e-7);
			}
			kvk_cpu.close(dev);
			free(x);
			free(y);
		}
}

static void
reduce_on_paper(void **state)
{
	const float x[] = { 1, 2, 3, 6, 2, NAN, /* second group */ -1, NAN, 5, -3, 0, 7 };
	const float mean[] = { 3.5f, 2, NAN, -2, NAN, 6 }, sum[] = { 7, 4, NAN, -4, NAN, 12 },
		    max[] = { 6, 2, NAN, -1, NAN, 7 };
	const float *want[] = { mean, sum, max };
	struct kvk_dev *dev = test_dev(1);
	float y[6];

	(void)state;
	for (int how = KVK_MEAN; how <= KVK_MAX; how++) {
		assert_int_equal(kvk_cpu.reduce_heads(dev, x, 4, 2, 3, (enum kvk_reduce)how, y), 0);
		for (int i = 0; i < 6; i++)
			assert_true(y[i] == want[how][i] || (isnan(y[i]) && isnan(want[how][i])));
	}
	assert_int_not_equal(kvk_cpu.reduce_heads(dev, x, 4, 3, 3, KVK_SUM, y), 0);
	kvk_cpu.close(dev);
}

static void
reduce_sizes(void **state)
{
	static const size_t groups[] = { 1, 3, 4 }, sizes[] = { 0, 1, 31, 33, 65, 5003 };

	(void)state;
	for (size_t i = 0; i < 18; i++) {
		const size_t G = groups[i % 3], n = sizes[i / 3];
		float *x = test_floats(2 * G * n, 1, i), *y = test_alloc(2 * n, sizeof *y);
		struct kvk_dev *dev = test_dev(2);

		assert_int_equal(kvk_cpu.reduce_heads(dev, x, 2 * G, 2, n, KVK_MEAN, y), 0);
		for (size_t j = 0; j < 2 * n; j++) {
			double want = 0;

			for (size_t h = 0; h < G; h++)
				want += (double)x[(j / n * G + h) * n + j % n] / (double)G;
			test_near("reduce_heads", y + j, &want, 1, 1e-9, 1e-7);
		}
		kvk_cpu.close(dev);
		free(x);
		free(y);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_on_paper),
		cmocka_unit_test(pool_sizes),
		cmocka_unit_test(reduce_on_paper),
		cmocka_unit_test(reduce_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
