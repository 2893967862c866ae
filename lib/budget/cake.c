/* SPDX-License-Identifier: MIT
 * cake: layers get entries by preference, how widely and how changeably their window attends (METHODS 2.13 and 3.7,
 * arXiv:2503.12491); uniform inside a layer.  The scores' attribute `preference` says it.  Departs from the public code
 * by handing on what that loses when it clips for the last time. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

static int
preference(const struct kv_budget_layer *l, double *to, struct kv_err *e)
{
	const json_t *x = json_object_get(l->scores->attrs, "preference");

	if (!json_is_number(x))
		return kv_fail(e, KV_EFORMAT,
		    "layer %d: the scores have no attribute preference: kv-score cake writes it", l->at->layer);
	*to = json_number_value(x);
	if (!(*to >= 0) || isinf(*to))
		return kv_fail(
		    e, KV_EFORMAT, "layer %d: the scores' preference is %g, expected 0 or more", l->at->layer, *to);
	return KV_OK;
}

/* `amount` in equal parts to the layers below `most`, the lower ones one more. */
static void
spread(size_t amount, size_t most, size_t L, size_t *b)
{
	size_t open = 0, i = 0;

	for (size_t l = 0; l < L; l++)
		open += b[l] < most;
	for (size_t l = 0; l < L && open > 0; l++)
		if (b[l] < most)
			b[l] += amount / open + (i++ < amount % open);
}

/* Returns the sum. */
static size_t
clip(size_t L, size_t most, size_t *b)
{
	size_t sum = 0;

	for (size_t l = 0; l < L; l++) {
		b[l] = b[l] < most ? b[l] : most;
		sum += b[l];
	}
	return sum;
}

/* base < n, so that there is room for all. */
static void
allot(const double *pref, double sum, size_t L, size_t base, size_t n, size_t *b)
{
	size_t over = 0, spent;

	for (size_t l = 0; l < L; l++) {
		b[l] = (size_t)(pref[l] / sum * (double)(L * base));
		over += b[l] > n ? b[l] - n : 0;
		b[l] = b[l] < n ? b[l] : n;
	}
	spread(over, n, L, b);
	while ((spent = clip(L, n, b)) < L * base)
		spread(L * base - spent, n, L, b);
}

static int
cake(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *base_l, struct kv_err *e)
{
	double *pref = kv_alloc(all->L, sizeof *pref, e), sum = 0;
	int rc = pref != NULL ? KV_OK : KV_EMEM;

	(void)p;
	for (size_t l = 0; l < all->L && rc == KV_OK; l++) {
		rc = preference(&all->layer[l], &pref[l], e);
		sum += rc == KV_OK ? pref[l] : 0;
	}
	if (rc == KV_OK && sum > 0 && isfinite(sum))
		allot(pref, sum, all->L, all->base, all->room, base_l);
	else if (rc == KV_OK) /* no layer is preferred */
		kv_spread(all->L * all->base, all->L, base_l);
	free(pref);
	return rc;
}

const struct kv_budget_method kv_budget_cake = {
	.about = {
	    .name = "cake",
	    .brief = "layers by how widely and changeably they attend",
	    .paper = "arXiv:2503.12491",
	},
	.needs = "score",
	.all_layers = true,
	.layers = cake,
};
