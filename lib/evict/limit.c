/* SPDX-License-Identifier: MIT
 * What ends a head's set before its budget does: a threshold for the scores, or a share of them all. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/evict/ranking.h"

/* One head. */
struct head {
	const struct kv_ranking *r;
	const float *rank, *tie, *raw; /* [n] */
	const uint8_t *protect;        /* [T] or NULL */
	size_t keep, first, end;       /* candidates: first .. end - 1 */
	size_t masked;                 /* of them, those that `protect` names */
};

static struct head
head_of(const struct kv_ranking *r, size_t h, size_t keep)
{
	const size_t recent = r->n_recent < keep ? r->n_recent : keep, room = keep - recent;
	struct head x = { .r = r, .rank = r->rank + h * r->n, .raw = r->raw + h * r->n, .keep = keep };

	x.tie = r->tie != NULL ? r->tie + h * r->n : NULL;
	x.protect = r->protect != NULL ? r->protect + h * r->T : NULL;
	x.first = r->n_sink < room ? r->n_sink : room;
	x.end = r->T - recent;
	for (size_t i = x.first; x.protect != NULL && i < x.end; i++)
		x.masked += x.protect[i] != 0;
	return x;
}

static bool
is_masked(const struct head *x, size_t i)
{
	return x->protect != NULL && x->protect[i] != 0;
}

/* Entries of the head that stay whatever their score. */
static size_t
fixed(const struct head *x)
{
	const size_t all = x->first + (x->r->T - x->end) + x->masked;

	return all < x->keep ? all : x->keep;
}

static size_t
above(const struct head *x, double least)
{
	size_t n = 0;

	for (size_t i = x->first; i < x->end && i < x->r->n; i++)
		n += !is_masked(x, i) && (double)x->rank[i] >= least;
	return n;
}

/* ---- shares */

struct candidate {
	double rank, tie, mass;
	size_t position;
};

static int
by_rank(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (x->tie != y->tie)
		return x->tie > y->tie ? -1 : 1;
	return x->position < y->position ? -1 : x->position > y->position;
}

static double
number(float x)
{
	return isnan(x) ? -INFINITY : (double)x;
}

/* NaN is no mass. */
static double
mass(const struct head *x, size_t i)
{
	return i < x->r->n && !isnan(x->raw[i]) ? (double)x->raw[i] : 0;
}

/* The scored candidates in their order, c [n] of them; *have: the mass of what stays in any case. */
static size_t
order(const struct head *x, struct candidate *c, double *have)
{
	size_t n = 0;

	*have = 0;
	for (size_t i = 0; i < x->r->n; i++)
		if (i < x->first || i >= x->end || is_masked(x, i))
			*have += mass(x, i);
		else {
			c[n] = (struct candidate){ number(x->rank[i]), x->tie ? number(x->tie[i]) : 0, mass(x, i), i };
			n++;
		}
	qsort(c, n, sizeof *c, by_rank);
	return n;
}

/* How many candidates bring the head to its share.  The total is summed in the order in which they are taken, so that a
 * share of 1 is reached where nothing but zeros is left. */
static size_t
within(const struct head *x, double share, struct candidate *c)
{
	double have, total;
	size_t n = order(x, c, &have), taken = 0;

	total = have;
	for (size_t i = 0; i < n; i++)
		total += c[i].mass;
	while (taken < n && have < share * total)
		have += c[taken++].mass;
	return taken;
}

static int
check_masses(const struct kv_ranking *r, struct kv_err *e)
{
	for (size_t i = 0; i < r->H * r->n; i++)
		if (r->raw[i] < 0 || isinf(r->raw[i]))
			return kv_fail(e, KV_EARG,
			    "a share of these scores means nothing, one is %g: they are not parts of a whole",
			    (double)r->raw[i]);
	return KV_OK;
}

int
kv_ranking_limit(const struct kv_ranking *r, const struct kv_rules *rules, size_t *keep, struct kv_err *e)
{
	struct candidate *c = NULL;
	int rc;

	if (rules->share > 0) {
		if ((rc = check_masses(r, e)) < 0)
			return rc;
		if ((c = kv_alloc(r->n + 1, sizeof *c, e)) == NULL)
			return KV_EMEM;
	}
	for (size_t h = 0; h < r->H; h++) {
		const struct head x = head_of(r, h, keep[h]);
		size_t most = x.keep - fixed(&x), n;

		if (rules->by_score && (n = above(&x, rules->least)) < most)
			most = n;
		if (rules->share > 0 && (n = within(&x, rules->share, c)) < most)
			most = n;
		keep[h] = fixed(&x) + most;
	}
	free(c);
	return KV_OK;
}
