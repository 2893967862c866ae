/* SPDX-License-Identifier: MIT
 * Which response stands behind a prompt: one language for the command line.
 *
 *	file:FILE | field:NAME | tokens:IDS | generate:N
 *
 * The first word says what the rest is, so that no file name can be taken for anything else.
 */
#ifndef KV_RESPONSE_H
#define KV_RESPONSE_H

#include "lib/text/behind.h"

enum kv_response_kind {
	KV_RESPONSE_NONE,
	KV_RESPONSE_FILE,     /* the text of a file; "-": standard input */
	KV_RESPONSE_FIELD,    /* of each prompt's JSON Lines record, text or token ids */
	KV_RESPONSE_TOKENS,   /* token ids as they are */
	KV_RESPONSE_GENERATE, /* the model's own, at most `most` tokens */
};

struct kv_response { /* zeroed: none */
	enum kv_response_kind kind;
	const char *rest;   /* behind the colon; borrowed */
	size_t most;        /* GENERATE: 1 .. 2^31-1 tokens */
	struct kv_buf text; /* FILE */
	struct kv_ids ids;  /* TOKENS */
};
/* Fails: KV_EARG, saying what is expected. */
int kv_response_parse(struct kv_response *r, const char *spec, struct kv_err *e);
void kv_response_fini(struct kv_response *r);

/* Read what can be read before there is a model: the file, the list of ids. */
int kv_response_read(struct kv_response *r, struct kv_err *e);

/* Does it need a tokenizer for this record?  */
bool kv_response_is_text(const struct kv_response *r, const json_t *record);

/* Append the response behind one prompt; nothing for NONE and GENERATE.  record: the prompt's JSON Lines record or
 * NULL. A last token that ends responses (stops) is left out: nothing comes behind it that its queries could tell of.
 * Fails: KV_EARG (no such field; an id outside the vocabulary), and as kv_encode(). */
int kv_response_encode(const struct kv_response *r, const struct kv_behind *b, const json_t *record,
    const int32_t *stops, size_t n_stops, struct kv_ids *ids, struct kv_err *e);

#endif
