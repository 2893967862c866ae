/* SPDX-License-Identifier: MIT
 * Selection and gathering: the reference implementation's kept sets, a naive gather, and the inputs that are refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/evict/evict.h"
#include "tests/lib/oracle.h"

static struct kv_device device;

static int
set_up(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	return kv_device_open(&device, "cpu", 2, &e);
}

static int
tear_down(void **state)
{
	(void)state;
	kv_device_close(&device);
	return 0;
}

/* Does one head keep exactly the listed positions? */
static void
check_head(const struct kv_score_attrs *a, const float *raw, size_t n, size_t T, size_t B, enum kv_tie tie,
    const json_t *kept, const char *tag)
{
	int32_t index[128];
	struct kv_err e = { 0 };

	assert_in_range(T, 1, 128);
	if (kv_evict_select(&device, a, raw, 1, n, T, &B, tie, index, &e) < 0)
		fail_msg("%s: %s", tag, e.text);
	if (!oracle_equals(kept, index, B))
		fail_msg("%s: T %zu, n %zu, B %zu, sinks %zu, recent %zu: another set", tag, T, n, B, a->n_sink,
		    a->n_recent);
}

static void
select_oracle(void **state)
{
	size_t i, n, n_two_keys = 0;
	const json_t *r;
	struct oracle o;

	(void)state;
	oracle_open(&o, "select");
	json_array_foreach(oracle_results(&o), i, r)
	{
		const json_t *second = json_object_get(r, "second"),
			     *scores = second ? second : json_object_get(r, "scores"), *x;
		size_t T = oracle_size(r, "S"), B = oracle_size(r, "B"), count = 0;
		struct kv_score_attrs a = { .pool = KVK_POOL_NONE,
			.pool_width = 1,
			.n_sink = oracle_size(r, "n_sink"),
			.n_recent = oracle_size(r, "n_recent"),
			.n_tokens = T };
		float raw[128];

		json_array_foreach(scores, n, x) raw[count++] = oracle_float(x);
		B = B < T ? B : T;
		if (second != NULL) { /* its scores are the second key pooled by a maximum over 7 */
			a.pool = KVK_POOL_MAX, a.pool_width = 7;
			check_head(&a, raw, count, T, B, KV_TIE_RAW, json_object_get(r, "kept"), oracle_text(r, "tag"));
			check_head(&a, raw, count, T, B, KV_TIE_POSITION, json_object_get(r, "kept_position_tie"),
			    oracle_text(r, "tag"));
			n_two_keys++;
		} else {
			check_head(
			    &a, raw, count, T, B, KV_TIE_POSITION, json_object_get(r, "kept"), oracle_text(r, "tag"));
			check_head(&a, raw, count, T, B, KV_TIE_RAW, json_object_get(r, "kept"), oracle_text(r, "tag"));
		}
	}
	assert_int_equal(n_two_keys, 9);
	assert_true(i > 400);
	oracle_fini(&o);
}

static void
compose_oracle(void **state)
{
	const struct oracle_array *raw;
	const json_t *r, *layer;
	struct oracle o;
	size_t i, l, H, n, T, W;

	(void)state;
	oracle_open(&o, "compose");
	H = oracle_size(o.meta, "H"), n = oracle_size(o.meta, "n"), T = oracle_size(o.meta, "S"),
	W = oracle_size(o.meta, "W");
	raw = oracle_array(&o, "raw");
	json_array_foreach(oracle_results(&o), i, r) json_array_foreach(json_object_get(r, "kept"), l, layer)
	{
		struct kv_score_attrs a = { .pool = KVK_POOL_MAX, .pool_width = 7, .n_recent = W, .n_tokens = T };
		size_t keep[8], at = 0;
		int32_t index[8 * 256];
		struct kv_err e = { 0 };

		for (size_t h = 0; h < H; h++)
			keep[h] = oracle_size(r, "C");
		assert_int_equal(
		    kv_evict_select(&device, &a, raw->data + l * H * n, H, n, T, keep, KV_TIE_POSITION, index, &e),
		    KV_OK);
		for (size_t h = 0; h < H; at += keep[h], h++)
			assert_true(oracle_equals(json_array_get(layer, h), index + at, keep[h]));
	}
	oracle_fini(&o);
}

/* ---- a whole layer */

enum { HKV = 3, T = 7, D = 5 };

struct cache {
	uint16_t k[HKV][T][D], v[HKV][T][D];
	float score[HKV][T];
	int32_t budget[HKV];
	struct kv_tensor tk, tv, ts, tb;
	struct kv_evict_input in;
};

static void
cache_init(struct cache *x)
{
	const size_t kv[] = { HKV, T, D }, score[] = { HKV, T }, budget[] = { HKV };
	const struct kv_score_attrs a = { .method = "test", .pool_width = 1, .n_tokens = T };

	for (size_t h = 0; h < HKV; h++)
		for (size_t t = 0; t < T; t++) {
			x->score[h][t] = (float)((t * 3 + h) % T); /* a permutation: no ties */
			for (size_t d = 0; d < D; d++) {
				x->k[h][t][d] = (uint16_t)(h * 100 + t * 10 + d);
				x->v[h][t][d] = (uint16_t)(x->k[h][t][d] + 1000);
			}
		}
	assert_int_equal(kv_tensor_init(&x->tk, "k", 2, KVK_F16, "kv_head token dim", kv, NULL), KV_OK);
	assert_int_equal(kv_tensor_init(&x->tv, "v", 2, KVK_F16, "kv_head token dim", kv, NULL), KV_OK);
	assert_int_equal(kv_tensor_init(&x->ts, "score", 2, KVK_F32, "kv_head token", score, NULL), KV_OK);
	assert_int_equal(kv_tensor_init(&x->tb, "budget", 2, KVK_I32, "kv_head", budget, NULL), KV_OK);
	x->tk.data = x->k, x->tv.data = x->v, x->ts.data = x->score, x->tb.data = x->budget;
	x->ts.attrs = kv_score_attrs_to_json(&a, NULL);
	x->in = (struct kv_evict_input){ .device = &device,
		.layer = 2,
		.k = &x->tk,
		.v = &x->tv,
		.score = &x->ts,
		.budget = &x->tb,
		.next_position = T };
}

static void
layer(void **state)
{
	static const int32_t budget[HKV] = { 1, 3, 99 };
	static const size_t offset[HKV + 1] = { 0, 1, 4, 4 + T };
	struct kv_evicted out;
	struct kv_err e = { 0 };
	struct cache x;
	const int32_t *index;

	(void)state;
	cache_init(&x);
	memcpy(x.budget, budget, sizeof budget);
	if (kv_evict_layer(&x.in, &out, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(out.index.shape[0], offset[HKV]);
	assert_int_equal(json_integer_value(json_object_get(out.index.attrs, "next_position")), T);
	assert_true(out.k.n_axes == 2 && out.k.shape[0] == offset[HKV] && out.k.shape[1] == D && out.k.type == KVK_F16);
	assert_string_equal(out.k.name, "k");
	assert_string_equal(out.v.name, "v");
	assert_int_equal(out.v.layer, 2);
	index = out.index.data;
	for (size_t h = 0; h < HKV; h++) {
		size_t keep = offset[h + 1] - offset[h];

		assert_int_equal(((const int32_t *)out.offset.data)[h + 1], offset[h + 1]);
		for (size_t i = offset[h]; i < offset[h + 1]; i++) {
			size_t better = 0, t = (size_t)index[i];

			assert_true(i == offset[h] || index[i - 1] < index[i]);
			for (size_t u = 0; u < T; u++)
				better += x.score[h][u] > x.score[h][t];
			assert_true(better < keep);
			assert_memory_equal((const uint16_t *)out.k.data + i * D, x.k[h][t], sizeof x.k[h][t]);
			assert_memory_equal((const uint16_t *)out.v.data + i * D, x.v[h][t], sizeof x.v[h][t]);
		}
	}
	assert_int_equal(out.n_nan, 0);
	kv_evicted_fini(&out);
	kv_tensor_fini(&x.ts);
}

/* A budget that covers the prompt needs no scores and changes no byte. */
static void
keeps_all(void **state)
{
	struct kv_evicted out;
	struct kv_err e = { 0 };
	struct cache x;

	(void)state;
	cache_init(&x);
	for (size_t h = 0; h < HKV; h++)
		x.budget[h] = T + (int32_t)h;
	x.in.score = NULL;
	assert_int_equal(kv_evict_layer(&x.in, &out, &e), KV_OK);
	assert_int_equal(out.k.bytes, sizeof x.k);
	assert_memory_equal(out.k.data, x.k, sizeof x.k);
	assert_memory_equal(out.v.data, x.v, sizeof x.v);
	for (size_t i = 0; i < HKV * T; i++)
		assert_int_equal(((const int32_t *)out.index.data)[i], i % T);
	kv_evicted_fini(&out);
	x.budget[1] = T - 1;
	assert_int_equal(kv_evict_layer(&x.in, &out, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "kv-score"));
	kv_tensor_fini(&x.ts);
}

/* NaN ranks last and is counted. */
static void
not_a_number(void **state)
{
	struct kv_evicted out;
	struct kv_err e = { 0 };
	struct cache x;

	(void)state;
	cache_init(&x);
	for (size_t h = 0; h < HKV; h++)
		x.budget[h] = T - 1, x.score[h][h] = NAN;
	assert_int_equal(kv_evict_layer(&x.in, &out, &e), KV_OK);
	assert_int_equal(out.n_nan, HKV);
	for (size_t i = 0; i < HKV * (T - 1); i++)
		assert_int_not_equal(((const int32_t *)out.index.data)[i], i / (T - 1));
	kv_evicted_fini(&out);
	kv_tensor_fini(&x.ts);
}

static void
refused(const struct cache *x, int code, const char *text)
{
	struct kv_evicted out;
	struct kv_err e = { 0 };

	assert_int_equal(kv_evict_layer(&x->in, &out, &e), code);
	assert_null(out.k.owned);
	assert_null(out.index.attrs);
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	struct cache x;
	json_t *attrs;

	(void)state;
	cache_init(&x);
	for (size_t h = 0; h < HKV; h++)
		x.budget[h] = 2;
	x.budget[1] = 0, refused(&x, KV_EARG, "head 1");
	x.budget[1] = -5, refused(&x, KV_EARG, "head 1");
	x.budget[1] = 2;
	x.in.next_position = T + 1, refused(&x, KV_ESHAPE, "token 8");
	x.in.next_position = T;
	x.tv.shape[1] = T - 1, refused(&x, KV_ESHAPE, "v:");
	x.tv.shape[1] = T;
	x.tv.type = KVK_F32, refused(&x, KV_ESHAPE, "v:");
	x.tv.type = KVK_F16;
	x.tb.shape[0] = 2, refused(&x, KV_ESHAPE, "budget:");
	x.tb.shape[0] = HKV;
	x.ts.shape[0] = 2, refused(&x, KV_ESHAPE, "score:");
	x.ts.shape[0] = HKV;
	x.ts.shape[1] = T + 1, refused(&x, KV_ESHAPE, "score:");
	x.ts.shape[1] = T;
	json_object_set_new(x.ts.attrs, "n_tokens", json_integer(T + 1)), refused(&x, KV_ESHAPE, "score:");
	attrs = x.ts.attrs;
	x.ts.attrs = NULL, refused(&x, KV_EFORMAT, "method");
	json_decref(attrs);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(select_oracle),
		cmocka_unit_test(compose_oracle),
		cmocka_unit_test(layer),
		cmocka_unit_test(keeps_all),
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
