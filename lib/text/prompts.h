/* SPDX-License-Identifier: MIT
 * Prompts as the command line names them: texts, files, token ids, JSON Lines; bytes are taken as they are, never
 * trimmed.
 */
#ifndef KV_PROMPTS_H
#define KV_PROMPTS_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/text/chat.h"

struct kv_prompt {
	char *from; /* the file, with a line number for JSON Lines; NULL: the command line itself */
	char *id;   /* "0", "1", ... in the order of reading, or from the JSON Lines record */
	char *text; /* [bytes], any bytes; NULL when the prompt came as token ids */
	size_t bytes;
	struct kv_ids ids;  /* given, or made by kv_prompts_encode() */
	json_t *attributes; /* the JSON Lines record as it came; NULL without one */
};

struct kv_prompts { /* zeroed: none */
	struct kv_prompt *v;
	size_t n, cap;
};
void kv_prompts_fini(struct kv_prompts *p);

int kv_prompts_add_text(struct kv_prompts *p, const char *text, size_t bytes, struct kv_err *e);
/* A whole file ("-": standard input) is one prompt. */
int kv_prompts_add_file(struct kv_prompts *p, const char *path, struct kv_err *e);
/* Decimal ids between white space or commas are one prompt.  Fails: KV_EARG, quoting what is no id. */
int kv_prompts_add_tokens(struct kv_prompts *p, const char *list, struct kv_err *e);
int kv_prompts_add_tokens_file(struct kv_prompts *p, const char *path, struct kv_err *e);
/* Every line that is not blank is a JSON object and a prompt: `field` holds a string, or an array of token ids;
 * id_field (NULL: count) a string or an integer.  Fails: KV_EFORMAT, naming file and line. */
int kv_prompts_add_jsonl(
    struct kv_prompts *p, const char *path, const char *field, const char *id_field, struct kv_err *e);

struct kv_prompt_coding {
	const struct kv_tokenizer *tokenizer;
	const struct kv_chat *chat; /* wrap texts as the first user turn; NULL: plain */
	const char *system;         /* see kv_chat_encode() */
	unsigned flags;             /* enum kv_encode_flags */
	size_t vocab;               /* ids must lie below */
	size_t context;             /* longest prompt, 0 unlimited */
};
/* Make ids of every text; ids that were given stay as they are.  Fails: KV_EARG for a prompt that is empty, longer than
 * the context, or holds an id outside the vocabulary: "prompt N (FILE, id ...): ..." */
int kv_prompts_encode(struct kv_prompts *p, const struct kv_prompt_coding *c, struct kv_err *e);

#endif
