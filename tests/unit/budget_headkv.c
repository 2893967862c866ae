/* SPDX-License-Identifier: MIT
 * headkv: the reference's budgets, groups of query heads, and the files that importances come from. */
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
oracle(void **state)
{
	const json_t *r;
	size_t i, compared = 0;
	struct oracle o;

	(void)state;
	oracle_open(&o, "layers");
	json_array_foreach(oracle_results(&o), i, r)
	{
		static const char *const key[] = { "headkv", "headkv.orig", "headkv.temp0.5" };
		char *text, beta[32];
		size_t L, n;

		if (json_object_get(r, "headkv") == NULL)
			continue;
		L = oracle_size(r, "L");
		n = oracle_size(r, "n");
		snprintf(beta, sizeof beta, "%.17g", json_number_value(json_object_get(r, "beta")));
		text = json_dumps(json_object_get(r, "head_scores"), JSON_REAL_PRECISION(17));
		for (size_t m = 0; m < 3; m++) {
			struct kv_params p;
			struct allot_rig x;

			allot_init(&x, L, oracle_size(r, "H"), n);
			allot_params(&p, &kv_budget_headkv, "importance", allot_file(text), "beta", beta, "mode",
			    m == 1 ? "orig" : "exact", "temp", m == 2 ? "0.5" : "1", NULL);
			allot_run(&p, &x, oracle_size(r, "base"));
			for (size_t l = 0; l < L; l++)
				assert_allotted(json_array_get(json_object_get(r, key[m]), l), &x, l, 0, key[m]);
			oracle_checked(&o, r, key[m]);
			compared++;
			kv_params_close(&p);
			allot_fini(&x);
		}
		free(text);
	}
	assert_int_equal(compared, 12);
	oracle_fini(&o);
}

/* Four query heads in two KV heads: 3, 1 | 0, 0 of 4 parts, base 10, beta 2: lo 5, pool 20: 20, 10 | 5, 5. */
static void
groups(void **state)
{
	static const char *const form[] = {
		"{\"0-0\": 3, \"0-1\": [0.5, 1.5], \"0-2\": 0, \"0-3\": 0.0}\n{\"0-0\": 1}",
		"  [[3, 1, 0, 0]]",
		"# gates\n\n3\t1,0 0  # of layer 0\r\n",
		"3 1 0 0",
	};
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 2, 100);
	x.cfg.Hq = 4;
	for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
		allot_params(&p, &kv_budget_headkv, "importance", allot_file(form[i]), "beta", "2", NULL);
		allot_run(&p, &x, 10);
		assert_true(allot_budget(&x, 0)[0] == 15 && allot_budget(&x, 0)[1] == 5);
		kv_params_close(&p);
	}
	allot_fini(&x);
}

static void
refusals(void **state)
{
	static const struct {
		const char *text, *why;
	} row[] = {
		{ "", "empty" },
		{ "# nothing\n", "0 and 0" },
		{ "1 2\n3\n", "line 2" },
		{ "1 2\n3 x\n", "line 2" },
		{ "1 nan\n", "layer 0, head 1" },
		{ "1 -2\n", "layer 0, head 1: expected a number of 0 or more, got -2" },
		{ "0 0\n", "sum to 0" },
		{ "{\"0-0\": 1, \"1-1\": 1}", "2 layers of 2 heads" },
		{ "{\"0-0\": 1, \"0-\": 1}", "LAYER-HEAD" },
		{ "{\"0-0\": 1, \"0-1\": \"x\"}", "layer 0, head 1" },
		{ "{\"0-0\": []}", "layer 0, head 0" },
		{ "{\"0-0\": 1, \"0-99999\": 1}", "LAYER-HEAD" },
		{ "{\"0-0\": 1", "line 1" },
		{ "[[1, 2], [3]]", "layer 1 has 1" },
		{ "[]", "0 and 0" },
		{ "[1, 2]", "got 2 and 0" },
	};
	struct kv_err e = { 0 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	kv_params_init(&p, &kv_budget_headkv.about);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		assert_int_equal(kv_params_set(&p, "importance", allot_file(row[i].text), &e), KV_OK);
		if (kv_params_open(&p, &e) >= 0 || strstr(e.text, row[i].why) == NULL)
			fail_msg("row %zu: %s", i, e.text);
	}
	allot_init(&x, 2, 2, 100);
	allot_params(&p, &kv_budget_headkv, "importance", allot_file("1 2 3\n1 2 3\n"), NULL);
	assert_int_equal(allot_try(&p, &x, 10, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "2 layers of 3 heads"));
	kv_params_close(&p);
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(groups),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
