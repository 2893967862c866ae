/* SPDX-License-Identifier: MIT
 * What a program works on: one layer of one sequence with all its tensors.
 *
 * formats/pipe.h reads steps and writes them; everything here is memory alone, so that methods and tests can make a
 * step as well.
 */
#ifndef KV_STEP_H
#define KV_STEP_H

#include <stdint.h>

#include "lib/buf.h"
#include "lib/tensor.h"

#define KV_STEP_OTHER_MAX ((size_t)64 << 20) /* bytes of unknown records in one step, which wait in memory */

struct kv_sequence {
	size_t number;         /* 0, 1, ... in this stream */
	json_t *map;           /* the opening map: id, tokens, prompt_length ... */
	const int32_t *tokens; /* [n_tokens] the prompt and, behind it, what was answered */
	size_t n_tokens;
	size_t T; /* of the prompt, T <= n_tokens: `prompt_length`, else all tokens */
};

/* A tensor, or, when the name is empty, the bytes of unknown records. */
struct kv_item {
	struct kv_tensor tensor;
	struct kv_buf raw;     /* a tensor that came in: its own map, empty for one that a program made */
	struct kv_parts parts; /* with raw: how the payload was cut */
	size_t input;          /* which input it came from */
	bool unused;           /* not the program's: no data */
	bool sent;             /* written already, although the program looks at it */
	struct kv_loan *loan;  /* formats/borrower.h: the payload lies elsewhere, as the record says if parts.n == 0 */
	bool spooled;          /* the payload begins at byte spooled_at of the pipe's spool */
	size_t spooled_at;
};

struct kv_step {
	const struct kv_sequence *seq;
	int layer;             /* KV_NO_LAYER on the last step of a sequence */
	struct kv_item *items; /* tensors and unknown records, in stream order; private */
	size_t n_items;
	bool ended; /* the stream marks the layer's end; private */
};

/* Borrowed; NULL if this step has none of that name.  data is NULL where the program did not say that it uses it. */
const struct kv_tensor *kv_step_find(const struct kv_step *s, const char *name);
/* The i-th tensor of the step, NULL behind the last. */
const struct kv_tensor *kv_step_at(const struct kv_step *s, size_t i);
/* Moves *t into the step (which now owns it), replacing one of the same name.  Fails: KV_EARG (another layer's, or the
 * one of that name is not used). */
int kv_step_put(struct kv_step *s, struct kv_tensor *t, struct kv_err *e);
void kv_step_remove(struct kv_step *s, const char *name); /* one that is used, or none */
void kv_step_clear(struct kv_step *s);                    /* frees the items; seq and layer stay */

/* ---- for the pipe */

/* A new item behind the last, all zeros; NULL with KV_EMEM recorded. */
struct kv_item *kv_step_add(struct kv_step *s, struct kv_err *e);
struct kv_item *kv_step_item(const struct kv_step *s, const char *name); /* NULL if none */
bool kv_item_is_tensor(const struct kv_item *i);
/* Unknown records behind the last item.  Fails: KV_EFORMAT (more than KV_STEP_OTHER_MAX bytes). */
int kv_step_add_other(struct kv_step *s, const struct kv_buf *raw, struct kv_err *e);

#endif
