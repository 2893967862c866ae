/* SPDX-License-Identifier: MIT
 * uniform: the same number of entries for every head (METHODS 3.2). */
#include "lib/budget/budget.h"

const struct kv_budget_method kv_budget_uniform = {
	.about = {
	    .name = "uniform",
	    .brief = "the same number of entries for every head",
	},
};
