/* SPDX-License-Identifier: MIT
 * A growing byte buffer.
 *
 * Invariants: data[n] is 0 whenever data is not NULL (so a buffer of text is a C string); n <= cap.
 * A zeroed struct is an empty buffer; kv_buf_fini() brings it back to that.  Growing doubles, so appending is linear.
 */
#ifndef KV_BUF_H
#define KV_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

struct kv_buf {
	char *data;
	size_t n, cap;
};

void kv_buf_fini(struct kv_buf *b);

/* Make room for `more` bytes behind the n there are.  Fails: KV_EMEM. */
int kv_buf_reserve(struct kv_buf *b, size_t more, struct kv_err *e);
int kv_buf_add(struct kv_buf *b, const void *bytes, size_t n, struct kv_err *e);
int kv_buf_printf(struct kv_buf *b, struct kv_err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* a * b into *out; false when it does not fit a size_t.  Every size that comes from outside goes through this. */
bool kv_mul(size_t a, size_t b, size_t *out);

/* Zeroed memory for n objects of `size` bytes, or NULL with KV_EMEM recorded in e.  free() it. */
void *kv_alloc(size_t n, size_t size, struct kv_err *e);

/* The same with undefined contents, for what is large and about to be written whole. */
void *kv_alloc_unset(size_t n, size_t size, struct kv_err *e);

#endif
