/* SPDX-License-Identifier: MIT
 * silu_mul and its way back, against the formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

static const size_t sizes[] = { 0, 1, 26, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 256, 257, 3001,
	1030 };
#define N_SIZES (sizeof sizes / sizeof *sizes)

/* skew: floats by which one array misses the alignment of vectors. */
static void
gate_case(struct pair *p, size_t n, float scale, size_t skew)
{
	float *g = test_floats(n, scale, n + 1), *u = test_floats(n + skew, 2, n + 2);
	double *want = test_alloc(n, sizeof *want);
	void *dg = pair_put(p, g, n * sizeof *g), *dy = pair_put(p, NULL, n * sizeof *g);
	float *du = pair_put(p, u, (n + skew) * sizeof *u);

	for (size_t i = 0; i < n; i++)
		want[i] = (double)g[i] / (1 + exp(-(double)g[i])) * (double)u[i + skew];
	pair_ok(p, p->op->silu_mul(p->dev, dg, du + skew, n, dy));
	pair_near(p, "silu_mul", dy, want, n, 1e-36, 6e-7);
	pair_ok(p, p->op->silu_mul(p->dev, dg, du + skew, n, dg));
	pair_near(p, "silu_mul in place", dg, want, n, 1e-36, 6e-7);
	pair_free(p, dg);
	pair_free(p, du);
	pair_free(p, dy);
	free(want);
	free(g);
	free(u);
}

static void
gates(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < N_SIZES; i++)
		gate_case(&p, sizes[i], i % 2 ? 8 : 80, i % 3 == 2);
	pair_close(&p);
}

static void
back_case(struct pair *p, size_t n, int in_place)
{
	float *g = test_floats(n, 6, 1), *u = test_floats(n, 1, 2), *y = test_floats(n, 1, 3);
	double *want_g = test_alloc(n, sizeof *want_g), *want_u = test_alloc(n, sizeof *want_u);
	void *dg = pair_put(p, g, n * sizeof *g), *du = pair_put(p, u, n * sizeof *u),
	     *dy = pair_put(p, y, n * sizeof *y);
	void *to_g = in_place ? dg : pair_put(p, NULL, n * sizeof *g),
	     *to_u = in_place ? du : pair_put(p, NULL, n * sizeof *u);

	for (size_t i = 0; i < n; i++) {
		const double x = (double)g[i], s = 1 / (1 + exp(-x));

		want_u[i] = (double)y[i] * x * s;
		want_g[i] = (double)y[i] * (double)u[i] * s * (1 + x * (1 - s));
	}
	pair_ok(p, p->op->silu_mul_back(p->dev, dg, du, dy, n, to_g, to_u));
	pair_near(p, "dgate", to_g, want_g, n, 1e-6, 1e-6);
	pair_near(p, "dup", to_u, want_u, n, 1e-6, 1e-6);
	pair_free(p, dg);
	pair_free(p, du);
	pair_free(p, dy);
	if (!in_place) {
		pair_free(p, to_g);
		pair_free(p, to_u);
	}
	free(want_g);
	free(want_u);
	free(g);
	free(u);
	free(y);
}

static void
ways_back(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 2 * N_SIZES; i++)
		back_case(&p, sizes[i / 2], i % 2);
	pair_close(&p);
}

static void
extremes(void **state)
{
	const float g[] = { -1e30f, 1e30f, -200, 200, 0, -0.0f, INFINITY, NAN }, u[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct pair p;
	void *dg, *du;
	float *y;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	dg = pair_put(&p, g, sizeof g);
	du = pair_put(&p, u, sizeof u);
	pair_ok(&p, p.op->silu_mul(p.dev, dg, du, 8, du));
	y = pair_get(&p, du, sizeof g);
	assert_true(fabsf(y[0]) < 1e-7f && fabsf(y[2]) < 1e-30f);
	assert_true(y[1] == 1e30f && y[3] == 200 && y[4] == 0 && y[5] == 0 && isinf(y[6]) && isnan(y[7]));
	free(y);
	pair_free(&p, dg);
	pair_free(&p, du);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gates),
		cmocka_unit_test(ways_back),
		cmocka_unit_test(extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
