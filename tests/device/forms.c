/* SPDX-License-Identifier: MIT
 * forms of a backend under test against the definition: types, groups, odd sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

/* a [H][D][D] symmetric, from as many numbers. */
static double *
symmetric(const float *some, size_t H, size_t D)
{
	double *a = test_alloc(H * D * D, sizeof *a);

	for (size_t h = 0; h < H; h++)
		for (size_t i = 0; i < D; i++)
			for (size_t j = 0; j < D; j++)
				a[(h * D + i) * D + j] = (double)some[(h * D + (i < j ? i : j)) * D + (i < j ? j : i)];
	return a;
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

static void
check_forms(struct pair *p, size_t Hq, size_t Hkv, size_t T, size_t D, enum kvk_type type)
{
	double *k, *z, *a, *b = test_alloc(Hq * D, sizeof *b);
	void *bytes = test_typed(Hkv * T * D, 1, T + D, type, &k);
	float *some = test_floats(Hq * D * D, 1, 5), *line = test_floats(Hq * D, 1, 6);
	struct kvk_forms job = { NULL, type, Hq, Hkv, T, D, NULL, NULL };
	void *there[4];

	for (size_t i = 0; i < Hq * D; i++)
		b[i] = (double)line[i];
	a = symmetric(some, Hq, D);
	job.k = there[0] = pair_put(p, bytes, Hkv * T * D * kvk_types[type].bytes);
	job.b = there[1] = pair_put(p, b, Hq * D * sizeof *b);
	job.a = there[2] = pair_put(p, a, Hq * D * D * sizeof *a);
	there[3] = pair_put(p, NULL, Hq * T * sizeof *z);
	pair_ok(p, p->op->forms(p->dev, &job, there[3]));
	z = pair_get(p, there[3], Hq * T * sizeof *z);
	for (size_t h = 0; h < Hq; h++)
		for (size_t j = 0; j < T; j++) {
			const double want = form(k + (h / (Hq / Hkv) * T + j) * D, b + h * D, a + h * D * D, D);

			if (!(fabs(z[h * T + j] - want) <= 1e-13 * (double)(D * D)))
				fail_msg("head %zu, key %zu: %.17g, expected %.17g", h, j, z[h * T + j], want);
		}
	for (int i = 0; i < 4; i++)
		pair_free(p, there[i]);
	free(z);
	free(a);
	free(b);
	free(line);
	free(some);
	free(bytes);
	free(k);
}

static void
forms(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	check_forms(&p, 1, 1, 1, 2, KVK_F32);
	check_forms(&p, 4, 2, 129, 17, KVK_F32);
	check_forms(&p, 3, 1, 31, 8, KVK_F16);
	check_forms(&p, 2, 2, 200, 12, KVK_BF16);
	check_forms(&p, 2, 1, 65, 128, KVK_F16);
	check_forms(&p, 2, 2, 0, 8, KVK_F32);
	pair_close(&p);
}

/* The triangle below the diagonal is not looked at. */
static void
upper(void **state)
{
	const float k[] = { 2, 3 };
	const double b[] = { 0, 0 }, a[] = { 1, 10, NAN, 100 };
	struct kvk_forms job = { NULL, KVK_F32, 1, 1, 1, 2, NULL, NULL };
	struct pair p;
	void *there[4];
	double *z;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	job.k = there[0] = pair_put(&p, k, sizeof k);
	job.b = there[1] = pair_put(&p, b, sizeof b);
	job.a = there[2] = pair_put(&p, a, sizeof a);
	there[3] = pair_put(&p, NULL, sizeof *z);
	pair_ok(&p, p.op->forms(p.dev, &job, there[3]));
	z = pair_get(&p, there[3], sizeof *z);
	assert_true(*z == 4 + 2 * 60 + 900);
	free(z);
	for (int i = 0; i < 4; i++)
		pair_free(&p, there[i]);
	pair_close(&p);
}

static void
refused(void **state)
{
	struct kvk_forms job = { NULL, KVK_Q4_0, 2, 1, 1, 2, NULL, NULL };
	struct pair p;
	double z[3];

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->forms(p.dev, &job, z), 0);
	assert_string_equal(p.op->error(p.dev), "forms: types are f32, f16 and bf16");
	job.k_type = KVK_F32;
	job.Hq = 3;
	job.Hkv = 2;
	assert_int_not_equal(p.op->forms(p.dev, &job, z), 0);
	assert_string_equal(p.op->error(p.dev), "forms: 3 query heads cannot share 2 KV heads");
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms),
		cmocka_unit_test(upper),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
