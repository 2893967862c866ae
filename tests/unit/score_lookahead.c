/* SPDX-License-Identifier: MIT
 * lookahead: a case for paper, what it protects, refusals, and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Behind a prompt of three tokens (weights 1, 2, 4 for a query of 1) two lookahead tokens (1, 8). */
#define LN2 0.69314718f
static const float k3[3] = { 0, LN2, 2 * LN2 }, k_look[2] = { 0, 3 * LN2 };
static const float q_look[2][2] = { { 1, 1 }, { 0, 1 } };

static void
paper(void **state)
{
	/* a row sees the prompt, and lookahead tokens up to itself: denominators 8 and 16, and 4 and 16 */
	static const float heads[2][3] = { { (1 / 8.f + 1 / 16.f) / 2, (2 / 8.f + 2 / 16.f) / 2,
					       (4 / 8.f + 4 / 16.f) / 2 },
		{ (1 / 4.f + 1 / 16.f) / 2, (1 / 4.f + 2 / 16.f) / 2, (1 / 4.f + 4 / 16.f) / 2 } };
	float mean[3];
	const struct kv_tensor *s;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_params p;

	(void)state;
	for (size_t j = 0; j < 3; j++)
		mean[j] = (heads[0][j] + heads[1][j]) / 2;
	score_params(&p, "lookahead", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, NULL, 0, k3);
	score_behind(&x, "lookahead", &q_look[0][0], k_look, 2);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 3);
	assert_scores_near(s->data, mean, 3, "mean");
	a = score_attributes(s);
	assert_true(a.protect.n_recent == 0 && a.protect.n_sink == 0 && a.pool == KVK_POOL_MAX && a.pool_width == 7);
	score_params(&p, "lookahead", "granularity", "head", "recent", "2", NULL);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[0], 2);
	assert_scores_near(s->data, &heads[0][0], 6, "heads");
	a = score_attributes(s);
	assert_true(a.protect.n_recent == 2 && a.protect.n_sink == 0);
	score_layer_fini(&x);
}

static void
refusals(void **state)
{
	struct score_layer x;
	struct kv_params p;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "lookahead", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, NULL, 0, k3);
	score_response(&x, &q_look[0][0], k_look, 2); /* rows behind, but others */
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--lookahead MODULE"));
	score_behind(&x, "lookahead", &q_look[0][0], NULL, 2);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "k.lookahead"));
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "lookahead") > 100);
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
