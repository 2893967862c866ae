/* SPDX-License-Identifier: MIT
 * observed: a case for paper and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

static struct kv_device device;

static int
set_up(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	return kv_device_open(&device, "cpu", 2, &e);
}

static int
tear_down(void **state)
{
	(void)state;
	kv_device_close(&device);
	return 0;
}

/* Two query heads of one KV head.  Keys whose exponentials are 1, 2, 1 for a query of 1; the second head looks everywhere
 * alike. */
static const float k3[3] = { 0, 0.69314718f, 0 }, q3[2][3] = { { 1, 1, 1 }, { 0, 0, 0 } };

static const struct kv_tensor *
scored(struct score_layer *x, const struct kv_params *p, const float *expect, size_t n)
{
	const struct kv_tensor *s = score_run(x, p);

	assert_int_equal(s->shape[0], 1);
	assert_int_equal(s->shape[1], n);
	assert_scores_near(s->data, expect, n, "paper");
	return s;
}

static struct kv_score_attrs
attributes(const struct kv_tensor *s)
{
	struct kv_score_attrs a;
	struct kv_err e = { 0 };

	assert_int_equal(kv_score_attrs_from_json(&a, s->attrs, &e), KV_OK);
	return a;
}

static void
paper(void **state)
{
	/* rows 1; 1/3 2/3; 1/4 2/4 1/4 and 1; 1/2 1/2; 1/3 1/3 1/3 */
	static const float all[] = { (1 + 1 / 3.f + 1 / 4.f + 1 + 1 / 2.f + 1 / 3.f) / 2 / 3,
		(2 / 3.f + 2 / 4.f + 1 / 2.f + 1 / 3.f) / 2 / 2, (1 / 4.f + 1 / 3.f) / 2 };
	static const float two[] = { (1 / 3.f + 1 / 4.f + 1 / 2.f + 1 / 3.f) / 2 / 2,
		(2 / 3.f + 2 / 4.f + 1 / 2.f + 1 / 3.f) / 2 / 2, (1 / 4.f + 1 / 3.f) / 2 };
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;

	(void)state;
	score_params(&p, "observed", NULL);
	score_layer_init(&x, &device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	a = attributes(scored(&x, &p, all, 3));
	assert_true(a.protect.n_sink == 0 && a.protect.n_recent == 0 && a.pool == KVK_POOL_NONE);
	score_params(&p, "observed", "window", "2", NULL);
	scored(&x, &p, two, 3);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&device, "observed") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
