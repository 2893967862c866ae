/* SPDX-License-Identifier: MIT
 * How well an evicted cache predicts what the full one says (METHODS 6.3): logits.response, row t being what token t
 * was chosen from.  One cell per sequence, its mean over t.  Row 0 comes from the prefill, so eviction cannot change
 * it: comparisons leave it out. */
#include "lib/stat/families.h"

#include <math.h>

struct rows {
	const float *x; /* [n][V] */
	size_t n, V;
};

static int
read_rows(const struct kv_stat_view *v, struct rows *r, struct kv_err *e)
{
	const size_t shape[] = { v->n_response, KV_ANY };
	int rc;

	if (v->logits == NULL || v->response == NULL)
		return kv_stat_lacks(v, "logits.response", "kv-decode -o FILE writes it", e);
	if ((rc = kv_tensor_expect(v->logits, KVK_F32, "row vocab", shape, e)) < 0)
		return rc;
	*r = (struct rows){ v->logits->data, v->n_response, v->logits->shape[1] };
	for (size_t i = 0; i < r->n * r->V; i++)
		if (isnan(r->x[i]) || r->x[i] == INFINITY)
			return kv_fail(
			    e, KV_EFORMAT, "logits.response: %g in the row of token %zu", (double)r->x[i], i / r->V);
	for (size_t t = 0; t < r->n; t++)
		if (v->response[t] < 0 || (size_t)v->response[t] >= r->V)
			return kv_fail(e, KV_EFORMAT, "response: token %zu is %d, but there are %zu", t,
			    (int)v->response[t], r->V);
	return KV_OK;
}

/* Rows that were made behind the same tokens: those of the shorter response, if it begins the longer one. */
static int
read_both(const struct kv_stat_view *a, const struct kv_stat_view *b, struct rows *p, struct rows *q, struct kv_err *e)
{
	int rc;

	if ((rc = read_rows(a, p, e)) != KV_OK || (rc = read_rows(b, q, e)) != KV_OK)
		return rc;
	if (p->V != q->V)
		return kv_fail(e, KV_ESHAPE, "logits.response: vocabularies of %zu and %zu tokens", p->V, q->V);
	p->n = q->n = p->n < q->n ? p->n : q->n;
	for (size_t t = 0; t < p->n; t++)
		if (a->response[t] != b->response[t])
			return kv_fail(e, KV_ESHAPE,
			    "the responses differ: token %zu is %d in A, %d in B. Their logits can be compared only "
			    "behind the same tokens: give A's response to the other run with kv-decode --nll, or "
			    "measure nll alone",
			    t, (int)a->response[t], (int)b->response[t]);
	if (p->n < 2)
		return kv_fail(e, KV_END, "the response has no second token, and the first is the prefill's");
	return KV_OK;
}

static int
one_cell(struct kv_stat_cells *c, double x, size_t n, struct kv_err *e)
{
	int rc = kv_stat_cells_new(c, 1, e);

	if (rc == KV_OK)
		c->cell[0] = (struct kv_stat_cell){ x, (double)n };
	return rc;
}

static double
nll_of(const struct rows *r, const int32_t *response, size_t t)
{
	return -kv_log_softmax(r->x + t * r->V, r->V, (size_t)response[t]);
}

int
kv_measure_kl_logits(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct rows p, q;
	double kl = 0;
	int rc = read_both(a, b, &p, &q, e);

	(void)o;
	for (size_t t = 1; rc == KV_OK && t < p.n; t++)
		kl += kv_kl_logits(p.x + t * p.V, q.x + t * q.V, p.V);
	return rc == KV_OK ? one_cell(c, kl, p.n - 1, e) : rc;
}

int
kv_measure_top1(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct rows p, q;
	size_t same = 0;
	int rc = read_both(a, b, &p, &q, e);

	(void)o;
	for (size_t t = 1; rc == KV_OK && t < p.n; t++)
		same += kv_argmax(p.x + t * p.V, p.V) == kv_argmax(q.x + t * q.V, q.V);
	return rc == KV_OK ? one_cell(c, (double)same, p.n - 1, e) : rc;
}

int
kv_measure_nll_diff(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct rows p, q;
	double more = 0;
	int rc = read_both(a, b, &p, &q, e);

	(void)o;
	for (size_t t = 1; rc == KV_OK && t < p.n; t++)
		more += nll_of(&q, a->response, t) - nll_of(&p, a->response, t);
	return rc == KV_OK ? one_cell(c, more, p.n - 1, e) : rc;
}

/* With row 0, as kv-decode --nll counts. */
int
kv_measure_nll(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o, struct kv_stat_cells *c,
    struct kv_err *e)
{
	struct rows r;
	double nll = 0;
	int rc = read_rows(a, &r, e);

	(void)b, (void)o;
	if (rc == KV_OK && r.n == 0)
		rc = kv_fail(e, KV_END, "the response has no tokens");
	for (size_t t = 0; rc == KV_OK && t < r.n; t++)
		nll += nll_of(&r, a->response, t);
	return rc == KV_OK ? one_cell(c, nll, r.n, e) : rc;
}
