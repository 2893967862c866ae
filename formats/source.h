/* SPDX-License-Identifier: MIT
 * Where bytes come from: a mapped regular file, or something that is read (a descriptor, bytes that another source
 * expands to) with a buffer in front of it.  Compressed bytes are recognised here and come out as what they expand to.
 */
#ifndef KV_SOURCE_H
#define KV_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/fifo.h"
#include "lib/file.h"

/* At most n more bytes into dst; *got is 0 only at the end. */
typedef int kv_pull(void *ctx, void *dst, size_t n, size_t *got, struct kv_err *e);

struct kv_source {
	char *name;     /* for messages: the path, or <stdin> */
	int fd;         /* -1 when not open */
	bool close_fd, is_pipe;
	int null_fd; /* where bytes of a pipe go that nobody wants; -1 when not open */
	kv_pull *pull; /* instead of a descriptor */
	void *ctx;
	void (*drop)(void *ctx); /* frees ctx on closing; NULL: it is somebody else's */
	const struct kv_source *below; /* what ctx reads from, NULL when this is the bottom */
	struct kv_map map;
	size_t forgotten; /* bytes from map.base on whose pages were given back */
	const unsigned char *at; /* the bytes at hand: of the map, or of buf */
	size_t have;
	unsigned char *buf; /* of what is read: [cap] */
	size_t cap;
	bool at_end;      /* there is no more than `have` */
	uint64_t offset;  /* of `at`, from the stream's start */
};

/* path NULL or "-": standard input.  A file is mapped, unless it is compressed.  "ARCHIVE:MEMBER" is a member of a tar
 * archive, where there is no file of that whole name.
 * Fails: KV_EIO (missing, a directory, a terminal), KV_EFORMAT (an archive that lacks the member, or is damaged),
 * KV_EMEM.  Whether it fails or not, kv_source_close() frees it. */
int kv_source_open(struct kv_source *s, const char *path, struct kv_err *e);
/* The same without a look at the bytes: no member, compressed ones stay so. */
int kv_source_open_raw(struct kv_source *s, const char *path, struct kv_err *e);
/* Read a mapped file instead, from its start: for bytes that are wanted once, in order.  Nothing may have been
 * taken. */
void kv_source_unmap(struct kv_source *s);
/* Bytes that pull(ctx, ..) gives, as they are. */
int kv_source_of(struct kv_source *s, const char *name, kv_pull *pull, void *ctx, struct kv_err *e);
void kv_source_close(struct kv_source *s);
/* Bytes taken from the file or the descriptor at the bottom: fewer than `offset` where they were compressed. */
uint64_t kv_source_taken(const struct kv_source *s);

/* Make s->have at least n if the input has so many left; fewer means that it ends there.  Memory grows with what
 * arrives, at most twice as fast.  Fails: KV_EIO, KV_EMEM. */
int kv_source_peek(struct kv_source *s, size_t n, struct kv_err *e);
/* Step over n of the s->have bytes at hand. */
void kv_source_skip(struct kv_source *s, size_t n);
/* Copy the next bytes to dst, straight from where they come; *got < n means that the input ends there. */
int kv_source_read(struct kv_source *s, void *dst, size_t n, size_t *got, struct kv_err *e);
/* Step over n bytes, however many; *got < n as above. */
int kv_source_discard(struct kv_source *s, size_t n, size_t *got, struct kv_err *e);
/* Do the next bytes lie in a pipe, from which they can be handed on?  Then whoever does so says how many had passed. */
bool kv_source_in_pipe(const struct kv_source *s, struct kv_fifo_from *from);
void kv_source_passed(struct kv_source *s, size_t n);
/* Give back the mapped pages that were stepped over.  Who looks at them again gets them again, from the file. */
void kv_source_forget(struct kv_source *s);

#endif
