/* SPDX-License-Identifier: MIT
 * A cache for decoding, every head with entries of its own, and the tokens that are appended to it.
 */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include "lib/model/engine.h"

/* A cache for decoding: per layer and head its own number of entries. */
struct kv_cache;

/* May a cache have H heads?  One per KV head, one per query head, or a number between that both divide evenly: query
 * heads that share a KV head can keep entries of their own. */
bool kv_cache_fits(const struct kv_config *c, size_t H);

/* An empty cache at position 0.  type: F32, F16 or BF16, as stored.  `room`: tokens that will be appended at most.
 * Keeps the engine borrowed.  Fails: KV_EARG (type), KV_EMEM. */
int kv_cache_new(struct kv_cache **out, struct kv_engine *x, enum kvk_type type, size_t room, struct kv_err *e);
void kv_cache_free(struct kv_cache *c);
/* Load one layer of H heads: k, v [offset[H]][D] of `type` (F32, F16 or BF16, converted to the cache's) on the engine's
 * device, head h's entries from offset[h] to offset[h+1]-1.  Replaces what the layer held; its room is whole again.
 * Fails: KV_EARG (layer), KV_ESHAPE (H does not fit, offsets descend), KV_EMEM, KV_EDEV: k and v are the caller's to
 * bring along, if it falls back. */
int kv_cache_set(struct kv_cache *c, size_t layer, size_t H, enum kvk_type type, const void *k, const void *v,
    const size_t *offset, struct kv_err *e);
/* Weights and memory for kv_extend() of n tokens with n logits, so that it hardly fails for want of them when something
 * has been said already.  Fails: KV_EMEM, KV_EDEV. */
int kv_cache_ready(struct kv_cache *c, size_t n, struct kv_err *e);
/* True position of the next token; not derivable from entry counts. */
void kv_cache_seek(struct kv_cache *c, size_t next_position);
size_t kv_cache_position(const struct kv_cache *c);
size_t kv_cache_bytes(const struct kv_cache *c); /* K and V of the entries held now */

/* Rows of one kv_extend call, for those who want queries: q [Hq][n][D] f32 on the device during the callback. */
struct kv_extend_tap {
	kv_layer_fn fn; /* once per layer, ascending */
	void *ctx;
};

/* Append n tokens at positions next, next+1, ... and attend over everything.  logits [n_logits][vocab] f32 on the
 * host: those of the last n_logits rows (0 <= n_logits <= n).  tap NULL: none.  A layer that was never loaded starts
 * empty.
 * Fails: KV_ESHAPE (no room left, beyond the context), KV_EARG (token id), before anything has changed; KV_EFAIL (not
 * finite) and the tap's: the cache is then good for kv_cache_free and kv_cache_set only; KV_EDEV, KV_EMEM: it is as it
 * was. */
int kv_extend(struct kv_cache *c, const int32_t *tokens, size_t n, float *logits, size_t n_logits,
    const struct kv_extend_tap *tap, struct kv_err *e);

#endif
