/* SPDX-License-Identifier: MIT
 * champion: the reference's budgets, a case for paper, the choices, what is told about heads, and that a stronger
 * champion never gets more. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"

#define RECENT 10

/* How the budgets came about; the residual pool, given away by then, shows in them alone.  shared: there was something
 * to share out, else all heads have the floor. */
static void
check_info(const struct allot_rig *x, const json_t *info, size_t H, bool shared)
{
	const json_t *abnormal = json_object_get(info, "abnormal"), *head;
	const size_t floor = RECENT + oracle_size(info, "floor");
	size_t i;

	if (shared) {
		assert_true(json_equal(abnormal, allot_attr(x, 0, "abnormal")));
		assert_int_equal(allot_count(x, 0, "unspent"), oracle_size(info, "unspent"));
		json_array_foreach (abnormal, i, head)
			assert_int_equal(allot_budget(x, 0)[json_integer_value(head)], floor);
	} else {
		assert_int_equal(json_array_size(abnormal) + oracle_size(info, "unspent"), 0);
		for (size_t h = 0; h < H; h++)
			assert_int_equal(allot_budget(x, 0)[h], floor);
	}
}

static void
oracle(void **state)
{
	static const struct {
		const char *key, *rho, *tau;
	} row[] = {
		{ "champion", "0.2", "0.01" },
		{ "champion.rho0.5", "0.5", "0.01" },
		{ "champion.tau0", "0.2", "0" },
	};
	const json_t *r;
	struct oracle o;
	size_t i;

	(void)state;
	oracle_open(&o, "budgets");
	json_array_foreach(oracle_results(&o), i, r) for (size_t m = 0; m < 3; m++)
	{
		const size_t H = oracle_size(r, "H"), n = oracle_size(r, "n"), base = oracle_size(r, "base");
		struct kv_params p;
		struct allot_rig x;

		allot_init(&x, 1, H, n + RECENT);
		allot_put_score(&x, 0, oracle_array(&o, oracle_text(r, "scores"))->data, n,
		    (struct kv_protection){ 0, RECENT, -1 }, NULL);
		allot_params(&p, &kv_budget_champion, "rho", row[m].rho, "tau", row[m].tau, NULL);
		allot_run(&p, &x, base + RECENT);
		assert_allotted(json_object_get(r, row[m].key), &x, 0, RECENT, row[m].key);
		oracle_checked(&o, r, row[m].key);
		if (m == 0)
			check_info(&x, json_object_get(r, "champion_info"), H, base > 0 && base < n);
		oracle_checked(&o, r, m == 0 ? "champion_info" : row[m].key);
		allot_fini(&x);
	}
	oracle_fini(&o);
}

/* Largest 0.5, 0.1, 0.25 and none: 1/m = 2, 10, 4 of 16.  base 5: floor 1, 16 entries to share: 2, 10, 4. */
static const float four[4 * 12] = {
	[3] = 0.5f, [12] = 0.1f, [13] = 0.05f, [24 + 11] = 0.25f, [36] = NAN, [37] = 0.001f
};

static void
run_four(struct allot_rig *x, size_t C, const char *name, const char *value)
{
	struct kv_params p;

	allot_params(&p, &kv_budget_champion, name, value, NULL);
	allot_run(&p, x, C);
}

static void
by_hand(void **state)
{
	struct allot_rig x;
	const int32_t *B;

	(void)state;
	allot_init(&x, 1, 4, 12);
	allot_put_score(&x, 0, four, 12, (struct kv_protection){ 0, 0, -1 }, NULL);
	run_four(&x, 5, NULL, NULL);
	B = allot_budget(&x, 0);
	assert_true(B[0] == 3 && B[1] == 11 && B[2] == 5 && B[3] == 1);
	assert_int_equal(json_array_size(allot_attr(&x, 0, "maxima")), 4);
	assert_true((float)json_real_value(json_array_get(allot_attr(&x, 0, "maxima"), 1)) == 0.1f);
	assert_int_equal(json_integer_value(json_array_get(allot_attr(&x, 0, "abnormal"), 0)), 3);
	run_four(&x, 7, NULL, NULL); /* floor 1, 24: 3, 15, 6; the second is full with 12, and 3 + 1 are left */
	B = allot_budget(&x, 0);
	assert_true(B[0] == 6 && B[1] == 12 && B[2] == 9 && B[3] == 1);
	run_four(&x, 7, "residual", "greedy"); /* all 4 to the third */
	B = allot_budget(&x, 0);
	assert_true(B[0] == 4 && B[1] == 12 && B[2] == 11 && B[3] == 1);
	run_four(&x, 11, NULL, NULL); /* three full heads and a floor of 2 */
	B = allot_budget(&x, 0);
	assert_true(B[0] == 12 && B[1] == 12 && B[2] == 12 && B[3] == 2);
	assert_int_equal(allot_count(&x, 0, "unspent"), 6);
	assert_int_equal(allot_count(&x, 0, "total"), 38);
	run_four(&x, 5, "tau", "1"); /* all abnormal: the same for all */
	B = allot_budget(&x, 0);
	assert_true(B[0] == 5 && B[1] == 5 && B[2] == 5 && B[3] == 5);
	assert_int_equal(json_array_size(allot_attr(&x, 0, "abnormal")), 4);
	run_four(&x, 5, "rho", "1");
	assert_true(allot_budget(&x, 0)[1] == 5);
	allot_fini(&x);
}

/* Averages over three lower the largest of a lone peak, and not that of a plateau. */
static void
pooled(void **state)
{
	static const float s[2 * 9] = { [4] = 0.375f, [9 + 3] = 0.375f, [9 + 4] = 0.375f, [9 + 5] = 0.375f };
	const struct kv_score_attrs pool = { .method = "test", .pool = KVK_POOL_AVG, .pool_width = 3 };
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 2, 9);
	allot_put_score(&x, 0, s, 9, (struct kv_protection){ 0, 0, -1 }, &pool);
	run_four(&x, 5, "rho", "0");
	assert_true(allot_budget(&x, 0)[0] == 5 && allot_budget(&x, 0)[1] == 5);
	run_four(&x, 5, "max", "pooled"); /* 0.125 and 0.375 with a floor of 1: three quarters of 8 are 6 */
	assert_true(allot_budget(&x, 0)[0] == 7 && allot_budget(&x, 0)[1] == 3);
	allot_fini(&x);
}

static void
monotone(void **state)
{
	static float s[8 * 50];
	struct allot_rig x;

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		float m[8];

		srand(round);
		for (size_t i = 0; i < 8 * 50; i++)
			s[i] = (float)rand() / (float)RAND_MAX;
		for (size_t h = 0; h < 8; h++) {
			const float scale = powf(10, -3 * (float)rand() / (float)RAND_MAX);

			m[h] = 0;
			for (size_t i = 0; i < 50; i++) {
				s[h * 50 + i] *= scale;
				m[h] = fmaxf(m[h], s[h * 50 + i]);
			}
		}
		allot_init(&x, 1, 8, 50);
		allot_put_score(&x, 0, s, 50, (struct kv_protection){ 0, 0, -1 }, NULL);
		run_four(&x, 1 + round % 49, NULL, NULL);
		for (size_t g = 0; g < 8; g++)
			for (size_t h = 0; h < 8; h++)
				if (m[g] < m[h] && m[g] >= 0.01f)
					assert_true(allot_budget(&x, 0)[g] >= allot_budget(&x, 0)[h]);
		allot_fini(&x);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(by_hand),
		cmocka_unit_test(pooled),
		cmocka_unit_test(monotone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
