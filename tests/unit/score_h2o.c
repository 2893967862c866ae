/* SPDX-License-Identifier: MIT
 * h2o: a case for paper, the reference implementation's, and that queries see no later key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Two query heads of one KV head.  Keys whose exponentials are 1, 2, 1 for a query of 1; the second head looks
 * everywhere alike. */
static const float k3[3] = { 0, 0.69314718f, 0 }, q3[2][3] = { { 1, 1, 1 }, { 0, 0, 0 } };

static void
paper(void **state)
{
	/* rows 1; 1/3 2/3; 1/4 2/4 1/4 and 1; 1/2 1/2; 1/3 1/3 1/3 */
	static const float all[] = { (1 + 1 / 3.f + 1 / 4.f + 1 + 1 / 2.f + 1 / 3.f) / 2,
		(2 / 3.f + 2 / 4.f + 1 / 2.f + 1 / 3.f) / 2, (1 / 4.f + 1 / 3.f) / 2 };
	static const float last[] = { (1 / 4.f + 1 / 3.f) / 2, (2 / 4.f + 1 / 3.f) / 2, (1 / 4.f + 1 / 3.f) / 2 };
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "h2o", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	a = score_attributes(assert_scored(&x, &p, all, 3));
	assert_true(a.protect.recent_share == 0.5 && a.pool == KVK_POOL_NONE);
	kv_protection_resolve(&a.protect, 7);
	assert_int_equal(a.protect.n_recent, 3); /* C div 2 */
	score_params(&p, "h2o", "window", "1", "recent", "8", NULL);
	a = score_attributes(assert_scored(&x, &p, last, 3));
	assert_true(a.protect.n_recent == 8 && a.protect.recent_share < 0);
	score_layer_fini(&x);
	score_params(&p, "h2o", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 2, k3);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--queries all"));
	score_layer_fini(&x);
}

/* The last key attracts the queries before it and repels its own. */
static void
no_future(void **state)
{
	static const float k[3] = { 0, 0, 200 }, q[3] = { 1, 1, -1 };
	static const char *const methods[] = { "h2o", "observed", "tova" };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		score_params(&p, methods[i], NULL);
		score_layer_init(&x, &score_device, 1, 1, 3, 1, 1.0f, q, 3, k);
		assert_true(((const float *)score_run(&x, &p)->data)[2] == 0);
		score_layer_fini(&x);
	}
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "h2o") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(no_future),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
