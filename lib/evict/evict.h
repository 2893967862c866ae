/* SPDX-License-Identifier: MIT
 * Selection and gathering: which entries of a layer stay, and the smaller cache made of them (METHODS 4).
 */
#ifndef KV_EVICT_H
#define KV_EVICT_H

#include "lib/layer.h"
#include "lib/score/score.h"

enum kv_tie {
	KV_TIE_RAW,      /* equal pooled scores: higher raw score, then lower position (default) */
	KV_TIE_POSITION, /* equal pooled scores: lower position */
};

/* How a run evicts: the options of kv-evict. */
struct kv_evicting {
	enum kv_tie tie;
};

/* The whole step for one layer: k and v become [entry][dim], index [entry] and offset [bound] are added.  Heads are those
 * of the budget: KV heads, or query heads, each of which then gets entries of its own from the KV head it reads.  What is
 * protected comes from the budget's attributes and from `protect` [kv_head][token] u8, if there is one; scores may be
 * missing when every budget covers the prompt.  Budgets beyond the prompt mean all of it; 0 is legal.
 * *n_nan: scores that are not numbers, worth a warning.
 * Fails: KV_ESHAPE (a missing input is named with what brings it; inputs that do not fit), KV_EFORMAT, KV_EDEV, KV_EMEM.
 * Memory: the kept entries, beside the step. */
int kv_evict_layer(const struct kv_layer *l, const struct kv_evicting *how, size_t *n_nan, struct kv_err *e);

/* The selection alone.  Ordering: METHODS 1.4; exact on every device.  All host memory. */
struct kv_selection {
	size_t H, n, T;
	const float *raw;                   /* [H][n], n <= T */
	const struct kv_score_attrs *score; /* pooling; NULL: none */
	const uint8_t *protect;             /* [H][T]: non-zero is kept before any score; NULL: none */
	size_t n_sink, n_recent;
	enum kv_tie tie;
	const size_t *offset; /* [H + 1]: head h keeps offset[h+1] - offset[h] entries, 0 .. T */
};
/* index [offset[H]] out.  Fails: KV_EDEV, KV_EMEM. */
int kv_evict_select(struct kv_device *d, const struct kv_selection *s, int32_t *index, struct kv_err *e);

#endif
