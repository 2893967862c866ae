/* SPDX-License-Identifier: MIT
 * The layer-major prefill: all rows through one layer, its tensors to the caller, on to the next. */
#include "lib/model/prefill.h"

#include <stdlib.h>

#include "lib/buf.h"
#include "lib/model/transformer.h"

/* The rows behind go through each layer after the prompt's, as chunks of their own, so that these cannot depend on
 * them.  In the last layer nothing is computed that only a further layer would read. */
struct prefill {
	struct kv_engine *x;
	const struct kv_prefill_input *in;
	struct kv_rows prompt, behind;
	struct kvk_ragged cache; /* one layer's keys and values of all rows */
	size_t *start, *len;     /* [Hkv] of cache; owned, one block */
	size_t n_taken;               /* layers whose weights were taken so far */
	kv_layer_fn fn;
	void *ctx;
	bool shown; /* fn has seen a layer */
};

static size_t
rows_behind(const struct kv_prefill_input *in)
{
	return in->lookahead != NULL ? in->lookahead->m->shape.n : in->n_behind;
}

static int
check_input(const struct kv_config *c, const struct kv_prefill_input *in, struct kv_err *e)
{
	if (in->lookahead != NULL && in->n_behind > 0)
		return kv_fail(e, KV_EARG, "a response and lookahead tokens behind the same prompt");
	if (in->T == 0)
		return kv_fail(e, KV_ESHAPE, "an empty prompt: expected at least one token");
	if (c->context > 0 && in->T > c->context)
		return kv_fail(e, KV_ESHAPE, "a prompt of %zu tokens is longer than the model's context of %zu", in->T,
		    c->context);
	if (c->context > 0 && rows_behind(in) > c->context - in->T)
		return kv_fail(e, KV_ESHAPE,
		    "%zu tokens behind a prompt of %zu reach beyond the model's context of %zu", rows_behind(in), in->T,
		    c->context);
	return KV_OK;
}

static int
take_memory(struct prefill *p, const struct kv_prefill_input *in, size_t n_logits, struct kv_err *e)
{
	const struct kv_config *c = &p->x->m->cfg;
	const size_t n_behind = rows_behind(in);
	size_t n;

	if (__builtin_add_overflow(in->T, n_behind, &n))
		return kv_no_memory(e, SIZE_MAX);
	if ((p->start = kv_alloc(2 * c->Hkv, sizeof *p->start, e)) == NULL)
		return KV_EMEM;
	p->len = p->start + c->Hkv;
	for (size_t g = 0; g < c->Hkv; g++)
		p->start[g] = g * n;
	p->cache = (struct kvk_ragged){ .type = KVK_F32, .H = c->Hkv, .D = c->D, .start = p->start, .len = p->len };
	p->prompt = (struct kv_rows){ .n = in->T };
	p->behind = (struct kv_rows){ .n = n_behind, .pos = in->T, .adapters = in->lookahead };
	if ((p->prompt.x = kv_engine_work(p->x, KV_WORK_X, n, c->d, e)) == NULL ||
	    (p->prompt.q = kv_engine_work(p->x, KV_WORK_Q, in->T, c->Hq * c->D, e)) == NULL ||
	    (p->behind.q = kv_engine_work(p->x, KV_WORK_Q_BEHIND, n_behind, c->Hq * c->D, e)) == NULL ||
	    (p->cache.k = kv_engine_work(p->x, KV_WORK_K, n, c->Hkv * c->D, e)) == NULL ||
	    (p->cache.v = kv_engine_work(p->x, KV_WORK_V, n, c->Hkv * c->D, e)) == NULL ||
	    kv_logits_memory(p->x, n_logits, e) == NULL)
		return kv_where(e, "%zu tokens", n);
	p->behind.x = p->prompt.x + in->T * c->d;
	return KV_OK;
}

/* Does a value that is not finite reach, as one, the last row of every layer?  Then nobody need look at the embedded
 * rows before.  Integers cannot hold one. */
static bool
faults_spread(const struct prefill *p)
{
	return p->x->d->op->precision(p->x->d->dev) != KVK_PRECISION_I16;
}

static int
embed(struct prefill *p, const struct kv_rows *rows, const int32_t *tokens, struct kv_err *e)
{
	int rc = kv_rows_embed(p->x, rows, tokens, e);

	return rc == KV_OK && !faults_spread(p) ? kv_rows_finite(p->x, rows, 0, -1, e) : rc;
}

/* A response's tokens, or the learned embeddings. */
static int
embed_behind(struct prefill *p, const struct kv_prefill_input *in, struct kv_err *e)
{
	const struct kv_lookahead *m = in->lookahead != NULL ? in->lookahead->m : NULL;
	const struct kv_device *d = p->x->d;

	if (m == NULL)
		return embed(p, &p->behind, in->behind, e);
	return kv_device_check(
	    d, d->op->put(d->dev, p->behind.x, m->p, m->shape.n * m->d * sizeof *m->p), "lookahead embeddings", e);
}

/* Looks at the last row alone, which sees all others; names the first bad one. */
static int
check_last(struct kv_engine *x, const struct kv_rows *rows, size_t layer, struct kv_err *e)
{
	int rc = rows->n > 0 ? kv_rows_finite(x, rows, rows->n - 1, (long)layer, e) : KV_OK;

	return rc == KV_EFAIL ? kv_rows_finite(x, rows, 0, (long)layer, e) : rc;
}

/* The first layer's rows are not finite: was it the embedding?  They have moved on, so once more. */
static void
blame_embedding(struct prefill *p, struct kv_err *e)
{
	struct kv_err first = { 0 };
	int rc = kv_rows_embed(p->x, &p->prompt, p->in->tokens, &first);

	if (rc == KV_OK)
		rc = kv_rows_finite(p->x, &p->prompt, 0, -1, &first);
	if (rc == KV_OK && p->in->lookahead == NULL &&
	    (rc = kv_rows_embed(p->x, &p->behind, p->in->behind, &first)) == KV_OK)
		rc = kv_rows_finite(p->x, &p->behind, 0, -1, &first);
	if (rc == KV_EFAIL)
		*e = first;
}

static struct kv_layer_view
view_of(const struct prefill *p, size_t layer)
{
	const float *k = p->cache.k;

	return (struct kv_layer_view){
		.layer = layer,
		.n = p->prompt.n,
		.q = p->prompt.q,
		.k = k,
		.v = p->cache.v,
		.stride = p->prompt.n + p->behind.n,
		.n_behind = p->behind.n,
		.q_behind = p->behind.q,
		.k_behind = k + p->prompt.n * p->cache.D,
	};
}

static int
show(struct prefill *p, const struct kv_layer_view *view, struct kv_err *e)
{
	int rc;

	if (p->fn == NULL)
		return KV_OK;
	p->shown = p->x->shows = true;
	rc = p->fn(p->ctx, view, e);
	p->x->shows = false;
	return rc;
}

/* The weights of all layers up to this one that are not there yet. */
static int
take_weights(struct prefill *p, size_t layer, struct kv_err *e)
{
	int rc = KV_OK;

	while (p->n_taken <= layer && p->n_taken < p->x->m->cfg.L &&
	       (rc = kv_engine_take_layer(p->x, p->n_taken, e)) == KV_OK)
		p->n_taken++;
	return rc;
}

/* One layer: weights in, rows through, weights out, tensors to the caller.  A device that works while the host goes on
 * is given the next layer's weights to copy meanwhile; where there is no room for both it gets them at their turn. */
static int
run_layer(struct prefill *p, size_t layer, struct kv_err *e)
{
	struct kv_layer_view view = view_of(p, layer);
	struct kv_err later = { 0 };
	const struct kv_layer_weights *w = &p->x->many[layer];
	int rc = take_weights(p, layer, e);

	if (rc < 0)
		return rc;
	if (layer + 1 == p->x->m->cfg.L) {
		p->prompt.out = p->prompt.n - 1; /* for the logits */
		p->behind.out = p->behind.n;
	}
	for (size_t g = 0; g < p->cache.H; g++)
		p->len[g] = 0;
	rc = kv_rows_layer(p->x, w, layer, &p->prompt, &p->cache, p->len, e);
	if (rc == KV_OK)
		rc = kv_rows_layer(p->x, w, layer, &p->behind, &p->cache, p->len, e);
	if (rc == KV_OK && p->x->d->op->layers_ahead > 0)
		(void)take_weights(p, layer + 1, &later);
	kv_engine_give_layer(p->x, layer);
	if (rc == KV_OK && (rc = check_last(p->x, &p->prompt, layer, e)) == KV_OK)
		rc = check_last(p->x, &p->behind, layer, e);
	if (rc == KV_EFAIL && layer == 0)
		blame_embedding(p, e);
	return rc == KV_OK ? show(p, &view, e) : rc;
}

static int
last_logits(struct prefill *p, float *logits, struct kv_err *e)
{
	const struct kv_config *c = &p->x->m->cfg;
	size_t last = p->prompt.n - 1;
	int rc = kv_rows_logits(p->x, p->prompt.x + last * c->d, 1, logits, e);

	return rc == KV_OK ? kv_logits_finite(logits, 1, c->vocab, last, e) : rc;
}

static int
run(struct prefill *p, float *logits, struct kv_err *e)
{
	const struct kv_prefill_input *in = p->in;
	struct kv_engine *x = p->x;
	int rc;

	if ((rc = take_memory(p, in, logits != NULL ? 1 : 0, e)) < 0 ||
	    (rc = embed(p, &p->prompt, in->tokens, e)) < 0 || (rc = embed_behind(p, in, e)) < 0)
		goto done;
	for (size_t layer = 0; layer < x->m->cfg.L; layer++)
		if ((rc = run_layer(p, layer, e)) < 0)
			goto done;
	if (logits != NULL)
		rc = last_logits(p, logits, e);
done:
	while (p->n_taken > 0)
		kv_engine_give_layer(x, --p->n_taken);
	free(p->start);
	return rc;
}

int
kv_prefill(
    struct kv_engine *x, const struct kv_prefill_input *in, kv_layer_fn fn, void *ctx, float *logits, struct kv_err *e)
{
	const struct prefill start = { .x = x, .in = in, .fn = fn, .ctx = ctx };
	struct prefill p = start;
	int rc;

	if ((rc = check_input(&x->m->cfg, in, e)) < 0)
		return rc;
	rc = run(&p, logits, e);
	while (rc < 0 && !p.shown && (rc = kv_engine_fall_back(x, rc, e)) == KV_OK) {
		p = start;
		rc = run(&p, logits, e);
	}
	return rc;
}
