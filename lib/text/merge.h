/* SPDX-License-Identifier: MIT
 * Pairwise merging of neighbours, best pair first: what both kinds of BPE do.  n log n for any text.
 */
#ifndef KV_MERGE_H
#define KV_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kv_symbol {
	uint32_t start, n;  /* bytes of the piece; n = 0: merged into its left neighbour */
	int32_t id;         /* -1: no token */
	int32_t prev, next; /* -1: none */
};

/* What joining two neighbours gives: the token, and a rank (lower first; ties: leftmost first).  False: they do not
 * join. */
typedef bool kv_pair_fn(const void *ctx, const struct kv_symbol *left, const struct kv_symbol *right, uint32_t *rank,
    int32_t *id);

struct kv_candidate {
	uint64_t key; /* rank, left symbol */
	uint32_t n;   /* bytes of both: tells whether the pair is still the one that was queued */
	int32_t id;
};

/* Scratch memory, reused from piece to piece.  A zeroed struct is empty. */
struct kv_merge {
	struct kv_symbol *symbols; /* [n]; the first is never merged away, the chain of `next` is the result */
	size_t n, cap;
	struct kv_candidate *heap;
	size_t n_heap, cap_heap;
};

/* Make room for n symbols (and the candidates they can have); n is set to 0. */
int kv_merge_begin(struct kv_merge *m, size_t n, struct kv_err *e);
void kv_merge_add(struct kv_merge *m, uint32_t start, uint32_t n, int32_t id);
void kv_merge_run(struct kv_merge *m, kv_pair_fn *pair, const void *ctx);
void kv_merge_fini(struct kv_merge *m);

#endif
