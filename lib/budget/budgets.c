/* SPDX-License-Identifier: MIT
 * The table of allocators, grants, shares, and budgets as consumers read them. */
#include "lib/budget/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

const struct kv_budget_method *const kv_budget_list[] = {
	&kv_budget_uniform,
	&kv_budget_pyramid,
	&kv_budget_adakv,
	&kv_budget_champion,
	&kv_budget_headkv,
	&kv_budget_cake,
	&kv_budget_nacl,
	&kv_budget_fastgen,
	&kv_budget_duo,
	NULL,
};

const struct kv_budget_method *
kv_budget_find(const char *name)
{
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++)
		if (strcmp((*m)->about.name, name) == 0)
			return *m;
	return NULL;
}

const char *
kv_budget_uses(const struct kv_budget_method *m, char text[KV_USES_MAX])
{
	snprintf(text, KV_USES_MAX, "score,budget,protect%s%s%s%s", m->needs != NULL ? "," : "",
	    m->needs != NULL ? m->needs : "", m->looks != NULL ? "," : "", m->looks != NULL ? m->looks : "");
	return text;
}

int
kv_grant_capacity(const struct kv_grant *g, size_t T, size_t *C, struct kv_err *e)
{
	if ((g->entries != 0) == (g->ratio != 0))
		return kv_fail(e, KV_EARG, "give either -b ENTRIES or -r RATIO");
	if ((double)g->entries > KV_COUNT_MAX)
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

struct remainder {
	uint64_t r;
	size_t i;
};

/* Falling remainder, rising index. */
static int
by_remainder(const void *a, const void *b)
{
	const struct remainder *x = a, *y = b;

	if (x->r != y->r)
		return x->r > y->r ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

int
kv_apportion(const uint64_t *num, uint64_t den, size_t n, size_t total, size_t *q, struct kv_err *e)
{
	struct remainder *r = kv_alloc(n, sizeof *r, e);
	size_t left = total;

	if (r == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		q[i] = (size_t)(num[i] / den);
		r[i] = (struct remainder){ num[i] % den, i };
		left -= q[i];
	}
	qsort(r, n, sizeof *r, by_remainder);
	for (size_t i = 0; i < n && i < left; i++)
		q[r[i].i]++;
	free(r);
	return KV_OK;
}

static int
get_count(const json_t *attrs, const char *key, size_t *to, struct kv_err *e)
{
	const json_t *x = json_object_get(attrs, key);
	const json_int_t v = json_integer_value(x);

	if (!json_is_integer(x) || v < 0 || (double)v > KV_COUNT_MAX)
		return kv_fail(e, KV_EFORMAT, "budget: attribute %s %s: run kv-budget again", key,
		    x == NULL ? "is missing" : "is not a number of tokens");
	*to = (size_t)v;
	return KV_OK;
}

int
kv_budget_read(const struct kv_tensor *budget, size_t Hkv, struct kv_budget_view *v, struct kv_err *e)
{
	const size_t any[] = { KV_ANY };
	const json_t *total = json_object_get(budget->attrs, "total");
	json_int_t sum = 0;
	int rc;

	*v = (struct kv_budget_view){ .per_query = budget->n_axes == 1 && strcmp(budget->axis[0], "head") == 0 };
	if ((rc = kv_tensor_expect(budget, KVK_I32, v->per_query ? "head" : "kv_head", any, e)) < 0 ||
	    (rc = get_count(budget->attrs, "n_sink", &v->n_sink, e)) < 0 ||
	    (rc = get_count(budget->attrs, "n_recent", &v->n_recent, e)) < 0)
		return rc;
	v->H = budget->shape[0];
	v->B = budget->data;
	if (Hkv == 0 || v->H == 0 || (v->per_query ? v->H % Hkv != 0 : v->H != Hkv))
		return kv_fail(e, KV_ESHAPE, "budget: %zu heads, expected %zu%s", v->H, Hkv,
		    v->per_query ? " or a multiple" : "");
	for (size_t h = 0; h < v->H; h++) {
		if (v->B[h] < 0)
			return kv_fail(
			    e, KV_ESHAPE, "budget: head %zu has %d entries, expected 0 or more", h, (int)v->B[h]);
		sum += v->B[h];
	}
	if (total != NULL && json_integer_value(total) != sum)
		return kv_fail(e, KV_ESHAPE, "budget: its entries sum to %lld, its attribute total says %lld",
		    (long long)sum, (long long)json_integer_value(total));
	return KV_OK;
}
