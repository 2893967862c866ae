/* SPDX-License-Identifier: MIT
 * Do several streams belong together, and what do they make together?  The part of the pipe that compares and
 * merges maps.
 */
#ifndef KV_JOIN_H
#define KV_JOIN_H

#include <jansson.h>

#include "lib/err.h"

/* The model objects of two headers: every key that both have must be equal, the name apart.
 * Fails: KV_EMODEL, naming both files and the first difference. */
int kv_join_models(const json_t *a, const char *a_file, const json_t *b, const char *b_file, struct kv_err *e);

/* The opening maps of one sequence in two streams: equal tokens, equal prompt_length.  Fails: KV_EMODEL, as above. */
int kv_join_sequences(const json_t *a, const char *a_file, const json_t *b, const char *b_file, size_t number,
    struct kv_err *e);

/* Append the entries of `more` (an array or NULL) that `all` does not have.  Fails: KV_EMEM. */
int kv_join_history(json_t *all, const json_t *more, struct kv_err *e);

/* Add to `map` the keys of `more` that it lacks; objects on both sides are merged the same way.  Fails: KV_EMEM. */
int kv_join_maps(json_t *map, const json_t *more, struct kv_err *e);

#endif
