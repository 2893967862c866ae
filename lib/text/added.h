/* SPDX-License-Identifier: MIT
 * Tokens that are matched in text as a whole: user-defined ones always, special ones on request.
 */
#ifndef KV_ADDED_H
#define KV_ADDED_H

#include "lib/text/vocab.h"

struct kv_added_token {
	const char *text; /* as it stands in text: SentencePiece's U+2581 is a space here */
	size_t n;
	int32_t id;
	bool special;
};

struct kv_added {
	struct kv_added_token *v; /* [n], sorted by bytes */
	size_t n;
	size_t first[257]; /* tokens that begin with byte b: first[b] .. first[b + 1] */
	char *spaced;      /* the changed spellings */
};

int kv_added_init(struct kv_added *a, const struct kv_vocab *vocab, struct kv_err *e);
void kv_added_fini(struct kv_added *a);

/* The leftmost match in text[from .. n), the longest one there; NULL if none.  *at is where it begins. */
const struct kv_added_token *kv_added_find(const struct kv_added *a, const char *text, size_t n, size_t from,
    bool special, size_t *at);

#endif
