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

/* Two query heads of one KV head.  Keys whose exponentials are 1, 2, 1 for a query of 1; the second head looks
 * everywhere alike. */
static const float k3[3] = { 0, 0.69314718f, 0 }, q3[2][3] = { { 1, 1, 1 }, { 0, 0, 0 } };

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
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	a = score_attributes(assert_scored(&x, &p, all, 3));
	assert_true(a.protect.n_sink == 0 && a.protect.n_recent == 0 && a.pool == KVK_POOL_NONE);
	score_params(&p, "observed", "window", "2", NULL);
	assert_scored(&x, &p, two, 3);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "observed") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
