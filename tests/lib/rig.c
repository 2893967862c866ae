/* SPDX-License-Identifier: MIT */
#include "tests/lib/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static int
take_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct taking *t = ctx;
	const struct kv_config *c = &t->r->m.cfg;
	const struct kv_device *d = &t->r->d;
	size_t q = c->Hq * view->T * c->D, k = c->Hkv * view->T * c->D;
	int status = d->op->get(d->dev, t->p->q + view->layer * q, view->q, q * sizeof(float)) ||
	    d->op->get(d->dev, t->p->k + view->layer * k, view->k, k * sizeof(float)) ||
	    d->op->get(d->dev, t->p->v + view->layer * k, view->v, k * sizeof(float));

	return kv_device_check(d, status, "get", e);
}

void
rig_prefill(struct rig *r, struct rig_prompt *p, size_t T, uint64_t seed)
{
	const struct kv_config *c = &r->m.cfg;
	struct taking t = { r, p };
	struct kv_err e = { 0 };

	*p = (struct rig_prompt){ .T = T };
	p->tokens = memory(T, sizeof *p->tokens);
	p->logits = memory(c->vocab, sizeof *p->logits);
	p->q = memory(c->L * c->Hq * T * c->D, sizeof *p->q);
	p->k = memory(c->L * c->Hkv * T * c->D, sizeof *p->k);
	p->v = memory(c->L * c->Hkv * T * c->D, sizeof *p->v);
	rig_tokens(r, p->tokens, T, seed);
	must(kv_prefill(r->x, p->tokens, T, take_layer, &t, p->logits, &e), &e);
}

void
rig_prompt_fini(struct rig_prompt *p)
{
	free(p->tokens);
	free(p->logits);
	free(p->q);
	free(p->k);
	free(p->v);
	*p = (struct rig_prompt){ 0 };
}

/* One layer's kept rows of x [Hkv][T][D], head after head, converted; offset [Hkv + 1] out. */
static void *
gather(struct rig *r, const float *x, size_t T, const bool *keep, enum kvk_type type, size_t *offset)
{
	const struct kv_config *c = &r->m.cfg;
	float *rows = memory(c->Hkv * T * c->D, sizeof *rows);
	void *y = memory(c->Hkv * T * c->D, kvk_types[type].bytes);
	size_t n = 0;

	for (size_t i = 0; i < c->Hkv * T; i++) {
		if (i % T == 0)
			offset[i / T] = n;
		if (keep == NULL || keep[i])
			memcpy(rows + n++ * c->D, x + i * c->D, c->D * sizeof *rows);
	}
	offset[c->Hkv] = n;
	assert_int_equal(r->d.op->get_as(r->d.dev, y, type, rows, KVK_F32, n * c->D), 0);
	free(rows);
	return y;
}

struct kv_cache *
rig_cache(struct rig *r, const struct rig_prompt *p, const bool *keep, enum kvk_type type, size_t room)
{
	const struct kv_config *c = &r->m.cfg;
	size_t *offset = memory(c->Hkv + 1, sizeof *offset);
	struct kv_cache *cache;
	struct kv_err e = { 0 };

	must(kv_cache_new(&cache, r->x, type, room, &e), &e);
	for (size_t l = 0; l < c->L; l++) {
		const bool *mine = keep != NULL ? keep + l * c->Hkv * p->T : NULL;
		void *k = gather(r, p->k + l * c->Hkv * p->T * c->D, p->T, mine, type, offset);
		void *v = gather(r, p->v + l * c->Hkv * p->T * c->D, p->T, mine, type, offset);

		must(kv_cache_set(cache, l, k, v, offset, &e), &e);
		free(k);
		free(v);
	}
	kv_cache_seek(cache, p->T);
	free(offset);
	return cache;
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
