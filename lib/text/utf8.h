/* SPDX-License-Identifier: MIT
 * UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF.
 */
#ifndef KV_UTF8_H
#define KV_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that starts at p; 0 if none can start there; -1 if n bytes are a correct beginning that stops
 * too soon (n = 0 too). */
int kv_utf8_char(const char *p, size_t n);

/* Length of the run of valid (*valid true) or of invalid bytes that text begins with; 0 only for n = 0. */
size_t kv_utf8_run(const char *text, size_t n, bool *valid);

#endif
