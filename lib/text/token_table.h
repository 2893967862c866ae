/* SPDX-License-Identifier: MIT
 * Token ids by text.
 */
#ifndef KV_TOKEN_TABLE_H
#define KV_TOKEN_TABLE_H

#include "lib/text/vocab.h"

struct kv_token_table {
	const struct kv_vocab *vocab;
	int32_t *slots; /* [mask + 1], -1: empty */
	size_t mask;
	size_t longest; /* bytes of the longest token that is not a special one */
};

/* Keeps vocab borrowed.  Of tokens with equal text the first normal one counts, else the first. */
int kv_token_table_init(struct kv_token_table *t, const struct kv_vocab *vocab, struct kv_err *e);
void kv_token_table_fini(struct kv_token_table *t);
int32_t kv_token_table_find(const struct kv_token_table *t, const char *text, size_t n); /* -1 if none */

#endif
