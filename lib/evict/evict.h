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

/* What ranks, and what ends a head's set before its budget does.  Zeros: every position by itself, and nothing ends it.
 * Scores are compared as they rank: pooled, then averaged over heads, then over units. */
struct kv_rules {
	bool uniform_heads; /* one set for all heads of a layer: see kv_evict_select() */
	size_t chunk; /* positions stand and fall in units of so many, counted from position 0; 0 or 1: no units */
	enum kvk_reduce unit; /* a unit's score from those of its candidates: KVK_MEAN, KVK_SUM or KVK_MAX */
	bool by_score;
	double least; /* with by_score: candidates below it do not stay */
	double share; /* 0 < share <= 1: a head stops when what it keeps has this share of its raw scores; 0: it does
			 not */
};

struct kv_count_option {
	bool given;
	size_t n;
};

/* How a run evicts: the options of kv-evict. */
struct kv_evicting {
	enum kv_tie tie;
	struct kv_rules rules;
	struct kv_count_option sink, recent; /* instead of what the budget says is protected */
	const struct kv_layers *skip;        /* [n_skip] layers that keep everything, whatever their budget */
	size_t n_skip;
	bool renumber; /* entries move to positions 0, 1, ... of their head, see renumber.h */
};

/* The whole step for one layer: k and v become [entry][dim], index [entry] and offset [bound] are added.  Heads are
 * those of the budget: KV heads, or query heads, each of which then gets entries of its own from the KV head it reads.
 * What is protected comes from the budget's attributes and from `protect` [kv_head][token] u8, if there is one; scores
 * may be missing when every budget covers the prompt and no rule asks for them.  Budgets beyond the prompt mean all of
 * it; 0 is legal.  *n_nan: scores that are not numbers, worth a warning. Fails: KV_ESHAPE (a missing input is named
 * with what brings it; inputs that do not fit; renumbered heads of different lengths), KV_EARG (a share of scores that
 * are no shares), KV_EFORMAT, KV_EDEV, KV_EMEM. Memory: the kept entries, beside the step.  Where k or v lies on a
 * device, what replaces them stays only until the next layer of that device (kv_device_arrivals()). */
int kv_evict_layer(const struct kv_layer *l, const struct kv_evicting *how, size_t *n_nan, struct kv_err *e);

/* The selection alone.  Ordering: METHODS 1.4; exact on every device.  All host memory.
 * With uniform_heads the heads' pooled (and raw) scores are averaged, a position is protected where it is in any head,
 * and each head may keep as many as the average head, rounded down. In units (ChunkKV): a position ranks by its unit's
 * score, between units of equal score the raw ones decide, then the position; so whole units stay in the order of their
 * scores, and of the last one its first positions.  What is protected stays one by one, before any unit. */
struct kv_selection {
	size_t H, n, T;
	const float *raw;                   /* [H][n], n <= T */
	const struct kv_score_attrs *score; /* pooling; NULL: none */
	const uint8_t *protect;             /* [H][T]: non-zero is kept before any score; NULL: none */
	size_t n_sink, n_recent;
	enum kv_tie tie;
	const size_t *offset; /* [H + 1]: head h keeps offset[h+1] - offset[h] entries, 0 .. T */
	struct kv_rules rules;
	size_t *kept; /* [H + 1] out: the offsets with these rules, nowhere more than before; NULL: no rules */
};
/* index [offset[H]] out, of which kept[H] are used.  Fails: KV_EARG (share and a score below 0 or infinite), KV_EDEV,
 * KV_EMEM. */
int kv_evict_select(struct kv_device *d, const struct kv_selection *s, int32_t *index, struct kv_err *e);

#endif
