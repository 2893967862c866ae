/* SPDX-License-Identifier: MIT
 * The attention family: rows of the prompt and from behind it, with and without their keys in the denominator. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/attention.h"
#include "tests/lib/score_input.h"

/* Two query heads on one KV head, head size 1, three prompt tokens and two behind.  Exponentials of the keys for a
 * query of 1: 1 2 4 | 8 16. */
enum { T = 3, B = 2 };
#define LN2 0.69314718f
static const float k[T] = { 0, LN2, 2 * LN2 }, k_behind[B] = { 3 * LN2, 4 * LN2 };
static const float q[2][1] = { { 1 }, { 0 } }, q_behind[2][B] = { { 1, 1 }, { 0, 0 } };

static struct kv_device device;

static int
set_up(void **state)
{
	(void)state;
	kv_device_plan(&device, "cpu", 2); /* opened by whoever computes */
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	kv_device_close(&device);
	return 0;
}

static void
layer_init(struct score_layer *x)
{
	const size_t q_shape[] = { 2, B, 1 }, k_shape[] = { 1, B, 1 };

	score_layer_init(x, &device, 2, 1, T, 1, 1, &q[0][0], 1, k);
	score_layer_put(x, "q.response", KVK_F32, "head query dim", q_shape, q_behind,
	    json_pack("{s:s, s:i}", "region", "response", "first_position", T));
	score_layer_put(x, "k.response", KVK_F32, "kv_head row dim", k_shape, k_behind, NULL);
}

static void
run(struct kv_attention a, size_t H, const float *expect)
{
	struct score_layer x;
	struct kv_err e = { 0 };
	float y[2 * T];

	layer_init(&x);
	if (kv_attention(&x.in, "test", &a, H, T, y, &e) < 0)
		fail_msg("%s", e.text);
	assert_scores_near(y, expect, H * T, "attention");
	score_layer_fini(&x);
}

static void
behind(void **state)
{
	/* what each row gives the three columns, for head 0 and head 1 */
	static const float prompt[] = { 1 / 7.f, 2 / 7.f, 4 / 7.f }, flat3[] = { 1 / 3.f, 1 / 3.f, 1 / 3.f };
	static const float first[] = { 1 / 15.f, 2 / 15.f, 4 / 15.f }, second[] = { 1 / 31.f, 2 / 31.f, 4 / 31.f };
	float sum[2 * T], one[T];

	(void)state;
	for (int j = 0; j < T; j++) {
		sum[j] = first[j] + second[j];
		sum[T + j] = 1 / 4.f + 1 / 5.f;
		one[j] = (sum[j] + sum[T + j]) / 4;
	}
	run((struct kv_attention){ .behind = "response", .behind_keys = true, .rows = KVK_SUM }, 2, sum);
	run((struct kv_attention){ .behind = "response", .behind_keys = true, .rows = KVK_MEAN }, 1, one);
	for (int j = 0; j < T; j++)
		sum[j] = 2 * prompt[j], sum[T + j] = 2 * flat3[j];
	run((struct kv_attention){ .behind = "response", .rows = KVK_SUM }, 2, sum); /* prompt keys alone */
	for (int j = 0; j < T; j++)
		sum[j] = prompt[j] + first[j] + second[j], sum[T + j] = flat3[j] + 1 / 4.f + 1 / 5.f;
	run((struct kv_attention){ .window = 1, .behind = "response", .behind_keys = true, .rows = KVK_SUM }, 2, sum);
	for (int j = 0; j < T; j++)
		one[j] = fmaxf(prompt[j], 1 / 3.f);
	run(
	    (struct kv_attention){
		.window = 1, .behind = "response", .behind_keys = true, .rows = KVK_MAX, .heads = KVK_MAX },
	    1, one);
}

static void
refused(struct score_layer *x, const char *text)
{
	const struct kv_attention a = { .behind = "response", .behind_keys = true };
	struct kv_err e = { 0 };
	float y[T];

	assert_int_equal(kv_attention(&x->in, "test", &a, 1, T, y, &e), KV_ESHAPE);
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	struct score_layer x;
	json_t *attrs;

	(void)state;
	layer_init(&x);
	attrs = score_layer_tensor(&x, "q.response")->attrs;
	json_object_set_new(attrs, "first_position", json_integer(T + 1)), refused(&x, "position 4, expected 3");
	json_object_set_new(attrs, "first_position", json_integer(T));
	score_layer_tensor(&x, "k.response")->shape[1] = 1, refused(&x, "k.response: 1 keys");
	kv_step_remove(&x.step, "k.response"), refused(&x, "--response");
	kv_step_remove(&x.step, "q.response"), refused(&x, "test needs queries of a response");
	score_layer_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(behind),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
