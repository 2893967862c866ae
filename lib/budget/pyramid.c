/* SPDX-License-Identifier: MIT
 * pyramid: many entries in the first layer, few in the last, linear in between (METHODS 3.3, arXiv:2406.02069).
 * Departs from the public code, which spends more or less than was granted, by working in rationals; --variant has the
 * public ones. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

static const struct kv_param beta = { .name = "beta", .kind = KV_PARAM_COUNT, .arg = "N", .min = 1, .max = 1000000,
	.help = "the last layer's share: an N-th of the average" };
static const struct kv_param variant = { .name = "variant", .kind = KV_PARAM_CHOICE, .arg = "WHOSE",
	.choices = "exact|kvcf|adakv|kvpress",
	.help = "exact totals, or the rounding of KVCache-Factory, AdaKV or kvpress" };
static const struct kv_takes takes[] = { { &beta, "20" }, { &variant, "exact" }, { 0 } };

/* base * (2 beta - 1) * (L - 1) < 2^31 * 2^21 * L: 64 bits suffice for every L below 4096. */
static int
exact(const struct kv_budget_prompt *all, size_t b, size_t *base_l, struct kv_err *e)
{
	const uint64_t L = all->L, base = all->base, n = all->room;
	const bool fits = base * (2 * b - 1) <= n * b; /* the first layer's share */
	uint64_t *num = kv_alloc(L, sizeof *num, e);
	int rc;

	if (num == NULL)
		return KV_EMEM;
	for (uint64_t l = 0; l < L; l++)
		num[l] =
		    fits ? base * (2 * b - 1) * (L - 1) - l * base * (2 * b - 2) : n * (L - 1) - 2 * l * (n - base);
	rc = kv_apportion(num, fits ? b * (L - 1) : L - 1, L, L * base, base_l, e);
	free(num);
	return rc;
}

/* KVCache-Factory and AdaKV: whole steps, which overspend.  uniform_below: KVCache-Factory's way out for short
 * prompts. */
static void
whole_steps(const struct kv_budget_prompt *all, size_t b, bool uniform_below, size_t *base_l)
{
	const size_t base = all->base, n = all->room;
	size_t lo = base / b, hi = 2 * base - lo;

	if (hi >= n) {
		hi = n;
		lo = 2 * base - hi;
	}
	for (size_t l = 0; l < all->L; l++)
		base_l[l] = uniform_below && all->T < 2 * base ? base : hi - l * ((hi - lo) / (all->L - 1));
}

/* kvpress: in floating point, the protected entries inside the schedule. */
static void
kvpress(const struct kv_budget_prompt *all, size_t b, size_t *base_l)
{
	const size_t W = all->T - all->room;
	const double C = (double)(all->base + W), n = (double)all->room;
	double lo = C / (double)b, hi = C * 2 - lo;

	if (hi >= n) {
		hi = n;
		lo = C * 2 - hi;
	}
	for (size_t l = 0; l < all->L; l++)
		if (!((double)all->T >= hi && hi >= lo && lo >= (double)W))
			base_l[l] = all->base;
		else
			base_l[l] = (size_t)nearbyint(hi - (double)l * ((hi - lo) / (double)(all->L - 1))) - W;
}

static int
pyramid(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *base_l, struct kv_err *e)
{
	const size_t b = kv_count(p, &beta);

	if (all->L == 1) /* where the public code divides by zero */
		base_l[0] = all->base;
	else if (kv_is(p, &variant, "exact"))
		return exact(all, b, base_l, e);
	else if (kv_is(p, &variant, "kvpress"))
		kvpress(all, b, base_l);
	else
		whole_steps(all, b, kv_is(p, &variant, "kvcf"), base_l);
	return KV_OK;
}

static bool
inexact(const struct kv_params *p)
{
	return !kv_is(p, &variant, "exact");
}

const struct kv_budget_method kv_budget_pyramid = {
	.about = {
	    .name = "pyramid",
	    .brief = "many entries in the first layers, few in the last",
	    .paper = "arXiv:2406.02069",
	    .takes = takes,
	},
	.inexact = inexact,
	.layers = pyramid,
};
