/* SPDX-License-Identifier: MIT
 * How much is kept: entries, bytes, budgets (METHODS 6.5).  A cell per head. */
#include "lib/stat/families.h"

#include <math.h>
#include <stdlib.h>

/* Cells with x = entries * scale, y as given. */
static int
entries(struct kv_stat_view *v, double scale, double y, struct kv_stat_cells *c, struct kv_err *e)
{
	size_t H, *B;
	int rc = kv_stat_budgets(v, &H, &B, e);

	if (rc == KV_OK && (rc = kv_stat_cells_new(c, H, e)) == KV_OK)
		for (size_t h = 0; h < H; h++)
			c->cell[h] = (struct kv_stat_cell){ (double)B[h] * scale, y };
	free(B);
	return rc;
}

int
kv_measure_entries(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	(void)b, (void)o;
	return entries(a, 1, 1, c, e);
}

int
kv_measure_compression(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	int rc = entries(a, 1, (double)a->T, c, e);

	(void)b, (void)o;
	/* the whole prompt's cache has KV heads only, also where every query head keeps a set of its own */
	for (size_t h = 0; rc == KV_OK && a->Hkv > 0 && h < c->n; h++)
		c->cell[h].y *= (double)a->Hkv / (double)c->n;
	return rc;
}

int
kv_measure_bytes(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	size_t row;

	(void)b, (void)o;
	if (a->k == NULL)
		return kv_stat_lacks(a, "k", "its type says how large an entry is, and kv-prefill writes it", e);
	if (a->k->n_axes < 2 || !kv_type_bytes(a->k->type, a->k->shape[a->k->n_axes - 1], &row))
		return kv_fail(e, KV_ESHAPE, "k: expected [kv_head, token, dim] or [entry, dim]");
	return entries(a, 2 * (double)row, 1, c, e);
}

int
kv_measure_budget_diff(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e)
{
	size_t H, H_b, *B = NULL, *B_b = NULL;
	int rc;

	(void)o;
	if ((rc = kv_stat_budgets(a, &H, &B, e)) != KV_OK || (rc = kv_stat_budgets(b, &H_b, &B_b, e)) != KV_OK)
		goto done;
	rc =
	    H == H_b ? kv_stat_cells_new(c, H, e) : kv_fail(e, KV_END, "%zu heads have budgets in A, %zu in B", H, H_b);
	for (size_t h = 0; rc == KV_OK && h < H; h++)
		c->cell[h] = (struct kv_stat_cell){ fabs((double)B[h] - (double)B_b[h]), 1 };
done:
	free(B_b);
	free(B);
	return rc;
}
