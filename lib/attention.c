/* SPDX-License-Identifier: MIT */
#include "lib/attention.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

/* The query rows of every head as one array [head][n][dim]: W of the prompt's, then B from behind it. */
struct rows {
	const struct kv_tensor *q, *q_behind, *k, *k_behind; /* NULL where there is none */
	size_t W, B, n;
	enum kvk_type type;
	const struct kv_tensor *only; /* whose bytes are the rows as they stand; NULL: they are packed */
	void *packed;                 /* device */
	int32_t *pos; /* [n] */
};

static void
rows_fini(const struct kv_device *d, struct rows *r)
{
	kv_device_free(d, r->packed);
	free(r->pos);
}

/* The tensors behind the prompt. */
static int
find_behind(struct rows *r, const struct kv_layer *l, const char *who, const struct kv_attention *a, struct kv_err *e)
{
	char name[KV_NAME_MAX];
	int rc;

	if (a->behind == NULL)
		return KV_OK;
	snprintf(name, sizeof name, "q.%s", a->behind);
	if ((rc = kv_layer_need(l, who, name, NULL, &r->q_behind, e)) < 0)
		return rc;
	r->B = r->q_behind->shape[1];
	if (!a->behind_keys)
		return KV_OK;
	snprintf(name, sizeof name, "k.%s", a->behind);
	if ((rc = kv_layer_need(l, who, name, NULL, &r->k_behind, e)) < 0)
		return rc;
	if (r->k_behind->shape[1] != r->B || r->k_behind->type != r->k->type)
		return kv_fail(e, KV_ESHAPE,
		    "%s: %zu keys of type %s, expected one for each of the %zu queries, of type %s", name,
		    r->k_behind->shape[1], r->k_behind->type_name, r->B, r->k->type_name);
	return KV_OK;
}

static int
find_tensors(struct rows *r, const struct kv_layer *l, const char *who, const struct kv_attention *a, struct kv_err *e)
{
	const struct kv_queries want = kv_queries_of(a->window);
	int rc;

	if ((rc = kv_layer_need(l, who, "k", NULL, &r->k, e)) < 0)
		return rc;
	r->W = a->window < l->T ? a->window : l->T;
	if (r->W > 0 && (rc = kv_layer_need(l, who, "q", &want, &r->q, e)) < 0)
		return rc;
	if ((rc = find_behind(r, l, who, a, e)) < 0)
		return rc;
	r->n = r->W + r->B;
	r->type = r->q != NULL ? r->q->type : r->q_behind != NULL ? r->q_behind->type : KVK_F32;
	if (r->q_behind != NULL && r->q_behind->type != r->type)
		return kv_fail(e, KV_ESHAPE, "q and %s are of types %s and %s, expected one", r->q_behind->name,
		    r->q->type_name, r->q_behind->type_name);
	return KV_OK;
}

static int
pack(struct rows *r, const struct kv_layer *l, struct kv_err *e)
{
	const struct kv_tensor *only = r->B == 0 ? r->q : r->W == 0 ? r->q_behind : NULL;
	const struct kv_device *d = l->device;
	int rc = KV_OK;

	if (only != NULL && only->shape[1] == r->n) {
		r->only = only;
		return KV_OK;
	}
	if ((r->packed = kv_device_alloc(d, l->cfg->Hq * r->n * l->cfg->D, kvk_types[r->type].bytes, e)) == NULL)
		return KV_EMEM;
	if (r->W > 0)
		rc = kv_copy_rows(d, r->q, r->q->shape[1] - r->W, r->W, r->packed, 0, r->n, e);
	if (rc == KV_OK && r->B > 0)
		rc = kv_copy_rows(d, r->q_behind, 0, r->B, r->packed, r->W, r->n, e);
	return rc;
}

/* The rows as the device sees them. */
static const void *
view_rows(const struct kv_device *d, const struct rows *r, struct kv_err *e)
{
	return r->only != NULL ? kv_device_view_tensor(d, r->only, e) : r->packed;
}

static void
unview_rows(const struct kv_device *d, const struct rows *r, const void *view)
{
	if (r->only != NULL)
		kv_device_unview_tensor(d, r->only, view);
}

static int
take_rows(struct rows *r, const struct kv_layer *l, const char *who, const struct kv_attention *a, struct kv_err *e)
{
	int rc;

	if ((rc = find_tensors(r, l, who, a, e)) < 0)
		return rc;
	if ((r->pos = kv_alloc(r->n, sizeof *r->pos, e)) == NULL)
		return KV_EMEM;
	if (r->W > 0 && (rc = kv_queries_match(r->q, r->W, l->T, kv_queries_of(a->window), r->pos, e)) < 0)
		return rc;
	if (r->B > 0 && (rc = kv_queries_positions(r->q_behind, r->B, l->T, r->pos + r->W, e)) < 0)
		return rc;
	for (size_t i = 0; a->move_back && i < r->n; i++)
		r->pos[i] = (int32_t)((ptrdiff_t)(l->T + i) - (ptrdiff_t)r->n);
	return pack(r, l, e);
}

/* y [H][n], host: x [Hq][n], device, reduced over heads. */
static int
reduce(const struct kv_device *d, const struct kvk_scores *job, const float *x, size_t H, enum kvk_reduce how, float *y,
    struct kv_err *e)
{
	float *reduced = kv_device_alloc(d, H * job->n, sizeof *reduced, e);
	int rc;

	if (reduced == NULL)
		return KV_EMEM;
	rc = kv_device_check(
	    d, d->op->reduce_heads(d->dev, x, job->Hq, H, job->n, how, reduced), "reduce_heads", e);
	if (rc == KV_OK)
		rc = kv_device_get(d, y, reduced, H * job->n * sizeof *y, "scores", e);
	kv_device_free(d, reduced);
	return rc;
}

/* Device part: s [Hq][n] per query head, y [H][n] reduced, and the mean's likewise if it is asked for. */
static int
compute(const struct kv_device *d, struct kvk_scores *job, size_t H, const struct kv_attention *a, float *y,
    struct kv_err *e)
{
	float *s = NULL;
	int rc = KV_EMEM;

	if ((s = kv_device_alloc(d, job->Hq * job->n, sizeof *s, e)) == NULL)
		goto done;
	if (a->mean != NULL && (job->mean = kv_device_alloc(d, job->Hq * job->n, sizeof *s, e)) == NULL)
		goto done;
	rc = kv_device_check(d, d->op->scores(d->dev, job, s), "scores", e);
	if (rc == KV_OK)
		rc = reduce(d, job, s, H, a->heads, y, e);
	if (rc == KV_OK && a->mean != NULL)
		rc = reduce(d, job, job->mean, H, a->heads, a->mean, e);
done:
	kv_device_free(d, job->mean);
	kv_device_free(d, s);
	return rc;
}

int
kv_attention(const struct kv_layer *l, const char *who, const struct kv_attention *a, size_t H, size_t n, float *y,
    struct kv_err *e)
{
	struct kv_device *d = l->device;
	const struct kv_config *c = l->cfg;
	struct kvk_scores job = { .Hq = c->Hq, .Hkv = c->Hkv, .D = c->D, .T = l->T, .scale = c->scale, .rows = a->rows,
		.n = n };
	struct rows r = { 0 };
	int rc;

	if (n == 0)
		return KV_OK;
	if ((rc = kv_device_ready(d, "scores reduce_heads", e)) < 0)
		return rc;
	if ((rc = take_rows(&r, l, who, a, e)) < 0)
		goto done;
	job.q_pos = r.pos;
	job.n_q = r.n;
	job.q_type = r.type;
	job.k_type = r.k->type;
	rc = KV_EMEM;
	if ((job.q = view_rows(d, &r, e)) == NULL || (job.k = kv_device_view_tensor(d, r.k, e)) == NULL)
		goto done;
	if (r.k_behind != NULL) {
		job.n_behind = r.B;
		if ((job.k_behind = kv_device_view_tensor(d, r.k_behind, e)) == NULL)
			goto done;
	}
	rc = compute(d, &job, H, a, y, e);
done:
	if (r.k_behind != NULL)
		kv_device_unview_tensor(d, r.k_behind, job.k_behind);
	if (r.k != NULL)
		kv_device_unview_tensor(d, r.k, job.k);
	unview_rows(d, &r, job.q);
	rows_fini(d, &r);
	return rc;
}
