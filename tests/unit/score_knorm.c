/* SPDX-License-Identifier: MIT
 * knorm: a case for paper, every key type, and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Two KV heads of three keys; norms 5, 0, 13 and 1, 2, 3. */
static void
paper(void **state)
{
	static const float k[2][3][2] = { { { 3, -4 }, { 0, 0 }, { -5, 12 } }, { { 0, 1 }, { -2, 0 }, { 0, 3 } } };
	static const float expect[] = { -5, 0, -13, -1, -2, -3 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_err e = { 0 };

	(void)state;
	score_params(&p, "knorm", NULL);
	score_layer_init(&x, &score_device, 2, 2, 3, 2, 1.0f, NULL, 0, &k[0][0][0]);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 3);
	assert_memory_equal(s->data, expect, sizeof expect);
	assert_false(signbit(((const float *)s->data)[1])); /* +0 */
	assert_int_equal(kv_score_attrs_from_json(&a, s->attrs, &e), KV_OK);
	assert_true(a.protect.n_recent == 0 && a.protect.n_sink == 0 && a.pool == KVK_POOL_NONE && a.n_tokens == 3);
	kv_step_remove(&x.step, "k");
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	score_layer_fini(&x);
}

/* No -0 among 35 of them, wherever it stands. */
static void
zeros(void **state)
{
	enum { T = 35 };
	static const float k[T][2];
	const float *y;
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "knorm", NULL);
	score_layer_init(&x, &score_device, 1, 1, T, 2, 1.0f, NULL, 0, &k[0][0]);
	y = score_run(&x, &p)->data;
	for (size_t i = 0; i < T; i++)
		assert_true(y[i] == 0 && !signbit(y[i]));
	score_layer_fini(&x);
}

/* 1.5 and -2 in f16 and in bf16. */
static void
types(void **state)
{
	static const uint16_t half[] = { 0x3e00, 0xc000 }, brain[] = { 0x3fc0, 0xc000 };
	const size_t shape[] = { 1, 1, 2 };
	struct kv_params p;

	(void)state;
	score_params(&p, "knorm", NULL);
	for (int i = 0; i < 2; i++) {
		const float unused[2] = { 0 };
		struct score_layer x;

		score_layer_init(&x, &score_device, 1, 1, 1, 2, 1.0f, NULL, 0, unused);
		score_layer_put(&x, "k", i ? KVK_BF16 : KVK_F16, "kv_head token dim", shape, i ? brain : half, NULL);
		assert_float_equal(*(const float *)score_run(&x, &p)->data, -2.5f, 0);
		score_layer_fini(&x);
	}
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "knorm") > 200);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(zeros),
		cmocka_unit_test(types),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
