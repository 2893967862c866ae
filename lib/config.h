/* SPDX-License-Identifier: MIT
 * A model's dimensions and constants: what the forward pass, the stream's header and kv-show need to know.
 */
#ifndef KV_CONFIG_H
#define KV_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* An architecture we can run: one row of kv_archs in config.c. */
struct kv_arch {
	const char *name;      /* GGUF general.architecture and ours: "llama", "qwen2", "qwen3" */
	const char *hf_name;   /* config.json model_type's that mean the same, separated by spaces: "llama mistral" */
	bool qkv_bias;         /* q, k, v products have a bias */
	bool qk_norm;          /* queries and keys are RMS-normalised per head before rotation */
	bool gguf_interleaved; /* GGUF stores rotary pairs interleaved */
};
extern const struct kv_arch kv_archs[]; /* ends with name NULL */
const struct kv_arch *kv_arch_find(const char *name);      /* NULL if none */
const struct kv_arch *kv_arch_find_hf(const char *hf_name);

struct kv_config {
	const struct kv_arch *arch; /* NULL when a stream names one this version does not know */
	char name[128];             /* the model's own name */
	size_t L, Hq, Hkv, D;       /* layers, query heads, KV heads, head size */
	size_t d, ff, vocab;        /* embedding size, feed-forward size, rows of the embedding table */
	size_t context;             /* longest sequence the model was made for; 0 unknown */
	float rms_eps;
	float scale;                /* softmax scale, 1/sqrt(D) */
	double rope_theta;
	size_t rope_dim;            /* rotated part of a head */
	bool rope_interleaved;      /* of q and k as the weights produce them; the stream is always half-split */
	float *inv_freq;            /* [rope_dim/2], owned; scaling (linear, llama3) already applied */
	char rope_scaling[16];      /* "none", "linear", "llama3": for the record, inv_freq has it */
	bool tied;                  /* output table is the embedding table */
	char fingerprint[33];       /* hex of XXH3-128 over the weights file, see lib/fingerprint.h; "" unknown */
};

void kv_config_fini(struct kv_config *c);

/* Llama 3.1's frequency scaling (as in transformers' _compute_llama3_parameters). */
struct kv_rope_llama3 {
	double factor, low_freq_factor, high_freq_factor, original_context;
};

/* Fill inv_freq from theta and rope_dim: plain, divided by `linear` (1: none), by llama3 scaling (NULL: none), by a
 * per-pair table of factors (GGUF rope_freqs.weight, [rope_dim/2]; NULL: none).  All sizes have to be set.
 * Fails: KV_EMODEL, for a size outside its range before anything is taken for it. */
int kv_config_rope(struct kv_config *c, double linear, const struct kv_rope_llama3 *llama3, const float *factors,
    struct kv_err *e);

/* Are the sizes sane and consistent (all positive, Hq a multiple of Hkv, D and rope_dim even, products in range)?
 * Fails: KV_EMODEL, naming the field. */
int kv_config_check(const struct kv_config *c, struct kv_err *e);

/* The stream header's `model` object, new reference, and back (inv_freq comes from the object's own list).
 * Keys: name architecture layers heads kv_heads head_dim embedding feed_forward vocabulary context scale
 * rope{theta,dim,layout,scaling,inv_freq} fingerprint; layout is always "half", as keys and queries travel.
 * kv_config_from_json zeroes *c first; call kv_config_fini in any case.  It needs layers, heads, kv_heads and head_dim;
 * what else is absent stays 0 or "" (scale: 1/sqrt(head_dim)).  Fails: KV_EFORMAT, KV_EMODEL, naming the key. */
json_t *kv_config_to_json(const struct kv_config *c);
int kv_config_from_json(struct kv_config *c, const json_t *o, struct kv_err *e);

#endif
