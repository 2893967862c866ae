/* SPDX-License-Identifier: MIT
 * Inside of answers: what one is while it grows, and the forms in which it leaves.
 */
#ifndef KV_ANSWER_SINK_H
#define KV_ANSWER_SINK_H

#include "formats/answer.h"

struct kv_answers {
	struct kv_answer_options o;
	struct kv_extend_tap tap;
	size_t begun; /* sequences */
	/* The current answer. */
	json_t *map;          /* the sequence's opening map */
	struct kv_ids ids;    /* end token included */
	struct kv_buf text;   /* end token excluded */
	size_t shown;         /* bytes of text that are out */
	struct kv_buf logits; /* [n][vocab] f32; only for a stream */
	struct kv_buf *q;     /* [L], each [rows][Hq][D] f32; only for a stream */
};

/* A form.  Functions that have nothing to do are NULL. */
struct kv_answer_sink {
	int (*begin)(struct kv_answers *a, struct kv_err *e);
	/* A token has come; ids and text have it. */
	int (*grow)(struct kv_answers *a, const float *logits, struct kv_err *e);
	int (*finish)(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e);
};
extern const struct kv_answer_sink kv_answer_text, kv_answer_json, kv_answer_table, kv_answer_stream;

const char *kv_answer_id(const struct kv_answers *a);
/* Rows of kv_extend(), for the stream; ctx is the struct kv_answers. */
int kv_answer_watch(void *ctx, const struct kv_layer_view *view, struct kv_err *e);

#endif
