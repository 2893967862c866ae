/* SPDX-License-Identifier: MIT
 * adakv: the reference's budgets, which head of a plateau wins, and what normalize refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"

#define RECENT 10

static void
oracle(void **state)
{
	static const struct {
		const char *key, *mode;
		bool normalize;
	} row[] = {
		{ "adakv.exact", "exact", false },
		{ "adakv.exact.norm", "exact", true },
		{ "adakv.safeguard", "safeguard", false },
		{ "adakv.safeguard.norm", "safeguard", true },
		{ "adakv.orig", "orig", false },
	};
	const json_t *r, *want;
	size_t i, compared = 0;
	struct oracle o;

	(void)state;
	oracle_open(&o, "budgets");
	json_array_foreach(oracle_results(&o), i, r) for (size_t m = 0; m < sizeof row / sizeof *row; m++)
	{
		const size_t H = oracle_size(r, "H"), n = oracle_size(r, "n"), base = oracle_size(r, "base");
		struct kv_params p;
		struct allot_rig x;

		if ((want = json_object_get(r, row[m].key)) == NULL)
			continue;
		allot_init(&x, 1, H, n + RECENT);
		allot_put_score(&x, 0, oracle_array(&o, oracle_text(r, "scores"))->data, n,
		    (struct kv_protection){ 0, RECENT, -1 }, NULL);
		allot_params(&p, &kv_budget_adakv, "mode", row[m].mode, row[m].normalize ? "normalize" : NULL, NULL, NULL);
		allot_run(&p, &x, base + RECENT);
		assert_allotted(want, &x, 0, RECENT, row[m].key);
		oracle_checked(&o, r, row[m].key);
		compared++;
		allot_fini(&x);
	}
	assert_int_equal(compared, 495);
	oracle_fini(&o);
}

/* Two heads, pooled to plateaus of equal height: four entries for the layer, alpha 0. */
static void
ties(void **state)
{
	static const float s[] = { 0, 5, 0, 0, 0, 0, /* */ 0, 5, 4, 0, 0, 0 };
	const struct kv_score_attrs pool = { .method = "test", .pool = KVK_POOL_MAX, .pool_width = 3 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 2, 6);
	allot_put_score(&x, 0, s, 6, (struct kv_protection){ 0, 0, -1 }, &pool);
	allot_params(&p, &kv_budget_adakv, "alpha", "0", "tie", "position", NULL);
	allot_run(&p, &x, 2);
	assert_true(allot_budget(&x, 0)[0] == 3 && allot_budget(&x, 0)[1] == 1); /* 5 5 5 | 5 */
	allot_params(&p, &kv_budget_adakv, "alpha", "0", NULL);
	allot_run(&p, &x, 2); /* raw 5 of both, 4 of the second, then a 0 of the first */
	assert_true(allot_budget(&x, 0)[0] == 2 && allot_budget(&x, 0)[1] == 2);
	allot_fini(&x);
}

static void
negative(void **state)
{
	static const float s[] = { -1, -2, -3, NAN, 1, 2, 3, 4 };
	struct kv_err e = { 0 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 2, 4);
	allot_put_score(&x, 0, s, 4, (struct kv_protection){ 0, 0, -1 }, NULL);
	allot_params(&p, &kv_budget_adakv, NULL);
	allot_run(&p, &x, 2); /* floor 0; the four best are the second head's */
	assert_true(allot_budget(&x, 0)[0] == 0 && allot_budget(&x, 0)[1] == 4);
	allot_params(&p, &kv_budget_adakv, "normalize", NULL, NULL);
	assert_int_equal(allot_try(&p, &x, 2, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "got -1"));
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(ties),
		cmocka_unit_test(negative),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
