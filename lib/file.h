/* SPDX-License-Identifier: MIT
 * Files: read-only maps, and output files that appear under their name only when they are complete.
 */
#ifndef KV_FILE_H
#define KV_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/buf.h"
#include "lib/err.h"

struct kv_map {
	const unsigned char *data; /* NULL for an empty file */
	size_t bytes;
	void *base; /* what was mapped; data lies in it */
	size_t base_bytes;
};

/* Map a regular file read-only.  Fails: KV_EIO (missing, a directory, not a regular file). */
int kv_map_open(struct kv_map *m, const char *path, struct kv_err *e);
/* The same for an open descriptor, from its present position on; `name` is for messages.  The descriptor stays the
 * caller's. */
int kv_map_fd(struct kv_map *m, int fd, const char *name, struct kv_err *e);
void kv_map_close(struct kv_map *m);
/* Bytes of some file's map are done with: pages that are wholly theirs leave memory.  Who looks again gets them
 * again. */
void kv_map_forget(const void *at, size_t n);

/* Read a whole file, pipe or device into b ("-" is standard input, called <stdin>).  At most `limit` bytes. */
int kv_file_read(const char *path, size_t limit, struct kv_buf *b, struct kv_err *e);

/* An output file: bytes go to a temporary file beside `path` (same directory; the mode of the file that is there, else
 * 0666 & ~umask), which kv_outfile_finish() renames to `path`, or to where a symbolic link leads.  kv_outfile_drop()
 * removes it; so does a signal that ends the program (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ).  An existing
 * path that is not a regular file (/dev/full, a fifo) is written directly. */
struct kv_outfile {
	int fd; /* -1 when not open */
	char *path, *temp;
};

int kv_outfile_open(struct kv_outfile *f, const char *path, struct kv_err *e);
int kv_outfile_finish(struct kv_outfile *f, struct kv_err *e);
void kv_outfile_drop(struct kv_outfile *f);

/* Write all of it, whatever the signals.  Fails: KV_EPIPE (the reader has gone), KV_EIO. */
int kv_write_all(int fd, const void *bytes, size_t n, struct kv_err *e);
/* The same of a head [n_head] and the bytes behind it, in one call where that goes. */
int kv_write_both(int fd, const void *head, size_t n_head, const void *bytes, size_t n, struct kv_err *e);

#endif
