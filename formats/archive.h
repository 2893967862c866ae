/* SPDX-License-Identifier: MIT
 * Tar archives, by libarchive: read member after member from a source, written through a sink.
 *
 * What an archive says is not believed: names are for kv_archive_unsafe() to judge before they become paths.
 */
#ifndef KV_ARCHIVE_H
#define KV_ARCHIVE_H

#include "formats/sink.h"
#include "formats/source.h"

struct kv_member {
	const char *name; /* borrowed until the next; a leading "./" left out */
	uint64_t bytes;
	bool is_file, is_folder; /* neither: a link, a device, .. */
	const char *what;        /* in words: "a symbolic link" */
};

/* ---- reading */

struct kv_archive;

/* Takes *src over, whether it fails or not; its bytes are those of the archive, expanded. */
int kv_archive_open(struct kv_archive **out, struct kv_source *src, struct kv_err *e);
/* The next member, KV_END after the last.  What was not read of the present one is stepped over.
 * Fails: KV_EFORMAT (not an archive, damaged, cut short), KV_EIO. */
int kv_archive_next(struct kv_archive *a, struct kv_member *m, struct kv_err *e);
/* A kv_pull over the present member's bytes. */
int kv_archive_pull(void *archive, void *dst, size_t n, size_t *got, struct kv_err *e);
/* How many bytes of the archive have been read, expanded; how many of the file that it is in. */
void kv_archive_taken(const struct kv_archive *a, uint64_t *expanded, uint64_t *raw);
void kv_archive_free(struct kv_archive *a);

/* s has the bytes of an archive: now it has those of one member.
 * Fails: KV_EFORMAT (also when there is no such member: the text names those there are); s is to be closed all the
 * same. */
int kv_source_enter(struct kv_source *s, const char *member, struct kv_err *e);

/* Why a path of this name could lie outside of the folder that it is meant for ("is an absolute path"); NULL: it
 * cannot. */
const char *kv_archive_unsafe(const char *name);

/* ---- writing */

struct kv_archive_writer;

int kv_archive_writer_open(struct kv_archive_writer **out, const char *path, struct kv_err *e);
/* A file of `bytes` bytes, which pull(ctx, ..) gives; mtime in seconds since 1970.  Owner 0, mode 0644: the same
 * files, the same archive.  Fails: KV_EFORMAT (pull gives more or less), as pull, as kv_sink_write. */
int kv_archive_add(struct kv_archive_writer *w, const char *name, uint64_t bytes, int64_t mtime, kv_pull *pull,
    void *ctx, struct kv_err *e);
/* Writes the rest, gives the file its name; frees w in any case. */
int kv_archive_writer_finish(struct kv_archive_writer *w, struct kv_err *e);
/* No file.  NULL is fine. */
void kv_archive_writer_drop(struct kv_archive_writer *w);

#endif
