/* SPDX-License-Identifier: MIT
 * A model's own greedy response to a prompt, from its whole cache.
 */
#ifndef KV_RESPOND_H
#define KV_RESPOND_H

#include "lib/model/generate.h"
#include "lib/text/ids.h"

struct kv_respond {
	const int32_t *tokens; /* [T] the prompt */
	size_t T;
	enum kvk_type type;   /* of the cache, as kv_cache_new() takes it */
	size_t most;          /* longest response, tokens */
	const int32_t *stops; /* [n_stops] end tokens */
	size_t n_stops;
};

/* Append the response to ids, as kv_generate() at temperature 0 finds it in a cache of this type; without its end
 * token, and without a last token that has no place in the model's context.  Runs the prompt once and holds K and V of
 * all its layers meanwhile.  Fails: as kv_prefill() and kv_generate(). */
int kv_respond(
    struct kv_engine *x, const struct kv_respond *o, struct kv_ids *ids, enum kv_stop *why, struct kv_err *e);

#endif
