/* SPDX-License-Identifier: MIT
 * A LookaheadKV module on a device: its adapters opened as weights, with alpha / rank in B. */
#include "lib/model/adapters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/model/engine_inside.h"

#define SIGMA_ROWS ((size_t)1024) /* rows of the embedding table at a time */

/* A and B stay as they are: they are small, and read by the few rows behind a prompt. */
static int
open_pair(struct kv_adapters *a, size_t layer, enum kv_role role, float *scaled, struct kv_err *e)
{
	const struct kv_adapter *from = kv_lookahead_adapter(a->m, layer, role);
	struct kv_adapter_weights *to = &a->weights[layer * KV_N_ROLES + role];
	const struct kvk_backend *op = a->x->d->op;
	const size_t rank = a->m->shape.rank;
	int rc;

	rc = op->weight_open(a->x->d->dev, &to->a, from->a, KVK_F32, rank, from->in, KVK_FEW_ROWS) ||
	     op->weight_open(a->x->d->dev, &to->b, scaled, KVK_F32, from->out, rank, KVK_FEW_ROWS);
	return kv_device_check(a->x->d, rc, "lookahead adapters", e);
}

/* B (alpha / rank) of all adapters into a block of the host, one behind the other. */
static size_t
scale(const struct kv_lookahead *m, size_t i, float *to)
{
	const struct kv_adapter *from = &m->adapter[i];
	const size_t n = from->out * m->shape.rank;
	const double factor = kv_lookahead_scale(m);

	for (size_t j = 0; j < n; j++)
		to[j] = (float)(factor * (double)from->b[j]);
	return n;
}

int
kv_adapters_enter(struct kv_adapters *a, struct kv_err *e)
{
	const struct kv_lookahead *m = a->m;
	const size_t n = m->L * KV_N_ROLES;
	size_t at = 0;
	int rc = KV_OK;

	if (kv_lookahead_scale(m) == 0 || a->weights != NULL)
		return KV_OK;
	if ((a->weights = kv_alloc(n, sizeof *a->weights, e)) == NULL ||
	    (a->scaled = kv_alloc_unset(m->n_parameters, sizeof *a->scaled, e)) == NULL)
		rc = KV_EMEM;
	for (size_t i = 0; i < n && rc == KV_OK; i++) {
		if (m->adapter[i].a == NULL)
			continue;
		at += scale(m, i, a->scaled + at);
		rc =
		    open_pair(a, i / KV_N_ROLES, i % KV_N_ROLES, a->scaled + at - m->adapter[i].out * m->shape.rank, e);
	}
	if (rc < 0)
		kv_adapters_leave(a);
	return rc;
}

void
kv_adapters_leave(struct kv_adapters *a)
{
	for (size_t i = 0; a->weights != NULL && i < a->m->L * KV_N_ROLES; i++) {
		if (a->weights[i].b != NULL)
			a->x->d->op->weight_close(a->x->d->dev, a->weights[i].b);
		if (a->weights[i].a != NULL)
			a->x->d->op->weight_close(a->x->d->dev, a->weights[i].a);
	}
	free(a->weights);
	free(a->scaled);
	a->weights = NULL;
	a->scaled = NULL;
}

int
kv_adapters_new(struct kv_adapters **out, struct kv_engine *x, const struct kv_lookahead *m, struct kv_err *e)
{
	struct kv_adapters *a;
	int rc;

	*out = NULL;
	if ((rc = kv_lookahead_fits(m, &x->m->cfg, e)) < 0)
		return rc;
	if ((a = kv_alloc(1, sizeof *a, e)) == NULL)
		return KV_EMEM;
	a->x = x;
	a->m = m;
	a->next = x->adapters;
	x->adapters = a;
	rc = kv_adapters_enter(a, e);
	while (rc < 0 && (rc = kv_engine_fall_back(x, rc, e)) == KV_OK)
		rc = kv_adapters_enter(a, e);
	if (rc < 0)
		kv_adapters_free(a);
	else
		*out = a;
	return rc;
}

void
kv_adapters_free(struct kv_adapters *a)
{
	struct kv_adapters **at;

	if (a == NULL)
		return;
	for (at = &a->x->adapters; *at != a; at = &(*at)->next)
		;
	*at = a->next;
	kv_adapters_leave(a);
	free(a);
}

/* ---- start values: the spread of the embedding table */

/* Adds a stretch of rows to both sums. */
static int
add_rows(struct kv_engine *x, const int32_t *ids, size_t n, float *host, double sum[2], struct kv_err *e)
{
	const size_t d = x->m->cfg.d;
	float *rows = kv_engine_work(x, KV_WORK_X, n, d, e);
	int rc;

	if (rows == NULL)
		return KV_EMEM;
	rc = x->d->op->rows(x->d->dev, x->embed, ids, n, rows) ||
	     x->d->op->get(x->d->dev, host, rows, n * d * sizeof *host);
	if ((rc = kv_device_check(x->d, rc, "embedding", e)) < 0)
		return rc;
	for (size_t i = 0; i < n * d; i++) {
		sum[0] += (double)host[i];
		sum[1] += (double)host[i] * (double)host[i];
	}
	return KV_OK;
}

int
kv_embedding_sigma(struct kv_engine *x, double *sigma, struct kv_err *e)
{
	const size_t d = x->m->cfg.d, vocab = x->m->cfg.vocab;
	float *host = kv_alloc_unset(SIGMA_ROWS * d, sizeof *host, e);
	int32_t ids[SIGMA_ROWS];
	double sum[2] = { 0, 0 }, mean;
	int rc = host != NULL ? KV_OK : KV_EMEM;

	for (size_t at = 0, n; at < vocab && rc == KV_OK; at += n) {
		n = vocab - at < SIGMA_ROWS ? vocab - at : SIGMA_ROWS;
		for (size_t i = 0; i < n; i++)
			ids[i] = (int32_t)(at + i);
		rc = add_rows(x, ids, n, host, sum, e);
		while (rc < 0 && (rc = kv_engine_fall_back(x, rc, e)) == KV_OK)
			rc = add_rows(x, ids, n, host, sum, e);
	}
	free(host);
	mean = sum[0] / ((double)vocab * (double)d);
	*sigma = sqrt(sum[1] / ((double)vocab * (double)d) - mean * mean);
	return rc;
}
