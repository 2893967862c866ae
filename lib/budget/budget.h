/* SPDX-License-Identifier: MIT
 * Allocators: how many entries each KV head may keep.  One row of kv_budget_list (budgets.c) and one file per method.
 *
 * Terms as in METHODS 1.1 and 3: C entries per head and layer on average, protected ones included; base = C - protected
 * history entries; b history entries of one head, 0 <= b <= room; B = b + protected.  Exact: no entry is lost to
 * rounding.  This folder is compiled without contraction of floating-point expressions.
 *
 * Budgets compose: what a layer may spend comes from the user's grant or, when he gave none, from the budgets that are
 * already in the stream.  An allocator spends exactly that and does not ask where it came from.
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
/* C for a prompt of T tokens: entries, or max(1, round-half-even(T * ratio)).  Fails: KV_EARG (neither, both, out of
 * range). */
int kv_grant_capacity(const struct kv_grant *g, size_t T, size_t *C, struct kv_err *e);

/* One layer as an allocator sees it. */
struct kv_budget_input {
	size_t layer, L;
	size_t Hkv, T, n;        /* heads, prompt length, columns of raw */
	size_t n_sink, n_recent; /* protected; may exceed T */
	size_t room;             /* candidates of one head: T - min(T, n_sink + n_recent); set by kv_budget_layer */
	size_t total;            /* history entries this layer may spend, < Hkv * room; set by kv_budget_layer */
	size_t base;             /* total / Hkv, rounded down; set by kv_budget_layer */
	const float *raw;        /* [Hkv][n], NULL when the stream has no scores */
	const struct kv_score_attrs *attrs;
	const struct kv_device *device;
};

struct kv_budget {
	const char *name, *brief, *paper;
	bool needs_scores;
	/* History entries b [Hkv], each <= room; their sum is total.  Called only when there is something to decide:
	 * 0 < total < Hkv * room. */
	int (*run)(const struct kv_budget_input *in, size_t *b, struct kv_err *e);
};
extern const struct kv_budget *const kv_budget_list[]; /* ends with NULL */
const struct kv_budget *kv_budget_find(const char *name);

/* Where a layer's entries come from: one of the two. */
struct kv_budget_source {
	size_t C;                        /* entries per head on average; 0: take them from `earlier` */
	const struct kv_tensor *earlier; /* the layer's `budget` [kv_head] i32 in the stream */
};

/* The whole step for one layer: what it may spend, edge rules of METHODS 1.9 (enough for the whole prompt: keep
 * everything; no more than the protected: spread evenly, the lower heads first), run, add the protected, describe as a
 * tensor `budget` [kv_head] i32 with attrs method, capacity (entries per head on average, rounded down), base, n_sink,
 * n_recent. room, total and base of `in` are set here.  Fails: KV_ESHAPE (no scores where the method needs them, an
 * earlier budget that does not fit, T beyond i32), KV_EMEM and the method's. */
int kv_budget_layer(const struct kv_budget *m, const struct kv_budget_input *in, const struct kv_budget_source *from,
    struct kv_tensor *budget, struct kv_err *e);

/* b [n]: total in equal shares, what is left over going to the lower ones (METHODS 3.1 for equal targets). */
void kv_spread(size_t total, size_t n, size_t *b);

/* The methods: each the only symbol of its file. */
extern const struct kv_budget kv_budget_uniform;

#endif
