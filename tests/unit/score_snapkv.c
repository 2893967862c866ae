/* SPDX-License-Identifier: MIT
 * snapkv: cases for paper, the reference implementation's, and the inputs it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

/* Keys whose exponentials are 1, 2, 1, 3 for a query of 1; the second query head looks everywhere alike. */
#define LN2 0.69314718f
#define LN3 1.09861229f
static const float paper_k[4] = { 0, LN2, 0, LN3 };
static const float paper_q[2][2] = { { 1, 1 }, { 0, 0 } }; /* [Hq][W][D = 1] */

static void
run(const struct kv_params *p, const float *q, size_t n_q, const float *expect, size_t H, size_t n)
{
	const struct kv_tensor *s;
	struct score_layer x;

	score_layer_init(&x, &score_device, 2, 1, 4, 1, 1.0f, q, n_q, paper_k);
	s = score_run(&x, p);
	assert_string_equal(s->name, "score");
	assert_string_equal(s->axis[0], H == 1 ? "kv_head" : "head");
	assert_int_equal(s->shape[0], H);
	assert_int_equal(s->shape[1], n);
	assert_scores_near(s->data, expect, H * n, "paper");
	score_layer_fini(&x);
}

static void
paper(void **state)
{
	/* one row at position 3: 1/7 2/7 1/7 (3/7) and 1/4 each; two rows: position 2 sees 1/4 2/4 (1/4) and 1/3 each
	 */
	static const float one[] = { (1 / 7.f + 1 / 4.f) / 2, (2 / 7.f + 1 / 4.f) / 2, (1 / 7.f + 1 / 4.f) / 2 };
	static const float two[] = { (1 / 7.f + 1 / 4.f + 1 / 4.f + 1 / 3.f) / 4,
		(2 / 7.f + 1 / 4.f + 2 / 4.f + 1 / 3.f) / 4 };
	static const float two_max[] = { (1 / 4.f + 1 / 3.f) / 2, (2 / 7.f + 2 / 4.f) / 2 };
	static const float each[] = { (1 / 7.f + 1 / 4.f) / 2, (2 / 7.f + 2 / 4.f) / 2, (1 / 4.f + 1 / 3.f) / 2,
		(1 / 4.f + 1 / 3.f) / 2 };
	struct kv_params p;
	float expect[2];

	(void)state;
	score_params(&p, "snapkv", "window", "1", NULL);
	run(&p, (const float[]){ 1, 0 }, 1, one, 1, 3);
	run(&p, &paper_q[0][0], 2, one, 1, 3); /* q has a row more than asked: the last one counts */
	score_params(&p, "snapkv", "window", "2", NULL);
	run(&p, &paper_q[0][0], 2, two, 1, 2);
	score_params(&p, "snapkv", "window", "2", "granularity", "head", NULL);
	run(&p, &paper_q[0][0], 2, each, 2, 2);
	score_params(&p, "snapkv", "window", "2", "gqa", "max", NULL);
	run(&p, &paper_q[0][0], 2, two_max, 1, 2);
	score_params(&p, "snapkv", "window", "2", "gqa", "sum", NULL);
	for (int j = 0; j < 2; j++)
		expect[j] = 2 * two[j];
	run(&p, &paper_q[0][0], 2, expect, 1, 2);
	score_params(&p, "snapkv", "window", "2", "gqa", "sum", "rows", "sum", NULL);
	for (int j = 0; j < 2; j++)
		expect[j] = 4 * two[j];
	run(&p, &paper_q[0][0], 2, expect, 1, 2);
	score_params(&p, "snapkv", "window", "4", NULL); /* the whole prompt: no history */
	run(&p, (const float[8]){ 0 }, 4, expect, 1, 0);
	score_params(&p, "snapkv", "window", "all", NULL);
	run(&p, (const float[8]){ 0 }, 4, expect, 1, 0);
	score_params(&p, "snapkv", NULL);
	run(&p, (const float[8]){ 0 }, 4, expect, 1, 0);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "snapkv") > 100);
}

/* The same bytes for any number of threads. */
static void
threads(void **state)
{
	struct kv_device one;
	struct kv_err e = { 0 };
	struct kv_params p;
	const struct oracle_array *q, *k;
	const struct kv_tensor *a, *b;
	struct score_layer x, y;
	struct oracle c;

	(void)state;
	oracle_open(&c, "s257_gqa4_onehead");
	q = oracle_array(&c, "q"), k = oracle_array(&c, "k");
	score_params(&p, "snapkv", NULL);
	assert_int_equal(kv_device_open(&one, "cpu", 1, &e), KV_OK);
	score_layer_init(&x, &score_device, q->shape[0], k->shape[0], k->shape[1], k->shape[2], 0.125f, q->data,
	    q->shape[1], k->data);
	score_layer_init(
	    &y, &one, q->shape[0], k->shape[0], k->shape[1], k->shape[2], 0.125f, q->data, q->shape[1], k->data);
	a = score_run(&x, &p);
	b = score_run(&y, &p);
	assert_memory_equal(a->data, b->data, a->bytes);
	score_layer_fini(&y);
	score_layer_fini(&x);
	kv_device_close(&one);
	oracle_fini(&c);
}

/* NaN in one key stays legal: scores come out, no fault. */
static void
not_a_number(void **state)
{
	static const float k[4] = { 0, NAN, 0, 1 };
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "snapkv", "window", "1", NULL);
	score_layer_init(&x, &score_device, 2, 1, 4, 1, 1.0f, (const float[]){ 1, 0 }, 1, k);
	assert_true(isnan(((const float *)score_run(&x, &p)->data)[1]));
	score_layer_fini(&x);
}

static void
refused(const struct score_layer *x, const char *window, const char *text)
{
	struct kv_params p;
	struct kv_err e = { 0 };

	score_params(&p, "snapkv", "window", window, NULL);
	assert_int_equal(kv_score_layer(&x->in, &p, &e), KV_ESHAPE);
	assert_null(kv_step_find(&x->step, "score"));
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	struct score_layer x;
	json_t *attrs;

	(void)state;
	score_layer_init(&x, &score_device, 2, 1, 4, 1, 1.0f, &paper_q[0][0], 2, paper_k);
	attrs = score_layer_tensor(&x, "q")->attrs;
	refused(&x, "3", "--queries window:3");
	json_object_set_new(attrs, "first_position", json_integer(1));
	refused(&x, "2", "position");
	json_object_del(attrs, "first_position");
	json_object_set_new(attrs, "positions", json_pack("[i,i]", 1, 2));
	refused(&x, "2", "position");
	json_object_set_new(attrs, "positions", json_pack("[i]", 3));
	refused(&x, "2", "position");
	json_object_set_new(attrs, "region", json_string("lookahead"));
	refused(&x, "1", "--queries last");
	x.in.T = 5;
	refused(&x, "2", "token 5");
	x.in.T = 4;
	x.cfg.Hq = 3;
	refused(&x, "2", "head 3");
	x.cfg.Hkv = 2;
	refused(&x, "2", "share");
	x.cfg.Hq = 2, x.cfg.Hkv = 1;
	kv_step_remove(&x.step, "q");
	refused(&x, "32", "--queries window:32");
	refused(&x, "all", "--queries all");
	kv_step_remove(&x.step, "k");
	refused(&x, "2", "keys");
	score_layer_fini(&x);
}

static void
attributes(void **state)
{
	const struct kv_score_attrs a = { "snapkv", KVK_POOL_AVG, 5, { 2, 16, -1 }, 100 };
	struct kv_score_attrs b;
	struct kv_err e = { 0 };
	json_t *json = json_object();

	(void)state;
	assert_int_equal(kv_score_attrs_to_json(&a, json, &e), KV_OK);
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_OK);
	assert_string_equal(b.method, a.method);
	assert_true(b.pool == a.pool && b.pool_width == a.pool_width && b.n_tokens == a.n_tokens);
	assert_true(b.protect.n_sink == 2 && b.protect.n_recent == 16 && b.protect.recent_share < 0);
	json_object_set_new(json, "recent_share", json_real(0.5));
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_OK);
	kv_protection_resolve(&b.protect, 13);
	assert_true(b.protect.n_recent == 5 && b.protect.recent_share < 0); /* half of 11 */
	b.protect.recent_share = 1;
	kv_protection_resolve(&b.protect, 1);
	assert_int_equal(b.protect.n_recent, 0);
	json_object_set_new(json, "recent_share", json_real(1.5));
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_EFORMAT);
	json_object_del(json, "recent_share");
	json_object_set_new(json, "pool_width", json_integer(4));
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_EFORMAT);
	json_object_del(json, "n_recent");
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_EFORMAT);
	assert_non_null(strstr(e.text, "n_recent"));
	json_decref(json);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(oracle),
		cmocka_unit_test(threads),
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(refusals),
		cmocka_unit_test(attributes),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
