/* SPDX-License-Identifier: MIT
 * Small random models, grown in memory from a seed: the same spec gives the same bytes everywhere.
 */
#ifndef TINY_H
#define TINY_H

#include "lib/model/model.h"

struct tiny_spec {
	const char *arch; /* "llama", "qwen2", "qwen3" */
	size_t L, Hq, Hkv, D, d, ff, vocab, context;
	bool tied;
	bool llama3_scaling; /* factor 8, low 1, high 4, original context 32 */
	bool interleaved;    /* rotary pairs of q and k, as GGUF's llama has them */
	uint64_t seed;
};

/* Ids of the vocabulary: a byte is its own token 0 .. 255, then 8 merges, then the special tokens. */
enum {
	TINY_BOS = 264,      /* <s>, which the model wants in front of a prompt (add_bos) */
	TINY_EOS = 265,      /* </s> */
	TINY_IM_START = 266, /* <|im_start|> */
	TINY_IM_END = 267,   /* <|im_end|> */
	TINY_MIN_VOCAB = 268,
};

/* Fill a zeroed *m with f32 weights of a scale that keeps activations near 1, norms near 1, and a byte-level BPE
 * vocabulary: 256 byte tokens, a few merges, <s> </s> and <|im_start|> <|im_end|> as special tokens, the rest unused;
 * a chatml template.  A vocab below TINY_MIN_VOCAB gives a model without a vocabulary
 * (KV_VOCAB_NONE).
 * kv_model_fini() frees it, also after a failure. */
int tiny_model(struct kv_model *m, const struct tiny_spec *s, struct kv_err *e);

#endif
