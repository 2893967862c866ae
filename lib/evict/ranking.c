/* SPDX-License-Identifier: MIT
 * From scores to what ranks: pooled, one set of all heads, units of several positions.
 *
 * Sums run in double precision from the lower head or position to the higher one, so that the ranks are the same on
 * every machine.  NaN counts as -inf, as where single positions are ranked. */
#include "lib/evict/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

static double
number(float x)
{
	return isnan(x) ? -INFINITY : (double)x;
}

/* x [H][n] -> its mean over heads [n], owned by the caller. */
static float *
mean_of_heads(const float *x, size_t H, size_t n, struct kv_err *e)
{
	float *y = kv_alloc(n, sizeof *y, e);

	for (size_t i = 0; y != NULL && i < n; i++) {
		double sum = 0;

		for (size_t h = 0; h < H; h++)
			sum += number(x[h * n + i]);
		y[i] = (float)(sum / (double)H);
	}
	return y;
}

/* The heads become one. */
static int
unite(struct kv_ranking *r, const struct kv_selection *s, struct kv_err *e)
{
	float *rank = mean_of_heads(r->rank, s->H, s->n, e), *raw = mean_of_heads(s->raw, s->H, s->n, e);

	free(r->own_rank);
	r->rank = r->own_rank = rank;
	r->raw = r->own_raw = raw;
	if (rank == NULL || raw == NULL)
		return KV_EMEM;
	r->H = 1;
	if (s->protect == NULL)
		return KV_OK;
	if ((r->own_protect = kv_alloc(s->T, 1, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < s->H * s->T; i++)
		r->own_protect[i % s->T] |= s->protect[i];
	r->protect = r->own_protect;
	return KV_OK;
}

/* One number from x[from .. end-1], from < end. */
static float
of_unit(const float *x, size_t from, size_t end, enum kvk_reduce how)
{
	double y = number(x[from]);

	for (size_t i = from + 1; i < end; i++)
		y = how != KVK_MAX ? y + number(x[i]) : y < number(x[i]) ? number(x[i]) : y;
	return (float)(how == KVK_MEAN ? y / (double)(end - from) : y);
}

/* x [H][n] -> every candidate has its unit's score; owned by the caller. */
static float *
units(const struct kv_ranking *r, const float *x, const struct kv_rules *rules, struct kv_err *e)
{
	const size_t last = r->T > r->n_recent ? r->T - r->n_recent : 0, stop = last < r->n ? last : r->n;
	float *y = kv_alloc(r->H * r->n, sizeof *y, e);

	for (size_t h = 0; y != NULL && h < r->H; h++)
		for (size_t i = r->n_sink, end; i < stop; i = end) {
			end = stop - i > rules->chunk - i % rules->chunk ? i + rules->chunk - i % rules->chunk : stop;
			const float score = of_unit(x + h * r->n, i, end, rules->unit);

			for (size_t j = i; j < end; j++)
				y[h * r->n + j] = score;
		}
	return y;
}

static int
make_units(struct kv_ranking *r, const struct kv_selection *s, struct kv_err *e)
{
	float *rank = units(r, r->rank, &s->rules, e);

	free(r->own_rank);
	r->rank = r->own_rank = rank;
	if (rank == NULL)
		return KV_EMEM;
	/* without it the raw scores of single positions would take equal units apart */
	if (r->tie != NULL && (r->tie = r->own_tie = units(r, r->raw, &s->rules, e)) == NULL)
		return KV_EMEM;
	return KV_OK;
}

/* Does the host look at nothing that ranks? */
static bool
is_plain(const struct kv_rules *r)
{
	return !r->uniform_heads && r->chunk <= 1 && !r->by_score && r->share <= 0;
}

int
kv_ranking_init(struct kv_ranking *r, struct kv_device *d, const struct kv_selection *s, struct kv_err *e)
{
	const bool pools = s->score != NULL && s->score->pool != KVK_POOL_NONE;
	int rc = KV_OK;

	*r = (struct kv_ranking){ .H = s->H,
		.n = s->n,
		.T = s->T,
		.n_sink = s->n_sink,
		.n_recent = s->n_recent,
		.rank = s->raw,
		.raw = s->raw,
		.protect = s->protect };
	if (pools && s->n > 0 && is_plain(&s->rules)) {
		r->pool = s->score;
	} else if (pools && s->n > 0) {
		if ((r->own_rank = kv_alloc(s->H * s->n, sizeof *r->own_rank, e)) == NULL)
			return KV_EMEM;
		r->rank = r->own_rank;
		rc = kv_pooled(d, s->score, s->raw, s->H, s->n, r->own_rank, e);
	}
	if (rc == KV_OK && s->rules.uniform_heads)
		rc = unite(r, s, e);
	if (pools && s->tie == KV_TIE_RAW)
		r->tie = r->raw;
	if (rc == KV_OK && s->rules.chunk > 1)
		rc = make_units(r, s, e);
	return rc;
}

void
kv_ranking_fini(struct kv_ranking *r)
{
	free(r->own_protect);
	free(r->own_tie);
	free(r->own_raw);
	free(r->own_rank);
}
