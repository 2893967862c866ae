/* SPDX-License-Identifier: MIT
 * nacl: a case for paper, how many proxies a prompt has, and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Two query heads of one KV head.  Keys whose exponentials are 1, 2, 1 for a query of 1; the second head looks
 * everywhere alike. */
static const float k3[3] = { 0, 0.69314718f, 0 }, q3[2][3] = { { 1, 1, 1 }, { 0, 0, 0 } };

static void
paper(void **state)
{
	static const float one[] = { (1 / 4.f + 1 / 3.f) / 2, (2 / 4.f + 1 / 3.f) / 2, (1 / 4.f + 1 / 3.f) / 2 };
	static const float two[] = { (1 / 3.f + 1 / 4.f + 1 / 2.f + 1 / 3.f) / 2,
		(2 / 3.f + 2 / 4.f + 1 / 2.f + 1 / 3.f) / 2, (1 / 4.f + 1 / 3.f) / 2 };
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;

	(void)state;
	score_params(&p, "nacl", NULL);
	score_layer_init(&x, &score_device, 2, 1, 3, 1, 1.0f, &q3[0][0], 3, k3);
	a = score_attributes(assert_scored(&x, &p, one, 3));
	assert_true(a.protect.n_sink == 4 && a.protect.n_recent == 8 && a.pool == KVK_POOL_NONE);
	score_params(&p, "nacl", "window", "2", "recent", "window", NULL);
	a = score_attributes(assert_scored(&x, &p, two, 3));
	assert_int_equal(a.protect.n_recent, 2);
	score_layer_fini(&x);
}

/* A hundredth of the prompt looks back, and asks for its queries; all keys alike. */
static void
proxies(void **state)
{
	static float k[1000], q[10];
	const size_t n = 1000;
	const struct kv_tensor *s;
	struct kv_params p;
	struct score_layer x;
	struct kv_err e = { 0 };
	char text[32];
	double want = 0;

	(void)state;
	score_params(&p, "nacl", NULL);
	assert_string_equal(kv_queries_print(kv_score_queries(kv_score_find("nacl"), &p), text), "part:100");
	score_layer_init(&x, &score_device, 1, 1, n, 1, 1.0f, q, 10, k);
	s = score_run(&x, &p);
	assert_int_equal(json_integer_value(json_object_get(s->attrs, "window")), 10);
	assert_int_equal(score_attributes(s).protect.n_recent, 10);
	for (size_t i = n; i > n - 10; i--)
		want += 1 / (double)i;
	assert_true(fabs((double)((const float *)s->data)[0] - want) < 1e-7);
	score_layer_fini(&x);
	score_layer_init(&x, &score_device, 1, 1, n, 1, 1.0f, q, 9, k);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "nacl") > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(proxies),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
