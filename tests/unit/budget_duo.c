/* SPDX-License-Identifier: MIT
 * duo: gates of two layers by hand, thresholds from quantiles, short prompts. */
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

#define GATES "0.9 0.1 0.5\n0.2 0.5 0.4\n"

/* Bit h of full[l]: head h keeps everything. */
static void
run(const char *option, const char *value, unsigned first, unsigned second)
{
	const unsigned full[] = { first, second };
	struct kv_params p;
	struct allot_rig x;

	allot_init(&x, 2, 3, 20);
	allot_params(&p, &kv_budget_duo, "gates", allot_file(GATES), "sink", "2", "recent", "3", option, value, NULL);
	allot_run(&p, &x, 0);
	for (size_t l = 0; l < 2; l++)
		for (size_t h = 0; h < 3; h++) {
			const bool all = full[l] >> h & 1;

			assert_int_equal(allot_budget(&x, l)[h], all ? 20 : 5);
			for (size_t t = 0; t < 20; t++)
				assert_int_equal(allot_protect(&x, l)[h * 20 + t] != 0, all || t < 2 || t > 16);
		}
	kv_params_close(&p);
	allot_fini(&x);
}

static void
gates(void **state)
{
	(void)state;
	run(NULL, NULL, 5, 2);           /* 0.5 and more */
	run("threshold", "0.45", 5, 2);
	run("threshold", "0.05", 7, 7);
	run("sparsity", "0", 7, 7);
	run("sparsity", "1", 0, 0);
	run("sparsity", "0.5", 5, 2);    /* sorted .1 .2 .4 .5 .5 .9: 0.45 */
	run("sparsity", "0.6", 5, 2);    /* 0.5, and equal ones stay */
	run("sparsity", "0.9", 1, 0);    /* 0.7 */
}

static void
short_prompt(void **state)
{
	struct kv_err e = { 0 };
	struct kv_params p;
	struct allot_rig x;

	(void)state;
	allot_init(&x, 2, 3, 5);
	allot_params(&p, &kv_budget_duo, "gates", allot_file(GATES), NULL);
	allot_run(&p, &x, 0);
	assert_int_equal(allot_budget(&x, 1)[0], 5);
	x.cfg.Hkv = 2;
	assert_int_equal(allot_try(&p, &x, 0, &e), KV_ESHAPE);
	kv_params_close(&p);
	kv_params_init(&p, &kv_budget_duo.about);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gates),
		cmocka_unit_test(short_prompt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
