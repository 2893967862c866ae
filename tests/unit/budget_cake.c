/* SPDX-License-Identifier: MIT
 * cake: the reference's layers, and what it asks of the scores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"

static void
put_preference(struct allot_rig *x, size_t l, size_t n, json_t *preference)
{
	const struct kv_protection none = { 0, 0, -1 };
	struct kv_tensor *score;

	allot_put_score(x, l, NULL, 0, none, NULL);
	score = (struct kv_tensor *)kv_step_find(&x->step[l], "score");
	(void)n;
	if (preference != NULL)
		json_object_set_new(score->attrs, "preference", preference);
}

static void
oracle(void **state)
{
	size_t i, l, compared = 0;
	const json_t *r;
	struct oracle o;

	(void)state;
	oracle_open(&o, "layers");
	json_array_foreach(oracle_results(&o), i, r)
	{
		const json_t *pref = json_object_get(r, "cake_preference"), *one;
		struct kv_params p;
		struct allot_rig x;

		if (pref == NULL)
			continue;
		allot_init(&x, oracle_size(r, "L"), 1, oracle_size(r, "n"));
		json_array_foreach(pref, l, one) put_preference(&x, l, oracle_size(r, "n"), json_deep_copy(one));
		allot_params(&p, &kv_budget_cake, NULL);
		allot_run(&p, &x, oracle_size(r, "base"));
		json_array_foreach(json_object_get(r, "cake"), l, one)
		    assert_int_equal(allot_budget(&x, l)[0], json_integer_value(one));
		oracle_checked(&o, r, "cake");
		compared++;
		allot_fini(&x);
	}
	assert_int_equal(compared, 4);
	oracle_fini(&o);
}

static void
edges(void **state)
{
	struct kv_err e = { 0 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_params(&p, &kv_budget_cake, NULL);
	allot_init(&x, 2, 2, 50);
	put_preference(&x, 0, 50, json_real(0));
	put_preference(&x, 1, 50, json_real(0));
	allot_run(&p, &x, 10);
	assert_true(allot_budget(&x, 0)[0] == 10 && allot_budget(&x, 1)[1] == 10);
	put_preference(&x, 1, 50, json_real(3)); /* all of it, 40 for two heads */
	allot_run(&p, &x, 10);
	assert_true(allot_budget(&x, 0)[0] == 0 && allot_budget(&x, 1)[0] == 20);
	put_preference(&x, 1, 50, NULL);
	assert_int_equal(allot_try(&p, &x, 10, &e), KV_EFORMAT);
	assert_non_null(strstr(e.text, "layer 1"));
	put_preference(&x, 1, 50, json_real(-1));
	assert_int_equal(allot_try(&p, &x, 10, &e), KV_EFORMAT);
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
