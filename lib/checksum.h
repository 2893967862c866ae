/* SPDX-License-Identifier: MIT
 * XXH3-64 (seed 0), the checksum of payloads, compiled for the machine's own vectors: every byte of K and V passes
 * here.
 */
#ifndef KV_CHECKSUM_H
#define KV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

uint64_t kv_checksum(const void *bytes, size_t n);

/* The same of bytes that come one after the other. */
struct kv_summing;
struct kv_summing *kv_summing_new(struct kv_err *e); /* NULL: KV_EMEM is recorded */
void kv_summing_free(struct kv_summing *s);
void kv_summing_add(struct kv_summing *s, const void *bytes, size_t n);
uint64_t kv_summing_get(const struct kv_summing *s); /* of all so far */

#endif
