/* SPDX-License-Identifier: MIT
 * Allocators: how many entries each KV head may keep.  One row of kv_budget_list (budgets.c) and one file per method.
 *
 * Terms as in METHODS 1.1 and 3: C entries per head and layer on average, protected ones included; base = C - protected history
 * entries; b history entries of one head, 0 <= b <= n; B = b + protected.  Exact: no entry is lost to rounding.  This folder is
 * compiled without contraction of floating-point expressions.
 */
#ifndef KV_BUDGET_H
#define KV_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/score/score.h"

/* How much the user grants. */
struct kv_grant {
	size_t entries; /* -b N; 0: not given */
	double ratio;   /* -r R of the prompt, 0 < R <= 1; 0: not given */
};
/* C for a prompt of T tokens: entries, or max(1, round-half-even(T * ratio)).  Fails: KV_EARG (neither, both, out of range). */
int kv_grant_capacity(const struct kv_grant *g, size_t T, size_t *C, struct kv_err *e);

/* One layer as an allocator sees it. */
struct kv_budget_input {
	size_t layer, L;
	size_t Hkv, T, n;        /* heads, prompt length, scored positions */
	size_t n_sink, n_recent; /* protected; n_sink + n_recent <= C is not guaranteed */
	size_t base;             /* average history entries per head of this layer; 0 when C <= protected */
	const float *raw;        /* [Hkv][n], NULL when the stream has no scores */
	const struct kv_score_attrs *attrs;
	const struct kv_device *device;
};

struct kv_budget {
	const char *name, *brief, *paper;
	bool needs_scores;
	/* history entries b [Hkv], each <= min(n, ...); sum is exactly Hkv * base unless all heads are full. */
	int (*run)(const struct kv_budget_input *in, size_t *b, struct kv_err *e);
};
extern const struct kv_budget *const kv_budget_list[];
const struct kv_budget *kv_budget_find(const char *name);

/* The whole step for one layer: base from C, edge rules of METHODS 1.9 (C >= T keeps everything, C < protected), run, add the protected,
 * describe as a tensor `budget` [kv_head] i32 with attrs method, capacity, base, n_sink, n_recent. */
int kv_budget_layer(const struct kv_budget *m, const struct kv_budget_input *in, size_t C, struct kv_tensor *budget,
    struct kv_err *e);

#endif
