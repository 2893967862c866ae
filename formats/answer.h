/* SPDX-License-Identifier: MIT
 * Answers on their way out: as text while they grow, as a JSON object or a table row per sequence, as a stream, or two
 * of these.
 */
#ifndef KV_ANSWER_H
#define KV_ANSWER_H

#include "formats/pipe.h"
#include "lib/model/cache.h"
#include "lib/text/tokenizer.h"

enum kv_answer_kind {
	KV_ANSWER_NONE, /* only the stream */
	KV_ANSWER_TEXT, /* as it grows, whole characters only; a newline behind each answer, a line "--- ID", escaped
			   (lib/text/escape.h), before all but the first */
	KV_ANSWER_JSON, /* JSON Lines */
	KV_ANSWER_NLL,  /* TSV with a heading: id (escaped), n_tokens, nll, nll_per_token */
};

struct kv_answer_options {
	enum kv_answer_kind kind;
	int fd;                               /* where text, JSON or table go */
	const struct kv_tokenizer *tokenizer; /* NULL: ids stand for text */
	struct kv_writer *writer;             /* stream, header already written; NULL: none */
	const struct kv_config *cfg;
	const struct kv_device *device;
};

/* Everything in the options stays borrowed. */
struct kv_answers;
int kv_answers_new(struct kv_answers **out, const struct kv_answer_options *o, struct kv_err *e);
void kv_answers_free(struct kv_answers *a);

int kv_answer_begin(struct kv_answers *a, const struct kv_sequence *seq, struct kv_err *e);
/* For struct kv_generation: its token function (ctx is the struct kv_answers), and its tap (NULL when no stream is
 * written). */
int kv_answer_token(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e);
const struct kv_extend_tap *kv_answer_tap(struct kv_answers *a);

struct kv_answer_facts {
	const char *stop;      /* why it ended; NULL when the tokens were given */
	bool measured;         /* the tokens were given, nll holds */
	double nll;            /* -ln p of all of them, nats */
	size_t first_position; /* of the first token of the answer */
	size_t next_position;  /* behind the last token in the cache */
	size_t kept_entries;   /* of the cache that was read, over all layers and heads */
	size_t kept_bytes;     /* of their keys and values */
};
/* JSON: the attributes of the sequence, then our own keys; an attribute whose name is one of ours comes out as
 * "attributes.NAME". */
int kv_answer_finish(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e);

#endif
