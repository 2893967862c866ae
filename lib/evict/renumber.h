/* SPDX-License-Identifier: MIT
 * Contiguous positions inside the cache, as StreamingLLM has them: an entry is moved by turning its key.
 *
 * A key at position p is its content turned by p; turned further by q - p it is, up to rounding, the key of the same
 * content at position q.  Values know no position.  Entry i of a head goes to position i, and the next token to the one
 * behind the last, so all heads that a token meets must hold equally many entries.
 */
#ifndef KV_RENUMBER_H
#define KV_RENUMBER_H

#include "lib/evict/evict.h"

/* Do all H heads keep the same number of entries?  *n: that number.  Fails: KV_ESHAPE, naming two that do not. */
int kv_renumber_check(const size_t *offset, size_t H, size_t *n, struct kv_err *e);

/* Turn the keys of k [offset[H]][D], which stand at `rows`, in place, from positions index [offset[H]] to their numbers
 * in their head; in single precision, rounded to the tensor's type at the end.  A key that stays where it is keeps its
 * bits.
 * Fails: KV_EMODEL (the header says nothing about the rotation), KV_EDEV, KV_EMEM. */
int kv_renumber(const struct kv_layer *l, const struct kv_tensor *k, void *rows, const int32_t *index,
    const size_t *offset, size_t H, struct kv_err *e);

#endif
