/* SPDX-License-Identifier: MIT
 * What keeps tokens for no good reason: streaming, first-k, shuffled, inverted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/budget/budget.h"
#include "tests/lib/score_input.h"

static const float keys[2 * 8] = { 0 };

static void
layer(struct score_layer *x, size_t T)
{
	score_layer_init(x, &score_device, 2, 2, T, 1, 1.0f, NULL, 0, keys);
}

/* Scores of a method that was there before: two heads. */
static void
put_scores(struct score_layer *x, const float *s, size_t n, const char *pool, size_t width)
{
	const size_t shape[] = { 2, n };

	score_layer_put(x, "score", KVK_F32, "kv_head token", shape, s,
	    json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "method", "before", "pool", pool, "pool_width",
		(json_int_t)width, "n_sink", (json_int_t)1, "n_recent", (json_int_t)2, "n_tokens",
		(json_int_t)x->in.T));
}

static void
read_attrs(const struct kv_tensor *s, struct kv_score_attrs *a)
{
	struct kv_err e = { 0 };

	if (kv_score_attrs_from_json(a, s->attrs, &e) < 0)
		fail_msg("%s", e.text);
}

static void
streaming(void **state)
{
	struct kv_score_attrs a;
	const struct kv_tensor *s;
	struct score_layer x;
	struct kv_params p;

	(void)state;
	layer(&x, 8);
	score_params(&p, "streaming", NULL);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 0);
	read_attrs(s, &a);
	assert_int_equal(a.protect.n_sink, 4);
	kv_protection_resolve(&a.protect, 6); /* of 6 entries */
	assert_int_equal(a.protect.n_recent, 2);
	score_params(&p, "streaming", "sink", "1", "recent", "3", NULL);
	read_attrs(score_run(&x, &p), &a);
	assert_true(a.protect.n_sink == 1 && a.protect.n_recent == 3 && a.protect.recent_share < 0);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "streaming") > 30);
}

static void
first_k(void **state)
{
	static const float expect[] = { 0, -1, -2, -3, 0, -1, -2, -3 };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	layer(&x, 4);
	score_params(&p, "first-k", NULL);
	assert_memory_equal(score_run(&x, &p)->data, expect, sizeof expect); /* +0 among it */
	score_layer_fini(&x);
}

/* The same numbers per head, in another order, the same for the same seed. */
static void
shuffled(void **state)
{
	static const float raw[] = { 1, 2, 4, 8, 16, 32, 3, 6, 12, 24, 48, 96 };
	float one[12], two[12];
	const struct kv_tensor *s;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_params p;

	(void)state;
	for (int i = 0; i < 3; i++) {
		layer(&x, 8);
		put_scores(&x, raw, 6, "max", 3);
		score_params(&p, "shuffled", "seed", i < 2 ? "5" : "6", NULL);
		s = score_run(&x, &p);
		assert_int_equal(s->shape[1], 6);
		read_attrs(s, &a);
		assert_string_equal(a.method, "shuffled");
		assert_string_equal(json_string_value(json_object_get(s->attrs, "of")), "before");
		assert_true(
		    a.pool == KVK_POOL_MAX && a.pool_width == 3 && a.protect.n_sink == 1 && a.protect.n_recent == 2);
		memcpy(i == 0 ? one : two, s->data, sizeof one);
		if (i == 1)
			assert_memory_equal(one, two, sizeof one);
		score_layer_fini(&x);
	}
	assert_memory_not_equal(one, two, sizeof one);
	assert_memory_not_equal(one, raw, sizeof one);
	for (size_t h = 0; h < 2; h++) { /* powers of two: the sum says that each is there once */
		float sum = 0;

		for (size_t j = 0; j < 6; j++)
			sum += one[h * 6 + j];
		assert_true(sum == (h ? 189.0f : 63.0f));
	}
}

/* Every number has its chance at every place. */
static void
fair(void **state)
{
	static const float raw[] = { 0, 1, 2, 0, 1, 2 };
	size_t count[3][3] = { { 0 } };

	(void)state;
	for (int seed = 0; seed < 600; seed++) {
		char text[16];
		const float *y;
		struct score_layer x;
		struct kv_params p;

		snprintf(text, sizeof text, "%d", seed);
		layer(&x, 5);
		put_scores(&x, raw, 3, "none", 1);
		score_params(&p, "shuffled", "seed", text, NULL);
		y = score_run(&x, &p)->data;
		for (size_t i = 0; i < 6; i++)
			count[i % 3][(size_t)y[i]]++;
		score_layer_fini(&x);
	}
	for (size_t i = 0; i < 9; i++)
		assert_in_range(count[i / 3][i % 3], 320, 480); /* 400 expected, 16 of deviation */
}

/* Minus what ranks: pooled by 3 the first head is 2 5 5 5, and nothing is pooled after that. */
static void
inverted(void **state)
{
	static const float raw[] = { 2, 1, 5, 0, NAN, -1, 0, INFINITY };
	const struct kv_tensor *s;
	const float *y;
	struct kv_score_attrs a;
	struct score_layer x;
	struct kv_params p;
	struct kv_err e = { 0 };

	(void)state;
	layer(&x, 8);
	score_params(&p, "inverted", NULL);
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "put kv-score METHOD before it"));
	put_scores(&x, raw, 4, "max", 3);
	s = score_run(&x, &p);
	y = s->data;
	assert_true(y[0] == -2 && y[1] == -5 && y[2] == -5 && y[3] == -5);
	read_attrs(s, &a);
	assert_true(a.pool == KVK_POOL_NONE && a.pool_width == 1 && a.protect.n_sink == 1 && a.protect.n_recent == 2);
	put_scores(&x, raw, 4, "none", 1);
	y = score_run(&x, &p)->data;
	assert_true(isnan(y[4]) && y[5] == 1 && y[6] == 0 && !signbit(y[6]) && y[7] == -INFINITY);
	score_layer_fini(&x);
}

/* A prompt that is no longer than the window had no scores; there is nothing to turn round. */
static void
no_columns(void **state)
{
	static const char *const names[] = { "shuffled", "inverted", "combine" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct score_layer x;
		struct kv_params p;

		layer(&x, 3);
		put_scores(&x, keys, 0, "max", 7);
		score_params(&p, names[i], NULL);
		assert_int_equal(score_run(&x, &p)->shape[1], 0);
		score_layer_fini(&x);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streaming),
		cmocka_unit_test(oracle),
		cmocka_unit_test(first_k),
		cmocka_unit_test(shuffled),
		cmocka_unit_test(fair),
		cmocka_unit_test(inverted),
		cmocka_unit_test(no_columns),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
