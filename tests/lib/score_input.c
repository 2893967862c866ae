/* SPDX-License-Identifier: MIT */
#include "tests/lib/score_input.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/budget/budget.h"
#include "lib/evict/evict.h"

void
score_layer_init(struct score_layer *x, const struct kv_device *d, size_t Hq, size_t Hkv, size_t T, size_t D,
    float scale, const float *q, size_t n_q, const float *k)
{
	const size_t q_shape[] = { Hq, n_q, D }, k_shape[] = { Hkv, T, D };
	json_t *positions = json_array();

	assert_int_equal(kv_tensor_init(&x->q, "q", 0, KVK_F32, "head query dim", q_shape, NULL), KV_OK);
	assert_int_equal(kv_tensor_init(&x->k, "k", 0, KVK_F32, "kv_head token dim", k_shape, NULL), KV_OK);
	x->q.data = q;
	x->k.data = k;
	for (size_t i = 0; i < n_q; i++)
		json_array_append_new(positions, json_integer((json_int_t)(T - n_q + i)));
	x->q.attrs = json_pack("{s:s, s:o}", "region", "window", "positions", positions);
	x->in = (struct kv_score_input){
		.device = d, .layer = 0, .Hq = Hq, .Hkv = Hkv, .D = D, .T = T, .scale = scale, .k = &x->k, .q = &x->q
	};
}

void
score_layer_fini(struct score_layer *x)
{
	kv_tensor_fini(&x->q);
	kv_tensor_fini(&x->k);
}

void
assert_scores_near(const float *x, const float *y, size_t n, const char *where)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(x[i] - y[i]) <= 1e-7f + 2e-5f * fmaxf(fabsf(x[i]), fabsf(y[i]))))
			fail_msg("%s: element %zu is %.9g, expected %.9g", where, i, x[i], y[i]);
}

/* The kept sets that one record lists, chosen by raw with the record's pooling and by the position rule. */
static size_t
check_kept(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t Hkv, size_t n, size_t T,
    const json_t *select, const char *where)
{
	int32_t *index = malloc(Hkv * T * sizeof *index);
	size_t i, *keep = calloc(Hkv, sizeof *keep), count = 0;
	const json_t *row;

	json_array_foreach(select, i, row)
	{
		size_t C = oracle_size(row, "C"), B = C < T ? C : T;
		struct kv_err e = { 0 };

		for (size_t h = 0; h < Hkv; h++)
			keep[h] = B;
		if (kv_evict_select(d, a, raw, Hkv, n, T, keep, KV_TIE_POSITION, index, &e) < 0)
			fail_msg("%s: %s", where, e.text);
		for (size_t h = 0; h < Hkv; h++, count++)
			if (!oracle_equals(json_array_get(json_object_get(row, "kept"), h), index + h * B, B))
				fail_msg("%s: C = %zu, head %zu keeps another set", where, C, h);
	}
	free(keep);
	free(index);
	return count;
}

/* The record's parameters as options. */
static void
options_of(struct kv_score_options *o, const json_t *record)
{
	const json_t *p = json_object_get(record, "params"), *window = json_object_get(p, "window"),
		     *width = json_object_get(p, "kernel");

	*o = (struct kv_score_options)KV_SCORE_OPTIONS_NONE;
	o->pool = json_string_value(json_object_get(p, "pool"));
	o->gqa = json_string_value(json_object_get(p, "gqa"));
	if (window != NULL)
		o->window = (size_t)json_integer_value(window);
	if (width != NULL && strcmp(o->pool, "none") != 0)
		o->pool_width = (size_t)json_integer_value(width);
}

static size_t
check_record(const struct kv_device *d, const struct oracle *o, const json_t *record)
{
	const struct oracle_array *q = oracle_array(o, "q"), *k = oracle_array(o, "k"),
				  *raw = oracle_array(o, oracle_text(record, "raw")),
				  *pooled = oracle_array(o, oracle_text(record, "pooled"));
	const struct kv_score *m = kv_score_find(oracle_text(record, "method"));
	const size_t Hkv = k->shape[0], T = k->shape[1], D = k->shape[2], n = raw->shape[1];
	const size_t recent = oracle_size(record, "n_recent");
	const json_t *select = json_object_get(record, "select");
	struct kv_score_options given;
	struct kv_score_params p;
	struct kv_score_attrs a;
	struct kv_tensor score;
	struct score_layer x;
	struct kv_err e = { 0 };
	float *ranks = malloc(Hkv * n * sizeof *ranks + 1);
	char where[128];
	size_t count;

	snprintf(where, sizeof where, "%s %s", oracle_text(o->meta, "name"), oracle_text(record, "raw"));
	options_of(&given, record);
	assert_int_equal(kv_score_configure(&p, m, &given, &e), KV_OK);
	score_layer_init(&x, d, q->shape[0], Hkv, T, D, 1.0f / sqrtf((float)D), q->data, q->shape[1], k->data);
	if (kv_score_layer(m, &p, &x.in, &score, &e) < 0)
		fail_msg("%s: %s", where, e.text);
	assert_int_equal(score.shape[0], Hkv);
	assert_int_equal(score.shape[1], n);
	assert_scores_near(score.data, raw->data, Hkv * n, where);
	assert_int_equal(kv_score_attrs_from_json(&a, score.attrs, &e), KV_OK);
	assert_int_equal(a.n_sink, oracle_size(record, "n_sink"));
	assert_int_equal(a.n_recent < T ? a.n_recent : T, recent);
	assert_int_equal(kv_pooled(d, &a, raw->data, Hkv, n, ranks, &e), KV_OK);
	assert_scores_near(ranks, pooled->data, Hkv * n, where);
	count = check_kept(d, &a, raw->data, Hkv, n, T, select, where);
	count += check_kept(d, &a, score.data, Hkv, n, T, select, where);
	free(ranks);
	kv_tensor_fini(&score);
	score_layer_fini(&x);
	return count;
}

size_t
score_oracle(const struct kv_device *d, const char *method)
{
	size_t count = 0, i;
	const json_t *record;

	for (const char *const *name = oracle_scores; *name != NULL; name++) {
		struct oracle o;

		oracle_open(&o, *name);
		json_array_foreach(oracle_results(&o), i, record) if (strcmp(oracle_text(record, "method"), method) ==
								      0) count += check_record(d, &o, record);
		oracle_fini(&o);
	}
	return count;
}
