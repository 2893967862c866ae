/* SPDX-License-Identifier: MIT */
#include "lib/train/teacher.h"

#include <stdlib.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/model/engine_inside.h"
#include "lib/model/generate.h"
#include "lib/model/prefill.h"

void
kv_lesson_fini(struct kv_lesson *x)
{
	kv_ids_fini(&x->response);
	free(x->k);
	free(x->v);
	free(x->truth);
	*x = (struct kv_lesson){ 0 };
}

/* Where a prefill's layers go: to the lesson, and into a cache if there is something to generate. */
struct filling {
	const struct kv_config *c;
	const struct kv_device *d;
	struct kv_lesson *lesson;
	struct kv_cache *cache; /* NULL: none */
	size_t *offset;         /* [Hkv + 1] */
};

static int
fill_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	const struct filling *f = ctx;
	const struct kv_config *c = f->c;
	const size_t at = view->layer * c->Hkv * view->n * c->D;
	uint16_t *k = f->lesson->k + at, *v = f->lesson->v + at;
	int rc;

	if ((rc = kv_device_get_rows(f->d, k, KVK_F16, view->k, c->Hkv, view->stride, view->n, c->D, e)) < 0 ||
	    (rc = kv_device_get_rows(f->d, v, KVK_F16, view->v, c->Hkv, view->stride, view->n, c->D, e)) < 0)
		return rc;
	if (f->cache == NULL)
		return KV_OK;
	return kv_cache_set(f->cache, view->layer, c->Hkv, KVK_F32, view->k, view->v, f->offset, e);
}

static int
take_token(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e)
{
	(void)logits;
	return end ? KV_OK : kv_ids_add(ctx, id, e);
}

static int
take_memory(const struct kv_config *c, const struct kv_teach *o, struct filling *f, struct kv_err *e)
{
	struct kv_lesson *x = f->lesson;
	size_t n, heads;

	if (!kv_mul(c->L * c->Hkv * c->D, o->T, &n) || !kv_mul(c->L * c->Hq, o->T, &heads))
		return kv_no_memory(e, SIZE_MAX);
	x->T = o->T;
	if ((x->k = kv_alloc_unset(n, sizeof *x->k, e)) == NULL ||
	    (x->v = kv_alloc_unset(n, sizeof *x->v, e)) == NULL ||
	    (o->truth && (x->truth = kv_alloc_unset(heads, sizeof *x->truth, e)) == NULL) ||
	    (f->offset = kv_alloc(c->Hkv + 1, sizeof *f->offset, e)) == NULL)
		return KV_EMEM;
	for (size_t g = 0; g <= c->Hkv; g++)
		f->offset[g] = g * o->T;
	return KV_OK;
}

/* How many response tokens have a place behind the prompt. */
static size_t
room_for(const struct kv_config *c, size_t T, size_t wanted)
{
	const size_t room = c->context > T ? c->context - T : 0;

	return c->context > 0 && wanted > room ? room : wanted;
}

static int
generate(const struct kv_config *c, const struct kv_teach *o, struct filling *f, size_t most, float *logits,
    struct kv_err *e)
{
	const struct kv_generation g = { .sampler = { .top_p = 1 },
		.cfg = c,
		.max_tokens = most,
		.stops = o->stops,
		.n_stops = o->n_stops,
		.token = take_token,
		.ctx = &f->lesson->response };
	enum kv_stop why;

	kv_cache_seek(f->cache, o->T);
	return kv_generate(f->cache, &g, logits, &why, e);
}

static int
measure(struct kv_student *s, const struct kv_config *c, struct kv_lesson *x, struct kv_err *e)
{
	const void **of = kv_alloc(2 * c->L, sizeof *of, e);
	const struct kv_seen seen = { .T = x->T, .type = KVK_F16, .k = of, .v = of + c->L };
	int rc = KV_EMEM;

	for (size_t l = 0; of != NULL && l < c->L; l++) {
		of[l] = x->k + l * c->Hkv * x->T * c->D;
		of[c->L + l] = x->v + l * c->Hkv * x->T * c->D;
	}
	if (of != NULL)
		rc = kv_student_truth(s, &seen, x->response.v, x->response.n, x->truth, e);
	free(of);
	return rc;
}

int
kv_teach(
    struct kv_engine *x, struct kv_student *s, const struct kv_teach *o, struct kv_lesson *lesson, struct kv_err *e)
{
	const struct kv_config *c = &x->m->cfg;
	const struct kv_prefill_input in = { .tokens = o->tokens, .T = o->T };
	struct filling f = { .c = c, .d = x->d, .lesson = lesson };
	const size_t most = o->truth ? room_for(c, o->T, o->generate) : 0;
	float *logits = NULL;
	int rc;

	if ((rc = take_memory(c, o, &f, e)) < 0)
		goto done;
	if (most > 0 && ((logits = kv_alloc(c->vocab, sizeof *logits, e)) == NULL ||
			    kv_cache_new(&f.cache, x, KVK_F16, most + 1, e) < 0)) {
		rc = e != NULL && e->code < 0 ? e->code : KV_EMEM;
		goto done;
	}
	rc = kv_prefill(x, &in, fill_layer, &f, logits, e);
	if (rc == KV_OK && most > 0)
		rc = generate(c, o, &f, most, logits, e);
	lesson->response.n = room_for(c, o->T, lesson->response.n);
	if (rc == KV_OK && o->truth)
		rc = measure(s, c, lesson, e);
done:
	kv_cache_free(f.cache);
	free(logits);
	free(f.offset);
	return rc;
}
