/* SPDX-License-Identifier: MIT
 * The table of allocators, and the step that every program runs for one layer. */
#include "lib/budget/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

const struct kv_budget *const kv_budget_list[] = {
	&kv_budget_uniform,
	NULL,
};

const struct kv_budget *
kv_budget_find(const char *name)
{
	for (const struct kv_budget *const *m = kv_budget_list; *m != NULL; m++)
		if (strcmp((*m)->name, name) == 0)
			return *m;
	return NULL;
}

int
kv_grant_capacity(const struct kv_grant *g, size_t T, size_t *C, struct kv_err *e)
{
	if ((g->entries != 0) == (g->ratio != 0))
		return kv_fail(e, KV_EARG, "give either -b ENTRIES or -r RATIO");
	if (g->entries > KV_COUNT_MAX)
		return kv_fail(e, KV_EARG, "-b %zu is beyond %.0f entries", g->entries, KV_COUNT_MAX);
	if (g->entries == 0 && !(g->ratio > 0 && g->ratio <= 1))
		return kv_fail(e, KV_EARG, "-r %g: a share of the prompt is above 0 and at most 1", g->ratio);
	*C = g->entries != 0 ? g->entries : (size_t)nearbyint((double)T * g->ratio); /* rounds half to even */
	if (*C == 0)
		*C = 1;
	return KV_OK;
}

void
kv_spread(size_t total, size_t n, size_t *b)
{
	for (size_t i = 0; i < n; i++)
		b[i] = total / n + (i < total % n);
}

/* Entries the whole layer may keep, protected ones included, at most Hkv * T. */
static int
layer_sum(const struct kv_budget_input *in, const struct kv_budget_source *from, size_t *sum, struct kv_err *e)
{
	const size_t shape[] = { in->Hkv };
	const int32_t *B;
	int rc;

	*sum = in->Hkv * (from->C < in->T ? from->C : in->T);
	if (from->C != 0)
		return KV_OK;
	if (from->earlier == NULL)
		return kv_fail(
		    e, KV_EARG, "how many entries? give -b ENTRIES or -r RATIO, here or to an earlier kv-budget");
	if ((rc = kv_tensor_expect(from->earlier, KVK_I32, "kv_head", shape, e)) < 0)
		return rc;
	B = from->earlier->data;
	for (size_t h = 0; h < in->Hkv; h++) {
		if (B[h] < 1)
			return kv_fail(
			    e, KV_ESHAPE, "budget: head %zu has %d entries, expected at least 1", h, (int)B[h]);
		*sum += (size_t)B[h] < in->T ? (size_t)B[h] : in->T;
	}
	return KV_OK;
}

/* B [Hkv]: entries per head, protected ones included.  Sets *base for the record. */
static int
allot(const struct kv_budget *m, struct kv_budget_input in, size_t sum, size_t *B, size_t *base, struct kv_err *e)
{
	/* both counts are below 2^31, see kv_score_attrs_from_json */
	const size_t fixed = in.n_sink + in.n_recent < in.T ? in.n_sink + in.n_recent : in.T;
	int rc;

	*base = 0;
	in.room = in.T - fixed;
	if (sum <= in.Hkv * fixed || sum == in.Hkv * in.T) {
		*base = sum <= in.Hkv * fixed ? 0 : in.room;
		kv_spread(sum, in.Hkv, B);
		return KV_OK;
	}
	in.total = sum - in.Hkv * fixed;
	*base = in.base = in.total / in.Hkv;
	if ((rc = m->run(&in, B, e)) < 0)
		return rc;
	for (size_t h = 0; h < in.Hkv; h++)
		B[h] += fixed;
	return KV_OK;
}

static int
check_input(const struct kv_budget *m, const struct kv_budget_input *in, struct kv_err *e)
{
	size_t most;

	if (in->Hkv == 0 || in->T == 0 || in->T > KV_COUNT_MAX || !kv_mul(in->Hkv, in->T, &most))
		return kv_fail(e, KV_ESHAPE, "cannot allot a layer of %zu KV heads and %zu tokens", in->Hkv, in->T);
	if (in->n > in->T)
		return kv_fail(e, KV_ESHAPE, "score: %zu tokens scored of a prompt of %zu", in->n, in->T);
	if (m->needs_scores && in->raw == NULL)
		return kv_fail(
		    e, KV_ESHAPE, "%s needs scores (tensor score): put kv-score METHOD before kv-budget", m->name);
	return KV_OK;
}

int
kv_budget_layer(const struct kv_budget *m, const struct kv_budget_input *in, const struct kv_budget_source *from,
    struct kv_tensor *budget, struct kv_err *e)
{
	const size_t shape[] = { in->Hkv };
	size_t *B = NULL, sum, base;
	int rc;

	*budget = (struct kv_tensor){ 0 };
	if ((rc = check_input(m, in, e)) < 0 || (rc = layer_sum(in, from, &sum, e)) < 0)
		return rc;
	rc = KV_EMEM;
	if ((B = kv_alloc(in->Hkv, sizeof *B, e)) == NULL)
		goto done;
	if ((rc = kv_tensor_new(budget, "budget", (int)in->layer, KVK_I32, "kv_head", shape, e)) < 0 ||
	    (rc = allot(m, *in, sum, B, &base, e)) < 0)
		goto done;
	for (size_t h = 0; h < in->Hkv; h++)
		((int32_t *)budget->owned)[h] = (int32_t)B[h];
	budget->attrs = json_pack("{s:s, s:I, s:I, s:I, s:I}", "method", m->name, "capacity",
	    (json_int_t)(from->C != 0 ? from->C : sum / in->Hkv), "base", (json_int_t)base, "n_sink",
	    (json_int_t)in->n_sink, "n_recent", (json_int_t)in->n_recent);
	if (budget->attrs == NULL)
		rc = kv_no_memory(e, 1);
done:
	if (rc < 0)
		kv_tensor_fini(budget);
	free(B);
	return rc;
}
