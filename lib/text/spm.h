/* SPDX-License-Identifier: MIT
 * SentencePiece's BPE: neighbours join while their text is a token, best score first; the rest falls back to bytes.
 */
#ifndef KV_SPM_H
#define KV_SPM_H

#include "lib/buf.h"
#include "lib/text/merge.h"
#include "lib/text/token_table.h"
#include "lib/text/tokenizer.h"

struct kv_spm {
	const struct kv_vocab *vocab;
	const struct kv_token_table *table;
	int32_t byte_id[256]; /* <0xXX>; -1: none */
	bool cut_at_spaces;   /* no token has a space behind another character: pieces can end before spaces */
};

/* Fails: KV_EMODEL (a byte token that is not spelled <0xXX>; NFC, which no known model of this kind asks for). */
int kv_spm_init(struct kv_spm *s, const struct kv_token_table *table, struct kv_err *e);

/* Plain text to ids, with a space before it if `prefix`.
 *
 * A literal U+2581 is spelled in bytes, which SentencePiece does not do (it takes it for a space): the text would not
 * come back otherwise.  Without byte tokens it is a space there too, and what has no token becomes `unk`.
 * Fails: KV_EMODEL (neither byte tokens nor unk). */
int kv_spm_encode(const struct kv_spm *s, const char *text, size_t n, bool prefix, struct kv_ids *ids,
    struct kv_err *e);

/* The bytes that a token's text stands for: U+2581 is a space. */
int kv_spm_bytes(const struct kv_token *k, struct kv_buf *out, struct kv_err *e);

#endif
