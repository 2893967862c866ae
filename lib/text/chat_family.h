/* SPDX-License-Identifier: MIT
 * What a family of chat templates writes around the texts of a conversation.
 */
#ifndef KV_CHAT_FAMILY_H
#define KV_CHAT_FAMILY_H

#include "lib/buf.h"
#include "lib/text/chat.h"

/* Markup is written as in text; special tokens in it become tokens where the vocabulary has them. */
struct kv_chat {
	const char *name;
	const char *marks[4];             /* all of them stand in the family's Jinja templates */
	const char *system[2];            /* before and after the system text */
	const char *user[2];              /* before the user's text; behind it, the answer's beginning included */
	const char *end;                  /* the special token that ends an answer */
	const char *next;                 /* between that token and the next turn */
	const char *preamble;             /* written before any system text; NULL: none */
	const char *default_system;       /* where no template says otherwise; NULL: no system turn */
	bool system_in_user;              /* the system text stands within the first user turn */
	bool bos, bos_each_turn;          /* the template writes BOS itself: at the start; before every user turn */
};

/* Ends with name NULL; of several that fit a template the first counts. */
extern const struct kv_chat kv_chat_families[];

/* Does the Jinja text hold this one?  A line feed in mark is either a real one or the two characters \n. */
bool kv_jinja_has(const char *jinja, const char *mark);

/* The literal text a template writes as the system turn when a conversation brings none, appended to out; *found is
 * false if there is none. */
int kv_jinja_default_system(const struct kv_chat *c, const char *jinja, struct kv_buf *out, bool *found,
    struct kv_err *e);

#endif
