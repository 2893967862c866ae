/* SPDX-License-Identifier: MIT
 * The forward pass of llama, qwen2 and qwen3 as the textbook has it: double precision, one loop per formula, the whole
 * attention matrix, and nothing shared with lib/ but the model's struct.  For small models only.
 */
#ifndef NAIVE_H
#define NAIVE_H

#include "lib/model/module.h"
#include "lib/model/model.h"

/* Entries that queries in row `from` and later do not see, as if they had been removed from the cache. */
struct naive_mask {
	const bool *hidden; /* [L][H][T] */
	size_t from;
	size_t H; /* Hkv, or more: query head h goes by head h / (Hq/H); 0 means Hkv */
};

/* Everything a run produced; owned arrays. */
struct naive {
	size_t T;
	const struct kv_lookahead *lookahead; /* of the last shape.n rows; NULL: none.  Borrowed */
	double *logits; /* [T][vocab] */
	double *q;      /* [L][Hq][T][D] after rotation, half-split order */
	double *k;      /* [L][Hkv][T][D] after rotation, half-split order */
	double *v;      /* [L][Hkv][T][D] */
};

/* Run T tokens.  position NULL: row i stands at position i, else at position[i].  mask NULL: plain causal attention.
 * Weights may be of any plain type.  Aborts when there is no memory; naive_fini() frees. */
void naive_run(struct naive *r, const struct kv_model *m, const int32_t *tokens, size_t T, const size_t *position,
    const struct naive_mask *mask);
/* The same for a prompt of T tokens with a module's rows behind it: T + n rows. */
void naive_run_lookahead(
    struct naive *r, const struct kv_model *m, const int32_t *tokens, size_t T, const struct kv_lookahead *lookahead);
void naive_fini(struct naive *r);

#endif
