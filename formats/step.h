/* SPDX-License-Identifier: MIT
 * The inside of a pipe's step, shared by pipe.c and step.c.
 */
#ifndef KV_STEP_H
#define KV_STEP_H

#include "formats/pipe.h"
#include "formats/record.h"

#define KV_STEP_OTHER_MAX ((size_t)64 << 20) /* bytes of unknown records in one step, which wait in memory */

/* A tensor, or, when the name is empty, the bytes of unknown records. */
struct kv_item {
	struct kv_tensor tensor;
	struct kv_buf raw;     /* a tensor that came in: its own map, empty for one that a program made */
	struct kv_parts parts; /* with raw: how the payload was cut */
	size_t input;          /* which input it came from */
};

/* A new item behind the last, all zeros; NULL with KV_EMEM recorded. */
struct kv_item *kv_step_add(struct kv_step *s, struct kv_err *e);
struct kv_item *kv_step_item(const struct kv_step *s, const char *name); /* NULL if none */
int kv_step_add_other(struct kv_step *s, const struct kv_buf *raw, struct kv_err *e);
int kv_step_write(const struct kv_step *s, struct kv_writer *w, struct kv_err *e);
void kv_step_clear(struct kv_step *s); /* frees the items; seq and layer stay */

#endif
