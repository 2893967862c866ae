/* SPDX-License-Identifier: MIT
 * Which entries stay: rank, say how many, select (METHODS 1.4, 1.6, 4). */
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/evict/ranking.h"

/* Host arrays as the device sees them, and the room for what is made there. */
struct views {
	const void *rank, *tie, *protect;
	float *pooled; /* NULL: rank is as it ranks */
	int32_t *picked;
};

static void
views_fini(const struct kv_device *d, struct views *v)
{
	kv_device_free(d, v->picked);
	kv_device_free(d, v->pooled);
	kv_device_unview(d, v->protect);
	kv_device_unview(d, v->tie);
	kv_device_unview(d, v->rank);
}

/* What ranks, and what decides between equals. */
static int
view_ranking(
    const struct kv_device *d, const struct kv_ranking *r, struct views *v, struct kvk_select *job, struct kv_err *e)
{
	const size_t count = r->H * r->n, bytes = count * sizeof *r->rank;

	if (count == 0)
		return KV_OK;
	if ((v->rank = kv_device_view(d, r->rank, bytes, e)) == NULL)
		return KV_EMEM;
	job->rank = v->rank;
	if (r->tie == r->rank)
		job->tie = v->rank;
	else if (r->tie != NULL && (job->tie = v->tie = kv_device_view(d, r->tie, bytes, e)) == NULL)
		return KV_EMEM;
	if (r->pool == NULL)
		return KV_OK;
	if ((v->pooled = kv_device_alloc(d, count, sizeof *v->pooled, e)) == NULL)
		return KV_EMEM;
	job->rank = v->pooled;
	return kv_pooled_on_device(d, r->pool, v->rank, r->H, r->n, v->pooled, e);
}

static int
select_on_device(
    const struct kv_device *d, const struct kv_ranking *r, const size_t *offset, int32_t *index, struct kv_err *e)
{
	const size_t count = offset[r->H];
	struct kvk_select job = {
		.H = r->H, .n = r->n, .T = r->T, .n_sink = r->n_sink, .n_recent = r->n_recent, .offset = offset
	};
	struct views v = { 0 };
	int rc;

	if (count == 0)
		return KV_OK;
	if ((rc = view_ranking(d, r, &v, &job, e)) < 0)
		goto done;
	rc = KV_EMEM;
	if ((r->protect != NULL && (v.protect = kv_device_view(d, r->protect, r->H * r->T, e)) == NULL) ||
	    (v.picked = kv_device_alloc(d, count, sizeof *v.picked, e)) == NULL)
		goto done;
	job.protect = v.protect;
	rc = kv_device_check(d, d->op->select(d->dev, &job, v.picked), "select", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, index, v.picked, count * sizeof *index, "select", e);
done:
	views_fini(d, &v);
	return rc;
}

/* Entries of each of the ranking's heads [r->H], and from these offset [r->H + 1]. */
static int
count_entries(const struct kv_selection *s, const struct kv_ranking *r, size_t *keep, size_t *offset, struct kv_err *e)
{
	int rc = KV_OK;

	if (s->rules.uniform_heads)
		keep[0] = s->offset[s->H] / s->H;
	else
		for (size_t h = 0; h < s->H; h++)
			keep[h] = s->offset[h + 1] - s->offset[h];
	if (s->rules.by_score || s->rules.share > 0)
		rc = kv_ranking_limit(r, &s->rules, keep, e);
	for (size_t h = 0; h < r->H; h++)
		offset[h + 1] = offset[h] + keep[h];
	return rc;
}

/* The one head's set for all H of them. */
static void
repeat(const struct kv_selection *s, size_t n, int32_t *index)
{
	for (size_t h = 1; h < s->H && n > 0; h++)
		memcpy(index + h * n, index, n * sizeof *index);
	for (size_t h = 0; s->kept != NULL && h <= s->H; h++)
		s->kept[h] = h * n;
}

int
kv_evict_select(struct kv_device *d, const struct kv_selection *s, int32_t *index, struct kv_err *e)
{
	size_t *keep = kv_alloc(2 * s->H + 1, sizeof *keep, e), *offset = keep + s->H;
	struct kv_ranking r = { 0 };
	int rc = KV_EMEM;

	if (keep == NULL)
		return KV_EMEM;
	if (s->offset[s->H] == 0) {
		repeat(s, 0, index);
		rc = KV_OK;
		goto done;
	}
	if ((rc = kv_device_ready(d, "select pool", e)) < 0 || (rc = kv_ranking_init(&r, d, s, e)) < 0 ||
	    (rc = count_entries(s, &r, keep, offset, e)) < 0 || (rc = select_on_device(d, &r, offset, index, e)) < 0)
		goto done;
	if (s->rules.uniform_heads)
		repeat(s, offset[1], index);
	else if (s->kept != NULL)
		memcpy(s->kept, offset, (s->H + 1) * sizeof *offset);
done:
	kv_ranking_fini(&r);
	free(keep);
	return rc;
}
