/* SPDX-License-Identifier: MIT
 * Special tokens within a chat template's own text.
 */
#ifndef KV_MARKUP_H
#define KV_MARKUP_H

#include "lib/text/tokenizer.h"

/* The leftmost special or added token in text, the longest one there: its id, where it begins and its bytes; -1 if
 * none. */
int32_t kv_markup_find(const struct kv_tokenizer *t, const char *text, size_t n, size_t *at, size_t *len);

#endif
