/* SPDX-License-Identifier: MIT
 * Compressed bytes, both ways: zstd, gzip and xz, by libarchive.
 *
 * Damage is found whatever the format leaves to its reader: zstd frames are written with a checksum, and the one of
 * gzip is compared.
 */
#ifndef KV_COMPRESSED_H
#define KV_COMPRESSED_H

#include "formats/source.h"

/* If the bytes to come are compressed, by their first bytes, let s give what they expand to; once: what expands to
 * compressed bytes gives these.  Memory is bounded: by libarchive's buffers, and the window that the format allows
 * (zstd 128 MiB, xz 1 GiB).  Later reads fail with KV_EFORMAT where the bytes are damaged or cut short.
 * Fails: KV_EFORMAT, KV_EIO, KV_EMEM; s is to be closed all the same. */
int kv_source_expand(struct kv_source *s, struct kv_err *e);

struct kv_compressor;

/* Does the name end in .zst, .gz or .xz? */
bool kv_compressed_name(const char *path);

/* Write to fd, which stays the caller's, compressed as path's suffix says; same bytes in, same bytes out. */
int kv_compressor_new(struct kv_compressor **out, const char *path, int fd, struct kv_err *e);
/* Fails: KV_EPIPE, KV_EIO, as kv_write_all(). */
int kv_compressor_write(struct kv_compressor *c, const void *bytes, size_t n, struct kv_err *e);
/* What is still to come; nothing may be written behind it. */
int kv_compressor_finish(struct kv_compressor *c, struct kv_err *e);
/* Before kv_compressor_finish(): writes nothing more.  NULL is fine. */
void kv_compressor_free(struct kv_compressor *c);

#endif
