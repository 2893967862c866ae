/* SPDX-License-Identifier: MIT
 * kv-budget: adds a tensor `budget` to every layer. */
#include <stdlib.h>

#include "bin/filter.h"
#include "lib/budget/budget.h"

#define NO_RATIO (-1.0)

static size_t entries; /* 0: not given */
static double ratio = NO_RATIO;

static const struct kv_opt opts[] = {
	{ "entries", 'b', KV_SIZE, &entries, "ENTRIES", "to keep per head and layer on average", 1, KV_COUNT_MAX,
	    NULL },
	{ "ratio", 'r', KV_DOUBLE, &ratio, "RATIO", "the same as a share of the prompt", 0, 1, NULL },
	{ 0 },
};

static const struct kv_method *
methods(size_t i)
{
	return kv_budget_list[i] != NULL ? &kv_budget_list[i]->about : NULL;
}

static const struct kv_tool tool = {
	.name = "kv-budget",
	.usage = "METHOD [-b ENTRIES | -r RATIO] [options] [FILE...]",
	.brief = "decide how many entries each KV head may keep",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE,
	.methods = methods,
};

/* Heads of all layers and sequences that the method's tally lists. */
static struct {
	const char *name; /* attribute; NULL: none */
	size_t listed, heads;
} tally;

/* Heads of all layers and sequences, and those without any entry. */
static size_t n_heads, n_empty;

static void
count_heads(const struct kv_tensor *budget)
{
	const int32_t *B = budget->data;

	n_heads += budget->shape[0];
	for (size_t h = 0; h < budget->shape[0]; h++)
		n_empty += B[h] == 0;
}

/* What was decided, with what the method has to say about it. */
static void
tell(const struct kv_layer *l)
{
	const struct kv_tensor *budget = kv_step_find(l->step, "budget");
	const json_t *list = tally.name != NULL ? json_object_get(budget->attrs, tally.name) : NULL;
	char *text = kv_common.verbose ? json_dumps(budget->attrs, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

	if (text != NULL)
		kv_note("sequence %zu, layer %d: %s", l->step->seq->number, l->layer, text);
	free(text);
	count_heads(budget);
	tally.listed += json_array_size(list);
	tally.heads += list != NULL ? budget->shape[0] : 0;
}

static int
allot(void *ctx, struct kv_layer *l, size_t n, struct kv_err *e)
{
	int rc = kv_budget_layers(ctx, l, n, e);

	for (size_t i = 0; rc == KV_OK && i < n; i++)
		tell(&l[i]);
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_budgeting x = { .p = &kv_common.params };
	struct kv_filter f = { .keeps = "q,k,v", .run = allot, .ctx = &x };
	const struct kv_budget_method *m;
	char uses[KV_USES_MAX];
	int rc;

	kv_options(argc, argv, &tool);
	m = kv_budget_find(kv_common.params.method->name);
	if (entries != 0 && ratio != NO_RATIO)
		kv_usage(&tool, "give either -b ENTRIES or -r RATIO, not both");
	if (ratio == 0)
		kv_usage(&tool, "--ratio: expected a share of the prompt, above 0 and at most 1");
	if (m->free_total && (entries != 0 || ratio != NO_RATIO))
		kv_usage(&tool, "%s decides itself how much is kept: neither -b nor -r", m->about.name);
	x.grant = (struct kv_grant){ entries, ratio == NO_RATIO ? 0 : ratio };
	f.uses = kv_budget_uses(m, uses);
	f.hold = kv_budget_needs_all(&x);
	tally.name = m->tally;
	rc = kv_filter(argv + 2, &f);
	if (kv_common.verbose && tally.heads > 0)
		kv_note("%s: %zu of %zu heads (%.2f %%)", tally.name, tally.listed, tally.heads,
		    100.0 * (double)tally.listed / (double)tally.heads);
	if (n_empty > 0)
		kv_warn("%zu of %zu heads keep nothing at all", n_empty, n_heads);
	return rc;
}
