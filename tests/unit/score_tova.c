/* SPDX-License-Identifier: MIT
 * tova: a case for paper and the reference implementation's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Two KV heads; the last query of head 0 weighs its keys 1 : 2 : 1, that of head 1 is zero.  Earlier rows must not
 * matter. */
static void
paper(void **state)
{
	static const float k[2][3] = { { 0, 0.69314718f, 0 }, { 5, 6, 7 } }, q[2][2] = { { 9, 1 }, { 9, 0 } };
	static const float expect[] = { (1 / 4.f + 1 / 3.f) / 2, (1 / 2.f + 1 / 3.f) / 2, (1 / 4.f + 1 / 3.f) / 2 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "tova", NULL);
	score_layer_init(&x, &score_device, 2, 2, 3, 1, 1.0f, &q[0][0], 2, &k[0][0]);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 3);
	assert_scores_near(s->data, expect, 3, "head 0");
	assert_scores_near((const float *)s->data + 3, expect, 3, "head 1");
	assert_int_equal(kv_score_attrs_from_json(&a, s->attrs, &e), KV_OK);
	assert_true(a.protect.n_recent == 1 && a.protect.n_sink == 0 && a.pool == KVK_POOL_NONE && a.n_tokens == 3);
	kv_step_remove(&x.step, "q");
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--queries last"));
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "tova") > 100);
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
