/* SPDX-License-Identifier: MIT
 * Inside of the forward pass, shared by engine.c, adapters.c, forward.c, prefill.c and cache.c: a model's weights on a device,
 * working memory, and the one function that runs a layer.
 */
#ifndef KV_ENGINE_H
#define KV_ENGINE_H

#include "lib/model/forward.h"

/* The matrices of one layer; NULL for roles that are no matrix of a layer. */
struct kv_layer_weights {
	struct kvk_weight *w[KV_N_ROLES];
};

/* Working memory on the device, f32, grown on demand and kept until the engine goes. */
enum kv_work {
	KV_WORK_X,        /* [n][d] the residual stream of all rows of a call */
	KV_WORK_Q,        /* [Hq][n][D] queries of all rows of a call (prefill: of the prompt), one layer */
	KV_WORK_Q_BEHIND, /* [Hq][n_behind][D] prefill only, as the next two */
	KV_WORK_K,        /* [Hkv][T + n_behind][D] keys of one layer */
	KV_WORK_V,        /* [Hkv][T + n_behind][D] */
	KV_WORK_NORM,     /* [chunk][d]; a chunk is kvk_backend.chunk_rows rows, which bounds what is wide */
	KV_WORK_HEADS,    /* [chunk][Hq D] products before they are split into heads, attention's output */
	KV_WORK_GATE,     /* [chunk][ff] */
	KV_WORK_UP,       /* [chunk][ff] */
	KV_WORK_LOW,      /* [chunk][rank] products with A of adapters */
	KV_WORK_LOGITS,   /* [rows][vocab] */
	KV_N_WORK
};

struct kv_engine {
	const struct kv_model *m; /* borrowed */
	struct kv_device *d;      /* borrowed, open */
	struct kv_cache *caches;      /* those that it has, and their adapters: they come along when the device changes */
	struct kv_adapters *adapters;
	bool shows; /* a prefill is showing a layer: it needs the device as it is */
	struct kvk_rope rope;     /* inv_freq owned */
	float *vectors;           /* device: every norm weight and bias as f32, one block */
	const float **vector;     /* host [L][KV_N_ROLES] into it, NULL where absent; roles not per layer in row 0 */
	struct kvk_weight *embed; /* [vocab][d] */
	struct kvk_weight *out;   /* [vocab][d]; embed itself when tied */
	struct kv_layer_weights *resident; /* [L] for few rows; NULL until the first decoding */
	struct kv_layer_weights *kept; /* [L] for many rows, the first n_kept of them open; NULL: prefill opens and closes */
	size_t n_kept;
	struct {
		float *p;
		size_t floats;
	} work[KV_N_WORK];
	size_t *k_at, *q_at; /* host [Hq] row numbers for one kernel call */
};

/* At least a * b floats of working memory, contents undefined; NULL with the fault recorded. */
float *kv_engine_work(struct kv_engine *x, enum kv_work which, size_t a, size_t b, struct kv_err *e);

/* A layer's matrices on the device.  On failure nothing is left open. */
int kv_engine_open_layer(
    struct kv_engine *x, size_t layer, enum kvk_use use, struct kv_layer_weights *w, struct kv_err *e);
void kv_engine_close_layer(struct kv_engine *x, struct kv_layer_weights *w);
/* The same for a layer of prefill, whose weights stay where the device has room to spare for those of all layers: asked
 * for in ascending order, given back in any. */
int kv_engine_take_layer(struct kv_engine *x, size_t layer, struct kv_layer_weights *w, struct kv_err *e);
void kv_engine_give_layer(struct kv_engine *x, struct kv_layer_weights *w);
/* All layers for decoding, once; fills x->resident. */
int kv_engine_make_resident(struct kv_engine *x, struct kv_err *e);

/* One matrix' adapter, opened: y += b (a x), the scale being in b.  NULL where there is none. */
struct kv_adapter_weights {
	struct kvk_weight *a, *b; /* [rank][in], [out][rank] */
};

struct kv_adapters {
	struct kv_engine *x; /* borrowed, as the module */
	struct kv_adapters *next; /* of x */
	const struct kv_lookahead *m;
	struct kv_adapter_weights *weights; /* [L][KV_N_ROLES]; NULL when none would do anything */
	float *scaled;                      /* host: what the b were opened from */
};

/* Open them on the engine's device, and close them there. */
int kv_adapters_enter(struct kv_adapters *a, struct kv_err *e);
void kv_adapters_leave(struct kv_adapters *a);

/* A cache's entries from the device to the host, where they wait; and to the engine's device, which may be another one
 * by then. */
int kv_cache_leave(struct kv_cache *c, struct kv_err *e);
int kv_cache_enter(struct kv_cache *c, struct kv_err *e);
struct kv_cache *kv_cache_next(const struct kv_cache *c); /* of the engine's; NULL: none */

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
