/* SPDX-License-Identifier: MIT
 * Archives from anywhere, taken apart with care: for kv-pack.
 */
#ifndef KV_UNPACK_H
#define KV_UNPACK_H

#include "formats/archive.h"
#include "formats/manifest.h"

/* An archive and, if its first member is one, its manifest. */
struct kv_unpack {
	struct kv_archive *archive;
	json_t *manifest;      /* NULL: there is none */
	struct kv_member next; /* what kv_unpack_next() gives first, when there is none */
	bool has_next;
	json_t *seen; /* names so far */
};

/* path NULL or "-": standard input.  Compressed or not.  Fails: KV_EIO, KV_EFORMAT (not an archive, a broken manifest),
 * naming the file; kv_unpack_close() it all the same. */
int kv_unpack_open(struct kv_unpack *u, const char *path, struct kv_err *e);
void kv_unpack_close(struct kv_unpack *u);

/* The next file; *file is what the manifest says about it (borrowed), NULL without one.  Folders are stepped over.
 * Fails: KV_EFORMAT, naming the member: a path that leads elsewhere, a link, a device, a file with holes, a name that
 * was there before or that the manifest does not have.  KV_END after the last: what the manifest has has been there. */
int kv_unpack_next(struct kv_unpack *u, struct kv_member *m, const json_t **file, struct kv_err *e);
/* A kv_pull over its bytes that refuses what expands more than a thousandfold. */
int kv_unpack_pull(void *unpack, void *dst, size_t n, size_t *got, struct kv_err *e);

/* Write the present member below `folder`, making the folders on its path, under a temporary name until it is complete
 * and has the bytes that the manifest says.  A symbolic link on the way is refused; so is a file that exists, unless
 * force.  Fails: KV_EIO, KV_EFORMAT. */
int kv_unpack_file(struct kv_unpack *u, const struct kv_member *m, const json_t *file, const char *folder, bool force,
    struct kv_err *e);

#endif
