/* SPDX-License-Identifier: MIT
 * adakv: heads get entries as their scores rank among all heads of the layer (METHODS 3.4, arXiv:2407.11550).
 * Departs from the public code, whose totals are off by its rounding, in --mode exact. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

static const struct kv_param alpha = { .name = "alpha", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "what every head gets at least, as a share of the average" };
static const struct kv_param mode = { .name = "mode", .kind = KV_PARAM_CHOICE, .arg = "HOW",
	.choices = "exact|safeguard|orig", .help = "blend exactly, floors only (kvpress), or AdaKV's own rounding" };
static const struct kv_param normalize = { .name = "normalize", .kind = KV_PARAM_FLAG,
	.help = "weigh heads by how concentrated their scores are" };
static const struct kv_param tie = { .name = "tie", .kind = KV_PARAM_CHOICE, .arg = "RULE", .choices = "raw|position",
	.help = "equal pooled scores: higher raw score first, or lower head and position" };
static const struct kv_takes takes[] = {
	{ &alpha, "0.2" },
	{ &mode, "exact" },
	{ &normalize, NULL },
	{ &tie, "raw" },
	{ 0 },
};

static int
falling(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Sum of the `base` best over the sum of all, both in falling order; 1 if there is nothing.  What is not a number or
 * has no score counts nothing. */
static int
concentration(const double *s, size_t n, size_t base, double *sorted, double *weight, struct kv_err *e)
{
	double num = 0, den = 0;

	for (size_t i = 0; i < n; i++) {
		sorted[i] = isnan(s[i]) || s[i] == -INFINITY ? 0 : s[i];
		if (sorted[i] < 0)
			return kv_fail(e, KV_ESHAPE, "--normalize needs scores of 0 or more, got %g", s[i]);
	}
	qsort(sorted, n, sizeof *sorted, falling);
	for (size_t i = 0; i < n; i++) {
		den += sorted[i];
		num += i < base ? sorted[i] : 0;
	}
	*weight = den > 0 ? num / den : 1;
	return KV_OK;
}

/* s [H][n] times the head's weight. */
static int
weigh(const struct kv_budget_layer *l, double *s, struct kv_err *e)
{
	const size_t n = l->room;
	double *sorted = kv_alloc(n, sizeof *sorted, e), w = 1;
	int rc = sorted != NULL ? KV_OK : KV_EMEM;

	for (size_t h = 0; h < l->H && rc == KV_OK; h++)
		if ((rc = concentration(s + h * n, n, l->base, sorted, &w, e)) == KV_OK)
			for (size_t i = 0; i < n; i++)
				s[h * n + i] *= w;
	free(sorted);
	return rc;
}

/* cnt [H]: how many of the layer's `total` best each head has; the `first` best of every head come before all
 * others. */
static int
count_taken(const struct kv_budget_layer *l, const float *pooled, const float *raw, bool normal, size_t first,
    size_t total, size_t *cnt, struct kv_err *e)
{
	const size_t H = l->H, n = l->room;
	double *s = kv_alloc(H * n, sizeof *s, e);
	uint8_t *taken = kv_alloc(H * n, 1, e);
	int rc = s != NULL && taken != NULL ? KV_OK : KV_EMEM;

	for (size_t i = 0; i < H * n && rc == KV_OK; i++)
		s[i] = (double)pooled[i];
	for (size_t h = 0; h < H && rc == KV_OK; h++)
		rc = kv_best(s + h * n, raw != NULL ? raw + h * n : NULL, n, first, taken + h * n, e);
	if (rc == KV_OK && normal)
		rc = weigh(l, s, e);
	if (rc == KV_OK)
		rc = kv_best(s, raw, H * n, total - H * first, taken, e);
	for (size_t h = 0; h < H && rc == KV_OK; h++) {
		cnt[h] = 0;
		for (size_t i = 0; i < n; i++)
			cnt[h] += taken[h * n + i];
	}
	free(taken);
	free(s);
	return rc;
}

static int
count_best(const struct kv_budget_layer *l, const struct kv_params *p, size_t first, size_t total, size_t *cnt,
    struct kv_err *e)
{
	const float *raw = kv_is(p, &tie, "raw") ? l->raw : NULL;
	const bool normal = kv_flag(p, &normalize);
	float *pooled = kv_alloc_unset(l->H * l->room, sizeof *pooled, e);
	int rc = pooled != NULL ? kv_budget_pooled(l, pooled, e) : KV_EMEM;

	if (rc == KV_OK && !normal && first == 0)
		rc = kv_best_by_head(pooled, raw, l->H, l->room, total, cnt, e);
	else if (rc == KV_OK)
		rc = count_taken(l, pooled, raw, normal, first, total, cnt, e);
	free(pooled);
	return rc;
}

static int
adakv(const struct kv_budget_layer *l, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	const double a = kv_number(p, &alpha);
	const size_t H = l->H, base = l->base, f = (size_t)((double)base * a);
	const bool safeguard = kv_is(p, &mode, "safeguard");
	uint64_t *num;
	int rc;

	if ((rc = count_best(l, p, safeguard ? f : 0, H * base, b, e)) < 0 || safeguard)
		return rc;
	if (kv_is(p, &mode, "orig")) {
		for (size_t h = 0; h < H; h++) {
			const size_t x = (size_t)rintf((float)b[h] * (float)(1 - a) + (float)f);

			b[h] = x < l->room ? x : l->room;
		}
		return KV_OK;
	}
	if ((num = kv_alloc(H, sizeof *num, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < H; h++)
		num[h] = (uint64_t)f * base + (uint64_t)b[h] * (base - f);
	rc = kv_apportion(num, base, H, H * base, b, e);
	free(num);
	return rc;
}

static bool
inexact(const struct kv_params *p)
{
	return kv_is(p, &mode, "orig");
}

const struct kv_budget_method kv_budget_adakv = {
	.about = {
	    .name = "adakv",
	    .brief = "entries as the heads' scores rank among each other",
	    .paper = "arXiv:2407.11550",
	    .takes = takes,
	},
	.needs = "score",
	.inexact = inexact,
	.heads = adakv,
};
