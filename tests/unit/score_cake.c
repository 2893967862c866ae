/* SPDX-License-Identifier: MIT
 * cake: a case for paper, scores that are not numbers, and the reference implementation's with the layers'
 * preferences. */
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

static double
preference(const struct kv_tensor *s)
{
	const json_t *x = json_object_get(s->attrs, "preference");

	assert_true(json_is_real(x));
	return json_real_value(x);
}

static void
paper(void **state)
{
	/* column 0 in the last two rows: 1/3 1/4 and 1/2 1/3 */
	const double mean = (7 / 24. + 5 / 12.) / 2, var = 1 / 288. + 1 / 72.;
	const double entropy = log(3) / 3 + log(4) / 4 + log(2) / 2 + log(3) / 3;
	const float expect = (float)(mean + 200 * var / 2), light = (float)(mean + var / 2);
	const struct kv_tensor *s;
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;

	(void)state;
	score_params(&p, "cake", "window", "2", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	s = assert_scored(&x, &p, &expect, 1);
	assert_true(fabs(preference(s) - entropy * var) < 1e-6);
	a = score_attributes(s);
	assert_true(a.protect.n_recent == 2 && a.pool == KVK_POOL_AVG && a.pool_width == 5);
	score_params(&p, "cake", "window", "2", "gamma", "1", "tau1", "2", "tau2", "0.5", NULL);
	s = assert_scored(&x, &p, &light, 1);
	assert_true(fabs(preference(s) - sqrt(entropy) * var * var) < 1e-6);
	score_params(&p, "cake", "window", "3", NULL); /* no history */
	s = assert_scored(&x, &p, &expect, 0);
	assert_true(preference(s) == 0);
	score_layer_fini(&x);
}

static void
not_a_number(void **state)
{
	static const float k[3] = { NAN, 0, 0 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "cake", "window", "2", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k);
	s = score_run(&x, &p);
	assert_true(isnan(((const float *)s->data)[0]) && preference(s) == 0);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "cake") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
