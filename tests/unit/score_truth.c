/* SPDX-License-Identifier: MIT
 * truth: a case for paper, an empty response, and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Behind a prompt of two tokens (1, 2 for a query of 1) a response of two (1, 3). */
static const float k2[2] = { 0, 0.69314718f }, k_response[2] = { 0, 1.09861229f };
static const float q_response[2][2] = { { 1, 1 }, { 0, 0 } };

static void
paper(void **state)
{
	/* rows 1/4 2/4 (1/4); 1/7 2/7 (4/7) and 1/3 1/3; 1/4 1/4 */
	static const float heads[2][2] = { { (1 / 4.f + 1 / 7.f) / 2, (2 / 4.f + 2 / 7.f) / 2 },
		{ (1 / 3.f + 1 / 4.f) / 2, (1 / 3.f + 1 / 4.f) / 2 } };
	const float mean[2] = { (heads[0][0] + heads[1][0]) / 2, (heads[0][1] + heads[1][1]) / 2 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;

	(void)state;
	score_params(&p, "truth", NULL);
	score_layer_init(&x, &score_device, 2, 1, 2, 1, 1.0f, NULL, 0, k2);
	score_response(&x, &q_response[0][0], k_response, 2);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 2);
	assert_scores_near(s->data, mean, 2, "mean");
	a = score_attributes(s);
	assert_true(a.protect.n_recent == 0 && a.protect.n_sink == 0 && a.pool == KVK_POOL_MAX && a.pool_width == 7);
	score_params(&p, "truth", "granularity", "head", NULL);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[0], 2);
	assert_scores_near(s->data, &heads[0][0], 4, "heads");
	score_layer_fini(&x);
	score_params(&p, "truth", NULL);
	score_layer_init(&x, &score_device, 2, 1, 2, 1, 1.0f, NULL, 0, k2);
	score_response(&x, &q_response[0][0], k_response, 0);
	assert_scores_near(score_run(&x, &p)->data, (const float[]){ 0, 0 }, 2, "no response");
	score_layer_fini(&x);
}

static void
refusals(void **state)
{
	struct kv_params p;
	struct score_layer x;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "truth", NULL);
	score_layer_init(&x, &score_device, 2, 1, 2, 1, 1.0f, NULL, 0, k2);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--response"));
	score_response(&x, &q_response[0][0], NULL, 2); /* a stream of kv-decode has no keys */
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "k.response"));
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "truth") > 100);
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
