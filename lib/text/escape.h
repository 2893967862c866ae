/* SPDX-License-Identifier: MIT
 * Bytes of unknown origin as harmless text: for everything that comes from a file and goes to a terminal.
 */
#ifndef KV_ESCAPE_H
#define KV_ESCAPE_H

#include <stddef.h>

#include "lib/buf.h"

/* Append n bytes: \n \t \r \\ by these names; other control bytes (C0, DEL, C1), what is no UTF-8, and characters that
 * reorder a line (bidirectional controls) byte by byte as \xNN. */
int kv_escape(struct kv_buf *out, const char *bytes, size_t n, struct kv_err *e);
/* The same as a JSON string with its quotes; what is no UTF-8 becomes U+FFFD. */
int kv_escape_json(struct kv_buf *out, const char *bytes, size_t n, struct kv_err *e);
/* Columns that escaped text takes on a terminal. */
size_t kv_display_width(const char *escaped, size_t n);

#endif
