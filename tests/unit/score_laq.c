/* SPDX-License-Identifier: MIT
 * laq: cases for paper and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* A prompt of two tokens, whose keys are worth 1 and 2 to a query of 1, and a response of two. */
static const float k2[2] = { 0, 0.69314718f };
static const float q_response[2][2] = { { 1, 1 }, { 0, 0 } };

static void
paper(void **state)
{
	/* all rows 1/3 2/3 and 1/2 1/2: the response's own keys are not in the sum */
	static const float both[] = { (1 / 3.f + 1 / 2.f) / 2, (2 / 3.f + 1 / 2.f) / 2 };
	/* the first row sees the first key alone */
	static const float published[] = { ((1 + 1 / 3.f) / 2 + (1 + 1 / 2.f) / 2) / 2,
		(2 / 3.f / 2 + 1 / 2.f / 2) / 2 };
	/* with the prompt's last query, 2 and 0: 1/5 of head 0 */
	static const float window = ((1 / 5.f + 1 / 3.f + 1 / 3.f) / 3 + 1 / 2.f) / 2;
	static const float q[2] = { 2, 0 };
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;

	(void)state;
	score_params(&p, "laq", NULL);
	score_layer_init(&x, &score_device, 2, 1, 2, 1, 1.0f, q, 1, k2);
	score_response(&x, &q_response[0][0], NULL, 2);
	a = score_attributes(assert_scored(&x, &p, both, 2));
	assert_true(a.protect.n_recent == 0 && a.pool == KVK_POOL_MAX && a.pool_width == 7);
	score_params(&p, "laq", "mask", "public", NULL);
	assert_scored(&x, &p, published, 2);
	score_params(&p, "laq", "window", "1", NULL);
	a = score_attributes(assert_scored(&x, &p, &window, 1));
	assert_int_equal(a.protect.n_recent, 1);
	score_layer_fini(&x);
}

static void
refusals(void **state)
{
	struct kv_params p;
	struct score_layer x;
	struct kv_err e = { 0 };
	char text[32];

	(void)state;
	score_params(&p, "laq", "window", "1", NULL);
	assert_string_equal(kv_queries_print(kv_score_queries(kv_score_find("laq"), &p), text), "window:32");
	score_layer_init(&x, &score_device, 2, 1, 2, 1, 1.0f, NULL, 0, k2);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "q.response"));
	score_response(&x, &q_response[0][0], NULL, 2);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--queries last"));
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "laq") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(refusals),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
