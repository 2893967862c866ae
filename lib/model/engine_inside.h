/* SPDX-License-Identifier: MIT
 * Inside of the engine, for what runs rows on it (adapters.c, transformer.c, prefill.c, cache.c) and for its training:
 * a model's weights on a device, and working memory.
 */
#ifndef KV_ENGINE_INSIDE_H
#define KV_ENGINE_INSIDE_H

#include "lib/model/adapters.h"
#include "lib/model/cache.h"
#include "lib/model/engine.h"

/* The matrices of one layer; NULL for roles that are no matrix of a layer. */
struct kv_layer_weights {
	struct kvk_weight *w[KV_N_ROLES];
	bool in_use; /* by a prefill */
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
	struct kv_cache *caches;  /* those that it has, and their adapters: they come along when the device changes */
	struct kv_adapters *adapters;
	bool shows; /* a prefill is showing a layer: it needs the device as it is */
	struct kvk_rope rope;     /* inv_freq owned */
	float *vectors;           /* device: every norm weight and bias as f32, one block */
	const float **vector;     /* host [L][KV_N_ROLES] into it, NULL where absent; roles not per layer in row 0 */
	struct kvk_weight *embed; /* [vocab][d] */
	struct kvk_weight *out;   /* [vocab][d]; embed itself when tied */
	struct kv_layer_weights *resident; /* [L] for few rows; NULL until the first decoding */
	struct kv_layer_weights *many; /* [L] for many rows: open: those in use and, if weights are kept, others */
	bool keeps, keeps_none; /* weights stay behind their use; they do not, for their memory was wanted */
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
/* x->many[layer] for a prefill, which asks in ascending order and gives back in any; giving what is not in use does
 * nothing.  Where the device has room to spare for all layers they stay, until something else needs the memory: this
 * layer's, or what kv_engine_fall_back() is called for. */
int kv_engine_take_layer(struct kv_engine *x, size_t layer, struct kv_err *e);
void kv_engine_give_layer(struct kv_engine *x, size_t layer);
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

/* Open them on the engine's device, unless they are; and close them there. */
int kv_adapters_enter(struct kv_adapters *a, struct kv_err *e);
void kv_adapters_leave(struct kv_adapters *a);

/* A cache's entries from the device to the host, where they wait; and to the engine's device, which may be another one
 * by then. */
int kv_cache_leave(struct kv_cache *c, struct kv_err *e);
int kv_cache_enter(struct kv_cache *c, struct kv_err *e);
struct kv_cache *kv_cache_next(const struct kv_cache *c); /* of the engine's; NULL: none */

#endif
