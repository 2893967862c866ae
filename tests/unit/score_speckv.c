/* SPDX-License-Identifier: MIT
 * speckv: a case for paper and the reference implementation's. */
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
	/* column 0 in the last two prompt rows and the draft's: 1/3 1/4 1/7 and 1/2 1/3 1/4 */
	static const float k_draft = 1.09861229f, q_draft[2] = { 1, 0 };
	const float largest = 1 / 2.f, mean = (1 / 3.f + 1 / 4.f + 1 / 7.f + 1 / 2.f + 1 / 3.f + 1 / 4.f) / 6;
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;
	char text[32];

	(void)state;
	score_params(&p, "speckv", "window", "1", NULL);
	assert_string_equal(kv_queries_print(kv_score_queries(kv_score_find("speckv"), &p), text), "window:2");
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	score_response(&x, q_draft, &k_draft, 1);
	a = score_attributes(assert_scored(&x, &p, &largest, 1));
	assert_true(a.protect.n_recent == 2 && a.pool == KVK_POOL_MAX && a.pool_width == 7);
	score_params(&p, "speckv", "window", "1", "reduce", "mean", "recent", "0", NULL);
	a = score_attributes(assert_scored(&x, &p, &mean, 1));
	assert_int_equal(a.protect.n_recent, 0);
	score_params(&p, "speckv", "window", "2", NULL);
	assert_scored(&x, &p, &mean, 0);
	score_params(&p, "speckv", "window", "all", NULL);
	assert_scored(&x, &p, &mean, 0);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "speckv") > 100);
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
