/* SPDX-License-Identifier: MIT
 * heads: norm, rotation of both pair orders, half order of the result, placement and type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/naive_ops.h"

/* y as floats, heads at rows 1 + h * (n + 1), so that there is a row between them that must stay as it was. */
static float *
run(const struct head_sizes *z, int threads, const float *x, const float *norm, const float *inv_freq)
{
	const struct kvk_rope rope = { inv_freq, z->dim, z->interleaved };
	const size_t rows = z->H * (z->n + 1) + 1;
	struct kvk_dev *dev = test_dev(threads);
	size_t *at = test_alloc(z->H, sizeof *at);
	void *y = test_alloc(rows * z->D, kvk_types[z->type].bytes);
	float *out = test_alloc(rows * z->D, sizeof *out);
	int rc;

	for (size_t h = 0; h < z->H; h++)
		at[h] = 1 + h * (z->n + 1);
	rc = kvk_cpu.heads(dev, x, z->n, z->H, z->D, z->norm ? norm : NULL, NAIVE_EPS, z->dim ? &rope : NULL, z->pos, y,
	    z->type, at);
	assert_int_equal(rc, 0);
	assert_int_equal(kvk_cpu.get_as(dev, out, KVK_F32, y, z->type, rows * z->D), 0);
	kvk_cpu.close(dev);
	free(at);
	free(y);
	return out;
}

static void
compare(const struct head_sizes *z)
{
	float *x = test_floats(z->n * z->H * z->D, 2, 1), *norm = test_floats(z->D, 1, 2),
	      *inv_freq = naive_frequencies(z->dim);
	float *y = run(z, 1, x, norm, inv_freq), *other = run(z, 2, x, norm, inv_freq);

	naive_heads_near(z, x, norm, inv_freq, y);
	test_same("2 threads", other, y, (z->H * (z->n + 1) + 1) * z->D);
	free(x);
	free(norm);
	free(inv_freq);
	free(y);
	free(other);
}

static void
cases(void **state)
{
	static const struct head_sizes table[] = {
		{ 0, 2, 8, 8, 0, 0, 0, KVK_F32 },
		{ 1, 1, 8, 8, 0, 1, 0, KVK_F32 },
		{ 1, 3, 64, 64, 100000, 0, 0, KVK_F32 },
		{ 31, 3, 64, 64, 7, 1, 0, KVK_F16 },
		{ 33, 4, 80, 80, 9, 0, 1, KVK_BF16 },
		{ 65, 3, 64, 32, 1, 0, 1, KVK_F32 },
		{ 130, 1, 64, 32, 0, 1, 1, KVK_F32 },
		{ 64, 3, 64, 0, 0, 0, 0, KVK_F16 },
		{ 33, 2, 13, 0, 0, 0, 1, KVK_F32 },
		{ 200, 9, 64, 64, 5, 1, 0, KVK_F16 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&table[i]);
}

/* A row depends on its own place alone. */
static void
row_by_row(void **state)
{
	static const struct head_sizes all = { 40, 3, 64, 64, 11, 1, 1, KVK_F32 };
	float *x = test_floats(40 * 3 * 64, 2, 1), *norm = test_floats(64, 1, 2), *inv_freq = naive_frequencies(64);
	float *y = run(&all, 1, x, norm, inv_freq);

	(void)state;
	for (size_t i = 0; i < all.n; i++) {
		struct head_sizes one = all;
		float *z;

		one.n = 1;
		one.pos = all.pos + i;
		z = run(&one, 1, x + i * 3 * 64, norm, inv_freq);
		for (size_t h = 0; h < 3; h++)
			test_same("one row", z + (1 + h * 2) * 64, y + (1 + h * 41 + i) * 64, 64);
		free(z);
	}
	free(x);
	free(norm);
	free(inv_freq);
	free(y);
}

/* One device turns rows of several models and of positions far apart: each time as if it were the first. */
static void
other_angles(void **state)
{
	static const struct { size_t pos; float base; } call[] = {
		{ 5, 1 }, { 5 + 8192, 1 }, { 5, 1 }, { 5, 0.5f }, { 8190, 0.5f }, { 8190, 1 },
	};
	static const size_t at[] = { 0 };
	const float x[4 * 2] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct kvk_dev *dev = test_dev(2);

	(void)state;
	for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
		const struct kvk_rope rope = { &call[i].base, 2, 0 };
		float y[4 * 2];

		assert_int_equal(kvk_cpu.heads(dev, x, 4, 1, 2, NULL, 0, &rope, call[i].pos, y, KVK_F32, at), 0);
		for (size_t r = 0; r < 4; r++) {
			const double angle = (double)(call[i].pos + r) * (double)call[i].base;
			const double a = x[2 * r], b = x[2 * r + 1];
			const double want[2] = { a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle) };

			test_near("turned", y + 2 * r, want, 2, 2e-6, 1e-6);
		}
	}
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cases),
		cmocka_unit_test(other_angles),
		cmocka_unit_test(row_by_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
