/* SPDX-License-Identifier: MIT
 * Chat templates: the common families by name, recognised from the model's own template.
 */
#ifndef KV_CHAT_H
#define KV_CHAT_H

#include "lib/text/tokenizer.h"

struct kv_chat; /* one row of kv_chats[] */

extern const char *const kv_chat_names; /* "chatml|llama2|llama3|mistral|..." for options and messages */
const struct kv_chat *kv_chat_find(const char *name); /* NULL if none */
/* The family a model's Jinja template belongs to; NULL if none is recognised. */
const struct kv_chat *kv_chat_recognise(const char *jinja);
/* The template to use: the one that was asked for, else the one of this name, else the one that is recognised in jinja;
 * each may be NULL.  NULL if none is known. */
const struct kv_chat *kv_chat_choose(const struct kv_chat *asked, const char *name, const char *jinja);
const char *kv_chat_name(const struct kv_chat *c);

/* Append the ids of one user turn, ready for the assistant's answer.
 *   system  NULL: the template's own default, if it has one; "" : none
 *   first   true: the conversation starts here (BOS if the model wants one, exactly once; system message)
 *           false: a further turn behind an answer that stopped at an end token (that token is closed first if `open`)
 *   open    the previous answer's end token is not in the cache yet: emit it before the new turn
 * Markup becomes special tokens; user and system text does not, unless flags has KV_ENCODE_SPECIAL.  Text between two
 * special tokens is encoded as one piece, as the model's own tokenizer would. */
int kv_chat_encode(const struct kv_chat *c, const struct kv_tokenizer *t, const char *system, const char *user,
    size_t user_bytes, bool first, bool open, unsigned flags, struct kv_ids *ids, struct kv_err *e);

#endif
