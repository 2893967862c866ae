/* SPDX-License-Identifier: MIT
 * One layer as the quantities see it: scores and kept positions, checked, worked out once. */
#include "lib/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

void
kv_stat_view_fini(struct kv_stat_view *v)
{
	if (v == NULL)
		return;
	free(v->offset_own);
	free(v->index_own);
	free(v->pooled);
	*v = (struct kv_stat_view){ 0 };
}

/* The axes that tensors of heads have here: query heads are heads too. */
static int
expect_heads(const struct kv_tensor *t, enum kvk_type type, const char *kv_axes, const char *axes, const size_t *shape,
    struct kv_err *e)
{
	const bool of_queries = t->n_axes > 0 && strcmp(t->axis[0], "head") == 0;

	return kv_tensor_expect(t, type, of_queries ? axes : kv_axes, shape, e);
}

int
kv_stat_lacks(const struct kv_stat_view *v, const char *tensor, const char *who, struct kv_err *e)
{
	return kv_fail(e, KV_END, "no tensor %s in %s: %s", tensor, v->name, who);
}

/* ---- scores */

static int
read_scores(struct kv_stat_view *v, struct kv_err *e)
{
	const size_t any[] = { KV_ANY, KV_ANY };
	int rc;

	if (v->score == NULL)
		return kv_stat_lacks(v, "score", "kv-score METHOD writes it", e);
	if ((rc = expect_heads(v->score, KVK_F32, "kv_head token", "head token", any, e)) < 0 ||
	    (rc = kv_score_attrs_from_json(&v->attrs, v->score->attrs, e)) < 0)
		return rc;
	v->H = v->score->shape[0];
	v->n = v->score->shape[1];
	if (v->n > v->T || v->attrs.n_tokens != v->T)
		return kv_fail(e, KV_ESHAPE, "score: %zu columns for a prompt of %zu tokens, this one has %zu", v->n,
		    v->attrs.n_tokens, v->T);
	v->raw = v->score->data;
	v->has_scores = true;
	return KV_OK;
}

int
kv_stat_scores(struct kv_stat_view *v, bool pooled, struct kv_stat_scores *s, struct kv_err *e)
{
	int rc = KV_OK;

	if (!v->has_scores && (rc = read_scores(v, e)) != KV_OK)
		return rc;
	if (pooled && v->pooled == NULL) {
		if ((v->pooled = kv_alloc(v->H * v->n, sizeof *v->pooled, e)) == NULL)
			return KV_EMEM;
		rc = kv_pooled(v->device, &v->attrs, v->raw, v->H, v->n, v->pooled, e);
		if (rc < 0 && (rc = kv_device_fall_back(v->device, rc, e)) == KV_OK)
			rc = kv_pooled(v->device, &v->attrs, v->raw, v->H, v->n, v->pooled, e);
	}
	*s = (struct kv_stat_scores){ pooled ? v->pooled : v->raw, v->H, v->n };
	return rc;
}

int
kv_stat_select(const struct kv_stat_view *v, const struct kv_selection *job, int32_t *index, struct kv_err *e)
{
	int rc = kv_evict_select(v->device, job, index, e);

	if (rc < 0 && (rc = kv_device_fall_back(v->device, rc, e)) == KV_OK)
		rc = kv_evict_select(v->device, job, index, e);
	return rc;
}

int
kv_stat_masses(struct kv_stat_view *v, struct kv_stat_scores *s, struct kv_err *e)
{
	int rc = kv_stat_scores(v, false, s, e);

	for (size_t i = 0; rc == KV_OK && i < s->H * s->n; i++)
		if (s->x[i] < 0 || isinf(s->x[i]))
			rc = kv_fail(e, KV_END, "the scores of %s are no shares of attention (one is %g)",
			    v->attrs.method, (double)s->x[i]);
	return rc;
}

/* ---- budgets */

static int
budgets_of_offset(const struct kv_tensor *offset, size_t *H, size_t **B, struct kv_err *e)
{
	const size_t any[] = { KV_ANY };
	const int32_t *o = offset->data;
	int rc = kv_tensor_expect(offset, KVK_I32, "bound", any, e);

	if (rc < 0)
		return rc;
	if (offset->shape[0] < 2 || o[0] != 0)
		return kv_fail(e, KV_EFORMAT, "offset: expected 0 and the end of each head's entries");
	*H = offset->shape[0] - 1;
	if ((*B = kv_alloc(*H, sizeof **B, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < *H; h++) {
		if (o[h + 1] < o[h])
			return kv_fail(e, KV_EFORMAT, "offset %zu is %d, below the one before", h + 1, (int)o[h + 1]);
		(*B)[h] = (size_t)(o[h + 1] - o[h]);
	}
	return KV_OK;
}

static int
budgets_of_budget(const struct kv_stat_view *v, size_t *H, size_t **B, struct kv_err *e)
{
	const size_t any[] = { KV_ANY };
	const int32_t *b = v->budget->data;
	int rc = expect_heads(v->budget, KVK_I32, "kv_head", "head", any, e);

	if (rc < 0)
		return rc;
	*H = v->budget->shape[0];
	if ((*B = kv_alloc(*H, sizeof **B, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < *H; h++) {
		if (b[h] < 0)
			return kv_fail(e, KV_EARG, "budget: head %zu would keep %d entries", h, (int)b[h]);
		(*B)[h] = (size_t)b[h] < v->T ? (size_t)b[h] : v->T;
	}
	return KV_OK;
}

static int
budgets_of_cache(const struct kv_stat_view *v, size_t *H, size_t **B, struct kv_err *e)
{
	const size_t shape[] = { KV_ANY, v->T, KV_ANY };
	int rc = expect_heads(v->k, KVK_N_TYPES, "kv_head token dim", "head token dim", shape, e);

	if (rc < 0)
		return rc;
	*H = v->k->shape[0];
	if ((*B = kv_alloc(*H, sizeof **B, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < *H; h++)
		(*B)[h] = v->T;
	return KV_OK;
}

int
kv_stat_budgets(struct kv_stat_view *v, size_t *H, size_t **B, struct kv_err *e)
{
	int rc;

	*B = NULL;
	if ((v->index == NULL) != (v->offset == NULL))
		return kv_fail(e, KV_EFORMAT, "%s is missing beside %s", v->index ? "offset" : "index",
		    v->index ? "index" : "offset");
	if (v->offset != NULL)
		rc = budgets_of_offset(v->offset, H, B, e);
	else if (v->budget != NULL)
		rc = budgets_of_budget(v, H, B, e);
	else if (v->k != NULL)
		rc = budgets_of_cache(v, H, B, e);
	else
		rc = kv_stat_lacks(v, "budget, index or k", "kv-budget METHOD, kv-evict and kv-prefill write them", e);
	if (rc != KV_OK) {
		free(*B);
		*B = NULL;
	}
	return rc;
}

/* ---- kept positions */

static int
check_index(const struct kv_stat_view *v, size_t H, struct kv_err *e)
{
	const int32_t *p = v->index->data;
	int rc = kv_tensor_expect(v->index, KVK_I32, "entry", &v->offset_own[H], e);

	for (size_t h = 0; h < H && rc == KV_OK; h++)
		for (size_t i = v->offset_own[h]; i < v->offset_own[h + 1]; i++)
			if (p[i] < 0 || (i > v->offset_own[h] && p[i] <= p[i - 1]))
				return kv_fail(e, KV_EFORMAT,
				    "index of head %zu: %d is no position above the one before", h, (int)p[i]);
	return rc;
}

/* What kv-evict would keep. */
static int
select_kept(struct kv_stat_view *v, size_t H, const size_t *B, struct kv_err *e)
{
	struct kv_selection job = { .H = H, .T = v->T, .score = &v->attrs, .tie = v->tie, .offset = v->offset_own };
	const size_t shape[] = { H, v->T };
	struct kv_stat_scores s = { NULL, H, 0 };
	struct kv_budget_view b;
	bool all = true;
	int rc;

	for (size_t h = 0; h < H; h++)
		all = all && B[h] == v->T;
	if (!all && (rc = kv_stat_scores(v, false, &s, e)) != KV_OK)
		return rc;
	if (s.H != H)
		return kv_fail(e, KV_ESHAPE, "score has %zu heads, budget %zu", s.H, H);
	if ((v->index_own = kv_alloc(v->offset_own[H], sizeof *v->index_own, e)) == NULL)
		return KV_EMEM;
	job.raw = s.x;
	job.n = s.n;
	if (!all) {
		if ((rc = kv_budget_read(v->budget, H, &b, e)) < 0)
			return rc;
		job.n_sink = b.n_sink;
		job.n_recent = b.n_recent;
	}
	if (!all && v->protect != NULL) {
		if ((rc = expect_heads(v->protect, KVK_U8, "kv_head token", "head token", shape, e)) < 0)
			return rc;
		job.protect = v->protect->data;
	}
	return kv_stat_select(v, &job, v->index_own, e);
}

static int
find_kept(struct kv_stat_view *v, struct kv_err *e)
{
	size_t H, *B;
	int rc = kv_stat_budgets(v, &H, &B, e);

	if (rc != KV_OK)
		return rc;
	if ((v->offset_own = kv_alloc(H + 1, sizeof *v->offset_own, e)) == NULL) {
		free(B);
		return KV_EMEM;
	}
	for (size_t h = 0; h < H; h++)
		v->offset_own[h + 1] = v->offset_own[h] + B[h];
	rc = v->index != NULL ? check_index(v, H, e) : select_kept(v, H, B, e);
	free(B);
	if (rc != KV_OK) {
		free(v->index_own);
		free(v->offset_own);
		v->index_own = NULL;
		v->offset_own = NULL;
		return rc;
	}
	v->kept_H = H;
	v->has_kept = true;
	return KV_OK;
}

int
kv_stat_kept(struct kv_stat_view *v, struct kv_stat_kept *k, struct kv_err *e)
{
	int rc;

	if (!v->has_kept && (rc = find_kept(v, e)) != KV_OK)
		return rc;
	*k = (struct kv_stat_kept){ v->index != NULL ? v->index->data : v->index_own, v->offset_own, v->kept_H };
	return KV_OK;
}
