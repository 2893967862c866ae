/* SPDX-License-Identifier: MIT
 * nacl: the reference's draws, earlier budgets head by head. */
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

/* What head h keeps is exactly the list. */
static void
assert_kept(const struct allot_rig *x, size_t l, size_t h, const json_t *list, size_t where)
{
	const uint8_t *keep = allot_protect(x, l) + h * x->seq.T;
	size_t i = 0;

	assert_int_equal(allot_budget(x, l)[h], json_array_size(list));
	for (size_t t = 0; t < x->seq.T; t++)
		if (keep[t] && json_integer_value(json_array_get(list, i++)) != (json_int_t)t)
			fail_msg("record %zu, head %zu: position %zu", where, h, t);
	assert_int_equal(i, json_array_size(list));
}

static void
oracle(void **state)
{
	size_t i, compared = 0;
	const json_t *r;
	struct oracle o;

	(void)state;
	oracle_open(&o, "nacl_random");
	json_array_foreach(oracle_results(&o), i, r)
	{
		const struct oracle_array *s = oracle_array(&o, "scores");
		char share[40], temperature[40], seed[40];
		struct kv_params p;
		struct allot_rig x;

		if (json_object_get(r, "kept") == NULL)
			continue;
		snprintf(share, sizeof share, "%.17g", fmin(1, ((double)oracle_size(r, "n_random") + 0.5) /
			((double)oracle_size(r, "B") - 10)));
		snprintf(temperature, sizeof temperature, "%g", json_number_value(json_object_get(r, "temperature")));
		snprintf(seed, sizeof seed, "%zu", oracle_size(r, "seed"));
		allot_init(&x, 1, s->shape[0], s->shape[1]);
		x.step[0].layer = x.layer[0].layer = (int)oracle_size(r, "layer");
		x.cfg.L = 1 + oracle_size(r, "layer");
		allot_put_score(&x, 0, s->data, s->shape[1],
		    (struct kv_protection){ oracle_size(r, "n_sink"), oracle_size(r, "n_recent"), -1 }, NULL);
		x.cfg.L = 1;
		allot_params(&p, &kv_budget_nacl, "random", share, "temperature", temperature, "seed", seed, NULL);
		allot_run(&p, &x, oracle_size(r, "B"));
		for (size_t h = 0; h < s->shape[0] && oracle_size(r, "B") < s->shape[1]; h++)
			assert_kept(&x, 0, h, json_array_get(json_object_get(r, "kept"), h), i);
		oracle_checked(&o, r, "kept");
		compared += oracle_size(r, "B") < s->shape[1];
		allot_fini(&x);
	}
	assert_int_equal(compared, 8);
	oracle_fini(&o);
}

/* Earlier budgets stay head by head, down to less than the protected and up to the prompt. */
static void
earlier(void **state)
{
	static const int32_t B[] = { 3, 7, 15, 400, 0 };
	static float s[5 * 20];
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	for (size_t i = 0; i < 5 * 20; i++)
		s[i] = i % 7 == 0 ? NAN : (float)(i * 37 % 11);
	allot_init(&x, 1, 5, 20);
	allot_put_score(&x, 0, s, 20, (struct kv_protection){ 2, 3, -1 }, NULL);
	allot_put_budget(&x, 0, B, 2, 3);
	allot_params(&p, &kv_budget_nacl, "temperature", "0", NULL);
	allot_run(&p, &x, 0);
	for (size_t h = 0; h < 5; h++) {
		const uint8_t *keep = allot_protect(&x, 0) + h * 20;
		int32_t n = 0;

		for (size_t t = 0; t < 20; t++)
			n += keep[t];
		assert_int_equal(n, B[h] < 20 ? B[h] : 20);
		assert_int_equal(n, allot_budget(&x, 0)[h]);
		assert_true(n < 3 || (keep[17] && keep[18] && keep[19]));
		assert_true(n < 5 || (keep[0] && keep[1]));
	}
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(earlier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
