/* SPDX-License-Identifier: MIT
 * Inside of the selection: what ranks the positions once pooling, heads and units have been dealt with.
 */
#ifndef KV_RANKING_H
#define KV_RANKING_H

#include "lib/evict/evict.h"

/* Host memory.  Order among candidates: protected first, then rank, then tie, each falling, then position. */
struct kv_ranking {
	const struct kv_score_attrs *pool;   /* how rank is to be pooled yet, on the device; NULL: it is as it ranks */
	size_t H, n, T, n_sink, n_recent;    /* H is 1 where all heads share a set */
	const float *rank;                   /* [H][n] */
	const float *tie;                    /* [H][n]; NULL: the position decides */
	const float *raw;                    /* [H][n] */
	const uint8_t *protect;              /* [H][T] or NULL */
	float *own_rank, *own_raw, *own_tie; /* what fini frees */
	uint8_t *own_protect;
};

/* s must stay.  Fails: KV_EMEM, KV_EDEV. */
int kv_ranking_init(struct kv_ranking *r, struct kv_device *d, const struct kv_selection *s, struct kv_err *e);
void kv_ranking_fini(struct kv_ranking *r);

/* Lower keep [H], entries of each head, to what threshold and share leave.  Fails: KV_EARG, KV_EMEM. */
int kv_ranking_limit(const struct kv_ranking *r, const struct kv_rules *rules, size_t *keep, struct kv_err *e);

#endif
