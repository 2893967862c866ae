/* SPDX-License-Identifier: MIT
 * uniform: the same number of entries for every head (METHODS 3.2). */
#include "lib/budget/budget.h"

static int
uniform(const struct kv_budget_input *in, size_t *b, struct kv_err *e)
{
	(void)e;
	kv_spread(in->total, in->Hkv, b);
	return KV_OK;
}

const struct kv_budget kv_budget_uniform = {
	.name = "uniform",
	.brief = "the same number of entries for every head",
	.run = uniform,
};
