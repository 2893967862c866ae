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

static struct kv_device device;
static const struct kv_score *snapkv;

static int
set_up(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	snapkv = kv_score_find("snapkv");
	return kv_device_open(&device, "cpu", 2, &e);
}

static int
tear_down(void **state)
{
	(void)state;
	kv_device_close(&device);
	return 0;
}

/* Keys whose exponentials are 1, 2, 1, 3 for a query of 1; the second query head looks everywhere alike. */
#define LN2 0.69314718f
#define LN3 1.09861229f
static const float paper_k[4] = { 0, LN2, 0, LN3 };
static const float paper_q[2][2] = { { 1, 1 }, { 0, 0 } }; /* [Hq][W][D = 1] */

static void
run(const struct kv_score_options *o, const float *q, size_t n_q, const float *expect, size_t n)
{
	struct score_layer x;
	struct kv_score_params p;
	struct kv_tensor s;
	struct kv_err e = { 0 };

	assert_int_equal(kv_score_configure(&p, snapkv, o, &e), KV_OK);
	score_layer_init(&x, &device, 2, 1, 4, 1, 1.0f, q, n_q, paper_k);
	if (kv_score_layer(snapkv, &p, &x.in, &s, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(s.name, "score");
	assert_int_equal(s.shape[1], n);
	assert_scores_near(s.data, expect, n, "paper");
	kv_tensor_fini(&s);
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
	struct kv_score_options o = KV_SCORE_OPTIONS_NONE;
	float expect[2];

	(void)state;
	o.window = 1;
	run(&o, (const float[]){ 1, 0 }, 1, one, 3);
	run(&o, &paper_q[0][0], 2, one, 3); /* q has a row more than asked: the last one counts */
	o.window = 2;
	run(&o, &paper_q[0][0], 2, two, 2);
	o.gqa = "max";
	run(&o, &paper_q[0][0], 2, two_max, 2);
	o.gqa = "sum";
	for (int j = 0; j < 2; j++)
		expect[j] = 2 * two[j];
	run(&o, &paper_q[0][0], 2, expect, 2);
	o.rows = "sum";
	for (int j = 0; j < 2; j++)
		expect[j] = 4 * two[j];
	run(&o, &paper_q[0][0], 2, expect, 2);
	o.window = 4; /* the whole prompt: no history */
	run(&o, (const float[8]){ 0 }, 4, expect, 0);
	o.window = 32;
	run(&o, (const float[8]){ 0 }, 4, expect, 0);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&device, "snapkv") > 1000);
}

/* The same bytes for any number of threads. */
static void
threads(void **state)
{
	struct kv_device one;
	struct kv_err e = { 0 };
	struct kv_score_options o = KV_SCORE_OPTIONS_NONE;
	struct kv_score_params p;
	const struct oracle_array *q, *k;
	struct score_layer x;
	struct kv_tensor a, b;
	struct oracle c;

	(void)state;
	oracle_open(&c, "s257_gqa4_onehead");
	q = oracle_array(&c, "q"), k = oracle_array(&c, "k");
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	score_layer_init(
	    &x, &device, q->shape[0], k->shape[0], k->shape[1], k->shape[2], 0.125f, q->data, q->shape[1], k->data);
	assert_int_equal(kv_score_layer(snapkv, &p, &x.in, &a, &e), KV_OK);
	assert_int_equal(kv_device_open(&one, "cpu", 1, &e), KV_OK);
	x.in.device = &one;
	assert_int_equal(kv_score_layer(snapkv, &p, &x.in, &b, &e), KV_OK);
	assert_memory_equal(a.data, b.data, a.bytes);
	kv_device_close(&one);
	kv_tensor_fini(&a);
	kv_tensor_fini(&b);
	score_layer_fini(&x);
	oracle_fini(&c);
}

/* NaN in one key stays legal: scores come out, no fault. */
static void
not_a_number(void **state)
{
	static const float k[4] = { 0, NAN, 0, 1 };
	struct kv_score_options o = KV_SCORE_OPTIONS_NONE;
	struct kv_score_params p;
	struct score_layer x;
	struct kv_tensor s;
	struct kv_err e = { 0 };

	(void)state;
	o.window = 1;
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	score_layer_init(&x, &device, 2, 1, 4, 1, 1.0f, (const float[]){ 1, 0 }, 1, k);
	assert_int_equal(kv_score_layer(snapkv, &p, &x.in, &s, &e), KV_OK);
	assert_true(isnan(((const float *)s.data)[1]));
	kv_tensor_fini(&s);
	score_layer_fini(&x);
}

static void
refused(const struct score_layer *x, size_t window, const char *text)
{
	struct kv_score_options o = KV_SCORE_OPTIONS_NONE;
	struct kv_score_params p;
	struct kv_tensor s;
	struct kv_err e = { 0 };

	o.window = window;
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	assert_int_equal(kv_score_layer(snapkv, &p, &x->in, &s, &e), KV_ESHAPE);
	assert_null(s.owned);
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	struct score_layer x;

	(void)state;
	score_layer_init(&x, &device, 2, 1, 4, 1, 1.0f, &paper_q[0][0], 2, paper_k);
	refused(&x, 3, "--queries window:3");
	json_object_set_new(x.q.attrs, "positions", json_pack("[i,i]", 1, 2));
	refused(&x, 2, "position");
	json_object_set_new(x.q.attrs, "positions", json_pack("[i]", 3));
	refused(&x, 2, "position");
	json_object_set_new(x.q.attrs, "region", json_string("lookahead"));
	refused(&x, 1, "--queries last");
	x.in.q = NULL;
	refused(&x, 32, "--queries window:32");
	x.in.q = &x.q;
	x.in.k = NULL;
	refused(&x, 2, "keys");
	x.in.k = &x.k;
	x.in.T = 5;
	refused(&x, 2, "token 5");
	x.in.T = 4;
	x.in.Hq = 3;
	refused(&x, 2, "head 3");
	x.in.Hkv = 2;
	refused(&x, 2, "share");
	score_layer_fini(&x);
}

static void
misconfigured(const char *method, struct kv_score_options o, const char *text)
{
	struct kv_score_params p;
	struct kv_err e = { 0 };

	assert_int_equal(kv_score_configure(&p, kv_score_find(method), &o, &e), KV_EARG);
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
options(void **state)
{
	const struct kv_score_options none = KV_SCORE_OPTIONS_NONE;
	struct kv_score_options o = none;
	struct kv_score_params p;
	struct kv_score_attrs a = { "snapkv", KVK_POOL_AVG, 5, 2, 16, 100 }, b;
	struct kv_err e = { 0 };
	json_t *json;

	(void)state;
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	assert_true(p.window == 32 && p.n_recent == 32 && p.n_sink == 0 && p.pool == KVK_POOL_MAX && p.pool_width == 7);
	assert_true(p.rows == KVK_MEAN && p.gqa == KVK_MEAN);
	o.window = 16;
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	assert_int_equal(p.n_recent, 16);
	o.n_recent = 0, o.n_sink = 4, o.pool = "none";
	assert_int_equal(kv_score_configure(&p, snapkv, &o, &e), KV_OK);
	assert_true(p.n_recent == 0 && p.n_sink == 4 && p.pool == KVK_POOL_NONE && p.pool_width == 1);
	o = none, o.window = 0, misconfigured("snapkv", o, "at least 1");
	o = none, o.pool_width = 4, misconfigured("snapkv", o, "odd");
	o = none, o.pool_width = 0, misconfigured("snapkv", o, "odd");
	o = none, o.pool_width = 5, o.pool = "none", misconfigured("snapkv", o, "--pool");
	o = none, o.pool = "median", misconfigured("snapkv", o, "median");
	o = none, o.gqa = "min", misconfigured("snapkv", o, "min");
	o = none, o.window = 8, misconfigured("tova", o, "no option --window");
	o = none, o.gqa = "max", misconfigured("tova", o, "no option --gqa");

	json = kv_score_attrs_to_json(&a, &p);
	assert_int_equal(kv_score_attrs_from_json(&b, json, &e), KV_OK);
	assert_string_equal(b.method, a.method);
	assert_true(b.pool == a.pool && b.pool_width == a.pool_width && b.n_tokens == a.n_tokens);
	assert_true(b.n_sink == a.n_sink && b.n_recent == a.n_recent);
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
		cmocka_unit_test(options),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
