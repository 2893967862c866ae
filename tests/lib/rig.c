/* SPDX-License-Identifier: MIT */
#include "tests/lib/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/device_memory.h"

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

static void *
memory(size_t n, size_t size)
{
	void *p = calloc(n, size);

	assert_non_null(p);
	return p;
}

void
rig_open(struct rig *r, const struct tiny_spec *s, unsigned threads)
{
	struct kv_err e = { 0 };

	*r = (struct rig){ 0 };
	must(tiny_model(&r->m, s, &e), &e);
	must(kv_device_open(&r->d, "cpu", threads, &e), &e);
	must(kv_engine_new(&r->x, &r->m, &r->d, &e), &e);
}

void
rig_close(struct rig *r)
{
	kv_engine_free(r->x);
	kv_device_close(&r->d);
	kv_model_fini(&r->m);
}

void
rig_tokens(const struct rig *r, int32_t *tokens, size_t T, uint64_t seed)
{
	uint64_t x = seed * 2 + 1;

	for (size_t i = 0; i < T; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
		tokens[i] = (int32_t)((x >> 33) % r->m.cfg.vocab);
	}
}

struct taking {
	struct rig *r;
	struct rig_prompt *p;
};

/* One layer of x [L][H][n][D] from the device, where a head has `stride` rows. */
static void
take(const struct taking *t, float *x, const float *src, size_t layer, size_t H, size_t stride, size_t n)
{
	size_t D = t->r->m.cfg.D;
	struct kv_err e = { 0 };

	must(kv_device_get_rows(&t->r->d, x + layer * H * n * D, KVK_F32, src, H, stride, n, D, &e), &e);
}

static int
take_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	const struct taking *t = ctx;
	const struct kv_config *c = &t->r->m.cfg;
	size_t l = view->layer;

	(void)e;
	assert_int_equal(view->n, t->p->T);
	assert_int_equal(view->n_behind, t->p->n);
	take(t, t->p->q, view->q, l, c->Hq, view->n, view->n);
	take(t, t->p->k, view->k, l, c->Hkv, view->stride, view->n);
	take(t, t->p->v, view->v, l, c->Hkv, view->stride, view->n);
	take(t, t->p->q_behind, view->q_behind, l, c->Hq, view->n_behind, view->n_behind);
	take(t, t->p->k_behind, view->k_behind, l, c->Hkv, view->stride, view->n_behind);
	return KV_OK;
}

static void
prefill(struct rig *r, struct rig_prompt *p, size_t T, const struct kv_adapters *a, size_t n, uint64_t seed)
{
	const struct kv_config *c = &r->m.cfg;
	struct kv_prefill_input in = { .T = T, .n_behind = a != NULL ? 0 : n, .lookahead = a };
	struct taking t = { r, p };
	struct kv_err e = { 0 };

	*p = (struct rig_prompt){ .T = T, .n = n };
	p->tokens = memory(T + n, sizeof *p->tokens);
	p->logits = memory(c->vocab, sizeof *p->logits);
	p->q = memory(c->L * c->Hq * T * c->D, sizeof *p->q);
	p->k = memory(c->L * c->Hkv * T * c->D, sizeof *p->k);
	p->v = memory(c->L * c->Hkv * T * c->D, sizeof *p->v);
	p->q_behind = memory(c->L * c->Hq * n * c->D + 1, sizeof *p->q_behind);
	p->k_behind = memory(c->L * c->Hkv * n * c->D + 1, sizeof *p->k_behind);
	rig_tokens(r, p->tokens, T + n, seed);
	in.tokens = p->tokens;
	in.behind = p->tokens + T;
	must(kv_prefill(r->x, &in, take_layer, &t, p->logits, &e), &e);
}

void
rig_prefill_behind(struct rig *r, struct rig_prompt *p, size_t T, size_t n, uint64_t seed)
{
	prefill(r, p, T, NULL, n, seed);
}

void
rig_prefill_lookahead(
    struct rig *r, struct rig_prompt *p, size_t T, const struct kv_adapters *a, size_t n, uint64_t seed)
{
	prefill(r, p, T, a, n, seed);
}

void
rig_prefill(struct rig *r, struct rig_prompt *p, size_t T, uint64_t seed)
{
	rig_prefill_behind(r, p, T, 0, seed);
}

void
rig_prompt_fini(struct rig_prompt *p)
{
	free(p->tokens);
	free(p->logits);
	free(p->q);
	free(p->k);
	free(p->v);
	free(p->q_behind);
	free(p->k_behind);
	*p = (struct rig_prompt){ 0 };
}

/* One layer's kept rows of x [Hkv][T][D], head after head of H, converted; offset [H + 1] out. */
static void *
gather(struct rig *r, const float *x, size_t T, size_t H, const bool *keep, enum kvk_type type, size_t *offset)
{
	const struct kv_config *c = &r->m.cfg;
	float *rows = memory(H * T * c->D, sizeof *rows);
	void *y = memory(H * T * c->D, kvk_types[type].bytes);
	size_t n = 0;

	for (size_t i = 0; i < H * T; i++) {
		size_t g = i / T / (H / c->Hkv);

		if (i % T == 0)
			offset[i / T] = n;
		if (keep == NULL || keep[i])
			memcpy(rows + n++ * c->D, x + (g * T + i % T) * c->D, c->D * sizeof *rows);
	}
	offset[H] = n;
	assert_int_equal(r->d.op->get_as(r->d.dev, y, type, rows, KVK_F32, n * c->D), 0);
	free(rows);
	return y;
}

struct kv_cache *
rig_cache_heads(
    struct rig *r, const struct rig_prompt *p, size_t H, const bool *keep, enum kvk_type type, size_t room)
{
	const struct kv_config *c = &r->m.cfg;
	size_t *offset = memory(H + 1, sizeof *offset);
	struct kv_cache *cache;
	struct kv_err e = { 0 };

	must(kv_cache_new(&cache, r->x, type, room, &e), &e);
	for (size_t l = 0; l < c->L; l++) {
		const bool *mine = keep != NULL ? keep + l * H * p->T : NULL;
		void *k = gather(r, p->k + l * c->Hkv * p->T * c->D, p->T, H, mine, type, offset);
		void *v = gather(r, p->v + l * c->Hkv * p->T * c->D, p->T, H, mine, type, offset);

		must(kv_cache_set(cache, l, H, type, k, v, offset, &e), &e);
		free(k);
		free(v);
	}
	kv_cache_seek(cache, p->T);
	free(offset);
	return cache;
}

struct kv_cache *
rig_cache(struct rig *r, const struct rig_prompt *p, const bool *keep, enum kvk_type type, size_t room)
{
	return rig_cache_heads(r, p, r->m.cfg.Hkv, keep, type, room);
}

double
rig_distance(const float *a, const double *b, size_t n)
{
	double most = 0, x;

	for (size_t i = 0; i < n; i++) {
		x = fabs((double)a[i] - b[i]);
		if (!(x <= most))
			most = isnan(x) ? INFINITY : x;
	}
	return most;
}

double
rig_distance_behind(const float *x, const double *want, size_t heads, size_t n, size_t all, size_t D)
{
	double far = 0;

	for (size_t h = 0; h < heads; h++)
		far = fmax(far, rig_distance(x + h * n * D, want + (h * all + all - n) * D, n * D));
	return far;
}
