/* SPDX-License-Identifier: MIT
 * A vocabulary as a model file gives it; formats/ fills it, lib/text/tokenizer.h builds a tokenizer on it.
 */
#ifndef KV_VOCAB_H
#define KV_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum kv_vocab_kind {
	KV_VOCAB_NONE, /* the file has no vocabulary: token ids only */
	KV_VOCAB_BPE,  /* byte-level BPE: ordered merges, a pre-tokenising pattern */
	KV_VOCAB_SPM,  /* SentencePiece BPE: scores, U+2581 for spaces, <0xXX> byte tokens */
};

enum kv_token_kind {
	KV_TOKEN_NORMAL,
	KV_TOKEN_SPECIAL, /* control token: never produced from plain text, prints as nothing unless asked */
	KV_TOKEN_ADDED,   /* user-defined: matched in text as a whole, prints its text */
	KV_TOKEN_BYTE,    /* SentencePiece byte fall-back <0xXX> */
	KV_TOKEN_UNUSED,
};

struct kv_token {
	const char *text; /* as the file spells it, not terminated; byte-level BPE: in GPT-2's printable alphabet */
	uint32_t n;       /* bytes */
	float score;      /* SentencePiece only */
	uint8_t kind;     /* enum kv_token_kind */
};

struct kv_vocab {
	enum kv_vocab_kind kind;
	struct kv_token *tokens; /* [n], ids are indices */
	size_t n;
	const char **merges;     /* [n_merges], "left right", most important first; byte-level BPE only */
	size_t n_merges;
	/* Pre-tokenisation of byte-level BPE: PCRE2 patterns applied one after the other, each splitting further what
	 * the previous ones left; a match is a piece, and so is what lies between matches. */
	const char **patterns;
	size_t n_patterns;
	bool nfc;              /* normalise to NFC first (Qwen); bytes that are not UTF-8 stay as they are */
	bool ignore_merges;    /* a piece that is a token as a whole is not built from merges (Llama 3, tekken) */
	bool add_space_prefix; /* SentencePiece: a space is put before the text */
	bool add_bos, add_eos; /* what the model expects around a prompt */
	int32_t bos, eos, unk, pad; /* -1: none */
	int32_t *stops;        /* [n_stops] every token that ends a response (eos, eot, eom, ...) */
	size_t n_stops;
	const char *chat_template; /* the file's Jinja text, NULL if none */
	void *arena;               /* owner of every string and array above */
};

/* Memory that lives as long as the vocabulary: NULL with KV_EMEM recorded on failure. */
void *kv_vocab_alloc(struct kv_vocab *v, size_t n, size_t size, struct kv_err *e);
char *kv_vocab_strdup(struct kv_vocab *v, const char *s, size_t n, struct kv_err *e);
void kv_vocab_fini(struct kv_vocab *v);

/* Patterns by the name GGUF's tokenizer.ggml.pre uses ("smollm", "llama-bpe", "qwen2", "tekken", "gpt-2", "default",
 * ...): sets patterns, nfc and ignore_merges.  Fails: KV_EMODEL for a name that is not in the table, listing the known
 * ones. */
int kv_vocab_set_pre(struct kv_vocab *v, const char *name, struct kv_err *e);

/* Fill stops from eos and the well-known end tokens that the vocabulary holds as special tokens (<|im_end|>,
 * <|eot_id|>, <|eom_id|>, <|endoftext|>, </s>, <end_of_turn>, ...), plus `extra` ids (generation_config.json).
 * Fails: KV_EMODEL (an extra id outside the vocabulary), KV_EMEM. */
int kv_vocab_set_stops(struct kv_vocab *v, const int32_t *extra, size_t n_extra, struct kv_err *e);

#endif
