/* SPDX-License-Identifier: MIT */
#include "lib/model/generate.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

#define FOLLOW_ROWS 16 /* rows whose logits are held at once */

const char *const kv_stop_names[] = { "length", "end", "context" };

static bool
is_stop(const struct kv_generation *g, int32_t id)
{
	for (size_t i = 0; i < g->n_stops; i++)
		if (g->stops[i] == id)
			return true;
	return false;
}

static bool
all_finite(const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(x[i]))
			return false;
	return true;
}

/* ---- where a value stopped being finite */

struct search {
	const struct kv_device *device;
	size_t per_row; /* Hq * D */
	size_t layer;   /* first layer with a query that is not finite; SIZE_MAX none */
};

static int
look_at_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct search *s = ctx;
	float *q;
	int rc;

	if (s->layer != SIZE_MAX)
		return KV_OK;
	if ((q = kv_alloc(s->per_row, sizeof *q, e)) == NULL)
		return KV_EMEM;
	rc = kv_device_check(s->device, s->device->op->get(s->device->dev, q, view->q, s->per_row * sizeof *q), "get", e);
	if (rc == KV_OK && !all_finite(q, s->per_row))
		s->layer = view->layer;
	free(q);
	return rc;
}

/* The logits at `position` are not finite.  The run is lost anyway, so feed the token once more and watch the layers: queries
 * of layer l come from the output of layer l - 1. */
static int
not_finite(struct kv_cache *c, const struct kv_generation *g, size_t position, const int32_t *fed, float *logits,
    struct kv_err *e)
{
	struct search s = { .device = g->device, .per_row = g->cfg->Hq * g->cfg->D, .layer = SIZE_MAX };
	struct kv_extend_tap tap = { look_at_layer, &s };
	struct kv_err ignored;

	if (fed == NULL)
		return kv_fail(e, KV_EFAIL, "position %zu: the logits the cache came with are not finite", position);
	if (kv_extend(c, fed, 1, logits, 1, &tap, &ignored) < 0 || s.layer == SIZE_MAX)
		return kv_fail(e, KV_EFAIL, "position %zu: logits are not finite, though the queries of all layers are", position);
	return kv_fail(e, KV_EFAIL, "position %zu, layer %zu: queries are not finite", position, s.layer);
}

/* ---- the loops */

int
kv_generate(struct kv_cache *c, const struct kv_generation *g, float *logits, enum kv_stop *why, struct kv_err *e)
{
	const int32_t *fed = NULL;
	int32_t id;
	int rc;

	*why = KV_STOP_LENGTH;
	for (size_t i = 0; i < g->max_tokens; i++) {
		size_t position = kv_cache_position(c);
		bool last = i + 1 == g->max_tokens, end;

		if (!all_finite(logits, g->cfg->vocab))
			return not_finite(c, g, position, fed, logits, e);
		if ((rc = kv_sample(&g->sampler, g->stream, position, logits, g->cfg->vocab, &id, e)) < 0)
			return kv_where(e, "position %zu", position);
		end = is_stop(g, id);
		if ((rc = g->token(g->ctx, id, end, logits, e)) < 0)
			return rc;
		if (end) {
			*why = KV_STOP_END;
			return KV_OK;
		}
		if (last && !g->feed_last)
			return KV_OK;
		if (g->cfg->context > 0 && position >= g->cfg->context) {
			*why = last ? KV_STOP_LENGTH : KV_STOP_CONTEXT;
			return KV_OK;
		}
		if ((rc = kv_extend(c, &id, 1, last ? NULL : logits, last ? 0 : 1, g->tap, e)) < 0)
			return kv_where(e, "position %zu", position);
		fed = &id;
	}
	return KV_OK;
}

/* Token j of ids, at position first + j, was due under row j - at of logits. */
static int
follow_rows(struct kv_cache *c, const struct kv_generation *g, const int32_t *ids, size_t first, size_t at, size_t rows,
    float *logits, double *nll, struct kv_err *e)
{
	size_t V = g->cfg->vocab;
	int rc;

	for (size_t j = at; j < at + rows; j++, logits += V) {
		if (!all_finite(logits, V))
			return not_finite(c, g, first + j, j > 0 ? &ids[j - 1] : NULL, logits, e);
		*nll -= kv_log_prob(logits, V, ids[j]);
		if ((rc = g->token(g->ctx, ids[j], is_stop(g, ids[j]), logits, e)) < 0)
			return rc;
	}
	return KV_OK;
}

int
kv_follow(struct kv_cache *c, const struct kv_generation *g, const int32_t *ids, size_t n, float *logits, double *nll,
    struct kv_err *e)
{
	size_t first = kv_cache_position(c), fed;
	float *block;
	int rc;

	*nll = 0;
	if (g->cfg->context > 0 && (n > g->cfg->context || first > g->cfg->context - n))
		return kv_fail(e, KV_ESHAPE, "%zu tokens behind position %zu reach beyond the model's context of %zu", n, first,
		    g->cfg->context);
	if (n == 0)
		return KV_OK;
	if ((block = kv_alloc(FOLLOW_ROWS * g->cfg->vocab, sizeof *block, e)) == NULL)
		return KV_EMEM;
	rc = follow_rows(c, g, ids, first, 0, 1, logits, nll, e);
	for (size_t i = 0; rc == KV_OK && i < n; i += fed) {
		size_t left = n - i - (g->feed_last ? 0 : 1); /* tokens still to append */

		if ((fed = left < FOLLOW_ROWS ? left : FOLLOW_ROWS) == 0)
			break;
		if ((rc = kv_extend(c, ids + i, fed, block, fed, g->tap, e)) < 0)
			kv_where(e, "position %zu", first + i);
		else
			rc = follow_rows(c, g, ids, first, i + 1, fed < n - i - 1 ? fed : n - i - 1, block, nll, e);
	}
	free(block);
	return rc;
}
