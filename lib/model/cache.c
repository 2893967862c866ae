/* SPDX-License-Identifier: MIT
 * A cache for decoding, every head with entries of its own, and the tokens that are appended to it. */
#include "lib/model/cache.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/model/transformer.h"
#include "lib/tensor.h"

/* One layer: head h's entries are rows start[h] .. start[h] + len[h] - 1 of k and v [rows][D]; `room` more fit behind
 * them. */
struct layer {
	void *k, *v; /* device; NULL until the layer is loaded or extended */
	size_t rows;
	size_t H;            /* 0 as long as k is NULL */
	size_t *start, *len; /* [H], room for Hq */
	size_t *before; /* [H] of len, before what is being appended */
	size_t room;
	void *waiting; /* k and v on the host, while the device changes */
};

struct kv_cache {
	struct kv_engine *x; /* borrowed */
	struct kv_cache *follower; /* of x */
	enum kvk_type type;
	size_t room;          /* tokens, as asked for */
	size_t next;          /* position of the next token */
	struct layer *layers; /* [L] */
	size_t *heads;        /* [L][3][Hq]: owner of every start, len and before */
	bool tapped;          /* somebody has seen rows of what is being appended */
};

static const struct kv_config *
config(const struct kv_cache *c)
{
	return &c->x->m->cfg;
}

bool
kv_cache_fits(const struct kv_config *c, size_t H)
{
	return H > 0 && H % c->Hkv == 0 && c->Hq % H == 0;
}

int
kv_cache_new(struct kv_cache **out, struct kv_engine *x, enum kvk_type type, size_t room, struct kv_err *e)
{
	const struct kv_config *cfg = &x->m->cfg;
	struct kv_cache *c;

	*out = NULL;
	if (type != KVK_F32 && type != KVK_F16 && type != KVK_BF16)
		return kv_fail(e, KV_EARG, "a cache holds f32, f16 or bf16, not %s",
		    type < KVK_N_TYPES ? kvk_types[type].name : "an unknown type");
	if ((c = kv_alloc(1, sizeof *c, e)) == NULL)
		return KV_EMEM;
	*c = (struct kv_cache){ .x = x, .follower = x->caches, .type = type, .room = room };
	x->caches = c;
	c->layers = kv_alloc(cfg->L, sizeof *c->layers, e);
	c->heads = kv_alloc(3 * cfg->L * cfg->Hq, sizeof *c->heads, e);
	if (c->layers == NULL || c->heads == NULL) {
		kv_cache_free(c);
		return KV_EMEM;
	}
	for (size_t l = 0; l < cfg->L; l++) {
		c->layers[l].start = c->heads + 3 * l * cfg->Hq;
		c->layers[l].len = c->layers[l].start + cfg->Hq;
		c->layers[l].before = c->layers[l].len + cfg->Hq;
	}
	*out = c;
	return KV_OK;
}

static void
free_entries(const struct kv_cache *c, struct layer *y)
{
	kv_device_free(c->x->d, y->v);
	kv_device_free(c->x->d, y->k);
	y->k = y->v = NULL;
	y->rows = y->H = 0;
}

void
kv_cache_free(struct kv_cache *c)
{
	struct kv_cache **at;

	if (c == NULL)
		return;
	for (at = &c->x->caches; *at != c; at = &(*at)->follower)
		;
	*at = c->follower;
	for (size_t l = 0; c->layers != NULL && l < config(c)->L; l++) {
		free_entries(c, &c->layers[l]);
		free(c->layers[l].waiting);
	}
	free(c->heads);
	free(c->layers);
	free(c);
}

/* Memory for n entries of H heads in all and the room behind every head; what was there is lost. */
static int
reserve(struct kv_cache *c, struct layer *y, size_t H, size_t n, struct kv_err *e)
{
	size_t rows, elements;

	if (!kv_mul(H, c->room, &rows) || __builtin_add_overflow(rows, n, &rows) ||
	    !kv_mul(rows, config(c)->D, &elements))
		return kv_no_memory(e, SIZE_MAX);
	y->room = c->room;
	if (rows <= y->rows && y->k != NULL) {
		y->H = H;
		return KV_OK;
	}
	free_entries(c, y);
	y->k = kv_device_alloc(c->x->d, elements, kvk_types[c->type].bytes, e);
	y->v = kv_device_alloc(c->x->d, elements, kvk_types[c->type].bytes, e);
	if (y->k == NULL || y->v == NULL) {
		free_entries(c, y);
		return KV_EMEM;
	}
	y->rows = rows;
	y->H = H;
	return KV_OK;
}

/* ---- from one device to another */

struct kv_cache *
kv_cache_next(const struct kv_cache *c)
{
	return c->follower;
}

/* Of k, as of v. */
static size_t
bytes_of(const struct kv_cache *c, const struct layer *y)
{
	return y->rows * config(c)->D * kvk_types[c->type].bytes;
}

int
kv_cache_leave(struct kv_cache *c, struct kv_err *e)
{
	const struct kv_device *d = c->x->d;
	int rc = KV_OK;

	for (size_t l = 0; l < config(c)->L; l++) {
		struct layer *y = &c->layers[l];
		const size_t bytes = bytes_of(c, y);

		if (y->k == NULL)
			continue;
		free(y->waiting);
		if ((y->waiting = kv_alloc_unset(2 * bytes + 1, 1, e)) == NULL)
			return KV_EMEM;
		if ((rc = kv_device_get(d, y->waiting, y->k, bytes, "cache entries", e)) < 0 ||
		    (rc = kv_device_get(d, (char *)y->waiting + bytes, y->v, bytes, "cache entries", e)) < 0)
			return rc;
	}
	for (size_t l = 0; l < config(c)->L; l++) {
		struct layer *y = &c->layers[l];

		kv_device_free(d, y->v);
		kv_device_free(d, y->k);
		y->k = y->v = NULL;
	}
	return KV_OK;
}

int
kv_cache_enter(struct kv_cache *c, struct kv_err *e)
{
	const struct kv_device *d = c->x->d;
	int status;

	for (size_t l = 0; l < config(c)->L; l++) {
		struct layer *y = &c->layers[l];
		const size_t bytes = bytes_of(c, y);

		if (y->waiting == NULL)
			continue;
		if ((y->k = kv_device_alloc(d, bytes, 1, e)) == NULL ||
		    (y->v = kv_device_alloc(d, bytes, 1, e)) == NULL)
			return KV_EMEM;
		status = d->op->put(d->dev, y->k, y->waiting, bytes) ||
		    d->op->put(d->dev, y->v, (char *)y->waiting + bytes, bytes);
		if (status != 0)
			return kv_device_check(d, status, "cache entries", e);
		free(y->waiting);
		y->waiting = NULL;
	}
	return KV_OK;
}

/* ---- entries */

/* What is loaded into a layer. */
struct entries {
	enum kvk_type type;
	const void *k, *v; /* device */
	const size_t *offset;
};

/* Keys or values, from x to y, of n heads from head h on, which have as many entries each.  Returns the backend's
 * status. */
static int
put_heads(const struct kv_cache *c, const struct layer *l, size_t h, size_t n, const struct entries *from,
    const void *x, void *y)
{
	const struct kv_device *d = c->x->d;
	const size_t D = config(c)->D, len = l->len[h];
	struct kvk_copy job = { .x_type = from->type,
		.x_stride = len,
		.y_type = c->type,
		.y_stride = len + l->room,
		.H = n,
		.n = len,
		.D = D };

	if (len == 0)
		return 0;
	job.x = (const char *)x + from->offset[h] * D * kvk_types[from->type].bytes;
	job.y = (char *)y + l->start[h] * D * kvk_types[c->type].bytes;
	return d->op->copy_rows(d->dev, &job);
}

/* All of them, neighbours of the same length together. */
static int
put_entries(struct kv_cache *c, struct layer *y, const struct entries *from, struct kv_err *e)
{
	int status = 0;

	for (size_t h = 0; h < y->H; h++) {
		y->start[h] = from->offset[h] - from->offset[0] + h * y->room;
		y->len[h] = from->offset[h + 1] - from->offset[h];
	}
	for (size_t h = 0, n; h < y->H && status == 0; h += n) {
		for (n = 1; h + n < y->H && y->len[h + n] == y->len[h];)
			n++;
		status = put_heads(c, y, h, n, from, from->k, y->k) || put_heads(c, y, h, n, from, from->v, y->v);
	}
	return kv_device_check(c->x->d, status, "cache entries", e);
}

int
kv_cache_set(struct kv_cache *c, size_t layer, size_t H, enum kvk_type type, const void *k, const void *v,
    const size_t *offset, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);
	const struct entries from = { type, k, v, offset };
	struct layer *y;
	int rc;

	if (layer >= cfg->L)
		return kv_fail(e, KV_EARG, "layer %zu: the model has %zu layers", layer, cfg->L);
	if (!kv_cache_fits(cfg, H))
		return kv_fail(e, KV_ESHAPE,
		    "layer %zu: %zu heads of entries do not fit %zu KV heads and %zu query heads", layer, H, cfg->Hkv,
		    cfg->Hq);
	for (size_t h = 0; h < H; h++)
		if (offset[h] > offset[h + 1])
			return kv_fail(e, KV_ESHAPE, "layer %zu: the offset of head %zu descends from %zu to %zu",
			    layer, h, offset[h], offset[h + 1]);
	y = &c->layers[layer];
	if ((rc = reserve(c, y, H, offset[H] - offset[0], e)) < 0 || (rc = put_entries(c, y, &from, e)) < 0)
		return kv_where(e, "layer %zu", layer);
	return KV_OK;
}

void
kv_cache_seek(struct kv_cache *c, size_t next_position)
{
	c->next = next_position;
}

size_t
kv_cache_position(const struct kv_cache *c)
{
	return c->next;
}

size_t
kv_cache_bytes(const struct kv_cache *c)
{
	const struct kv_config *cfg = config(c);
	size_t entries = 0;

	for (size_t l = 0; l < cfg->L; l++)
		for (size_t h = 0; h < c->layers[l].H; h++)
			entries += c->layers[l].len[h];
	return 2 * entries * cfg->D * kvk_types[c->type].bytes;
}

static int
check_extend(const struct kv_cache *c, size_t n, size_t n_logits, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);

	if (n == 0 || n_logits > n)
		return kv_fail(e, KV_ESHAPE, "%zu tokens to append, logits of %zu wanted", n, n_logits);
	if (cfg->context > 0 && (n > cfg->context || c->next > cfg->context - n))
		return kv_fail(e, KV_ESHAPE, "%zu tokens from position %zu on do not fit the model's context of %zu", n,
		    c->next, cfg->context);
	for (size_t l = 0; l < cfg->L; l++)
		if (c->layers[l].k != NULL ? n > c->layers[l].room : n > c->room)
			return kv_fail(e, KV_ESHAPE,
			    "layer %zu: %zu tokens to append, and the cache was made for %zu more", l, n,
			    c->layers[l].k != NULL ? c->layers[l].room : c->room);
	return KV_OK;
}

/* Weights, working memory for n rows, and empty layers where nothing was loaded. */
static int
prepare(struct kv_cache *c, struct kv_rows *rows, size_t n, size_t n_logits, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);
	int rc = kv_engine_make_resident(c->x, e);

	if (rc < 0)
		return rc;
	*rows = (struct kv_rows){ .n = n, .pos = c->next };
	if ((rows->x = kv_engine_work(c->x, KV_WORK_X, n, cfg->d, e)) == NULL ||
	    (rows->q = kv_engine_work(c->x, KV_WORK_Q, n, cfg->Hq * cfg->D, e)) == NULL ||
	    kv_rows_memory(c->x, n, e) < 0 || kv_logits_memory(c->x, n_logits, e) == NULL)
		return KV_EMEM;
	for (size_t l = 0; l < cfg->L; l++) {
		struct layer *y = &c->layers[l];

		if (y->k != NULL)
			continue;
		if ((rc = reserve(c, y, cfg->Hkv, 0, e)) < 0)
			return rc;
		for (size_t h = 0; h < y->H; h++) {
			y->start[h] = h * c->room;
			y->len[h] = 0;
		}
	}
	return KV_OK;
}

/* Rows through all layers; `check`: look at every row after every layer. */
static int
run_layers(struct kv_cache *c, const struct kv_rows *rows, const int32_t *tokens, const struct kv_extend_tap *tap,
    bool check, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);
	int rc = kv_rows_embed(c->x, rows, tokens, e);

	if (rc == KV_OK && check)
		rc = kv_rows_finite(c->x, rows, 0, -1, e);
	for (size_t l = 0; l < cfg->L && rc == KV_OK; l++) {
		struct layer *y = &c->layers[l];
		struct kvk_ragged kv = {
			.k = y->k, .v = y->v, .type = c->type, .H = y->H, .D = cfg->D, .start = y->start, .len = y->len
		};
		struct kv_layer_view view = { .layer = l, .n = rows->n, .stride = rows->n, .q = rows->q };

		rc = kv_rows_layer(c->x, &c->x->resident[l], l, rows, &kv, y->len, e);
		if (rc == KV_OK && check)
			rc = kv_rows_finite(c->x, rows, 0, (long)l, e);
		if (rc == KV_OK && tap != NULL) {
			c->tapped = true;
			rc = tap->fn(tap->ctx, &view, e);
		}
	}
	return rc;
}

/* How many entries there are, kept or put back. */
static void
remember(struct kv_cache *c)
{
	for (size_t l = 0; l < config(c)->L; l++)
		memcpy(c->layers[l].before, c->layers[l].len, c->layers[l].H * sizeof(size_t));
}

static void
take_back(struct kv_cache *c)
{
	for (size_t l = 0; l < config(c)->L; l++)
		memcpy(c->layers[l].len, c->layers[l].before, c->layers[l].H * sizeof(size_t));
}

/* Logits came out non-finite, e says which: run the same rows again, watching, to name the layer where it began. */
static int
name_culprit(struct kv_cache *c, const struct kv_rows *rows, const int32_t *tokens, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);
	int rc;

	for (size_t l = 0; l < cfg->L; l++)
		for (size_t h = 0; h < c->layers[l].H; h++)
			c->layers[l].len[h] -= rows->n;
	rc = run_layers(c, rows, tokens, NULL, true, e);
	return rc < 0 ? rc : KV_EFAIL;
}

static int
append(struct kv_cache *c, const int32_t *tokens, size_t n, float *logits, size_t n_logits,
    const struct kv_extend_tap *tap, struct kv_err *e)
{
	const struct kv_config *cfg = config(c);
	struct kv_rows rows;
	int rc;

	if ((rc = prepare(c, &rows, n, n_logits, e)) < 0)
		return rc;
	remember(c);
	if ((rc = run_layers(c, &rows, tokens, tap, false, e)) < 0 ||
	    (rc = kv_rows_logits(c->x, rows.x + (n - n_logits) * cfg->d, n_logits, logits, e)) < 0) {
		take_back(c);
		return rc;
	}
	if (kv_logits_finite(logits, n_logits, cfg->vocab, c->next + n - n_logits, e) < 0)
		return name_culprit(c, &rows, tokens, e);
	for (size_t l = 0; l < cfg->L; l++)
		c->layers[l].room -= n;
	c->next += n;
	return KV_OK;
}

int
kv_extend(struct kv_cache *c, const int32_t *tokens, size_t n, float *logits, size_t n_logits,
    const struct kv_extend_tap *tap, struct kv_err *e)
{
	int rc;

	if ((rc = check_extend(c, n, n_logits, e)) < 0)
		return rc;
	c->tapped = false;
	rc = append(c, tokens, n, logits, n_logits, tap, e);
	while (rc < 0 && !c->tapped && (rc = kv_engine_fall_back(c->x, rc, e)) == KV_OK)
		rc = append(c, tokens, n, logits, n_logits, tap, e);
	return rc;
}

int
kv_cache_ready(struct kv_cache *c, size_t n, struct kv_err *e)
{
	struct kv_rows rows;
	int rc = prepare(c, &rows, n, n, e);

	while (rc < 0 && (rc = kv_engine_fall_back(c->x, rc, e)) == KV_OK)
		rc = prepare(c, &rows, n, n, e);
	return rc;
}
