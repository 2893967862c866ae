/* SPDX-License-Identifier: MIT
 * Golden token lists (tests/golden/README.md says how they are written) and vocabularies in a plain text form.
 */
#ifndef GOLDEN_TOKENS_H
#define GOLDEN_TOKENS_H

#include <stdio.h>

#include "lib/text/chat.h"

/* Read a vocabulary in text form into a zeroed *v; kv_vocab_fini() frees it.  Lines:
 *   kind bpe|spm      pre NAME      add_bos 0|1      space_prefix 0|1      bos|eos|unk ID
 *   token n|s|a|b|u SCORE HEX       in the order of ids: normal, special, added, byte, unused
 *   merge TEXT                      in order of rank
 *   template TEXT                   the chat template, escaped as golden_unescape() undoes it */
int golden_read_vocab(struct kv_vocab *v, const char *path, struct kv_err *e);

/* Undo \n \r \t \\ \xHH in place; returns the bytes. */
size_t golden_unescape(char *line);

struct golden_result {
	size_t n, wrong, lost; /* strings or words compared, with other ids, that do not decode to themselves */
};

/* Encode every string and compare with the ids in the file beside it; the first few differences go to `say`. */
int golden_strings(const struct kv_tokenizer *t, const char *strings, const char *ids, unsigned flags, FILE *say,
    struct golden_result *r, struct kv_err *e);

/* The words, as they are and behind a space, against the hashes of 100 each.  n counts words, wrong counts hundreds. */
int golden_words(const struct kv_tokenizer *t, const char *words, const char *hashes, FILE *say,
    struct golden_result *r, struct kv_err *e);

/* Conversations: lines of family, system text ("-": the default), user text, answer, second user text (both empty: one
 * turn) and the ids of the whole up to the next answer, separated by tabs. */
int golden_chats(const struct kv_tokenizer *t, const char *chats, FILE *say, struct golden_result *r, struct kv_err *e);

#endif
