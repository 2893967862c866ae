/* SPDX-License-Identifier: MIT
 * row_moments of a backend under test against the definition: odd sizes, symmetry, pieces of rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/naive_ops.h"
#include "tests/lib/pair.h"

static void
check_moments(struct pair *p, size_t H, size_t n, size_t D)
{
	float *x = test_floats(H * n * D, 3, n + D);
	void *there = pair_put(p, x, H * n * D * sizeof *x);
	double *mean_there = pair_put(p, NULL, H * D * sizeof(double));
	double *cov_there = pair_put(p, NULL, H * D * D * sizeof(double)), *mean, *cov;

	pair_ok(p, p->op->row_moments(p->dev, there, H, n, D, mean_there, cov_there));
	mean = pair_get(p, mean_there, H * D * sizeof *mean);
	cov = pair_get(p, cov_there, H * D * D * sizeof *cov);
	for (size_t h = 0; h < H; h++)
		naive_moments_near(x + h * n * D, n, D, mean + h * D, cov + h * D * D);
	pair_free(p, there);
	pair_free(p, mean_there);
	pair_free(p, cov_there);
	free(mean);
	free(cov);
	free(x);
}

static void
moments(void **state)
{
	static const size_t sizes[][3] = { { 1, 0, 4 }, { 1, 1, 2 }, { 3, 31, 8 }, { 2, 257, 17 }, { 2, 700, 6 },
		{ 5, 33, 24 }, { 1, 65, 80 }, { 1, 40, 128 }, { 1, 4200, 3 } };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		check_moments(&p, sizes[i][0], sizes[i][1], sizes[i][2]);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
