/* SPDX-License-Identifier: MIT
 * headkv: entries by importances of heads that were measured beforehand, shared over all layers at once (METHODS 3.6,
 * arXiv:2410.19258).  Departs from the public code, whose totals are off by its rounding, in --mode exact.  Nobody
 * hands on what a head has no room for, nor do we. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"
#include "lib/head_table.h"

static const struct kv_param importance = { .name = "importance", .kind = KV_PARAM_TEXT, .arg = "FILE",
	.help = "a number per layer and query head: JSON or text, see kv-budget(1)" };
static const struct kv_param beta = { .name = "beta", .kind = KV_PARAM_NUMBER, .arg = "X", .min = 1, .max = 1e9,
	.help = "an X-th of the entries is shared by importance" };
static const struct kv_param temp = { .name = "temp", .kind = KV_PARAM_NUMBER, .arg = "X", .max = 1e3,
	.help = "power that importances are raised to" };
static const struct kv_param mode = { .name = "mode", .kind = KV_PARAM_CHOICE, .arg = "HOW", .choices = "exact|orig",
	.help = "exact totals, or HeadKV's own rounding" };
static const struct kv_takes takes[] = {
	{ &importance, NULL },
	{ &beta, "1.01" },
	{ &temp, "1" },
	{ &mode, "exact" },
	{ 0 },
};

/* The importances, which become shares of 1 at once; p->state. */
static int
read_shares(struct kv_params *p, struct kv_err *e)
{
	struct kv_head_table *t = kv_alloc(1, sizeof *t, e);
	const double power = kv_number(p, &temp);
	double sum = 0, sum2 = 0;
	int rc;

	if (t == NULL)
		return KV_EMEM;
	if ((rc = kv_head_table_read(t, kv_text(p, &importance), 0, e)) < 0)
		goto done;
	for (size_t i = 0; i < t->L * t->H; i++)
		sum += t->x[i];
	if (!(sum > 0) || isinf(sum)) {
		rc = kv_fail(e, KV_EFORMAT, "%s: the importances sum to %g", kv_text(p, &importance), sum);
		goto done;
	}
	for (size_t i = 0; i < t->L * t->H; i++) {
		t->x[i] /= sum;
		if (power != 1)
			t->x[i] = pow(t->x[i], power);
		sum2 += t->x[i];
	}
	for (size_t i = 0; i < t->L * t->H && power != 1; i++)
		t->x[i] /= sum2;
	p->state = t;
	return KV_OK;
done:
	kv_head_table_fini(t);
	free(t);
	return rc;
}

static void
free_shares(struct kv_params *p)
{
	struct kv_head_table *t = p->state;

	if (t != NULL)
		kv_head_table_fini(t);
	free(t);
}

static int
check(const struct kv_params *p, struct kv_err *e)
{
	if (kv_text(p, &importance) == NULL)
		return kv_fail(e, KV_EARG, "needs --importance FILE, the importances of the model's heads");
	return KV_OK;
}

/* Largest fraction first, lower index first. */
struct fraction {
	double x;
	size_t i;
};

static int
by_fraction(const void *a, const void *b)
{
	const struct fraction *x = a, *y = b;

	if (x->x != y->x)
		return x->x > y->x ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

/* The whole number that Python's base // beta is. */
static size_t
floor_quotient(double base, double b)
{
	return (size_t)nearbyint((base - fmod(base, b)) / b);
}

/* b [n]: lo + floor(frac * pool), and what that leaves. */
static int
exact(const double *frac, size_t n, size_t pool, size_t lo, size_t *b, struct kv_err *e)
{
	struct fraction *f = kv_alloc(n, sizeof *f, e);
	size_t left = pool;

	if (f == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		const double t = frac[i] * (double)pool, whole = floor(t);

		f[i] = (struct fraction){ t - whole, i };
		b[i] = lo + (size_t)whole;
		left -= (size_t)whole < left ? (size_t)whole : left;
	}
	qsort(f, n, sizeof *f, by_fraction);
	for (size_t i = 0; i < n && i < left; i++)
		b[f[i].i]++;
	free(f);
	return KV_OK;
}

/* From query heads, q [L][G * H], to KV heads, b [L][H]: their mean; --mode exact keeps the sum, METHODS 3.1. */
static int
group_means(const size_t *q, size_t G, size_t n, bool orig, size_t *b, struct kv_err *e)
{
	uint64_t *sum = kv_alloc(n, sizeof *sum, e), total = 0;
	int rc = KV_OK;

	if (sum == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n * G; i++) {
		sum[i / G] += q[i];
		total += q[i];
	}
	if (!orig)
		rc = kv_apportion(sum, G, n, total / G, b, e);
	for (size_t i = 0; i < n && orig; i++)
		b[i] = (size_t)nearbyint((double)sum[i] / (double)G);
	free(sum);
	return rc;
}

static int
headkv(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	const struct kv_head_table *t = p->state;
	const bool orig = kv_is(p, &mode, "orig");
	const size_t n = t->L * t->H, share = floor_quotient((double)all->base, kv_number(p, &beta));
	const size_t pool = share * n, lo = all->base - share;
	size_t *q;
	int rc = KV_OK;

	if (t->L != all->L || (t->H != all->H && t->H != all->cfg->Hq) || t->H % all->H != 0)
		return kv_fail(e, KV_ESHAPE,
		    "%s has %zu layers of %zu heads, here are %zu layers of %zu query heads (%zu with budgets)",
		    kv_text(p, &importance), t->L, t->H, all->L, all->cfg->Hq, all->H);
	if ((q = kv_alloc(n, sizeof *q, e)) == NULL)
		return KV_EMEM;
	if (!orig)
		rc = exact(t->x, n, pool, lo, q, e);
	for (size_t i = 0; i < n; i++) {
		q[i] = orig ? (size_t)nearbyint(t->x[i] * (double)pool + (double)lo) : q[i];
		q[i] = q[i] < all->room ? q[i] : all->room;
	}
	if (rc == KV_OK)
		rc = group_means(q, t->H / all->H, all->L * all->H, orig, b, e);
	free(q);
	return rc;
}

static bool
inexact(const struct kv_params *p)
{
	return kv_is(p, &mode, "orig");
}

const struct kv_budget_method kv_budget_headkv = {
	.about = {
	    .name = "headkv",
	    .brief = "entries by importances of heads, from a file, over all layers",
	    .paper = "arXiv:2410.19258",
	    .takes = takes,
	    .check = check,
	    .open = read_shares,
	    .close = free_shares,
	},
	.inexact = inexact,
	.global = headkv,
};
