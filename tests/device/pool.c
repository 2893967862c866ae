/* SPDX-License-Identifier: MIT
 * pool and reduce_heads: the CPU's bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

/* Random floats with the odd special one among them. */
static float *
values(size_t n, uint64_t seed)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 0.0f, -0.0f };
	float *x = test_floats(n, 1, seed);

	for (size_t i = 40; i < n; i += 41)
		x[i] = odd[i % 5];
	return x;
}

/* The same bits, but that one NaN is as good as another. */
static void
expect_same(struct pair *p, const char *what, const void *device, float *want, size_t n)
{
	float *got = pair_get(p, device, n * sizeof *got);

	for (size_t i = 0; i < n; i++)
		if (isnan(want[i]) && isnan(got[i]))
			got[i] = want[i];
	test_same(what, got, want, n);
	free(got);
}

static void
pool_case(struct pair *p, size_t n, enum kvk_pool kind, size_t width)
{
	const size_t H = 3;
	float *x = values(H * n, n), *want = test_alloc(H * n, sizeof *want);
	void *dx = pair_put(p, x, H * n * sizeof *x), *dy = pair_put(p, NULL, H * n * sizeof *x);

	assert_int_equal(kvk_cpu.pool(p->cpu, x, H, n, kind, width, want), 0);
	pair_ok(p, p->op->pool(p->dev, dx, H, n, kind, width, dy));
	expect_same(p, "pool", dy, want, H * n);
	pair_free(p, dx);
	pair_free(p, dy);
	free(x);
	free(want);
}

static void
pools(void **state)
{
	static const size_t sizes[] = { 0, 1, 2, 26, 33, 63, 64, 97, 129, 255, 257, 2001 },
			    widths[] = { 1, 3, 7, 63, 301 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 12; i++)
		for (size_t k = 0; k < 10; k++)
			pool_case(&p, sizes[i], k % 2 ? KVK_POOL_MAX : KVK_POOL_AVG, widths[k / 2]);
	pool_case(&p, 1000, KVK_POOL_NONE, 0);
	pair_close(&p);
}

static void
reduce_case(struct pair *p, size_t G, size_t n, enum kvk_reduce how)
{
	const size_t Hkv = 2;
	float *x = values(Hkv * G * n, G + n), *want = test_alloc(Hkv * n, sizeof *want);
	void *dx = pair_put(p, x, Hkv * G * n * sizeof *x), *dy = pair_put(p, NULL, Hkv * n * sizeof *x);

	assert_int_equal(kvk_cpu.reduce_heads(p->cpu, x, Hkv * G, Hkv, n, how, want), 0);
	pair_ok(p, p->op->reduce_heads(p->dev, dx, Hkv * G, Hkv, n, how, dy));
	expect_same(p, "reduce_heads", dy, want, Hkv * n);
	pair_free(p, dx);
	pair_free(p, dy);
	free(x);
	free(want);
}

static void
reductions(void **state)
{
	static const size_t groups[] = { 1, 3, 4, 7, 8 }, sizes[] = { 0, 1, 31, 33, 65, 128, 257, 3001 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 40; i++)
		for (int how = KVK_MEAN; how <= KVK_MAX; how++)
			reduce_case(&p, groups[i % 5], sizes[i / 5], (enum kvk_reduce)how);
	pair_close(&p);
}

static void
refused(void **state)
{
	struct pair p;
	void *x;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	x = pair_put(&p, NULL, 64);
	assert_int_not_equal(p.op->pool(p.dev, x, 1, 8, KVK_POOL_MAX, 4, x), 0);
	assert_string_equal(p.op->error(p.dev), "pool: width 4 is not odd");
	assert_int_not_equal(p.op->reduce_heads(p.dev, x, 4, 3, 1, KVK_SUM, x), 0);
	assert_string_equal(p.op->error(p.dev), "reduce_heads: 4 query heads cannot share 3 KV heads");
	assert_int_not_equal(p.op->reduce_heads(p.dev, x, 4, 2, 1, KVK_VAR, x), 0);
	pair_free(&p, x);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pools),
		cmocka_unit_test(reductions),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
