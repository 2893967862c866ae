/* SPDX-License-Identifier: MIT
 * A LookaheadKV module in memory (arXiv:2603.10899, METHODS 2.2, 5.1): learned embeddings of n tokens that stand behind
 * a prompt, and low-rank adapters of the model's matrices that act on those rows alone:
 *	y = W x + (alpha / rank) B A x
 * The last layer has adapters of q and k at most: nothing behind them reaches a score.
 * Files: formats/module_file.h.  Rows of prompts that run with a module open: lib/model/prefill.h.
 */
#ifndef KV_MODULE_H
#define KV_MODULE_H

#include <jansson.h>

#include "lib/model/model.h"

#define KV_LOOKAHEAD_MAX 4096 /* tokens n, and rank */

/* Which matrices have adapters. */
enum kv_lookahead_targets {
	KV_LOOKAHEAD_NONE,
	KV_LOOKAHEAD_QKV, /* q, k, v */
	KV_LOOKAHEAD_ALL, /* q, k, v, o, gate, up, down */
	KV_N_LOOKAHEAD_TARGETS
};
extern const char *const kv_lookahead_targets[KV_N_LOOKAHEAD_TARGETS]; /* "none", "qkv", "all" */
int kv_lookahead_targets_find(const char *name);                       /* -1: unknown */

/* What a module is made of.  rank 0 and targets NONE mean the same: no adapters. */
struct kv_lookahead_shape {
	size_t n;     /* tokens, 1 .. KV_LOOKAHEAD_MAX */
	size_t rank;  /* 0 .. KV_LOOKAHEAD_MAX */
	double alpha; /* finite; 0: adapters that do nothing */
	enum kv_lookahead_targets targets;
};

/* In range?  rank 0 and targets NONE come to mean each other.  Fails: KV_EARG. */
int kv_lookahead_check_shape(struct kv_lookahead_shape *s, struct kv_err *e);

/* One adapted matrix W [out][in].  All zero where there is none. */
struct kv_adapter {
	size_t in, out;
	float *a; /* [rank][in] */
	float *b; /* [out][rank]; rows as the model's file orders those of W (rotary pairs included) */
};

struct kv_lookahead {
	struct kv_lookahead_shape shape; /* rank 0 <=> targets NONE */
	size_t L, d;                     /* of the model */
	char base[33];                   /* fingerprint of the model's weights file, "" unknown */
	char base_name[128];             /* the model's own name */
	size_t base_parameters;          /* of the model, for the share */
	/* Every number of the module, one block: P, then layer by layer, role by role in enum order, A and B. */
	float *parameters; /* [n_parameters] */
	size_t n_parameters;
	float *p;                   /* [n][d], the first part of parameters */
	struct kv_adapter *adapter; /* [L][KV_N_ROLES] into parameters */
	json_t *training;           /* object: recipe and history, free in form; owned; written to the file as it is */
	char hash[33];              /* as read from a file: hex of XXH3-128 over its bytes; "" for one made here */
};

/* A module of zeros for a model.  Sizes come from the configuration alone, so cfg may be of a model without weights.
 * Fails: KV_EARG (a shape out of range), KV_EMEM. */
int kv_lookahead_new(
    struct kv_lookahead **out, const struct kv_config *c, const struct kv_lookahead_shape *s, struct kv_err *e);
void kv_lookahead_free(struct kv_lookahead *m);

/* Start values: P ~ N(0, sigma), A ~ N(0, standard deviation 1/sqrt(in)), B = 0.  Every number is a function of seed
 * and its place alone.  sigma: kv_embedding_sigma(), where the model is at hand. */
void kv_lookahead_init(struct kv_lookahead *m, uint64_t seed, double sigma);

/* Does the model's matrix have an adapter in a module of this shape? */
bool kv_lookahead_has(
    const struct kv_lookahead_shape *s, const struct kv_config *c, size_t layer, enum kv_role role);
/* Borrowed; NULL where there is none. */
const struct kv_adapter *kv_lookahead_adapter(const struct kv_lookahead *m, size_t layer, enum kv_role role);
/* alpha / rank; 0 without adapters. */
double kv_lookahead_scale(const struct kv_lookahead *m);

/* How many numbers a module has (the paper: 20.6 M for Llama-3.1-8B, n = 32 and rank 8 everywhere), and the model. */
size_t kv_lookahead_parameters(const struct kv_config *c, const struct kv_lookahead_shape *s);
size_t kv_config_parameters(const struct kv_config *c);

/* Was the module made for this model: the sizes, and the weights file where both are known?  And are all its numbers
 * finite?  Fails: KV_EMODEL, saying what differs. */
int kv_lookahead_fits(const struct kv_lookahead *m, const struct kv_config *c, struct kv_err *e);

/* The first of these questions, before there is a module: the model it was made for, and that model's sizes. */
int kv_lookahead_made_for(
    const char *base, const char *base_name, size_t L, size_t d, const struct kv_config *c, struct kv_err *e);

#endif
