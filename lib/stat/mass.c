/* SPDX-License-Identifier: MIT
 * Retained attention mass (METHODS 6.1): the share of raw scores that the kept positions have.  x is what is kept, y
 * all; positions that were not scored carry no weight. */
#include "lib/stat/families.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

static double
sum(const float *x, size_t n)
{
	double all = 0;

	for (size_t i = 0; i < n; i++)
		all += isnan(x[i]) ? 0 : x[i];
	return all;
}

/* Both of `weights` and `choice`, which may be one view, with the same number of heads. */
static int
read_both(struct kv_stat_view *weights, struct kv_stat_view *choice, struct kv_stat_scores *s, struct kv_stat_kept *k,
    struct kv_err *e)
{
	int rc;

	if ((rc = kv_stat_masses(weights, s, e)) != KV_OK || (rc = kv_stat_kept(choice, k, e)) != KV_OK)
		return rc;
	return s->H == k->H ? KV_OK : kv_fail(e, KV_END, "%zu heads have scores, %zu kept entries", s->H, k->H);
}

static int
retained(struct kv_stat_view *weights, struct kv_stat_view *choice, struct kv_stat_cells *c, struct kv_err *e)
{
	struct kv_stat_scores s;
	struct kv_stat_kept k;
	int rc;

	if ((rc = read_both(weights, choice, &s, &k, e)) != KV_OK || (rc = kv_stat_cells_new(c, s.H, e)) < 0)
		return rc;
	for (size_t h = 0; h < s.H; h++) {
		const float *x = s.x + h * s.n;

		c->cell[h].y = sum(x, s.n);
		for (size_t i = k.offset[h]; i < k.offset[h + 1] && (size_t)k.index[i] < s.n; i++)
			c->cell[h].x += isnan(x[k.index[i]]) ? 0 : x[k.index[i]];
	}
	return KV_OK;
}

int
kv_measure_retained(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	(void)b, (void)o;
	return retained(a, a, c, e);
}

int
kv_measure_retained_by(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	(void)o;
	return retained(a, b, c, e);
}

static int
descending(const void *a, const void *b)
{
	const uint32_t x = kv_score_key(*(const float *)a), y = kv_score_key(*(const float *)b);

	return (x < y) - (x > y);
}

/* The best that as many entries of the layer could hold, if they went to whichever head. */
int
kv_measure_bound(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	size_t n_kept = 0, n;
	struct kv_stat_scores s;
	struct kv_stat_kept k;
	float *x;
	int rc;

	(void)b, (void)o;
	if ((rc = read_both(a, a, &s, &k, e)) != KV_OK || (rc = kv_stat_cells_new(c, 1, e)) < 0)
		return rc;
	n = s.H * s.n;
	if ((x = kv_alloc(n, sizeof *x, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < k.H; h++)
		for (size_t i = k.offset[h]; i < k.offset[h + 1]; i++)
			n_kept += (size_t)k.index[i] < s.n;
	for (size_t i = 0; i < n; i++)
		x[i] = s.x[i];
	qsort(x, n, sizeof *x, descending);
	c->cell[0] = (struct kv_stat_cell){ sum(x, n_kept), sum(x, n) };
	free(x);
	return KV_OK;
}
