/* SPDX-License-Identifier: MIT
 * Choosing the next token from logits.
 */
#ifndef KV_SAMPLE_H
#define KV_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kv_sampler {
	double temperature; /* 0: greedy, and the rest is not looked at */
	size_t top_k;       /* the k largest logits; 0: off */
	double top_p;       /* the fewest tokens, likeliest first, that have at least this share; (0, 1], 1: off */
	double min_p;       /* tokens with p >= min_p * p_max; [0, 1], 0: off */
	uint64_t seed;
};

/* The next token.  Greedy: the largest logit, lowest id among equals.  Otherwise top-k, then temperature, then top-p
 * and min-p (both on the distribution that these left, and a token must pass both; the likeliest always does), then
 * one draw that is a pure function of (seed, stream, position): the same command gives the same text whatever ran
 * before it.  Everywhere the lower id goes first among equal logits.  Probabilities are in double precision.
 * Fails: KV_EFAIL for a NaN or infinite logit, naming the token id and the value; KV_EARG for a parameter out of range;
 * KV_ESHAPE for n = 0; KV_EMEM. */
int kv_sample(const struct kv_sampler *s, uint64_t stream, uint64_t position, const float *logits, size_t n,
    int32_t *id, struct kv_err *e);

/* ln softmax(logits)[id] in double precision; id in 0 .. n-1. */
double kv_log_prob(const float *logits, size_t n, int32_t id);

#endif
