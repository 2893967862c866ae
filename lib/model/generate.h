/* SPDX-License-Identifier: MIT
 * From a cache to a response: choose, append, repeat; or follow a given one and measure how likely it was.
 */
#ifndef KV_GENERATE_H
#define KV_GENERATE_H

#include "lib/model/cache.h"
#include "lib/model/sample.h"

enum kv_stop {
	KV_STOP_LENGTH,  /* max_tokens were chosen */
	KV_STOP_END,     /* an end token was chosen; it counts, and is not appended to the cache */
	KV_STOP_CONTEXT, /* the last token chosen has no place in the model's context any more */
};
extern const char *const kv_stop_names[]; /* "length", "end", "context" */

struct kv_generation {
	struct kv_sampler sampler;
	uint64_t stream;             /* number of the sequence, for the sampler */
	const struct kv_config *cfg; /* of the cache's model */
	size_t max_tokens;
	const int32_t *stops; /* [n_stops] end tokens */
	size_t n_stops;
	bool feed_last; /* append the last token as well, for the sake of its queries; end tokens never are */
	const struct kv_extend_tap *tap; /* sees the rows of every token appended; NULL: none */
	/* Told of each token with the logits [vocab] it was chosen from; end: it is an end token. */
	int (*token)(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e);
	void *ctx;
};

/* Choose up to max_tokens tokens.  logits [vocab]: in, those the first token is chosen from; then scratch.  The cache
 * needs room for max_tokens + 1.  Fails: KV_EFAIL for a logit that is not finite, naming the position; what kv_extend
 * and token fail with. */
int kv_generate(struct kv_cache *c, const struct kv_generation *g, float *logits, enum kv_stop *why, struct kv_err *e);

/* The same for given tokens: calls token for each and sums -ln p in nats.  Samples and stops nowhere.  The cache needs
 * room for n + 1.  Fails in addition: KV_ESHAPE when they reach beyond the context. */
int kv_follow(struct kv_cache *c, const struct kv_generation *g, const int32_t *ids, size_t n, float *logits,
    double *nll, struct kv_err *e);

#endif
