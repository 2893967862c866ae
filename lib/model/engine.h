/* SPDX-License-Identifier: MIT
 * The forward pass, one layer function for prefill and decoding.
 *
 * A layer reads n new rows, appends their keys and values to that layer's cache, and attends over the whole cache.
 * Prefill (kv_prefill) is layer-major: all rows through layer 0, its tensors to the caller, its memory back,
 * on to layer 1.  Decoding (kv_extend) runs few rows through all layers over a resident cache.
 *
 * Same input, same bytes, for any number of threads and whatever the engine ran before.
 * Activations or logits that are NaN or infinite are never handed on: KV_EFAIL, with a sentence that begins "layer N,
 * position P" ("embedding, position P", "output layer, position P").  Prefill looks after every layer at the prompt's
 * last row and the last of all, which costs nothing, and before the first at all embedded rows where a fault might not
 * reach these (precision i16); kv_extend looks at its logits, and runs the rows a second time to find the layer when
 * one is not finite.
 */
#ifndef KV_ENGINE_H
#define KV_ENGINE_H

#include "lib/device.h"
#include "lib/model/model.h"

/* A model on a device, with working memory that grows to the longest prompt seen.  One call at a time; callbacks must
 * not run the engine they are called from.
 *
 * A card that auto chose and that fails, for want of memory mostly, gives way to the CPU (kv_device_fall_back()): a
 * call of which nobody has seen anything yet is done again there, and caches and adapters move along.  A prefill that
 * has shown a layer, and rows whose tap has been called, fail. */
struct kv_engine;

/* Opens the device if it is only planned.  Keeps model and device borrowed.  Fails: KV_EMEM, KV_EDEV (an operation the
 * device lacks), KV_EMODEL (opened without weights), and as kv_device_open(). */
int kv_engine_new(struct kv_engine **out, const struct kv_model *m, struct kv_device *d, struct kv_err *e);
void kv_engine_free(struct kv_engine *x);
/* After a fault (rc, e) of work that can be done again.  KV_OK: do so, and ask again if that fails.  At first weights
 * that were kept on the card for the next prompt make room; then as kv_device_fall_back(), and with the new device the
 * engine is ready, its caches hold the entries that they held, its adapters are open, working memory and weights start
 * anew.  kv_engine_can_fall_back() tells without doing anything. */
bool kv_engine_can_fall_back(const struct kv_engine *x, const struct kv_err *e);
int kv_engine_fall_back(struct kv_engine *x, int rc, struct kv_err *e);

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

#endif
