/* SPDX-License-Identifier: MIT
 * Vocabularies small enough to follow by hand.  Lists end with NULL; kv_vocab_fini() frees the result.
 */
#ifndef SMALL_VOCAB_H
#define SMALL_VOCAB_H

#include "lib/text/vocab.h"

/* Byte-level BPE: ids 0..255 are the bytes, then one token per merge ("left right", in GPT-2's alphabet), then the
 * special and the added tokens.  No patterns, no BOS. */
int small_bpe(struct kv_vocab *v, const char *const *merges, const char *const *special, const char *const *added,
    struct kv_err *e);
#define SMALL_BPE_FIRST 256 /* id of the first merge */

/* SentencePiece: 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then the pieces, written with '_' for U+2581, each scored
 * minus its place, then the special and the added tokens.  BOS wanted, space prefix on. */
int small_spm(struct kv_vocab *v, const char *const *pieces, const char *const *special, const char *const *added,
    struct kv_err *e);
#define SMALL_SPM_FIRST 259 /* id of the first piece */

#endif
