/* SPDX-License-Identifier: MIT
 * Choosing the next token from logits.
 */
#ifndef KV_SAMPLE_H
#define KV_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kv_sampler {
	double temperature; /* 0: greedy */
	size_t top_k;       /* 0: off */
	double top_p;       /* 1: off */
	double min_p;       /* 0: off; keep tokens with p >= min_p * p_max */
	uint64_t seed;
};

/* The next token.  Greedy: the largest logit, lowest id among equals.  Otherwise top-k, then temperature, then top-p and min-p on the
 * resulting distribution, then one draw that is a pure function of (seed, stream, position): the same command gives the same text
 * whatever ran before it.  Fails: KV_EFAIL for a NaN or infinite logit, naming the token id and the value. */
int kv_sample(const struct kv_sampler *s, uint64_t stream, uint64_t position, const float *logits, size_t n, int32_t *id,
    struct kv_err *e);

/* ln softmax(logits)[id] in double precision. */
double kv_log_prob(const float *logits, size_t n, int32_t id);

#endif
