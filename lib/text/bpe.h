/* SPDX-License-Identifier: MIT
 * Byte-level BPE: GPT-2's printable alphabet, ordered merges, pieces cut by patterns.
 */
#ifndef KV_BPE_H
#define KV_BPE_H

#include "lib/buf.h"
#include "lib/text/merge.h"
#include "lib/text/split.h"
#include "lib/text/token_table.h"
#include "lib/text/tokenizer.h"

struct kv_bpe_pair {
	int32_t left, right; /* left -1: empty slot */
	int32_t id;          /* the token they make */
	uint32_t rank;       /* line of the merge list */
};

struct kv_bpe {
	const struct kv_vocab *vocab;
	const struct kv_token_table *table;
	struct kv_split *split;
	struct kv_bpe_pair *pairs; /* [mask + 1] */
	size_t mask;
	int32_t byte_id[256]; /* -1: the vocabulary lacks this byte */
};

int kv_bpe_init(struct kv_bpe *b, const struct kv_token_table *table, struct kv_err *e);
void kv_bpe_fini(struct kv_bpe *b);

/* Plain text to ids.  Fails: KV_EMODEL naming a byte that the vocabulary has no token for. */
int kv_bpe_encode(const struct kv_bpe *b, const char *text, size_t n, struct kv_ids *ids, struct kv_err *e);

/* The bytes that a token's text stands for in the printable alphabet; characters outside it stand for themselves. */
int kv_bpe_bytes(const char *text, size_t n, struct kv_buf *out, struct kv_err *e);

#endif
