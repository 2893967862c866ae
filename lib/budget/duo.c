/* SPDX-License-Identifier: MIT
 * duo: retrieval heads keep everything, streaming heads the first and last tokens (METHODS 3.9, arXiv:2410.10819).
 * Departs from the public code by adding no noise to the gates: equal gates at the threshold stay full. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"
#include "lib/head_table.h"

static const struct kv_param gates = { .name = "gates", .kind = KV_PARAM_TEXT, .arg = "FILE",
	.help = "a number per layer and KV head: JSON or text, see kv-budget(1)" };
static const struct kv_param threshold = { .name = "threshold", .kind = KV_PARAM_NUMBER, .arg = "X", .min = -1e9,
	.max = 1e9, .help = "gate from which a head keeps everything" };
static const struct kv_param sparsity = { .name = "sparsity", .kind = KV_PARAM_NUMBER, .arg = "SHARE", .max = 1,
	.help = "share of heads that stream, instead of a threshold" };
static const struct kv_param sink = { .name = "sink", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX,
	.help = "first tokens that a streaming head keeps" };
static const struct kv_param recent = { .name = "recent", .kind = KV_PARAM_COUNT, .arg = "TOKENS", .max = KV_COUNT_MAX,
	.help = "last tokens that a streaming head keeps" };
static const struct kv_takes takes[] = {
	{ &gates, NULL },
	{ &threshold, "0.5" },
	{ &sparsity, NULL },
	{ &sink, "128" },
	{ &recent, "256" },
	{ 0 },
};

struct state {
	struct kv_head_table gates;
	double threshold;
};

static int
rising(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The s-quantile, interpolated in a line between two neighbours. */
static int
quantile(const struct kv_head_table *t, double s, double *q, struct kv_err *e)
{
	const size_t n = t->L * t->H, i = (size_t)(s * (double)(n - 1));
	double *x = kv_alloc(n, sizeof *x, e), part = s * (double)(n - 1) - (double)i, step;

	if (x == NULL)
		return KV_EMEM;
	memcpy(x, t->x, n * sizeof *x);
	qsort(x, n, sizeof *x, rising);
	step = i + 1 < n ? x[i + 1] - x[i] : 0;
	*q = part < 0.5 ? x[i] + step * part : x[i] + step - step * (1 - part);
	free(x);
	return KV_OK;
}

static int
read_gates(struct kv_params *p, struct kv_err *e)
{
	const double s = kv_number(p, &sparsity);
	struct state *x = kv_alloc(1, sizeof *x, e);
	int rc = KV_OK;

	if (x == NULL)
		return KV_EMEM;
	p->state = x;
	if ((rc = kv_head_table_read(&x->gates, kv_text(p, &gates), -INFINITY, e)) < 0)
		return rc;
	x->threshold = kv_number(p, &threshold);
	if (s >= 1)
		x->threshold = INFINITY; /* none is full, all with 0 */
	else if (s >= 0)
		rc = quantile(&x->gates, s, &x->threshold, e);
	return rc;
}

static void
free_gates(struct kv_params *p)
{
	struct state *x = p->state;

	if (x != NULL)
		kv_head_table_fini(&x->gates);
	free(x);
}

static int
check(const struct kv_params *p, struct kv_err *e)
{
	if (kv_text(p, &gates) == NULL)
		return kv_fail(e, KV_EARG, "needs --gates FILE, the gates of the model's heads");
	if (kv_given(p, &threshold) && kv_given(p, &sparsity))
		return kv_fail(e, KV_EARG, "--threshold and --sparsity: give one of them");
	return KV_OK;
}

static int
duo(const struct kv_budget_layer *l, const struct kv_params *p, uint8_t *keep, size_t *B, struct kv_err *e)
{
	const struct state *x = p->state;
	const size_t T = l->at->T, first = kv_count(p, &sink), last = kv_count(p, &recent),
		     layer = (size_t)l->at->layer;
	json_t *full = json_array();

	if (x->gates.L != l->at->cfg->L || (x->gates.H != l->at->cfg->Hkv && x->gates.H != l->H) ||
	    l->H % x->gates.H != 0) {
		json_decref(full);
		return kv_fail(e, KV_ESHAPE, "%s has %zu layers of %zu heads, the model %zu of %zu", kv_text(p, &gates),
		    x->gates.L, x->gates.H, l->at->cfg->L, l->at->cfg->Hkv);
	}
	for (size_t h = 0; h < l->H; h++) {
		const size_t gate = h / (l->H / x->gates.H);
		const bool all = T <= first + last || x->gates.x[layer * x->gates.H + gate] >= x->threshold;

		for (size_t t = 0; t < T; t++)
			keep[h * T + t] = all || t < first || t >= T - last;
		B[h] = all ? T : first + last;
		if (x->gates.x[layer * x->gates.H + gate] >= x->threshold)
			json_array_append_new(full, json_integer((json_int_t)h));
	}
	return json_object_set_new(l->attrs, "full", full) < 0 ? kv_no_memory(e, sizeof *x) : KV_OK;
}

const struct kv_budget_method kv_budget_duo = {
	.about = {
	    .name = "duo",
	    .brief = "everything or first and last tokens, by gates of heads from a file",
	    .paper = "arXiv:2410.10819",
	    .takes = takes,
	    .check = check,
	    .open = read_gates,
	    .close = free_gates,
	},
	.free_total = true,
	.tally = "full",
	.sets = duo,
};
