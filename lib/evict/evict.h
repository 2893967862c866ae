/* SPDX-License-Identifier: MIT
 * Selection and gathering: which entries of a layer stay, and the smaller cache made of them (METHODS 4).
 */
#ifndef KV_EVICT_H
#define KV_EVICT_H

#include <stdbool.h>

#include "lib/device.h"
#include "lib/err.h"
#include "lib/score/score.h"
#include "lib/tensor.h"

enum kv_tie {
	KV_TIE_RAW,      /* equal pooled scores: higher raw score, then lower position (default) */
	KV_TIE_POSITION, /* equal pooled scores: lower position */
};

struct kv_evict_input {
	const struct kv_device *device;
	int layer;
	const struct kv_tensor *k, *v;  /* [kv_head][token][dim], of one type */
	const struct kv_tensor *score;  /* [kv_head][token], raw; NULL is fine when every budget covers the prompt */
	const struct kv_tensor *budget; /* [kv_head] i32 */
	enum kv_tie tie;
	size_t next_position;           /* the prompt's length: where decoding goes on */
};

/* What replaces k and v. */
struct kv_evicted {
	struct kv_tensor index;  /* [entry] i32, ascending per head; attrs: next_position */
	struct kv_tensor offset; /* [kv_head + 1] i32; axis "bound" */
	struct kv_tensor k, v;   /* [entry][dim] */
	size_t n_nan;            /* scores that were NaN: worth a warning */
};

/* Fails: KV_ESHAPE (inputs that are missing or do not fit each other), KV_EFORMAT (score's attributes), KV_EARG (a
 * budget below 1), KV_EDEV, KV_EMEM; out is then empty.  Budgets beyond the prompt's length mean all.
 * Memory: all of out, and one head's entries on the device. */
int kv_evict_layer(const struct kv_evict_input *in, struct kv_evicted *out, struct kv_err *e);
void kv_evicted_fini(struct kv_evicted *x);

/* The selection alone.  raw [Hkv][n], n <= T; keep [Hkv], each 0 .. T; index has room for sum(keep) and is host memory.
 * Ordering: METHODS 1.4; exact on every device. */
int kv_evict_select(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t Hkv, size_t n,
    size_t T, const size_t *keep, enum kv_tie tie, int32_t *index, struct kv_err *e);

/* Rows of x [H][T][row_bytes] that index names, to y [offset[H]][row_bytes]; all host memory. */
int kv_evict_gather(const struct kv_device *d, const void *x, size_t H, size_t T, size_t row_bytes,
    const int32_t *index, const size_t *offset, void *y, struct kv_err *e);

#endif
