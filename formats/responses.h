/* SPDX-License-Identifier: MIT
 * What another run answered: the responses in a stream of kv-decode -o, to be followed token by token.
 */
#ifndef KV_RESPONSES_H
#define KV_RESPONSES_H

#include <jansson.h>
#include <stddef.h>

#include "lib/err.h"

struct kv_responses;

/* Reads the whole stream but its payloads.  model: of the cache that will follow (borrowed).
 * Fails: KV_EMODEL (another model), KV_EFORMAT, KV_EIO, KV_EMEM. */
int kv_responses_open(struct kv_responses **out, const char *path, const json_t *model, struct kv_err *e);
void kv_responses_free(struct kv_responses *r);

/* The opening map, borrowed, of the sequence with the same id as `map`, an opening map as well; of several with this
 * id, or where there is none, the one of the same number.  Its key `response` holds token ids. Fails: KV_EARG (no such
 * sequence, or no response in it), KV_EMODEL (another prompt). */
int kv_responses_find(
    const struct kv_responses *r, const json_t *map, size_t number, const json_t **found, struct kv_err *e);

#endif
