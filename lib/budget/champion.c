/* SPDX-License-Identifier: MIT
 * champion: entries in inverse proportion to a head's largest score, the champion (METHODS 3.5, arXiv:2610.18026).  A
 * head whose champion is strong needs few others; one without any is abnormal and gets the floor.  One pass over the
 * scores.
 * No public code is known; METHODS says what is read into the paper. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

static const struct kv_param rho = { .name = "rho", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "what every head gets at least, as a share of the average" };
static const struct kv_param tau = { .name = "tau", .kind = KV_PARAM_NUMBER, .arg = "X", .max = 1e9,
	.help = "a head whose largest score is below this is abnormal" };
static const struct kv_param largest = { .name = "max", .kind = KV_PARAM_CHOICE, .arg = "OF", .choices = "raw|pooled",
	.help = "largest of the raw or of the pooled scores" };
static const struct kv_param residual = { .name = "residual", .kind = KV_PARAM_CHOICE, .arg = "HOW",
	.choices = "round-robin|greedy", .help = "what rounding leaves: one to each in turn, or all to the first" };
static const struct kv_takes takes[] = {
	{ &rho, "0.2" },
	{ &tau, "0.01" },
	{ &largest, "raw" },
	{ &residual, "round-robin" },
	{ 0 },
};

struct head {
	size_t h;
	double w; /* 1 / largest; 0: abnormal */
};

/* Weight falling, head rising. */
static int
by_weight(const void *a, const void *b)
{
	const struct head *x = a, *y = b;

	if (x->w != y->w)
		return x->w > y->w ? -1 : 1;
	return x->h < y->h ? -1 : x->h > y->h;
}

/* Eight at a time, so that one comparison need not wait for another; false for NaN. */
static double
largest_of(const float *s, size_t n)
{
	float m[8];
	size_t i = 0;

	for (size_t j = 0; j < 8; j++)
		m[j] = -INFINITY;
	for (; i + 8 <= n; i += 8)
		for (size_t j = 0; j < 8; j++)
			m[j] = s[i + j] > m[j] ? s[i + j] : m[j];
	for (; i < n; i++)
		m[0] = s[i] > m[0] ? s[i] : m[0];
	for (size_t j = 1; j < 8; j++)
		m[0] = m[j] > m[0] ? m[j] : m[0];
	return (double)m[0];
}

/* x [H], and the attributes `maxima` (null: there is none) and `abnormal`. */
static int
look(const struct kv_budget_layer *l, const struct kv_params *p, const float *s, struct head *x, struct kv_err *e)
{
	json_t *maxima = json_array(), *abnormal = json_array();
	int failed = 0;

	for (size_t h = 0; h < l->H; h++) {
		const double m = largest_of(s + h * l->room, l->room);
		const bool normal = m >= kv_number(p, &tau) && m > 0 && isfinite(m);

		x[h] = (struct head){ h, normal ? 1 / m : 0 };
		failed |= json_array_append_new(maxima, isfinite(m) ? json_real(m) : json_null());
		failed |= normal ? 0 : json_array_append_new(abnormal, json_integer((json_int_t)h));
	}
	failed |= json_object_set_new(l->attrs, "maxima", maxima);
	failed |= json_object_set_new(l->attrs, "abnormal", abnormal);
	return failed ? kv_no_memory(e, l->H * sizeof *x) : KV_OK;
}

/* What is left of the pool goes to the normal heads, best weight first; x [n] in that order. */
static size_t
hand_out(size_t pool, bool greedy, const struct head *x, size_t n, size_t room, size_t *b)
{
	for (bool any = true; pool > 0 && any;) {
		any = false;
		for (size_t i = 0; i < n && pool > 0; i++) {
			const size_t left = room - b[x[i].h], most = greedy ? left : left > 0;
			const size_t more = most < pool ? most : pool;

			b[x[i].h] += more;
			pool -= more;
			any = any || more > 0;
		}
	}
	return pool;
}

static int
share(const struct kv_budget_layer *l, const struct kv_params *p, struct head *x, size_t *b, struct kv_err *e)
{
	const size_t H = l->H, f = (size_t)(kv_number(p, &rho) * (double)l->base);
	const double R = (double)(H * (l->base - f));
	size_t pool = H * l->base, normal = 0;
	double Z = 0;

	for (size_t h = 0; h < H; h++) {
		Z += x[h].w; /* adding 0 changes nothing */
		normal += x[h].w > 0;
	}
	for (size_t h = 0; h < H; h++) {
		const double more = x[h].w > 0 ? floor(R * x[h].w / Z) : 0;

		b[h] = normal == 0 ? l->base : more < (double)(l->room - f) ? f + (size_t)more : l->room;
		pool -= b[h] < pool ? b[h] : pool;
	}
	qsort(x, H, sizeof *x, by_weight);
	pool = hand_out(pool, kv_is(p, &residual, "greedy"), x, normal, l->room, b);
	if (json_object_set_new(l->attrs, "unspent", json_integer((json_int_t)pool)) < 0)
		return kv_no_memory(e, sizeof *x);
	return KV_OK;
}

static int
champion(const struct kv_budget_layer *l, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	struct head *x = kv_alloc(l->H, sizeof *x, e);
	float *pooled = NULL;
	int rc = x != NULL ? KV_OK : KV_EMEM;

	if (rc == KV_OK && kv_is(p, &largest, "pooled")) {
		pooled = kv_alloc(l->H * l->room, sizeof *pooled, e);
		rc = pooled != NULL ? kv_budget_pooled(l, pooled, e) : KV_EMEM;
	}
	if (rc == KV_OK && (rc = look(l, p, pooled != NULL ? pooled : l->raw, x, e)) == KV_OK)
		rc = share(l, p, x, b, e);
	free(pooled);
	free(x);
	return rc;
}

const struct kv_budget_method kv_budget_champion = {
	.about = {
	    .name = "champion",
	    .brief = "entries in inverse proportion to each head's largest score",
	    .paper = "arXiv:2610.18026",
	    .takes = takes,
	},
	.needs = "score",
	.tally = "abnormal",
	.heads = champion,
};
