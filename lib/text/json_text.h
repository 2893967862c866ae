/* SPDX-License-Identifier: MIT
 * Bytes as a JSON string.
 */
#ifndef KV_JSON_TEXT_H
#define KV_JSON_TEXT_H

#include <jansson.h>

/* A new string of the n bytes, each byte that is no part of valid UTF-8 replaced by U+FFFD.  NULL: no memory. */
json_t *kv_json_text(const char *bytes, size_t n);

#endif
