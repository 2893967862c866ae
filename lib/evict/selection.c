/* SPDX-License-Identifier: MIT
 * Which entries stay: pool, rank, select (METHODS 1.4, 1.6, 4). */
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/evict/evict.h"

/* Host arrays as the device sees them, and the room for the result. */
struct ranking {
	const void *rank, *tie, *protect;
	int32_t *picked;
};

static void
ranking_fini(const struct kv_device *d, struct ranking *r)
{
	kv_device_free(d, r->picked);
	kv_device_unview(d, r->protect);
	kv_device_unview(d, r->tie);
	kv_device_unview(d, r->rank);
}

/* pooled NULL: the raw scores rank. */
static int
select_on_device(const struct kv_device *d, const struct kv_selection *s, const float *pooled, int32_t *index,
    struct kv_err *e)
{
	const size_t bytes = s->H * s->n * sizeof *pooled, count = s->offset[s->H];
	const bool has_tie = pooled != NULL && s->tie == KV_TIE_RAW;
	struct kvk_select job = { .H = s->H, .n = s->n, .T = s->T, .n_sink = s->n_sink, .n_recent = s->n_recent,
		.offset = s->offset };
	struct ranking r = { 0 };
	int rc = KV_EMEM;

	if ((bytes > 0 && (r.rank = kv_device_view(d, pooled != NULL ? pooled : s->raw, bytes, e)) == NULL) ||
	    (bytes > 0 && has_tie && (r.tie = kv_device_view(d, s->raw, bytes, e)) == NULL) ||
	    (s->protect != NULL && (r.protect = kv_device_view(d, s->protect, s->H * s->T, e)) == NULL) ||
	    (r.picked = kv_device_alloc(d, count, sizeof *r.picked, e)) == NULL)
		goto done;
	job.rank = r.rank;
	job.tie = r.tie;
	job.protect = r.protect;
	rc = kv_device_check(d, d->op->select(d->dev, &job, r.picked), "select", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, index, r.picked, count * sizeof *index, "select", e);
done:
	ranking_fini(d, &r);
	return rc;
}

int
kv_evict_select(struct kv_device *d, const struct kv_selection *s, int32_t *index, struct kv_err *e)
{
	const bool pools = s->score != NULL && s->score->pool != KVK_POOL_NONE && s->n > 0;
	float *pooled = NULL;
	int rc;

	if (s->offset[s->H] == 0)
		return KV_OK;
	if ((rc = kv_device_ready(d, e)) < 0)
		return rc;
	if (pools) {
		if ((pooled = kv_alloc(s->H * s->n, sizeof *pooled, e)) == NULL)
			return KV_EMEM;
		rc = kv_pooled(d, s->score, s->raw, s->H, s->n, pooled, e);
	}
	if (rc == KV_OK)
		rc = select_on_device(d, s, pooled, index, e);
	free(pooled);
	return rc;
}
