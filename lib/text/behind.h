/* SPDX-License-Identifier: MIT
 * What stands behind tokens that are there already: a turn, a continuation, a response.
 *
 * Text is encoded as it would be in that place, not as a text of its own: SentencePiece, for one, puts a space before
 * those.
 */
#ifndef KV_BEHIND_H
#define KV_BEHIND_H

#include "lib/text/tokenizer.h"

struct kv_behind {
	const struct kv_tokenizer *tokenizer; /* NULL: the model has no vocabulary, ids only */
	size_t vocab;                         /* ids must lie below */
	unsigned flags;                       /* KV_ENCODE_SPECIAL or 0 */
	const int32_t *before;                /* [n_before] the tokens that are there */
	size_t n_before;
};

/* Append the ids of text.  Fails: KV_EMODEL (no vocabulary), and as kv_encode(). */
int kv_behind_text(const struct kv_behind *b, const char *text, size_t bytes, struct kv_ids *ids, struct kv_err *e);
/* The same for a field of a JSON object: text, or an array of token ids, which are taken as they are.  Fails in
 * addition: KV_EARG (no such field, or something else in it; an id outside the vocabulary). */
int kv_behind_field(
    const struct kv_behind *b, const json_t *object, const char *name, struct kv_ids *ids, struct kv_err *e);

#endif
