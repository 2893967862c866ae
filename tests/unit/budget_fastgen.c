/* SPDX-License-Identifier: MIT
 * fastgen: the reference's sets, positions of tokens, and scores that are no attention. */
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

/* Policies and sets of one case, by its mean attention, for every share of the mass. */
static size_t
policies_of(const struct oracle *o, const json_t *r)
{
	const struct oracle_array *s = oracle_array(o, oracle_text(r, "mass"));
	const size_t T = oracle_size(o->meta, "S");
	const json_t *row;
	size_t j;

	json_array_foreach(json_object_get(r, "rows"), j, row)
	{
		struct kv_params p;
		struct allot_rig x;
		char mass[40];

		snprintf(mass, sizeof mass, "%.17g", json_number_value(json_object_get(row, "T")));
		allot_init(&x, 1, s->shape[0], T);
		allot_put_score(&x, 0, s->data, T, (struct kv_protection){ 4, 8, -1 }, NULL);
		allot_params(&p, &kv_budget_fastgen, "mass", mass, NULL);
		allot_run(&p, &x, 0);
		assert_true(json_equal(json_object_get(row, "policy"), allot_attr(&x, 0, "policies")));
		for (size_t h = 0; h < s->shape[0]; h++) {
			const json_t *kept = json_array_get(json_object_get(row, "kept"), h);
			size_t n = 0;

			for (size_t t = 0; t < T; t++)
				if (allot_protect(&x, 0)[h * T + t])
					assert_int_equal(json_integer_value(json_array_get(kept, n++)), t);
			assert_int_equal(n, json_array_size(kept));
			assert_int_equal(n, allot_budget(&x, 0)[h]);
		}
		allot_fini(&x);
	}
	oracle_checked(o, r, NULL);
	return json_array_size(json_object_get(r, "rows"));
}

static void
oracle(void **state)
{
	const json_t *r;
	size_t i, compared = 0;
	struct oracle o;

	(void)state;
	for (const char *const *name = oracle_scores; *name != NULL; name++) {
		oracle_open(&o, *name);
		json_array_foreach(oracle_results(&o), i, r) if (strcmp(oracle_text(r, "method"), "fastgen") == 0)
		    compared += policies_of(&o, r);
		oracle_fini(&o);
	}
	assert_true(compared >= 20);
}

static void
tokens(void **state)
{
	static const float s[] = { 0.1f, 0, 0.5f, 0, 0.3f, 0.1f };
	static const int32_t ids[] = { 1, 7, 13, 7, 99, 7 };
	struct kv_err e = { 0 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 1, 6);
	x.seq.tokens = ids;
	x.seq.n_tokens = 6;
	allot_put_score(&x, 0, s, 6, (struct kv_protection){ 0, 0, -1 }, NULL);
	allot_params(&p, &kv_budget_fastgen, "mass", "0.89", "sink", "1", "special", "99", "punctuation", "5,13", NULL);
	allot_run(&p, &x, 0);
	assert_int_equal(json_integer_value(json_array_get(allot_attr(&x, 0, "policies"), 0)), 1);
	assert_memory_equal(allot_protect(&x, 0), ((uint8_t[]){ 1, 0, 1, 0, 1, 0 }), 6);
	assert_int_equal(kv_params_set(&p, "special", "13,x", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	allot_put_score(&x, 0, s, 5, (struct kv_protection){ 0, 0, -1 }, NULL); /* not all positions */
	allot_params(&p, &kv_budget_fastgen, NULL);
	assert_int_equal(allot_try(&p, &x, 0, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "kv-score nacl"));
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
