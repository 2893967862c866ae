/* SPDX-License-Identifier: MIT
 * Where bytes go: a file that appears under its name when it is complete, compressed if its name ends in .zst, .gz or
 * .xz; or standard output, as they are.  The counterpart of source.h.
 */
#ifndef KV_SINK_H
#define KV_SINK_H

#include "lib/fifo.h"
#include "lib/file.h"

struct kv_sink {
	char *name; /* for messages: the path as given, or <stdout> */
	struct kv_outfile file;
	int fd;
	struct kv_compressor *compressor; /* NULL: bytes leave as they are */
	bool is_pipe;
	bool refuses; /* bytes cannot come from a descriptor: kv_sink_hand() */
};

/* path NULL or "-": standard output.  A terminal is refused.  Fails: KV_EIO, KV_EMEM; drop it all the same. */
int kv_sink_open(struct kv_sink *s, const char *path, struct kv_err *e);
int kv_sink_write(struct kv_sink *s, const void *bytes, size_t n, struct kv_err *e);
/* head [n_head] and then the bytes. */
int kv_sink_write_both(struct kv_sink *s, const void *head, size_t n_head, const void *bytes, size_t n,
    struct kv_err *e);
/* Some of the next n bytes of a descriptor, uncopied: kv_fifo_hand(), KV_END where that does not go. */
int kv_sink_hand(struct kv_sink *s, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e);
/* Everything is written, and the file has its name.  Drop it afterwards. */
int kv_sink_finish(struct kv_sink *s, struct kv_err *e);
/* Without finish: no file.  Zeros are fine. */
void kv_sink_drop(struct kv_sink *s);

#endif
