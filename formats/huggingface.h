/* SPDX-License-Identifier: MIT
 * Parts of reading a Hugging Face folder (formats/HUGGINGFACE.md).
 */
#ifndef KV_HUGGINGFACE_H
#define KV_HUGGINGFACE_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/config.h"
#include "lib/err.h"
#include "lib/text/vocab.h"

/* FOLDER/NAME as JSON, new reference; NULL if there is no such file.  Fails: KV_EIO, KV_EFORMAT, naming the file. */
int hf_read_json(const char *folder, const char *name, json_t **out, struct kv_err *e);

/* A member, NULL if absent or null. */
json_t *hf_get(const json_t *o, const char *key);

/* config.json as configuration (hf_config.c).  *tied_known false: config.json does not say; tied is then the caller's
 * to set. Fails: KV_EMODEL, naming the key. */
int hf_config(const json_t *config, struct kv_config *c, bool *tied_known, struct kv_err *e);

/* tokenizer.json and its companions as vocabulary (hf_vocab.c, hf_pretok.c); KV_VOCAB_NONE when there is no
 * tokenizer.json. */
int hf_vocab(const char *folder, const json_t *config, struct kv_vocab *v, struct kv_err *e);

/* normalizer and pre_tokenizer of a byte-level vocabulary: sets patterns and nfc. */
int hf_pretok(const json_t *tokenizer, struct kv_vocab *v, struct kv_err *e);

/* The same of a SentencePiece-like one: sets add_space_prefix and nfc, refuses what would not be SentencePiece. */
int hf_spaces(const json_t *tokenizer, struct kv_vocab *v, struct kv_err *e);

/* Does the tokenizer replace spaces by U+2581 (SentencePiece)? */
bool hf_is_sentencepiece(const json_t *tokenizer);

#endif
