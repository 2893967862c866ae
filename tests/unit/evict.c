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
#include "tests/lib/kernels.h"
#include "tests/lib/oracle.h"
#include "tests/lib/score_input.h"

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
	const size_t offset[] = { 0, B };
	const struct kv_selection job = { .H = 1, .n = n, .T = T, .raw = raw, .score = a, .n_sink = a->protect.n_sink,
		.n_recent = a->protect.n_recent, .tie = tie, .offset = offset };
	int32_t index[128];
	struct kv_err e = { 0 };

	assert_in_range(T, 1, 128);
	if (kv_evict_select(&device, &job, index, &e) < 0)
		fail_msg("%s: %s", tag, e.text);
	if (!oracle_equals(kept, index, B))
		fail_msg("%s: T %zu, n %zu, B %zu, sinks %zu, recent %zu: another set", tag, T, n, B, job.n_sink,
		    job.n_recent);
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
			.protect = { oracle_size(r, "n_sink"), oracle_size(r, "n_recent"), -1 },
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
		oracle_checked(&o, r, NULL);
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
	size_t i, l, H, n, T, W, compared = 0;

	(void)state;
	oracle_open(&o, "compose");
	H = oracle_size(o.meta, "H"), n = oracle_size(o.meta, "n"), T = oracle_size(o.meta, "S"),
	W = oracle_size(o.meta, "W");
	raw = oracle_array(&o, "raw");
	json_array_foreach(oracle_results(&o), i, r) json_array_foreach(json_object_get(r, "kept"), l, layer)
	{
		const struct kv_score_attrs a = { .pool = KVK_POOL_MAX, .pool_width = 7, .n_tokens = T };
		const json_t *budget = json_array_get(json_object_get(r, "budgets"), l);
		size_t offset[9] = { 0 };
		const struct kv_selection job = { .H = H, .n = n, .T = T, .raw = raw->data + l * H * n, .score = &a,
			.n_recent = W, .tie = KV_TIE_POSITION, .offset = offset };
		int32_t index[8 * 256];
		struct kv_err e = { 0 };

		for (size_t h = 0; h < H; h++)
			offset[h + 1] = offset[h] + W + (size_t)json_integer_value(json_array_get(budget, h));
		assert_int_equal(kv_evict_select(&device, &job, index, &e), KV_OK);
		for (size_t h = 0; h < H; h++)
			assert_true(
			    oracle_equals(json_array_get(layer, h), index + offset[h], offset[h + 1] - offset[h]));
		compared += H;
	}
	assert_true(compared >= 16 * 6 * H);
	oracle_fini(&o);
}

/* ---- what passes between host and device */

static size_t bytes_in, bytes_out;

static const void *
counting_view(struct kvk_dev *dev, const void *host, size_t bytes)
{
	bytes_in += bytes;
	return kvk_cpu.view(dev, host, bytes);
}

static int
counting_get(struct kvk_dev *dev, void *host, const void *src, size_t bytes)
{
	bytes_out += bytes;
	return kvk_cpu.get(dev, host, src, bytes);
}

/* Pooled scores stay where they are made, unless rules look at them; the sets are the same. */
static void
pooled_on_the_device(void **state)
{
	enum { H = 2, N = 90, B = 20 };
	static const size_t offset[] = { 0, B, 2 * B };
	const struct kv_score_attrs a = { .pool = KVK_POOL_MAX, .pool_width = 7, .n_tokens = N + 3 };
	struct kvk_backend table = kvk_cpu;
	struct kv_device counting = device;
	float *raw = test_floats(H * N, 1, 8);
	size_t kept[H + 1];
	struct kv_selection job = { .H = H, .n = N, .T = N + 3, .raw = raw, .score = &a, .n_sink = 2, .n_recent = 3,
		.offset = offset };
	int32_t index[2 * B], other[2 * B];
	struct kv_err e = { 0 };

	(void)state;
	table.view = counting_view;
	table.get = counting_get;
	counting.op = &table;
	for (size_t i = 0; i < H * N; i++) /* not many different ones */
		raw[i] = roundf(raw[i] * 4);
	for (int tie = KV_TIE_RAW; tie <= KV_TIE_POSITION; tie++) {
		job.tie = (enum kv_tie)tie;
		job.rules = (struct kv_rules){ 0 };
		job.kept = NULL;
		bytes_in = bytes_out = 0;
		assert_int_equal(kv_evict_select(&counting, &job, index, &e), KV_OK);
		assert_int_equal(bytes_in, H * N * sizeof *raw);
		assert_int_equal(bytes_out, sizeof index);
		job.rules = (struct kv_rules){ .by_score = true, .least = -INFINITY };
		job.kept = kept;
		assert_int_equal(kv_evict_select(&counting, &job, other, &e), KV_OK);
		assert_memory_equal(kept, offset, sizeof kept);
		assert_memory_equal(other, index, sizeof index);
	}
	free(raw);
}

/* ---- a whole layer */

enum { HQ = 6, HKV = 3, T = 7, D = 5 };

struct cache {
	uint16_t k[HKV][T][D], v[HKV][T][D];
	float score[HQ][T];
	uint8_t protect[HQ][T];
	int32_t budget[HQ];
	struct score_layer x;
};

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

/* H heads with scores and budgets of their own. */
static void
cache_init(struct cache *c, size_t H, const int32_t *budget, size_t n_recent)
{
	const size_t kv[] = { HKV, T, D }, score[] = { H, T };
	const struct kv_score_attrs a = { .method = "test", .pool_width = 1, .protect = { 0, 0, -1 }, .n_tokens = T };
	json_t *attrs = json_object();
	struct kv_err e = { 0 };

	memset(c->protect, 0, sizeof c->protect);
	memcpy(c->budget, budget, H * sizeof *budget);
	for (size_t h = 0; h < HQ; h++)
		for (size_t t = 0; t < T; t++)
			c->score[h][t] = (float)((t * 3 + h) % T); /* a permutation: no ties */
	for (size_t h = 0; h < HKV; h++)
		for (size_t t = 0; t < T; t++)
			for (size_t d = 0; d < D; d++) {
				c->k[h][t][d] = (uint16_t)(h * 100 + t * 10 + d);
				c->v[h][t][d] = (uint16_t)(c->k[h][t][d] + 1000);
			}
	score_layer_init(&c->x, &device, HQ, HKV, T, D, 1, NULL, 0, NULL);
	score_layer_put(&c->x, "k", KVK_F16, "kv_head token dim", kv, c->k, NULL);
	score_layer_put(&c->x, "v", KVK_F16, "kv_head token dim", kv, c->v, NULL);
	must(kv_score_attrs_to_json(&a, attrs, &e), &e);
	score_layer_put(&c->x, "score", KVK_F32, H == HKV ? "kv_head token" : "head token", score, c->score, attrs);
	score_layer_put(&c->x, "budget", KVK_I32, H == HKV ? "kv_head" : "head", &H, c->budget,
	    json_pack("{s:i, s:I}", "n_sink", 0, "n_recent", (json_int_t)n_recent));
}

static const void *
data(const struct cache *c, const char *name)
{
	const struct kv_tensor *t = kv_step_find(&c->x.step, name);

	assert_non_null(t);
	return t->data;
}

static void
evict(struct cache *c)
{
	const struct kv_evicting how = { .tie = KV_TIE_RAW };
	struct kv_err e = { 0 };
	size_t n_nan;

	must(kv_evict_layer(&c->x.in, &how, &n_nan, &e), &e);
	assert_int_equal(n_nan, 0);
}

/* Kept entries are those of the best scores, with the keys and values of the KV head that is read. */
static void
check_layer(struct cache *c, size_t H)
{
	const struct kv_tensor *index, *k;
	const int32_t *p, *offset;

	evict(c);
	index = kv_step_find(&c->x.step, "index"), k = kv_step_find(&c->x.step, "k");
	p = index->data, offset = data(c, "offset");
	assert_int_equal(kv_step_find(&c->x.step, "offset")->shape[0], H + 1);
	assert_int_equal(json_integer_value(json_object_get(index->attrs, "next_position")), T);
	assert_true(k->n_axes == 2 && k->shape[0] == (size_t)offset[H] && k->shape[1] == D && k->type == KVK_F16);
	for (size_t h = 0; h < H; h++) {
		const int32_t keep = offset[h + 1] - offset[h];

		assert_int_equal(keep, c->budget[h] < T ? c->budget[h] : T);
		for (int32_t i = offset[h]; i < offset[h + 1]; i++) {
			int better = 0;

			assert_true(i == offset[h] || p[i - 1] < p[i]);
			for (size_t u = 0; u < T; u++)
				better += c->score[h][u] > c->score[h][p[i]];
			assert_true(better < keep);
			assert_memory_equal((const uint16_t *)k->data + i * D, c->k[h / (H / HKV)][p[i]], D * 2);
			assert_memory_equal(
			    (const uint16_t *)data(c, "v") + i * D, c->v[h / (H / HKV)][p[i]], D * 2);
		}
	}
	score_layer_fini(&c->x);
}

static void
layer(void **state)
{
	struct cache c;

	(void)state;
	cache_init(&c, HKV, (const int32_t[]){ 1, 3, 99 }, 0);
	check_layer(&c, HKV);
	cache_init(&c, HKV, (const int32_t[]){ 0, 3, 0 }, 0); /* a head may keep nothing */
	check_layer(&c, HKV);
	cache_init(&c, HKV, (const int32_t[]){ 0, 0, 0 }, 0);
	check_layer(&c, HKV);
	cache_init(&c, HQ, (const int32_t[]){ 2, 3, 0, 7, 1, 5 }, 0); /* query heads */
	check_layer(&c, HQ);
}

/* A mask goes before every score, and the budget's protection before the mask. */
static void
protect(void **state)
{
	const size_t shape[] = { HKV, T };
	struct cache c;
	const int32_t *p;

	(void)state;
	cache_init(&c, HKV, (const int32_t[]){ 2, 3, 4 }, 1);
	for (size_t h = 0; h < HKV; h++) {
		for (size_t t = 0; t < T; t++)
			c.score[h][t] = t == 0 ? INFINITY : (float)t;
		c.protect[h][2] = 1, c.protect[h][4] = 255;
	}
	score_layer_put(&c.x, "protect", KVK_U8, "kv_head token", shape, c.protect, NULL);
	evict(&c);
	p = data(&c, "index");
	assert_true(p[0] == 4 && p[1] == 6);                                /* of the mask the higher score */
	assert_true(p[2] == 2 && p[3] == 4 && p[4] == 6);                   /* all that is protected */
	assert_true(p[5] == 0 && p[6] == 2 && p[7] == 4 && p[8] == 6);      /* and the best score */
	score_layer_fini(&c.x);
}

/* A budget that covers the prompt needs no scores, opens no device and changes no byte. */
static void
keeps_all(void **state)
{
	const struct kv_evicting how = { .tie = KV_TIE_RAW };
	struct kv_device unopened;
	struct kv_err e = { 0 };
	struct cache c;
	size_t n_nan;

	(void)state;
	cache_init(&c, HKV, (const int32_t[]){ T, T + 1, T + 2 }, 0);
	kv_device_plan(&unopened, "cpu", 1);
	c.x.in.device = &unopened;
	kv_step_remove(&c.x.step, "score");
	evict(&c);
	assert_null(unopened.op);
	assert_memory_equal(data(&c, "k"), c.k, sizeof c.k);
	assert_memory_equal(data(&c, "v"), c.v, sizeof c.v);
	for (size_t i = 0; i < HKV * T; i++)
		assert_int_equal(((const int32_t *)data(&c, "index"))[i], i % T);
	score_layer_fini(&c.x);
	cache_init(&c, HKV, (const int32_t[]){ T, T - 1, T }, 0);
	kv_step_remove(&c.x.step, "score");
	assert_int_equal(kv_evict_layer(&c.x.in, &how, &n_nan, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "kv-score"));
	score_layer_fini(&c.x);
}

/* NaN ranks last and is counted. */
static void
not_a_number(void **state)
{
	const struct kv_evicting how = { .tie = KV_TIE_RAW };
	struct kv_err e = { 0 };
	struct cache c;
	size_t n_nan;

	(void)state;
	cache_init(&c, HKV, (const int32_t[]){ T - 1, T - 1, T - 1 }, 0);
	for (size_t h = 0; h < HKV; h++)
		c.score[h][h] = NAN;
	must(kv_evict_layer(&c.x.in, &how, &n_nan, &e), &e);
	assert_int_equal(n_nan, HKV);
	for (size_t i = 0; i < HKV * (T - 1); i++)
		assert_int_not_equal(((const int32_t *)data(&c, "index"))[i], i / (T - 1));
	score_layer_fini(&c.x);
}

static void
refused(const struct cache *c, int code, const char *text)
{
	const struct kv_evicting how = { .tie = KV_TIE_RAW };
	struct kv_err e = { 0 };
	size_t n_nan;

	assert_int_equal(kv_evict_layer(&c->x.in, &how, &n_nan, &e), code);
	assert_null(kv_step_find(&c->x.step, "index"));
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	struct kv_tensor *v, *b, *s;
	struct cache c;

	(void)state;
	cache_init(&c, HKV, (const int32_t[]){ 2, 2, 2 }, 0);
	v = score_layer_tensor(&c.x, "v"), b = score_layer_tensor(&c.x, "budget"), s = score_layer_tensor(&c.x, "score");
	c.budget[1] = -5, refused(&c, KV_ESHAPE, "head 1");
	c.budget[1] = 2;
	json_object_set_new(b->attrs, "total", json_integer(7)), refused(&c, KV_ESHAPE, "total");
	json_object_set_new(b->attrs, "total", json_integer(6));
	json_object_del(b->attrs, "n_recent"), refused(&c, KV_EFORMAT, "n_recent");
	json_object_set_new(b->attrs, "n_recent", json_integer(0));
	c.x.in.T = T + 1, refused(&c, KV_ESHAPE, "token 8");
	c.x.in.T = T;
	v->shape[1] = T - 1, refused(&c, KV_ESHAPE, "v:");
	v->shape[1] = T;
	v->type = KVK_F32, refused(&c, KV_ESHAPE, "v:");
	v->type = KVK_F16;
	b->shape[0] = 2, refused(&c, KV_ESHAPE, "budget:");
	b->shape[0] = HKV;
	s->shape[0] = 2, refused(&c, KV_ESHAPE, "score:");
	s->shape[0] = HKV;
	s->shape[1] = T + 1, refused(&c, KV_ESHAPE, "score:");
	s->shape[1] = T;
	json_object_set_new(s->attrs, "n_tokens", json_integer(T + 1)), refused(&c, KV_ESHAPE, "score:");
	json_object_del(s->attrs, "method"), refused(&c, KV_EFORMAT, "method");
	kv_step_remove(&c.x.step, "budget"), refused(&c, KV_ESHAPE, "kv-budget");
	kv_step_remove(&c.x.step, "v"), refused(&c, KV_ESHAPE, "tensor v");
	score_layer_fini(&c.x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(select_oracle),
		cmocka_unit_test(compose_oracle),
		cmocka_unit_test(pooled_on_the_device),
		cmocka_unit_test(layer),
		cmocka_unit_test(protect),
		cmocka_unit_test(keeps_all),
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
