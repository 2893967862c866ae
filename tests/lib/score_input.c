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
score_layer_put(struct score_layer *x, const char *name, enum kvk_type type, const char *axes, const size_t *shape,
    const void *data, json_t *attrs)
{
	struct kv_tensor t;

	assert_int_equal(kv_tensor_init(&t, name, x->step.layer, type, axes, shape, NULL), KV_OK);
	t.data = data;
	t.attrs = attrs;
	assert_int_equal(kv_step_put(&x->step, &t, NULL), KV_OK);
}

void
score_layer_init(struct score_layer *x, struct kv_device *d, size_t Hq, size_t Hkv, size_t T, size_t D, float scale,
    const float *q, size_t n_q, const float *k)
{
	const size_t q_shape[] = { Hq, n_q, D }, k_shape[] = { Hkv, T, D };

	*x = (struct score_layer){
		.cfg = { .L = 1, .Hq = Hq, .Hkv = Hkv, .D = D, .scale = scale },
		.seq = { .T = T, .n_tokens = T },
	};
	x->step.seq = &x->seq;
	x->in = (struct kv_layer){ .device = d, .cfg = &x->cfg, .step = &x->step, .T = T };
	score_layer_put(x, "k", KVK_F32, "kv_head token dim", k_shape, k, NULL);
	if (q != NULL)
		score_layer_put(x, "q", KVK_F32, "head query dim", q_shape, q,
		    json_pack("{s:s, s:I}", "region", "window", "first_position", (json_int_t)(T - n_q)));
}

void
score_behind(struct score_layer *x, const char *region, const float *q, const float *k, size_t n)
{
	const size_t q_shape[] = { x->cfg.Hq, n, x->cfg.D }, k_shape[] = { x->cfg.Hkv, n, x->cfg.D };
	char name[KV_NAME_MAX];

	snprintf(name, sizeof name, "q.%s", region);
	score_layer_put(x, name, KVK_F32, "head query dim", q_shape, q,
	    json_pack("{s:s, s:I}", "region", region, "first_position", (json_int_t)x->in.T));
	name[0] = 'k';
	if (k != NULL)
		score_layer_put(x, name, KVK_F32, "kv_head row dim", k_shape, k, NULL);
}

void
score_response(struct score_layer *x, const float *q, const float *k, size_t n)
{
	score_behind(x, "response", q, k, n);
}

void
score_rotary(struct score_layer *x, double theta)
{
	struct kv_err e = { 0 };

	x->cfg.d = x->cfg.ff = x->cfg.vocab = 1; /* a model has them, though nothing here looks */
	x->cfg.rope_theta = theta;
	x->cfg.rope_dim = x->cfg.D;
	assert_int_equal(kv_config_rope(&x->cfg, 1, NULL, NULL, &e), KV_OK);
}

void
score_layer_fini(struct score_layer *x)
{
	kv_step_clear(&x->step);
	kv_config_fini(&x->cfg);
}

struct kv_tensor *
score_layer_tensor(struct score_layer *x, const char *name)
{
	struct kv_item *i = kv_step_item(&x->step, name);

	assert_non_null(i);
	return &i->tensor;
}

void
score_params(struct kv_params *p, const char *method, ...)
{
	const struct kv_score_method *m = kv_score_find(method);
	struct kv_err e = { 0 };
	const char *name;
	va_list ap;

	assert_non_null(m);
	kv_params_init(p, &m->about);
	va_start(ap, method);
	while ((name = va_arg(ap, const char *)) != NULL)
		if (kv_params_set(p, name, va_arg(ap, const char *), &e) < 0)
			fail_msg("%s", e.text);
	va_end(ap);
	if (kv_params_check(p, &e) < 0)
		fail_msg("%s", e.text);
}

const struct kv_tensor *
score_run(struct score_layer *x, const struct kv_params *p)
{
	struct kv_err e = { 0 };

	if (kv_score_layer(&x->in, p, &e) < 0)
		fail_msg("%s", e.text);
	return score_layer_tensor(x, "score");
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
check_kept(struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t Hkv, size_t n, size_t T,
    const json_t *select, const char *where)
{
	int32_t *index = malloc(Hkv * T * sizeof *index);
	size_t i, *offset = calloc(Hkv + 1, sizeof *offset), count = 0;
	const json_t *row;

	json_array_foreach (select, i, row) {
		size_t C = oracle_size(row, "C"), B = C < T ? C : T;
		struct kv_protection protect = a->protect;
		struct kv_selection job = {
			.H = Hkv, .n = n, .T = T, .raw = raw, .score = a, .tie = KV_TIE_POSITION, .offset = offset
		};
		struct kv_err e = { 0 };

		kv_protection_resolve(&protect, C);
		job.n_sink = protect.n_sink;
		job.n_recent = protect.n_recent;
		for (size_t h = 0; h < Hkv; h++)
			offset[h + 1] = (h + 1) * B;
		if (kv_evict_select(d, &job, index, &e) < 0)
			fail_msg("%s: %s", where, e.text);
		for (size_t h = 0; h < Hkv; h++, count++)
			if (!oracle_equals(json_array_get(json_object_get(row, "kept"), h), index + h * B, B))
				fail_msg("%s: C = %zu, head %zu keeps another set", where, C, h);
	}
	free(offset);
	free(index);
	return count;
}

/* A record's name where the method has another one here, what stands behind the prompt, and what else the reference
 * did. */
static const struct kind {
	const char *record, *method;
	const char *q, *k;       /* arrays that are q.response and k.response, or .lookahead; NULL: none */
	const char *name, *text; /* a further option */
	bool pooled;             /* raw is pooled already */
	bool values;             /* needs v, and the rotary frequencies */
} kinds[] = {
	{ "ground_truth", "truth", "q_resp", "k_resp", NULL, NULL, false, false },
	{ "lookahead", "lookahead", "q_look", "k_look", NULL, NULL, false, false },
	{ "laq", "laq", "q_draft", NULL, NULL, NULL, false, false },
	{ "laq++", "laq", "q_draft", NULL, NULL, NULL, false, false },
	{ "speckv", "speckv", "q_draft", "k_draft", NULL, NULL, false, false },
	{ "nacl_top", "nacl", NULL, NULL, "recent", "window", false, false },
	{ "cake", "cake", NULL, NULL, NULL, NULL, true, false },
	{ "expected_attention", "expected-attention", NULL, NULL, NULL, NULL, false, true },
};

/* A row for every record; of those not in the table just the name. */
static struct kind
kind_of(const json_t *record)
{
	const char *name = oracle_text(record, "method");

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].record, name) == 0)
			return kinds[i];
	return (struct kind){ .record = name, .method = name };
}

static void
set_option(struct kv_params *p, const char *name, const char *text)
{
	struct kv_err e = { 0 };

	if (kv_params_set(p, name, text, &e) < 0)
		fail_msg("%s", e.text);
}

/* The record's parameters as options, as far as the method takes them. */
static void
options_of(struct kv_params *p, const struct kind *kind, const json_t *record)
{
	static const char *const names[][2] = { { "pool", "pool" }, { "gqa", "gqa" }, { "window", "window" },
		{ "kernel", "pool-width" }, { "rows", "rows" }, { "n_sink", "sink" }, { "n_recent", "recent" },
		{ "W2", "window" }, { "n_proxy", "window" }, { "reduce", "reduce" }, { "gamma", "gamma" },
		{ "n_future", "future" }, { "seed", "seed" } };
	const json_t *given = json_object_get(record, "params"), *x;
	struct kv_err e = { 0 };
	char number[32];

	kv_params_init(p, &kv_score_find(kind->method)->about);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct kv_params quiet = *p;

		if ((x = json_object_get(given, names[i][0])) == NULL || !kv_params_given(&quiet, names[i][1]) ||
		    (strcmp(names[i][0], "kernel") == 0 && kv_pool(p) == KVK_POOL_NONE))
			continue;
		snprintf(number, sizeof number, "%.17g", json_number_value(x));
		set_option(p, names[i][1], json_is_string(x) ? json_string_value(x) : number);
	}
	if (kind->name != NULL)
		set_option(p, kind->name, kind->text);
	if (kv_params_check(p, &e) < 0)
		fail_msg("%s", e.text);
}

/* The prompt's queries for a method that turns them back: in some cases q was never rotated.  free() the result. */
static float *
rotated_queries(const struct oracle *o)
{
	const struct oracle_array *q = oracle_array(o, "q");
	const size_t Hq = q->shape[0], S = q->shape[1], D = q->shape[2];
	const double theta = json_number_value(json_object_get(o->meta, "rope_theta"));
	const char *style = oracle_text(o->meta, "style");
	float *out = malloc(Hq * S * D * sizeof *out + 1);

	assert_non_null(out);
	memcpy(out, q->data, Hq * S * D * sizeof *out);
	if (strcmp(style, "flat") != 0 && strcmp(style, "dup") != 0)
		return out;
	for (size_t row = 0; row < Hq * S; row++)
		for (size_t i = 0; i < D / 2; i++) {
			const double angle = (double)(row % S) * pow(theta, -2.0 * (double)i / (double)D);
			const double a = q->data[row * D + i], b = q->data[row * D + i + D / 2];

			out[row * D + i] = (float)(a * cos(angle) - b * sin(angle));
			out[row * D + i + D / 2] = (float)(b * cos(angle) + a * sin(angle));
		}
	return out;
}

/* own_q: queries instead of the case's own, or NULL. */
static void
layer_of(struct score_layer *x, struct kv_device *d, const struct oracle *o, const struct kind *kind,
    const json_t *record, const float *own_q)
{
	const struct oracle_array *q = oracle_array(o, "q"), *k = oracle_array(o, "k");
	const size_t D = k->shape[2];

	score_layer_init(x, d, q->shape[0], k->shape[0], k->shape[1], D, 1.0f / sqrtf((float)D),
	    own_q != NULL ? own_q : q->data, q->shape[1], k->data);
	if (kind->q != NULL)
		score_behind(x, strcmp(kind->method, "lookahead") == 0 ? "lookahead" : "response",
		    oracle_array(o, kind->q)->data, kind->k != NULL ? oracle_array(o, kind->k)->data : NULL,
		    oracle_array(o, kind->q)->shape[1]);
	if (kind->values) {
		score_layer_put(x, "v", KVK_F32, "kv_head token dim", k->shape, oracle_array(o, "v")->data, NULL);
		score_rotary(x, json_number_value(json_object_get(o->meta, "rope_theta")));
	}
	x->in.layer = x->step.layer = (int)json_integer_value(json_object_get(json_object_get(record, "params"), "layer"));
}

static void
check_attributes(const struct kv_tensor *score, const struct kv_score_attrs *a, const json_t *record)
{
	const json_t *preference = json_object_get(json_object_get(record, "params"), "preference");
	const double want = json_number_value(preference);
	const double got = json_number_value(json_object_get(score->attrs, "preference"));

	assert_true((a->protect.n_sink < a->n_tokens ? a->protect.n_sink : a->n_tokens) ==
		    oracle_size(record, "n_sink"));
	if (a->protect.recent_share < 0)
		assert_int_equal(a->protect.n_recent < a->n_tokens ? a->protect.n_recent : a->n_tokens,
		    oracle_size(record, "n_recent"));
	if (preference != NULL && !(fabs(got - want) <= 1e-7 + 2e-5 * want))
		fail_msg("preference %.9g, expected %.9g", got, want);
}

/* The reference's scores and our own, as ranked and as kept. */
static size_t
compare(struct kv_device *d, const struct kv_tensor *score, const struct oracle *o, const struct kind *kind,
    const json_t *record, const char *where)
{
	const struct oracle_array *raw = oracle_array(o, oracle_text(record, "raw")),
				  *pooled = oracle_array(o, oracle_text(record, "pooled"));
	const size_t Hkv = raw->shape[0], n = raw->shape[1];
	const json_t *select = json_object_get(record, "select");
	float *ranks = malloc(Hkv * n * sizeof *ranks + 1);
	struct kv_score_attrs a, theirs;
	struct kv_err e = { 0 };
	size_t count;

	assert_int_equal(score->shape[0], Hkv);
	assert_int_equal(score->shape[1], n);
	assert_int_equal(kv_score_attrs_from_json(&a, score->attrs, &e), KV_OK);
	check_attributes(score, &a, record);
	theirs = a;
	if (kind->pooled)
		theirs.pool = KVK_POOL_NONE;
	else
		assert_scores_near(score->data, raw->data, Hkv * n, where);
	assert_int_equal(kv_pooled(d, &theirs, raw->data, Hkv, n, ranks, &e), KV_OK);
	assert_scores_near(ranks, pooled->data, Hkv * n, where);
	assert_int_equal(kv_pooled(d, &a, score->data, Hkv, n, ranks, &e), KV_OK);
	assert_scores_near(ranks, pooled->data, Hkv * n, where);
	count = check_kept(d, &theirs, raw->data, Hkv, n, a.n_tokens, select, where);
	count += check_kept(d, &a, score->data, Hkv, n, a.n_tokens, select, where);
	free(ranks);
	return count;
}

/* Of a method that protects and does not score. */
static size_t
compare_kept(struct kv_device *d, const struct kv_tensor *score, const json_t *record, const char *where)
{
	struct kv_score_attrs a;
	struct kv_err e = { 0 };

	assert_int_equal(score->shape[1], 0);
	assert_int_equal(kv_score_attrs_from_json(&a, score->attrs, &e), KV_OK);
	return check_kept(d, &a, score->data, score->shape[0], 0, a.n_tokens, json_object_get(record, "select"), where);
}

static size_t
check_record(struct kv_device *d, const struct oracle *o, const json_t *record)
{
	const struct kind kind = kind_of(record);
	const bool scored = json_object_get(record, "raw") != NULL;
	float *q = kind.values ? rotated_queries(o) : NULL;
	const struct kv_tensor *score;
	struct score_layer x;
	struct kv_params p;
	char where[128];
	size_t count;

	snprintf(where, sizeof where, "%s %s", oracle_text(o->meta, "name"),
	    oracle_text(record, scored ? "raw" : "method"));
	options_of(&p, &kind, record);
	layer_of(&x, d, o, &kind, record, q);
	score = score_run(&x, &p);
	count = scored ? compare(d, score, o, &kind, record, where) : compare_kept(d, score, record, where);
	score_layer_fini(&x);
	free(q);
	oracle_checked(o, record, NULL);
	return count;
}

size_t
score_oracle(struct kv_device *d, const char *method)
{
	size_t count = 0, i;
	const json_t *record;

	for (const char *const *name = oracle_scores; *name != NULL; name++) {
		struct oracle o;

		oracle_open(&o, *name);
		json_array_foreach (oracle_results(&o), i, record)
			if (strcmp(kind_of(record).method, method) == 0)
				count += check_record(d, &o, record);
		oracle_fini(&o);
	}
	return count;
}

struct kv_device score_device;

int
score_set_up(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	return kv_device_open(&score_device, "cpu", 2, &e);
}

int
score_tear_down(void **state)
{
	(void)state;
	kv_device_close(&score_device);
	return 0;
}

const struct kv_tensor *
assert_scored(struct score_layer *x, const struct kv_params *p, const float *expect, size_t n)
{
	const struct kv_tensor *s = score_run(x, p);

	assert_int_equal(s->shape[0], 1);
	assert_int_equal(s->shape[1], n);
	assert_scores_near(s->data, expect, n, "paper");
	return s;
}

struct kv_score_attrs
score_attributes(const struct kv_tensor *s)
{
	struct kv_score_attrs a;
	struct kv_err e = { 0 };

	assert_int_equal(kv_score_attrs_from_json(&a, s->attrs, &e), KV_OK);
	return a;
}
