/* SPDX-License-Identifier: MIT
 * The forward pass, one layer function for prefill and decoding.
 *
 * A layer reads n new rows, appends their keys and values to that layer's cache, and attends over the whole cache.
 * Prefill (kv_prefill) is layer-major: all rows through layer 0, its tensors to the caller, its memory back,
 * on to layer 1.  Decoding (kv_extend) runs few rows through all layers over a resident cache.
 *
 * Same input, same bytes, for any number of threads and whatever the engine ran before.
 * Activations or logits that are NaN or infinite are never handed on: KV_EFAIL, with a sentence that begins "layer N,
 * position P" ("embedding, position P", "output layer, position P").  Prefill looks after
 * every layer at the prompt's last row and the last of all, which costs nothing, and before the first at all embedded rows where
 * a fault might not reach these (precision i16); kv_extend looks at its logits, and
 * runs the rows a second time to find the layer when one is not finite.
 */
#ifndef KV_FORWARD_H
#define KV_FORWARD_H

#include "lib/device.h"
#include "lib/model/module.h"
#include "lib/model/model.h"

/* A model on a device, with working memory that grows to the longest prompt seen.  One call at a time; callbacks must
 * not run the engine they are called from.
 *
 * A card that auto chose and that fails, for want of memory mostly, gives way to the CPU (kv_device_fall_back()): a call
 * of which nobody has seen anything yet is done again there, and caches and adapters move along.  A prefill that has
 * shown a layer, and rows whose tap has been called, fail. */
struct kv_engine;

/* Opens the device if it is only planned.  Keeps model and device borrowed.  Fails: KV_EMEM, KV_EDEV (an operation the
 * device lacks), KV_EMODEL (opened without weights), and as kv_device_open(). */
int kv_engine_new(struct kv_engine **out, const struct kv_model *m, struct kv_device *d, struct kv_err *e);
void kv_engine_free(struct kv_engine *x);
/* After a fault (rc, e) of work that can be done again: as kv_device_fall_back(), and with the new device the engine is
 * ready, its caches hold the entries that they held, its adapters are open.  Working memory and weights start anew. */
int kv_engine_fall_back(struct kv_engine *x, int rc, struct kv_err *e);

/* A LookaheadKV module on an engine's device: its adapters opened, once for any number of prompts.  Keeps engine and
 * module borrowed; a module that changes has to be opened anew.
 * Fails: KV_EMODEL (made for another model, not finite), KV_EDEV, KV_EMEM. */
struct kv_adapters;
int kv_adapters_new(struct kv_adapters **out, struct kv_engine *x, const struct kv_lookahead *m, struct kv_err *e);
void kv_adapters_free(struct kv_adapters *a);

/* Rows that go through a layer; device memory, f32, valid during the callback only.  Queries and keys are rotated, in
 * half-split order. */
struct kv_layer_view {
	size_t layer;
	size_t n;              /* the prompt's tokens T (kv_prefill), or the call's (kv_extend) */
	const float *q;        /* [Hq][n][D] */
	const float *k, *v;    /* head g's row i is row g * stride + i of [*][D]; NULL in kv_extend */
	size_t stride;         /* n + n_behind: a head's rows behind the prompt follow those of the prompt */
	size_t n_behind;       /* 0 in kv_extend */
	const float *q_behind; /* [Hq][n_behind][D] */
	const float *k_behind; /* laid out as k, which it is from row n on */
};
typedef int (*kv_layer_fn)(void *ctx, const struct kv_layer_view *view, struct kv_err *e);

/* A prompt at positions 0 .. T-1 and, at T, T+1, ..., rows behind it: these see the prompt and each other as any later
 * tokens do, and change no bit of the prompt's rows. */
struct kv_prefill_input {
	const int32_t *tokens; /* [T], T >= 1 */
	size_t T;
	const int32_t *behind; /* [n_behind] tokens of a response */
	size_t n_behind;
	/* Instead of a response: the rows behind are the module's n tokens, with its adapters.  NULL: none. */
	const struct kv_adapters *lookahead;
};

/* Run a prompt, and what stands behind it, through all layers; fn sees each.  logits [vocab] f32 on the host: those of
 * the prompt's last token, NULL if not wanted.  fn NULL: none.  Memory: weights of one layer expanded (two where
 * they are copied ahead of their turn, all where the device has room for twice that), activations of all rows, one layer's q, k, v; nothing that grows with T * T.
 * Fails: KV_ESHAPE (T 0 or rows beyond the context), KV_EARG (token id), KV_EFAIL (not finite), KV_EDEV, KV_EMEM, and
 * fn's. */
int kv_prefill(
    struct kv_engine *x, const struct kv_prefill_input *in, kv_layer_fn fn, void *ctx, float *logits, struct kv_err *e);

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
/* Weights and memory for kv_extend() of n tokens with n logits, so that it hardly fails for want of them when something has
 * been said already.  Fails: KV_EMEM, KV_EDEV. */
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
