/* SPDX-License-Identifier: MIT
 * forms of a backend under test against the definition: types, groups, odd sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/naive_ops.h"
#include "tests/lib/pair.h"

static void
check_forms(struct pair *p, size_t Hq, size_t Hkv, size_t T, size_t D, enum kvk_type type)
{
	struct form_job x;
	void *there[4];
	double *z;

	form_job_init(&x, Hq, Hkv, T, D, type);
	x.job.k = there[0] = pair_put(p, x.k, Hkv * T * D * kvk_types[type].bytes);
	x.job.b = there[1] = pair_put(p, x.b, Hq * D * sizeof *x.b);
	x.job.a = there[2] = pair_put(p, x.a, Hq * D * D * sizeof *x.a);
	there[3] = pair_put(p, NULL, Hq * T * sizeof *z);
	pair_ok(p, p->op->forms(p->dev, &x.job, there[3]));
	z = pair_get(p, there[3], Hq * T * sizeof *z);
	naive_forms_near(&x, z);
	for (int i = 0; i < 4; i++)
		pair_free(p, there[i]);
	free(z);
	form_job_fini(&x);
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
