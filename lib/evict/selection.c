/* SPDX-License-Identifier: MIT
 * Which entries stay: pool, rank, select (METHODS 1.4, 1.6, 4). */
#include "lib/evict/evict.h"

#include <stdlib.h>

#include "lib/buf.h"

/* Ranks and selects on the device; raw is device memory, NULL when n is 0. */
static int
rank_and_select(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, struct kvk_select *job,
    enum kv_tie tie, int32_t *index, struct kv_err *e)
{
	const bool pools = raw != NULL && a->pool != KVK_POOL_NONE;
	const size_t count = job->offset[job->Hkv];
	int32_t *picked = NULL;
	float *pooled = NULL;
	int rc = KV_EDEV;

	job->rank = raw;
	if (pools) {
		if ((pooled = kv_device_alloc(d, job->Hkv * job->n, sizeof *pooled, e)) == NULL)
			goto done;
		rc = kv_device_check(
		    d, d->op->pool(d->dev, raw, job->Hkv, job->n, a->pool, a->pool_width, pooled), "pool", e);
		if (rc < 0)
			goto done;
		job->rank = pooled;
		job->tie = tie == KV_TIE_RAW ? raw : NULL;
		rc = KV_EDEV;
	}
	if ((picked = kv_device_alloc(d, count, sizeof *picked, e)) == NULL)
		goto done;
	rc = kv_device_check(d, d->op->select(d->dev, job, picked), "select", e);
	if (rc == KV_OK)
		rc = kv_device_check(d, d->op->get(d->dev, index, picked, count * sizeof *picked), "select", e);
done:
	kv_device_free(d, picked);
	kv_device_free(d, pooled);
	return rc;
}

int
kv_evict_select(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t Hkv, size_t n,
    size_t T, const size_t *keep, enum kv_tie tie, int32_t *index, struct kv_err *e)
{
	struct kvk_select job = {
		.Hkv = Hkv, .n = n, .T = T, .n_sink = a->n_sink, .n_recent = a->n_recent, .keep = keep
	};
	size_t *offset = kv_alloc(Hkv + 1, sizeof *offset, e), bytes = Hkv * n * sizeof *raw;
	const float *x = NULL;
	int rc = KV_OK;

	if (offset == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < Hkv; h++)
		offset[h + 1] = offset[h] + keep[h];
	if (offset[Hkv] == 0)
		goto done;
	job.offset = offset;
	if (bytes > 0 && (x = d->op->view(d->dev, raw, bytes)) == NULL) {
		rc = kv_no_memory(e, bytes);
		goto done;
	}
	rc = rank_and_select(d, a, x, &job, tie, index, e);
	if (x != NULL)
		d->op->unview(d->dev, x);
done:
	free(offset);
	return rc;
}
