/* SPDX-License-Identifier: MIT
 * Where a stream's bytes come from: a mapped regular file, or a descriptor with a buffer in front of it.
 * Shared by the files of the stream's reader; programs have no use for it.
 */
#ifndef KV_SOURCE_H
#define KV_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/file.h"

struct kv_source {
	char *name;     /* for messages: the path, or <stdin> */
	int fd;         /* -1 when mapped or not open */
	bool close_fd;
	struct kv_map map;
	const unsigned char *at; /* the bytes at hand: of the map, or of buf */
	size_t have;
	unsigned char *buf; /* descriptors only: [cap] */
	size_t cap;
	bool at_end;      /* the descriptor has no more than `have` */
	uint64_t offset;  /* of `at`, from the stream's start */
};

/* path NULL or "-": standard input.  Fails: KV_EIO (missing, a directory, a terminal), KV_EMEM. */
int kv_source_open(struct kv_source *s, const char *path, struct kv_err *e);
void kv_source_close(struct kv_source *s);

/* Make s->have at least n if the input has so many left; fewer means that it ends there.  Memory grows with what
 * arrives, at most twice as fast.  Fails: KV_EIO, KV_EMEM. */
int kv_source_peek(struct kv_source *s, size_t n, struct kv_err *e);
/* Step over n of the s->have bytes at hand. */
void kv_source_skip(struct kv_source *s, size_t n);
/* Copy the next bytes to dst, straight from the descriptor; *got < n means that the input ends there. */
int kv_source_read(struct kv_source *s, void *dst, size_t n, size_t *got, struct kv_err *e);
/* Step over n bytes, however many; *got < n as above. */
int kv_source_discard(struct kv_source *s, size_t n, size_t *got, struct kv_err *e);

#endif
