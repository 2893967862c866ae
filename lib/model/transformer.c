/* SPDX-License-Identifier: MIT
 * Rows through layers: the transformer block of llama, qwen2 and qwen3, and what comes before and behind it. */
#include "lib/model/transformer.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

/* Rows per product with the output table: [LOGIT_ROWS][vocab] is the widest thing there is. */
#define LOGIT_ROWS 16

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static const float *
vector_of(const struct kv_engine *x, size_t layer, enum kv_role role)
{
	return x->vector[layer * KV_N_ROLES + role];
}

int
kv_rows_embed(struct kv_engine *x, const struct kv_rows *rows, const int32_t *tokens, struct kv_err *e)
{
	size_t vocab = x->m->cfg.vocab;

	for (size_t i = 0; i < rows->n; i++)
		if (tokens[i] < 0 || (size_t)tokens[i] >= vocab)
			return kv_fail(e, KV_EARG, "position %zu: token %d is none of the model's %zu tokens",
			    rows->pos + i, (int)tokens[i], vocab);
	return kv_device_check(x->d, x->d->op->rows(x->d->dev, x->embed, tokens, rows->n, rows->x), "embedding", e);
}

/* A chunk of rows in one layer. */
struct chunk {
	const struct kv_layer_weights *w;
	const struct kv_adapter_weights *adapters; /* [KV_N_ROLES] this layer's; NULL: none */
	size_t layer;
	size_t n, pos;
	float *x;            /* [n][d] */
	float *norm, *heads; /* working memory, see enum kv_work */
	float *gate, *up;
	float *low;                     /* [n][rank] */
	bool out;                       /* is x behind the layer wanted? */
	float *q;                       /* [*][D], head h's rows from q_at[h] on */
	const size_t *q_at, *k_at;      /* [Hq], [copies][Hkv]: a cache of H heads holds H / Hkv copies */
	const struct kvk_ragged *cache; /* with the chunk's entries counted */
};

/* y = W in, with the layer's matrix of this role, and what its adapter adds: every product of a layer is made here.
 * bias [rows of W] or NULL; add: y += instead.  Returns the backend's status. */
static int
product(struct kv_engine *x, const struct chunk *c, enum kv_role role, const float *in, const float *bias, bool add,
    float *y)
{
	const struct kv_adapter_weights *w = c->adapters != NULL ? &c->adapters[role] : NULL;
	const struct kvk_backend *op = x->d->op;
	struct kvk_dev *dev = x->d->dev;
	int status = op->linear(dev, c->w->w[role], in, c->n, bias, add, y);

	if (status != 0 || w == NULL || w->a == NULL)
		return status;
	return op->linear(dev, w->a, in, c->n, NULL, 0, c->low) || op->linear(dev, w->b, c->low, c->n, NULL, 1, y);
}

/* Where the heads of a product go: row i of head h to row at[h] + i of y [*][D], in each of the copies. */
struct heads_to {
	void *y;
	enum kvk_type type;
	size_t copies;
	const size_t *at; /* [copies][H] */
};

/* One of q, k, v: product, bias, norm per head, rotation, split into heads.  Returns the backend's status. */
static int
project(struct kv_engine *x, const struct chunk *c, enum kv_role w, enum kv_role bias, const float *norm,
    const struct kvk_rope *rope, struct heads_to to)
{
	const struct kvk_backend *op = x->d->op;
	const struct kv_config *cfg = &x->m->cfg;
	size_t H = w == KV_Q ? cfg->Hq : cfg->Hkv;
	int status = product(x, c, w, c->norm, vector_of(x, c->layer, bias), false, c->heads);

	for (size_t i = 0; i < to.copies && status == 0; i++)
		status = op->heads(x->d->dev, c->heads, c->n, H, cfg->D, norm, cfg->rms_eps, rope, c->pos, to.y,
		    to.type, to.at + i * H);
	return status;
}

/* Queries, keys and values of norm(x) to their places, then x += O attention */
static int
attend(struct kv_engine *x, const struct chunk *c)
{
	const struct kvk_backend *op = x->d->op;
	struct kvk_dev *dev = x->d->dev;
	const struct kv_config *cfg = &x->m->cfg;
	const struct kvk_ragged *kv = c->cache;
	const float *q_norm = vector_of(x, c->layer, KV_Q_NORM), *k_norm = vector_of(x, c->layer, KV_K_NORM);
	const struct heads_to q = { c->q, KVK_F32, 1, c->q_at };
	const struct heads_to k = { kv->k, kv->type, kv->H / cfg->Hkv, c->k_at };
	const struct heads_to v = { kv->v, kv->type, kv->H / cfg->Hkv, c->k_at };

	int status =
	    op->rms_norm(dev, c->x, vector_of(x, c->layer, KV_ATTN_NORM), cfg->rms_eps, c->n, cfg->d, c->norm) ||
	    project(x, c, KV_Q, KV_Q_BIAS, q_norm, &x->rope, q) ||
	    project(x, c, KV_K, KV_K_BIAS, k_norm, &x->rope, k) || project(x, c, KV_V, KV_V_BIAS, NULL, NULL, v);

	if (status != 0 || !c->out)
		return status;
	return op->attention(dev, c->q, c->q_at, c->n, cfg->Hq, kv, cfg->scale, c->heads) ||
	       product(x, c, KV_O, c->heads, NULL, true, c->x);
}

/* x += DOWN (silu(GATE norm(x)) * UP norm(x)) */
static int
feed_forward(struct kv_engine *x, const struct chunk *c)
{
	const struct kvk_backend *op = x->d->op;
	struct kvk_dev *dev = x->d->dev;
	const struct kv_config *cfg = &x->m->cfg;

	return op->rms_norm(dev, c->x, vector_of(x, c->layer, KV_FFN_NORM), cfg->rms_eps, c->n, cfg->d, c->norm) ||
	       product(x, c, KV_GATE, c->norm, NULL, false, c->gate) ||
	       product(x, c, KV_UP, c->norm, NULL, false, c->up) ||
	       op->silu_mul(dev, c->gate, c->up, c->n * cfg->ff, c->gate) ||
	       product(x, c, KV_DOWN, c->gate, NULL, true, c->x);
}

/* The wide working memory for chunks of at most n rows. */
static int
chunk_memory(struct kv_engine *x, struct chunk *c, size_t n, const struct kv_adapters *a, struct kv_err *e)
{
	const struct kv_config *cfg = &x->m->cfg;

	if (a != NULL && a->weights != NULL) {
		c->adapters = a->weights + c->layer * KV_N_ROLES;
		if ((c->low = kv_engine_work(x, KV_WORK_LOW, n, a->m->shape.rank, e)) == NULL)
			return KV_EMEM;
	}

	if ((c->norm = kv_engine_work(x, KV_WORK_NORM, n, cfg->d, e)) == NULL ||
	    (c->heads = kv_engine_work(x, KV_WORK_HEADS, n, cfg->Hq * cfg->D, e)) == NULL ||
	    (c->gate = kv_engine_work(x, KV_WORK_GATE, n, cfg->ff, e)) == NULL ||
	    (c->up = kv_engine_work(x, KV_WORK_UP, n, cfg->ff, e)) == NULL)
		return KV_EMEM;
	return KV_OK;
}

int
kv_rows_memory(struct kv_engine *x, size_t n, struct kv_err *e)
{
	struct chunk c = { .n = 0 };

	return chunk_memory(x, &c, least(n, x->d->op->chunk_rows), NULL, e);
}

/* Rows at .. at + n - 1 of all: where their queries, keys and values go; the cache counts their entries. */
static void
place_chunk(struct kv_engine *x, struct chunk *c, const struct kv_rows *rows, size_t at, size_t n, size_t *len)
{
	const struct kv_config *cfg = &x->m->cfg;
	size_t copies = c->cache->H / cfg->Hkv;

	c->n = n;
	c->out = at + n > rows->out;
	c->pos = rows->pos + at;
	c->x = rows->x + at * cfg->d;
	for (size_t h = 0; h < cfg->Hq; h++)
		x->q_at[h] = h * rows->n + at;
	for (size_t h = 0; h < c->cache->H; h++) {
		x->k_at[h % copies * cfg->Hkv + h / copies] = c->cache->start[h] + len[h];
		len[h] += n;
	}
}

/* How many rows from row `at` on make the next chunk.  Chunks begin at multiples of KVK_ROW_TILE, and one does where
 * the rows begin whose output is wanted. */
static size_t
chunk_rows(const struct kv_engine *x, const struct kv_rows *rows, size_t at)
{
	const size_t first = rows->out - rows->out % KVK_ROW_TILE, n = least(rows->n - at, x->d->op->chunk_rows);

	return at < first ? least(n, first - at) : n;
}

int
kv_rows_layer(struct kv_engine *x, const struct kv_layer_weights *w, size_t layer, const struct kv_rows *rows,
    const struct kvk_ragged *cache, size_t *len, struct kv_err *e)
{
	struct chunk c = { .w = w, .layer = layer, .q = rows->q, .q_at = x->q_at, .k_at = x->k_at, .cache = cache };
	int rc = chunk_memory(x, &c, least(rows->n, x->d->op->chunk_rows), rows->adapters, e);

	for (size_t at = 0; at < rows->n && rc == KV_OK; at += c.n) {
		place_chunk(x, &c, rows, at, chunk_rows(x, rows, at), len);
		if ((rc = kv_device_check(x->d, attend(x, &c), "attention", e)) == KV_OK && c.out)
			rc = kv_device_check(x->d, feed_forward(x, &c), "feed-forward", e);
	}
	return rc < 0 ? kv_where(e, "layer %zu", layer) : rc;
}

float *
kv_logits_memory(struct kv_engine *x, size_t n, struct kv_err *e)
{
	return kv_engine_work(x, KV_WORK_LOGITS, least(n, LOGIT_ROWS), x->m->cfg.vocab, e);
}

int
kv_rows_logits(struct kv_engine *x, const float *rows, size_t n, float *logits, struct kv_err *e)
{
	const struct kvk_backend *op = x->d->op;
	struct kvk_dev *dev = x->d->dev;
	const struct kv_config *cfg = &x->m->cfg;
	size_t most = least(n, LOGIT_ROWS), m;
	float *norm, *y;
	int rc = KV_OK;

	if (n == 0)
		return KV_OK;
	if ((norm = kv_engine_work(x, KV_WORK_NORM, most, cfg->d, e)) == NULL ||
	    (y = kv_logits_memory(x, n, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n && rc == KV_OK; i += m) {
		m = least(n - i, most);
		rc = kv_device_check(x->d,
		    op->rms_norm(dev, rows + i * cfg->d, vector_of(x, 0, KV_OUT_NORM), cfg->rms_eps, m, cfg->d, norm) ||
			op->linear(dev, x->out, norm, m, NULL, 0, y) ||
			op->get(dev, logits + i * cfg->vocab, y, m * cfg->vocab * sizeof *y),
		    "logits", e);
	}
	return rc;
}

/* The first of n values that is not finite; n if all are. */
static size_t
first_bad(const float *v, size_t n)
{
	size_t i = 0;

	while (i < n && isfinite(v[i]))
		i++;
	return i;
}

static int
not_finite(long layer, size_t position, struct kv_err *e)
{
	if (layer < 0)
		return kv_fail(
		    e, KV_EFAIL, "embedding, position %zu: non-finite value; is the model file damaged?", position);
	return kv_fail(e, KV_EFAIL,
	    "layer %ld, position %zu: non-finite activation; is the model or the cache damaged?", layer, position);
}

int
kv_rows_finite(struct kv_engine *x, const struct kv_rows *rows, size_t from, long layer, struct kv_err *e)
{
	const size_t d = x->m->cfg.d, n = (rows->n - from) * d;
	size_t bad;
	int rc;

	rc = kv_device_check(
	    x->d, x->d->op->finite(x->d->dev, rows->x + from * d, KVK_F32, n, &bad), "activations", e);
	return rc == KV_OK && bad < n ? not_finite(layer, rows->pos + from + bad / d, e) : rc;
}

int
kv_logits_finite(const float *logits, size_t n, size_t vocab, size_t pos, struct kv_err *e)
{
	for (size_t i = 0; i < n; i++) {
		const float *row = logits + i * vocab;
		size_t bad = first_bad(row, vocab);

		if (bad < vocab)
			return kv_fail(e, KV_EFAIL, "output layer, position %zu: the logit of token %zu is %g", pos + i,
			    bad, (double)row[bad]);
	}
	return KV_OK;
}
