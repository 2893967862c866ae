/* SPDX-License-Identifier: MIT
 * A model in memory: configuration, vocabulary, and its weights as matrices borrowed from mapped files.
 *
 * formats/ fills this in (kv_model_open in formats/format.h); the forward pass reads it.
 */
#ifndef KV_MODEL_H
#define KV_MODEL_H

#include "kernels/backend.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/file.h"
#include "lib/text/vocab.h"

/* What a matrix or vector is for.  kv_roles[] in model.c has, per role, its name in each file format, its shape as a
 * formula of the configuration, and when it is required. */
enum kv_role {
	KV_EMBED,     /* [vocab][d] */
	KV_OUT_NORM,  /* [d] */
	KV_OUT,       /* [vocab][d]; absent when tied */
	KV_ATTN_NORM, /* from here on one per layer.  [d] */
	KV_Q,         /* [Hq D][d] */
	KV_K,         /* [Hkv D][d] */
	KV_V,         /* [Hkv D][d] */
	KV_O,         /* [d][Hq D] */
	KV_Q_BIAS,    /* [Hq D] */
	KV_K_BIAS,
	KV_V_BIAS,
	KV_Q_NORM, /* [D] */
	KV_K_NORM,
	KV_FFN_NORM, /* [d] */
	KV_GATE,     /* [ff][d] */
	KV_UP,       /* [ff][d] */
	KV_DOWN,     /* [d][ff] */
	KV_N_ROLES
};

struct kv_role_info {
	const char *gguf; /* "blk.%zu.attn_q.weight" */
	const char *hf;   /* "model.layers.%zu.self_attn.q_proj.weight" */
	bool per_layer, vector;
};
extern const struct kv_role_info kv_roles[KV_N_ROLES];

/* Does this configuration need the role, and of what shape? */
bool kv_role_needed(const struct kv_config *c, enum kv_role role);
void kv_role_shape(const struct kv_config *c, enum kv_role role, size_t *rows, size_t *cols); /* vectors: rows 1 */

/* A role's name in a file, and back: false if the format knows no such tensor. */
void kv_role_name(enum kv_role role, size_t layer, bool gguf, char *out, size_t cap);
bool kv_role_find(const char *name, bool gguf, enum kv_role *role, size_t *layer);

struct kv_matrix {
	enum kvk_type type;
	size_t rows, cols;
	const void *data; /* borrowed from a map of the model; NULL: absent */
};

struct kv_model {
	struct kv_config cfg;
	struct kv_vocab vocab;
	struct kv_matrix *weights; /* [L][KV_N_ROLES]; roles that are not per layer stand in row 0 */
	struct kv_map *maps;       /* [n_maps], owned */
	size_t n_maps;
};

void kv_model_fini(struct kv_model *m);

/* Allocate weights after cfg is known.  Fails: KV_EMEM. */
int kv_model_alloc(struct kv_model *m, struct kv_err *e);

/* Put one tensor of a file in its place.  Vectors may come in any plain type.  Fails: KV_EMODEL (wrong shape, naming
 * expected and found, twice the same). */
int kv_model_set(struct kv_model *m, size_t layer, enum kv_role role, const struct kv_matrix *w, const char *file_name,
    struct kv_err *e);

/* Is everything there that the configuration needs?  Fails: KV_EMODEL, naming the first missing tensor as `gguf` (else
 * HF) spells it. */
int kv_model_complete(const struct kv_model *m, bool gguf, struct kv_err *e);

/* Borrowed; data NULL if absent.  KV_OUT of a tied model is the embedding. */
const struct kv_matrix *kv_model_weight(const struct kv_model *m, size_t layer, enum kv_role role);

#endif
