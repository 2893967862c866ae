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

int
kv_generate(struct kv_cache *c, const struct kv_generation *g, float *logits, enum kv_stop *why, struct kv_err *e)
{
	int32_t id;
	int rc;

	*why = KV_STOP_LENGTH;
	if (g->max_tokens + g->feed_last > 1 && (rc = kv_cache_ready(c, 1, e)) < 0)
		return rc;
	for (size_t i = 0; i < g->max_tokens; i++) {
		size_t position = kv_cache_position(c);
		bool last = i + 1 == g->max_tokens, end;

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
			return rc;
	}
	return KV_OK;
}

/* Token j of ids, at position first + j, was due under row j - at of logits. */
static int
follow_rows(const struct kv_generation *g, const int32_t *ids, size_t first, size_t at, size_t rows,
    const float *logits, double *nll, struct kv_err *e)
{
	size_t V = g->cfg->vocab;
	int rc;

	for (size_t j = at; j < at + rows; j++, logits += V) {
		double p = kv_log_prob(logits, V, ids[j]);

		if (!isfinite(p))
			return kv_fail(e, KV_EFAIL, "position %zu: the logarithm of token %d's probability is %g",
			    first + j, (int)ids[j], p);
		*nll -= p;
		if ((rc = g->token(g->ctx, ids[j], is_stop(g, ids[j]), logits, e)) < 0)
			return rc;
	}
	return KV_OK;
}

int
kv_follow(struct kv_cache *c, const struct kv_generation *g, const int32_t *ids, size_t n, float *logits, double *nll,
    struct kv_err *e)
{
	size_t first = kv_cache_position(c), fed = n < FOLLOW_ROWS ? n : FOLLOW_ROWS;
	float *block;
	int rc;

	*nll = 0;
	if (g->cfg->context > 0 && (n > g->cfg->context || first > g->cfg->context - n))
		return kv_fail(e, KV_ESHAPE, "%zu tokens behind position %zu reach beyond the model's context of %zu",
		    n, first, g->cfg->context);
	if (n == 0)
		return KV_OK;
	if ((block = kv_alloc(FOLLOW_ROWS * g->cfg->vocab, sizeof *block, e)) == NULL)
		return KV_EMEM;
	if ((rc = kv_cache_ready(c, fed, e)) == KV_OK)
		rc = follow_rows(g, ids, first, 0, 1, logits, nll, e);
	for (size_t i = 0; rc == KV_OK && i < n; i += fed) {
		size_t left = n - i - (g->feed_last ? 0 : 1); /* tokens still to append */

		if ((fed = left < FOLLOW_ROWS ? left : FOLLOW_ROWS) == 0)
			break;
		if ((rc = kv_extend(c, ids + i, fed, block, fed, g->tap, e)) == KV_OK)
			rc = follow_rows(g, ids, first, i + 1, fed < n - i - 1 ? fed : n - i - 1, block, nll, e);
	}
	free(block);
	return rc;
}
