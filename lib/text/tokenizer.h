/* SPDX-License-Identifier: MIT
 * Text to token ids and back, exact for any bytes.
 */
#ifndef KV_TOKENIZER_H
#define KV_TOKENIZER_H

#include "lib/buf.h"
#include "lib/text/ids.h"
#include "lib/text/vocab.h"

struct kv_tokenizer;

/* Keeps vocab borrowed.  Fails: KV_EMODEL (no vocabulary, a broken pattern or merge), KV_EMEM. */
int kv_tokenizer_new(struct kv_tokenizer **out, const struct kv_vocab *vocab, struct kv_err *e);
void kv_tokenizer_free(struct kv_tokenizer *t);
const struct kv_vocab *kv_tokenizer_vocab(const struct kv_tokenizer *t);

enum kv_encode_flags {
	KV_ENCODE_BOS = 1,     /* the beginning-of-sequence token first, if the model wants one and ids are empty */
	KV_ENCODE_SPECIAL = 2, /* special tokens written in the text become those tokens; a beginning-of-sequence token
				  at its start not once more, where ids hold just that token already */
};

/* Append the ids of text (any n bytes, NUL and invalid UTF-8 included; nothing is trimmed).
 * SentencePiece's space prefix goes before the text when ids hold nothing but BOS, or after a special token.
 * Fails: KV_EMODEL (a byte that the vocabulary has no token for: SmolLM2 lacks a few control bytes and bytes that never
 * occur in UTF-8; nothing is dropped silently), KV_EMEM.  ids then hold a part. */
int kv_encode(const struct kv_tokenizer *t, const char *text, size_t n, unsigned flags, struct kv_ids *ids,
    struct kv_err *e);

/* Append the bytes of one token.  Special tokens append nothing unless `special`.  SentencePiece's own space prefix is
 * kept: the caller that decodes a whole text from its start drops it with kv_decode(). */
int kv_decode_token(const struct kv_tokenizer *t, int32_t id, bool special, struct kv_buf *out, struct kv_err *e);

/* A whole sequence: kv_decode(kv_encode(x)) == x for any x encoded without special tokens; the NFC of x where the
 * vocabulary normalises (vocab->nfc).  With special tokens and `special`, the same. */
int kv_decode(const struct kv_tokenizer *t, const int32_t *ids, size_t n, bool special, struct kv_buf *out,
    struct kv_err *e);

/* How many of the n bytes can be shown now without cutting a UTF-8 character that may still be completed: n less an
 * unfinished tail of at most 3 bytes.  Bytes that can never become UTF-8 are not held back. */
size_t kv_utf8_ready(const char *bytes, size_t n);

/* id of a token by its exact text as spelled in the file; -1 if none. */
int32_t kv_token_find(const struct kv_tokenizer *t, const char *text);

#endif
