/* SPDX-License-Identifier: MIT */
#include "lib/model/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/buf.h"

/* Token ids in order of preference, taken one by one.  The ids that are still to come form a heap, best first, in
 * ids[0 .. left-1]; those taken stand behind it, so that number j is ids[n-1-j]. */
struct ranking {
	const float *logits;
	int32_t *ids;
	size_t n, left;
};

/* The larger logit, the lower id among equals. */
static bool
is_better(const float *logits, int32_t a, int32_t b)
{
	return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void
sift_down(struct ranking *r, size_t i)
{
	int32_t id = r->ids[i];
	size_t child;

	while ((child = 2 * i + 1) < r->left) {
		if (child + 1 < r->left && is_better(r->logits, r->ids[child + 1], r->ids[child]))
			child++;
		if (!is_better(r->logits, r->ids[child], id))
			break;
		r->ids[i] = r->ids[child];
		i = child;
	}
	r->ids[i] = id;
}

static int
ranking_init(struct ranking *r, const float *logits, size_t n, struct kv_err *e)
{
	*r = (struct ranking){ .logits = logits, .n = n, .left = n, .ids = kv_alloc(n, sizeof *r->ids, e) };
	if (r->ids == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		r->ids[i] = (int32_t)i;
	for (size_t i = n / 2; i-- > 0;)
		sift_down(r, i);
	return KV_OK;
}

/* Number j in order of preference, j at most the number taken so far. */
static int32_t
ranking_get(struct ranking *r, size_t j)
{
	if (j == r->n - r->left) {
		int32_t best = r->ids[0];

		r->ids[0] = r->ids[--r->left];
		r->ids[r->left] = best;
		if (r->left > 0)
			sift_down(r, 0);
	}
	return r->ids[r->n - 1 - j];
}

/* Sebastiano Vigna's splitmix64 step. */
static uint64_t
mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Uniform in (0, 1), one of 2^52 values. */
static double
uniform(uint64_t seed, uint64_t stream, uint64_t position)
{
	uint64_t h = mix(mix(mix(seed) ^ stream) ^ position);

	return ((double)(h >> 12) + 0.5) * 0x1p-52;
}

static size_t
largest(const float *logits, size_t n)
{
	size_t best = 0;

	for (size_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

/* A distribution over the first `keep` of the ranking; weights are relative to the best one's 1. */
struct choice {
	struct ranking r;
	double temperature, max;
	size_t keep;
	double sum; /* of the kept weights */
};

static double
weight(const struct choice *c, int32_t id)
{
	return exp(((double)c->r.logits[id] - c->max) / c->temperature);
}

static void
keep_top_k(struct choice *c, size_t k)
{
	c->sum = 0;
	c->keep = k > 0 && k < c->r.n ? k : c->r.n;
	if (c->keep == c->r.n) {
		for (size_t i = 0; i < c->r.n; i++)
			c->sum += weight(c, (int32_t)i);
		return;
	}
	for (size_t j = 0; j < c->keep; j++)
		c->sum += weight(c, ranking_get(&c->r, j));
}

/* Both cut the distribution that top-k left: the shortest head of the ranking with a share of at least top_p, and
 * what has at least min_p of the best one's probability.  The best one always stays. */
static void
keep_likely(struct choice *c, double top_p, double min_p)
{
	double sum = 0, w, enough = top_p < 1 ? top_p * c->sum : INFINITY;
	size_t j;

	if (top_p >= 1 && min_p <= 0)
		return;
	for (j = 0; j < c->keep && sum < enough; j++) {
		if ((w = weight(c, ranking_get(&c->r, j))) < min_p && j > 0)
			break;
		sum += w;
	}
	c->keep = j;
	c->sum = sum;
}

static int32_t
draw(struct choice *c, double u)
{
	double sum = 0, w;
	int32_t id = ranking_get(&c->r, 0);

	/* Rounding may leave the sum a little short of u * c->sum at the end: then it is the last one that can be
	 * drawn. */
	for (size_t j = 0; j < c->keep && sum <= u * c->sum; j++) {
		int32_t next = ranking_get(&c->r, j);

		if ((w = weight(c, next)) == 0)
			break;
		id = next;
		sum += w;
	}
	return id;
}

static int
check(const struct kv_sampler *s, const float *logits, size_t n, struct kv_err *e)
{
	if (!(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1) ||
	    isinf(s->temperature))
		return kv_fail(e, KV_EARG,
		    "sampling wants temperature >= 0, 0 < top-p <= 1, 0 <= min-p <= 1, not %g, %g, %g", s->temperature,
		    s->top_p, s->min_p);
	if (n == 0)
		return kv_fail(e, KV_ESHAPE, "no logits to choose from");
	for (size_t i = 0; i < n; i++)
		if (!isfinite(logits[i]))
			return kv_fail(e, KV_EFAIL, "the logit of token %zu is %g", i, (double)logits[i]);
	return KV_OK;
}

int
kv_sample(const struct kv_sampler *s, uint64_t stream, uint64_t position, const float *logits, size_t n, int32_t *id,
    struct kv_err *e)
{
	struct choice c = { .temperature = s->temperature };
	int rc = check(s, logits, n, e);
	size_t best;

	if (rc < 0)
		return rc;
	best = largest(logits, n);
	if (s->temperature == 0) {
		*id = (int32_t)best;
		return KV_OK;
	}
	if ((rc = ranking_init(&c.r, logits, n, e)) < 0)
		return rc;
	c.max = logits[best];
	keep_top_k(&c, s->top_k);
	keep_likely(&c, s->top_p, s->min_p);
	*id = draw(&c, uniform(s->seed, stream, position));
	free(c.r.ids);
	return KV_OK;
}

double
kv_log_prob(const float *logits, size_t n, int32_t id)
{
	double max = logits[largest(logits, n)], sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += exp((double)logits[i] - max);
	return (double)logits[id] - max - log(sum);
}
