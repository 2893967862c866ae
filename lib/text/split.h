/* SPDX-License-Identifier: MIT
 * Pre-tokenisation: cutting text into the pieces within which merges happen, by the vocabulary's PCRE2 patterns.
 */
#ifndef KV_SPLIT_H
#define KV_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

struct kv_split; /* compiled patterns; read-only once made, so threads may share it */

/* \s and \S mean Unicode's White_Space, as in the engines the patterns were written for.  Fails: KV_EMODEL (a pattern
 * that does not compile, with its place), KV_EMEM. */
int kv_split_new(struct kv_split **out, const char *const *patterns, size_t n, struct kv_err *e);
void kv_split_free(struct kv_split *s);

typedef int kv_piece_fn(void *ctx, const char *piece, size_t n, struct kv_err *e);

/* Hand the pieces of text to fn in order; together they are the text.  nfc: valid UTF-8 is normalised first, so that
 * they are its composed form.  A run of bytes that are not UTF-8 is a piece of its own, and the patterns see an end of
 * text there.  Stops at fn's first negative return and gives it back. */
int kv_split_text(const struct kv_split *s, const char *text, size_t n, bool nfc, kv_piece_fn *fn, void *ctx,
    struct kv_err *e);

#endif
