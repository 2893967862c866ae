/* SPDX-License-Identifier: MIT
 * Fingerprint of a set of byte ranges, fed in order: every byte of ranges up to 4 MiB, else the size, the first and the
 * last 1 MiB and 64 evenly spaced pieces of 16 KiB, so that a 100 GB file costs milliseconds.
 */
#ifndef KV_FINGERPRINT_H
#define KV_FINGERPRINT_H

#include <stddef.h>

struct kv_fingerprint;
struct kv_fingerprint *kv_fingerprint_new(void); /* NULL: no memory */
void kv_fingerprint_add(struct kv_fingerprint *f, const void *bytes, size_t n);
void kv_fingerprint_take(struct kv_fingerprint *f, char hex[33]); /* frees f */

#endif
