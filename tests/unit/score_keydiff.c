/* SPDX-License-Identifier: MIT
 * keydiff: cases for paper, and a naive loop. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Keys along x, along x, along y: the anchor is (2/3, 1/3), whatever their lengths.  A key of zeros has the cosine 0.
 */
static void
paper(void **state)
{
	static const float k[2][3][2] = { { { 2, 0 }, { 8, 0 }, { 0, 1 } }, { { 1, 0 }, { 0, 0 }, { -3, 0 } } };
	const float r = sqrtf(5), expect[] = { -2 / r, -2 / r, -1 / r, 0, 0, 0 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "keydiff", NULL);
	score_layer_init(&x, &score_device, 2, 2, 3, 2, 1.0f, NULL, 0, &k[0][0][0]);
	s = score_run(&x, &p);
	assert_scores_near(s->data, expect, 6, "two heads");
	assert_true(((const float *)s->data)[0] == ((const float *)s->data)[1]);
	score_layer_fini(&x);
}

/* A lone key points where the mean does. */
static void
one_token(void **state)
{
	static const float k[] = { 3, -1, 2 };
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "keydiff", NULL);
	score_layer_init(&x, &score_device, 1, 1, 1, 3, 1.0f, NULL, 0, k);
	assert_float_equal(*(const float *)score_run(&x, &p)->data, -1, 1e-6);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "keydiff") > 200);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(one_token),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
