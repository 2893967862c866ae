/* SPDX-License-Identifier: MIT
 * A head's largest score and the deviation of its scores (METHODS 6.2, max-vs-std).  Heads whose attention is one spike
 * lie on the line std = max / sqrt(n). */
#include "lib/stat/families.h"

#include <math.h>

/* Largest and population deviation of one head. */
static int
spread(const float *x, size_t n, double *max, double *sd, struct kv_err *e)
{
	double mean = 0, square = 0, most = -INFINITY;

	for (size_t i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return kv_fail(e, KV_END, "a score is %g, so that there is no deviation", (double)x[i]);
		mean += x[i] / (double)n;
		most = x[i] > most ? x[i] : most;
	}
	for (size_t i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean);
	*max = most;
	*sd = sqrt(square / (double)n);
	return KV_OK;
}

/* Cells with x = max, y = deviation. */
static int
spreads(struct kv_stat_view *v, struct kv_stat_cells *c, struct kv_err *e)
{
	struct kv_stat_scores s;
	int rc = kv_stat_scores(v, false, &s, e);

	if (rc != KV_OK)
		return rc;
	if (s.n == 0)
		return kv_fail(e, KV_END, "no position is scored: the prompt is not longer than the window");
	rc = kv_stat_cells_new(c, s.H, e);
	for (size_t h = 0; h < s.H && rc == KV_OK; h++)
		rc = spread(s.x + h * s.n, s.n, &c->cell[h].x, &c->cell[h].y, e);
	return rc;
}

int
kv_measure_max_std(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	(void)b, (void)o;
	return spreads(a, c, e);
}

int
kv_measure_max(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o, struct kv_stat_cells *c,
    struct kv_err *e)
{
	int rc = spreads(a, c, e);

	(void)b, (void)o;
	for (size_t h = 0; rc == KV_OK && h < c->n; h++)
		c->cell[h].y = 1;
	return rc;
}

int
kv_measure_std(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o, struct kv_stat_cells *c,
    struct kv_err *e)
{
	int rc = spreads(a, c, e);

	(void)b, (void)o;
	for (size_t h = 0; rc == KV_OK && h < c->n; h++)
		c->cell[h] = (struct kv_stat_cell){ c->cell[h].y, 1 };
	return rc;
}
