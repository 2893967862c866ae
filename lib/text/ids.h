/* SPDX-License-Identifier: MIT
 * Lists of token ids, and their forms outside: decimal text, JSON arrays.
 */
#ifndef KV_IDS_H
#define KV_IDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kv_ids { /* zeroed: none */
	int32_t *v;
	size_t n, cap;
};
void kv_ids_fini(struct kv_ids *ids);
int kv_ids_add(struct kv_ids *ids, int32_t id, struct kv_err *e);

/* Append decimal ids between white space or commas.  Fails: KV_EARG, quoting what is no id. */
int kv_ids_parse(struct kv_ids *ids, const char *list, struct kv_err *e);
/* Append the elements of a JSON array.  Fails: KV_EFORMAT, naming the element that is no id. */
int kv_ids_from_json(struct kv_ids *ids, const json_t *array, struct kv_err *e);
/* As a new JSON array; NULL: no memory. */
json_t *kv_ids_to_json(const struct kv_ids *ids);

/* Are all of them below vocab?  first: position of the first one, for the message.  Fails: KV_EARG. */
int kv_ids_check(const struct kv_ids *ids, size_t vocab, size_t first, struct kv_err *e);

#endif
