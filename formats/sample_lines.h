/* SPDX-License-Identifier: MIT
 * Samples of a training as JSON Lines: a prompt per line, perhaps with its response.
 */
#ifndef KV_SAMPLE_LINES_H
#define KV_SAMPLE_LINES_H

#include "formats/lessons.h"
#include "lib/text/prompts.h"

struct kv_sample_lines {
	const struct kv_model *model;
	const char *field, *id_field, *response_field; /* the last two may be NULL */
	bool chat;
	const struct kv_chat *template; /* NULL: the model's own, if chat */
	const char *system;
	unsigned flags;                  /* enum kv_encode_flags */
	size_t max_prompt, max_response; /* tokens; the model's context may make max_prompt less */
	bool cut;                        /* longer prompts are cut at their end, not left out */
	/* What came out: zero at first. */
	size_t n_left_out, n_cut;
	struct kv_tokenizer *tokenizer; /* owned; opened when there is text */
};

/* All lines of a file ("-": standard input) join the lessons.  Fails: KV_EIO, KV_EFORMAT, KV_EMODEL (no vocabulary, no
 * chat template), KV_EARG (an empty prompt, ids outside the vocabulary), naming file and line. */
int kv_sample_lines_read(struct kv_sample_lines *s, const char *path, struct kv_lessons *to, struct kv_err *e);
void kv_sample_lines_fini(struct kv_sample_lines *s);

#endif
