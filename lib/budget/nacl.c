/* SPDX-License-Identifier: MIT
 * nacl: the best entries by score, and some of the others drawn at random (METHODS 2.8, arXiv:2408.03675).
 * Departs from the public code: a fixed budget, and random numbers that can be had again, an exponential race over a
 * hash of the entry's place. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"
#include "lib/hash.h"

static const struct kv_param share = { .name = "random", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "of the unprotected entries, drawn at random" };
static const struct kv_param temperature = { .name = "temperature", .kind = KV_PARAM_NUMBER, .arg = "X", .max = 1e9,
	.help = "of the softmax over scores that chances follow; 0: equal chances" };
static const struct kv_takes takes[] = {
	{ &share, "0.37" },
	{ &temperature, "1" },
	{ &kv_param_seed, "42" },
	{ 0 },
};

/* One head's candidates, positions first .. first + n - 1, and room for n numbers each. */
struct draw {
	size_t first, n;
	double *s, *race;
	uint8_t *taken;
};

/* race [n]: minus the time at which an entry comes in, -ln(u) / p. */
static void
run_race(const struct draw *d, const struct kv_params *p, size_t layer, size_t h)
{
	const double t = kv_number(p, &temperature);
	double max = -INFINITY, sum = 0;

	for (size_t i = 0; i < d->n; i++)
		max = !d->taken[i] && d->s[i] / t > max ? d->s[i] / t : max;
	for (size_t i = 0; i < d->n; i++) {
		d->race[i] = t > 0 && max > -INFINITY ? exp(d->s[i] / t - max) : 1;
		sum += d->taken[i] ? 0 : d->race[i];
	}
	for (size_t i = 0; i < d->n; i++) {
		const uint64_t hash = kv_hash_slot(kv_seed(p, &kv_param_seed), layer, h, d->first + i);
		const double u = ((double)(hash >> 11) + 0.5) * 0x1p-53, chance = d->race[i] / sum;

		d->race[i] = chance > 0 ? log(u) / chance : -INFINITY;
	}
}

/* One head keeps `det` by score and `rnd` by chance. */
static int
draw(const struct draw *d, const float *raw, size_t det, size_t rnd, const struct kv_params *p, size_t layer, size_t h,
    struct kv_err *e)
{
	int rc;

	for (size_t i = 0; i < d->n; i++) {
		d->s[i] = isnan(raw[i]) ? -INFINITY : (double)raw[i];
		d->taken[i] = 0;
	}
	if ((rc = kv_best(d->s, NULL, d->n, det, d->taken, e)) < 0 || rnd == 0)
		return rc;
	run_race(d, p, layer, h);
	return kv_best(d->race, NULL, d->n, rnd, d->taken, e);
}

static int
nacl(const struct kv_budget_layer *l, const struct kv_params *p, uint8_t *keep, size_t *B, struct kv_err *e)
{
	const size_t T = l->at->T, fixed = T - l->room;
	struct draw d = { .s = kv_alloc(2 * l->room + 1, sizeof *d.s, e), .taken = kv_alloc(l->room + 1, 1, e) };
	int rc = d.s != NULL && d.taken != NULL ? KV_OK : KV_EMEM;

	d.race = d.s + l->room;
	for (size_t h = 0; h < l->H && rc == KV_OK; h++) {
		size_t C = l->given != NULL ? (size_t)l->given[h] : l->base + fixed, recent, sinks, rest, rnd;

		/* the edges of METHODS 4 */
		B[h] = C = C < T ? C : T;
		recent = l->n_recent < C ? l->n_recent : C;
		sinks = l->n_sink < C - recent ? l->n_sink : C - recent;
		rest = C - recent - sinks;
		rnd = (size_t)(kv_number(p, &share) * (double)rest);
		d.first = sinks;
		d.n = rest > 0 ? T - recent - sinks : 0;
		rc = draw(&d, l->raw + h * l->room, rest - rnd, rnd, p, (size_t)l->at->layer, h, e);
		for (size_t t = 0; t < T; t++)
			keep[h * T + t] = t < sinks || t >= T - recent || (t - sinks < d.n && d.taken[t - sinks]);
	}
	free(d.taken);
	free(d.s);
	return rc;
}

const struct kv_budget_method kv_budget_nacl = {
	.about = {
	    .name = "nacl",
	    .brief = "the best entries by score, and some of the others at random",
	    .paper = "arXiv:2408.03675",
	    .takes = takes,
	},
	.needs = "score",
	.sets = nacl,
};
