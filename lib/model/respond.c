/* SPDX-License-Identifier: MIT */
#include "lib/model/respond.h"

#include <stdlib.h>

#include "lib/buf.h"
#include "lib/model/engine_inside.h"
#include "lib/model/prefill.h"
#include "lib/tensor.h"

/* Where a prefill's layers go: into a cache. */
struct filling {
	struct kv_engine *x;
	const struct kv_respond *o;
	struct kv_cache *cache;
	size_t *offset; /* [Hkv + 1] */
};

static int
fill_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	const struct filling *f = ctx;

	/* no rows stand behind the prompt: a head's rows follow those of the head before it */
	return kv_cache_set(f->cache, view->layer, f->x->m->cfg.Hkv, KVK_F32, view->k, view->v, f->offset, e);
}

/* The prompt's cache and the logits of its last token. */
static int
fill(struct filling *f, float *logits, struct kv_err *e)
{
	const struct kv_prefill_input in = { .tokens = f->o->tokens, .T = f->o->T };
	const struct kv_config *c = &f->x->m->cfg;
	int rc;

	if ((f->offset = kv_alloc(c->Hkv + 1, sizeof *f->offset, e)) == NULL)
		return KV_EMEM;
	for (size_t g = 0; g <= c->Hkv; g++)
		f->offset[g] = g * in.T;
	rc = kv_prefill(f->x, &in, fill_layer, f, logits, e);
	kv_cache_seek(f->cache, in.T);
	free(f->offset);
	return rc;
}

static int
take_token(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e)
{
	(void)logits;
	return end ? KV_OK : kv_ids_add(ctx, id, e);
}

static int
respond(struct kv_engine *x, const struct kv_respond *o, struct kv_ids *ids, enum kv_stop *why, struct kv_err *e)
{
	const struct kv_config *cfg = &x->m->cfg;
	struct filling f = { .x = x, .o = o };
	struct kv_generation g = { .sampler = { .top_p = 1 },
		.cfg = cfg,
		.max_tokens = o->most,
		.stops = o->stops,
		.n_stops = o->n_stops,
		.token = take_token,
		.ctx = ids };
	size_t first = ids->n, room = o->most;
	float *logits = kv_alloc(cfg->vocab, sizeof *logits, e);
	int rc = KV_EMEM;

	if (cfg->context > 0 && o->T <= cfg->context && room > cfg->context - o->T)
		room = cfg->context - o->T;
	if (logits == NULL || (rc = kv_cache_new(&f.cache, x, o->type, room + 1, e)) < 0 ||
	    (rc = fill(&f, logits, e)) < 0)
		goto done;
	rc = kv_generate(f.cache, &g, logits, why, e);
	if (rc == KV_OK && ids->n > first + room) {
		ids->n = first + room;
		*why = KV_STOP_CONTEXT;
	}
done:
	kv_cache_free(f.cache);
	free(logits);
	return rc;
}

int
kv_respond(struct kv_engine *x, const struct kv_respond *o, struct kv_ids *ids, enum kv_stop *why, struct kv_err *e)
{
	const size_t first = ids->n;
	int rc = respond(x, o, ids, why, e);

	while (rc < 0 && (rc = kv_engine_fall_back(x, rc, e)) == KV_OK) {
		ids->n = first;
		rc = respond(x, o, ids, why, e);
	}
	return rc;
}
