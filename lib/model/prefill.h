/* SPDX-License-Identifier: MIT
 * A prompt through all layers, one layer at a time.
 */
#ifndef KV_PREFILL_H
#define KV_PREFILL_H

#include "lib/model/adapters.h"
#include "lib/model/engine.h"

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
 * the prompt's last token, NULL if not wanted.  fn NULL: none.  Memory: weights of one layer expanded (two where they
 * are copied ahead of their turn and there is room, all where the device has room for twice that, until something else
 * wants it), activations of all rows, one layer's q, k, v; nothing that grows with T * T.
 * Fails: KV_ESHAPE (T 0 or rows beyond the context), KV_EARG (token id), KV_EFAIL (not finite), KV_EDEV, KV_EMEM, and
 * fn's. */
int kv_prefill(
    struct kv_engine *x, const struct kv_prefill_input *in, kv_layer_fn fn, void *ctx, float *logits, struct kv_err *e);

#endif
