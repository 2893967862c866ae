/* SPDX-License-Identifier: MIT
 * Rows through one layer after another, the same for prefill and decoding, and what comes before the first layer and
 * behind the last.
 */
#ifndef KV_TRANSFORMER_H
#define KV_TRANSFORMER_H

#include "lib/model/engine_inside.h"

/* n rows on their way through the layers. */
struct kv_rows {
	float *x; /* device [n][d]: the residual stream, updated in place */
	float *q; /* device [Hq][n][D]: out, this layer's queries after rotation */
	size_t n;
	size_t pos; /* position of row 0; row i stands at pos + i */
	size_t out; /* the first row whose x behind the layer is wanted: those before it need not be updated */
	const struct kv_adapters *adapters; /* of these rows; NULL: none */
};

/* Token embeddings into rows->x.  Fails: KV_EARG (an id outside the vocabulary). */
int kv_rows_embed(struct kv_engine *x, const struct kv_rows *rows, const int32_t *tokens, struct kv_err *e);

/* Run the rows through one layer.  `cache`, of a number of heads that kv_cache_fits(), holds the entries before them;
 * theirs are appended to every head, to all that belong to the same KV head alike (len grows by n, the room is the
 * caller's care), and row i attends to all entries up to its own.  Rows behind others never
 * change these. */
int kv_rows_layer(struct kv_engine *x, const struct kv_layer_weights *w, size_t layer, const struct kv_rows *rows,
    const struct kvk_ragged *cache, size_t *len, struct kv_err *e);

/* What n rows will need in a layer, and where kv_rows_logits() has its products of n rows: taken before the work, it is
 * there when it is due.  NULL with the fault recorded. */
int kv_rows_memory(struct kv_engine *x, size_t n, struct kv_err *e);
float *kv_logits_memory(struct kv_engine *x, size_t n, struct kv_err *e);

/* Logits [n][vocab] f32 on the host of n rows of the residual stream that has left the last layer. */
int kv_rows_logits(struct kv_engine *x, const float *rows, size_t n, float *logits, struct kv_err *e);

/* Are rows from .. n-1 finite after `layer` (-1: the embedding)?  Fails: KV_EFAIL, naming layer and position of the
 * first that is not.  (A kernel that works in blocks may spread NaN from a later row over its block.) */
int kv_rows_finite(struct kv_engine *x, const struct kv_rows *rows, size_t from, long layer, struct kv_err *e);

/* Logits of rows at pos, pos+1, ... that are not finite: KV_EFAIL naming position, token and value; else KV_OK. */
int kv_logits_finite(const float *logits, size_t n, size_t vocab, size_t pos, struct kv_err *e);

#endif
