/* SPDX-License-Identifier: MIT
 * Renumbered caches: keys against a rotation in double precision, and whole decodes against a naive forward pass.
 *
 * In a model of one layer keys and values depend on nothing but their own token, so a renumbered cache of some tokens
 * is the cache of a prompt of these tokens alone: that is the independent reference.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/evict/renumber.h"
#include "tests/lib/kernels.h"
#include "tests/lib/naive.h"
#include "tests/lib/rig.h"
#include "tests/lib/score_input.h"

enum { T = 23, KEEP = 9, MORE = 4 };
static const bool some[T] = { 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1 }; /* KEEP of them */

static const struct tiny_spec specs[] = {
	{ .arch = "qwen3", .L = 1, .Hq = 4, .Hkv = 2, .D = 16, .d = 48, .ff = 80, .vocab = 97, .seed = 1 },
	{ .arch = "llama",
	    .L = 1,
	    .Hq = 3,
	    .Hkv = 3,
	    .D = 8,
	    .d = 24,
	    .ff = 40,
	    .vocab = 33,
	    .interleaved = true,
	    .seed = 2 },
	{ .arch = "llama",
	    .L = 1,
	    .Hq = 4,
	    .Hkv = 1,
	    .D = 12,
	    .d = 40,
	    .ff = 72,
	    .vocab = 50,
	    .llama3_scaling = true,
	    .seed = 3 },
	{ .arch = "qwen2", .L = 3, .Hq = 4, .Hkv = 2, .D = 16, .d = 48, .ff = 80, .vocab = 97, .seed = 4 },
};
#define N_SPECS (sizeof specs / sizeof *specs)

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

/* One layer of a prompt on its way through kv-evict: heads keep `keep` (NULL: all). */
struct evicted {
	struct score_layer x;
	float score[4 * T];
	int32_t budget[4];
};

static void
evict(struct evicted *v, struct rig *r, const struct rig_prompt *p, size_t l, const bool *keep, bool renumber)
{
	const struct kv_config *c = &r->m.cfg;
	const size_t kv[] = { c->Hkv, T, c->D }, score[] = { c->Hkv, T }, at = l * c->Hkv * T * c->D;
	const struct kv_score_attrs a = { .method = "test", .pool_width = 1, .protect = { 0, 0, -1 }, .n_tokens = T };
	const struct kv_evicting how = { .renumber = renumber };
	json_t *attrs = json_object();
	struct kv_err e = { 0 };
	size_t n_nan;

	for (size_t h = 0; h < c->Hkv; h++) {
		v->budget[h] = keep != NULL ? KEEP : T;
		for (size_t i = 0; i < T; i++)
			v->score[h * T + i] = keep == NULL || keep[i] ? 1.0f : 0.0f;
	}
	score_layer_init(&v->x, &r->d, c->Hq, c->Hkv, T, c->D, c->scale, NULL, 0, p->k + at);
	v->x.cfg.rope_dim = c->rope_dim;
	v->x.cfg.inv_freq = test_alloc(c->rope_dim / 2, sizeof *c->inv_freq); /* the layer frees it */
	memcpy(v->x.cfg.inv_freq, c->inv_freq, c->rope_dim / 2 * sizeof *c->inv_freq);
	score_layer_put(&v->x, "v", KVK_F32, "kv_head token dim", kv, p->v + at, NULL);
	must(kv_score_attrs_to_json(&a, attrs, &e), &e);
	score_layer_put(&v->x, "score", KVK_F32, "kv_head token", score, v->score, attrs);
	score_layer_put(&v->x, "budget", KVK_I32, "kv_head", &c->Hkv, v->budget,
	    json_pack("{s:i, s:i}", "n_sink", 0, "n_recent", 0));
	must(kv_evict_layer(&v->x.in, &how, &n_nan, &e), &e);
}

static const void *
data(const struct evicted *v, const char *name)
{
	return kv_step_find(&v->x.step, name)->data;
}

static size_t
next_position(const struct evicted *v)
{
	return (size_t)json_integer_value(json_object_get(kv_step_find(&v->x.step, "index")->attrs, "next_position"));
}

/* logits [MORE][vocab] of more tokens behind what every layer keeps. */
static void
decode(struct rig *r, const struct rig_prompt *p, const bool *keep, bool renumber, const int32_t *more, float *logits)
{
	struct kv_cache *c;
	struct kv_err e = { 0 };
	size_t next = 0;

	must(kv_cache_new(&c, r->x, KVK_F32, MORE, &e), &e);
	for (size_t l = 0; l < r->m.cfg.L; l++) {
		struct evicted v;
		size_t offset[5];

		evict(&v, r, p, l, keep, renumber);
		for (size_t h = 0; h <= r->m.cfg.Hkv; h++)
			offset[h] = (size_t)((const int32_t *)data(&v, "offset"))[h];
		must(kv_cache_set(c, l, r->m.cfg.Hkv, KVK_F32, data(&v, "k"), data(&v, "v"), offset, &e), &e);
		next = next_position(&v);
		score_layer_fini(&v.x);
	}
	kv_cache_seek(c, next);
	must(kv_extend(c, more, MORE, logits, MORE, NULL, &e), &e);
	kv_cache_free(c);
}

static void
decodes(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		const size_t V = specs[i].vocab;
		int32_t tokens[T + MORE], alone[KEEP + MORE];
		struct rig_prompt p;
		struct naive want;
		struct rig r;
		float *logits = test_alloc(MORE * V, sizeof *logits);
		size_t n = 0;

		rig_open(&r, &specs[i], 0);
		rig_prefill(&r, &p, T, 5);
		rig_tokens(&r, tokens, T + MORE, 5);
		for (size_t t = 0; t < T + MORE; t++)
			if (t >= T || some[t])
				alone[n++] = tokens[t];
		assert_int_equal(n, KEEP + MORE);
		naive_run(&want, &r.m, alone, n, NULL, NULL);
		decode(&r, &p, some, true, tokens + T, logits);
		test_near("renumbered", logits, want.logits + KEEP * V, MORE * V, 2e-5, 0);
		/* and what it is not: with the true positions the same entries say something else */
		decode(&r, &p, some, false, tokens + T, logits);
		assert_true(rig_distance(logits, want.logits + KEEP * V, MORE * V) > 1e-3);
		naive_fini(&want);
		rig_prompt_fini(&p);
		rig_close(&r);
		free(logits);
	}
}

/* Everything kept: nothing moves, so the same bits, for any number of layers. */
static void
keeps_all(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SPECS; i++) {
		const size_t V = specs[i].vocab;
		float *a = test_alloc(MORE * V, sizeof *a), *b = test_alloc(MORE * V, sizeof *b);
		int32_t tokens[T + MORE];
		struct rig_prompt p;
		struct rig r;

		rig_open(&r, &specs[i], 0);
		rig_prefill(&r, &p, T, 6);
		rig_tokens(&r, tokens, T + MORE, 6);
		decode(&r, &p, NULL, false, tokens + T, a);
		decode(&r, &p, NULL, true, tokens + T, b);
		assert_memory_equal(a, b, MORE * V * sizeof *a);
		rig_prompt_fini(&p);
		rig_close(&r);
		free(a);
		free(b);
	}
}

/* index says where entries come from, next_position where the next token goes. */
static void
describes(void **state)
{
	struct rig_prompt p;
	struct evicted v;
	struct rig r;
	const int32_t *index;
	size_t n = 0;

	(void)state;
	rig_open(&r, &specs[0], 0);
	rig_prefill(&r, &p, T, 5);
	evict(&v, &r, &p, 0, some, true);
	index = data(&v, "index");
	for (size_t h = 0; h < 2; h++)
		for (int32_t t = 0; t < T; t++)
			if (some[t])
				assert_int_equal(index[n++], t);
	assert_int_equal(n, 2 * KEEP);
	assert_int_equal(next_position(&v), KEEP);
	assert_true(json_is_true(json_object_get(kv_step_find(&v.x.step, "index")->attrs, "renumbered")));
	score_layer_fini(&v.x);
	evict(&v, &r, &p, 0, some, false);
	assert_int_equal(next_position(&v), T);
	assert_null(json_object_get(kv_step_find(&v.x.step, "index")->attrs, "renumbered"));
	score_layer_fini(&v.x);
	rig_prompt_fini(&p);
	rig_close(&r);
}

/* Every type of keys, far positions, a part of the head that is not rotated; the values that stay keep their bits. */
static void
keys(void **state)
{
	enum { H = 2, N = 5, D = 12, HALF = 4 };
	static const size_t offset[] = { 0, N, 2 * N };
	static const int32_t index[] = { 0, 1, 7, 300, 130000, 3, 5, 6, 7, 999 };
	float inv_freq[HALF] = { 1, 0.1f, 0.01f, 0.0001f };
	const enum kvk_type types[] = { KVK_F32, KVK_F16, KVK_BF16 };
	const double bound[] = { 3e-7, 6e-4, 5e-3 };
	struct kv_config cfg = { .D = D, .rope_dim = 2 * HALF, .inv_freq = inv_freq };
	struct kv_device d;
	struct kv_err e = { 0 };

	(void)state;
	must(kv_device_open(&d, "cpu", 1, &e), &e);
	for (size_t t = 0; t < 3; t++) {
		const struct kv_layer l = { .device = &d, .cfg = &cfg, .T = 131072 };
		const size_t shape[] = { H * N, D };
		struct kv_tensor k;
		double *x;
		void *bytes = test_typed(H * N * D, 1, 9, types[t], &x);

		must(kv_tensor_new(&k, "k", 0, types[t], "entry dim", shape, &e), &e);
		memcpy(k.owned, bytes, k.bytes);
		must(kv_renumber(&l, &k, k.owned, index, offset, H, &e), &e);
		assert_memory_equal(k.data, bytes, 2 * D * kvk_types[types[t]].bytes); /* 0 and 1 stay where they are */
		for (size_t i = 0; i < H * N; i++)
			for (size_t j = 0; j < D; j++) {
				const size_t pair = j % HALF;
				const double angle = ((double)(i % N) - index[i]) * (double)inv_freq[pair];
				const double a = x[i * D + pair], b = x[i * D + pair + HALF];
				const double want = j >= 2 * HALF ? x[i * D + j]
						    : j < HALF    ? a * cos(angle) - b * sin(angle)
								  : a * sin(angle) + b * cos(angle);

				assert_true(fabs(kv_tensor_get(&k, i * D + j) - want) <= bound[t]);
			}
		kv_tensor_fini(&k);
		free(bytes);
		free(x);
	}
	kv_device_close(&d);
}

static void
refused(void **state)
{
	static const size_t offset[] = { 0, 3, 6, 8 };
	struct kv_config cfg = { .D = 4 };
	const struct kv_layer l = { .cfg = &cfg, .T = 4 };
	struct kv_tensor k = { 0 };
	struct kv_err e = { 0 };
	size_t n;

	(void)state;
	assert_int_equal(kv_renumber_check(offset, 3, &n, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "head 2 keeps 2 entries, head 0 keeps 3"));
	assert_int_equal(kv_renumber_check(offset, 2, &n, &e), KV_OK);
	assert_int_equal(n, 3);
	assert_int_equal(kv_renumber(&l, &k, NULL, NULL, offset, 3, &e), KV_EMODEL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys),
		cmocka_unit_test(describes),
		cmocka_unit_test(decodes),
		cmocka_unit_test(keeps_all),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
