/* SPDX-License-Identifier: MIT
 * Two streams' scores and kept sets, head by head (METHODS 6.2).  Scores are compared over the columns that both have.
 */
#include "lib/stat/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

/* Scores of both, over n columns. */
struct both {
	struct kv_stat_scores a, b;
	size_t H, n;
};

static int
common(struct both *x, struct kv_err *e)
{
	if (x->a.H != x->b.H)
		return kv_fail(e, KV_END, "%zu heads have scores in A, %zu in B", x->a.H, x->b.H);
	x->H = x->a.H;
	x->n = x->a.n < x->b.n ? x->a.n : x->b.n;
	return KV_OK;
}

static int
read_both(struct both *x, struct kv_stat_view *a, struct kv_stat_view *b, bool pooled, struct kv_err *e)
{
	int rc = kv_stat_scores(a, pooled, &x->a, e);

	if (rc == KV_OK)
		rc = kv_stat_scores(b, pooled, &x->b, e);
	return rc == KV_OK ? common(x, e) : rc;
}

static const float *
row(const struct kv_stat_scores *s, size_t h)
{
	return s->x + h * s->n;
}

/* ---- sets */

/* Members of both of two ascending lists. */
static size_t
n_shared(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
	size_t i = 0, j = 0, n = 0;

	while (i < n_a && j < n_b) {
		n += a[i] == b[j];
		if (a[i] <= b[j]) {
			j += a[i] == b[j];
			i++;
		} else {
			j++;
		}
	}
	return n;
}

int
kv_measure_overlap(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct kv_stat_kept k, m;
	int rc;

	(void)o;
	if ((rc = kv_stat_kept(a, &k, e)) != KV_OK || (rc = kv_stat_kept(b, &m, e)) != KV_OK)
		return rc;
	if (k.H != m.H)
		return kv_fail(e, KV_END, "%zu heads have kept entries in A, %zu in B", k.H, m.H);
	rc = kv_stat_cells_new(c, k.H, e);
	for (size_t h = 0; rc == KV_OK && h < k.H; h++) {
		const size_t n = k.offset[h + 1] - k.offset[h], l = m.offset[h + 1] - m.offset[h];

		c->cell[h].x = 2 * (double)n_shared(k.index + k.offset[h], n, m.index + m.offset[h], l);
		c->cell[h].y = (double)(n + l);
	}
	return rc;
}

/* top [H][k]: the k best of each head's first n columns, ascending. */
static int
top_of(
    const struct kv_stat_view *v, const struct kv_stat_scores *s, size_t n, size_t k, int32_t **top, struct kv_err *e)
{
	float *x = kv_alloc(s->H * n, sizeof *x, e);
	size_t *offset = kv_alloc(s->H + 1, sizeof *offset, e);
	const struct kv_selection job = { .H = s->H, .n = n, .T = n, .raw = x, .tie = KV_TIE_POSITION,
		.offset = offset };
	int rc = KV_EMEM;

	*top = kv_alloc(s->H * k, sizeof **top, e);
	if (x == NULL || offset == NULL || *top == NULL)
		goto done;
	for (size_t h = 0; h < s->H; h++) {
		memcpy(x + h * n, row(s, h), n * sizeof *x);
		offset[h + 1] = offset[h] + k;
	}
	rc = kv_stat_select(v, &job, *top, e);
done:
	free(offset);
	free(x);
	return rc;
}

int
kv_measure_recall(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	int32_t *top_a = NULL, *top_b = NULL;
	struct both x;
	size_t k;
	int rc;

	if ((rc = read_both(&x, a, b, o->pooled, e)) != KV_OK)
		return rc;
	k = o->k < x.n ? o->k : x.n;
	if ((rc = top_of(a, &x.a, x.n, k, &top_a, e)) < 0 || (rc = top_of(b, &x.b, x.n, k, &top_b, e)) < 0 ||
	    (rc = kv_stat_cells_new(c, x.H, e)) < 0)
		goto done;
	for (size_t h = 0; h < x.H; h++)
		c->cell[h] = (struct kv_stat_cell){ (double)n_shared(top_a + h * k, k, top_b + h * k, k), (double)k };
done:
	free(top_b);
	free(top_a);
	return rc;
}

/* ---- vectors */

int
kv_measure_kendall(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct both x;
	int rc = read_both(&x, a, b, o->pooled, e);

	if (rc == KV_OK)
		rc = kv_stat_cells_new(c, x.H, e);
	for (size_t h = 0; rc == KV_OK && h < x.H; h++) {
		c->cell[h].y = 1;
		rc = kv_kendall(row(&x.a, h), row(&x.b, h), x.n, &c->cell[h].x, e);
	}
	return rc;
}

int
kv_measure_pearson(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct both x;
	int rc = read_both(&x, a, b, o->pooled, e);

	if (rc == KV_OK)
		rc = kv_stat_cells_new(c, x.H, e);
	for (size_t h = 0; rc == KV_OK && h < x.H; h++) {
		c->cell[h] = (struct kv_stat_cell){ kv_pearson(row(&x.a, h), row(&x.b, h), x.n), 1 };
		if (!isfinite(c->cell[h].x))
			rc = kv_fail(e, KV_END, "scores of head %zu are not finite", h);
	}
	return rc;
}

int
kv_measure_kl_scores(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	struct both x;
	int rc;

	(void)o;
	if ((rc = kv_stat_masses(a, &x.a, e)) != KV_OK || (rc = kv_stat_masses(b, &x.b, e)) != KV_OK ||
	    (rc = common(&x, e)) != KV_OK)
		return rc;
	rc = kv_stat_cells_new(c, x.H, e);
	for (size_t h = 0; rc == KV_OK && h < x.H; h++)
		c->cell[h] = (struct kv_stat_cell){ kv_kl_scores(row(&x.a, h), row(&x.b, h), x.n), 1 };
	return rc;
}
