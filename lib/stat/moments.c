/* SPDX-License-Identifier: MIT
 * What many cells are worth together, in one pass. */
#include <math.h>

#include "lib/stat/stat.h"

double
kv_cell_value(struct kv_stat_cell c)
{
	return c.y == 0 ? 1 : c.x / c.y;
}

void
kv_moments_add(struct kv_moments *m, struct kv_stat_cell c)
{
	const double dx = c.x - m->mx, dy = c.y - m->my;

	m->n++;
	m->sum += kv_cell_value(c);
	m->x += c.x;
	m->y += c.y;
	m->xx += c.x * c.x;
	m->xy += c.x * c.y;
	/* centred as they come (Welford), so that large means do not eat small deviations */
	m->mx += dx / (double)m->n;
	m->my += dy / (double)m->n;
	m->cxx += dx * (c.x - m->mx);
	m->cyy += dy * (c.y - m->my);
	m->cxy += dx * (c.y - m->my);
}

double
kv_moments_value(const struct kv_moments *m, enum kv_stat_total t)
{
	if (m->n == 0)
		return NAN;
	switch (t) {
	case KV_STAT_MEAN: return m->sum / (double)m->n;
	case KV_STAT_RATIO: return kv_cell_value((struct kv_stat_cell){ m->x, m->y });
	case KV_STAT_SUM: return m->sum;
	case KV_STAT_SLOPE: return m->xx > 0 ? m->xy / m->xx : 0;
	case KV_STAT_PEARSON:
		if (m->n < 2)
			return NAN;
		return m->cxx > 0 && m->cyy > 0 ? m->cxy / sqrt(m->cxx * m->cyy) : 0;
	}
	return NAN;
}
