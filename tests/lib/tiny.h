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

/* Fill a zeroed *m with f32 weights of a scale that keeps activations near 1, norms near 1, and a byte-level BPE vocabulary: 256 byte
 * tokens, a few merges, <s> </s> and <|im_start|> <|im_end|> as special tokens, the rest unused; a chatml template.  kv_model_fini() frees
 * it. */
int tiny_model(struct kv_model *m, const struct tiny_spec *s, struct kv_err *e);

#endif
