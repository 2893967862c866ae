/* SPDX-License-Identifier: MIT
 * Bytes from descriptor to descriptor through pipes, without a copy of them in this program: pages are handed on.
 */
#ifndef KV_FIFO_H
#define KV_FIFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

#define KV_FIFO_BYTES (1 << 20) /* what a pipe is asked to hold; what Linux gives to everybody */

/* Is it a pipe?  Then it holds KV_FIFO_BYTES from now on, where that is more than before and the system lets us. */
bool kv_fifo_widen(int fd);

/* Where bytes come from. */
struct kv_fifo_from {
	int fd;      /* a pipe, or, with is_file, a regular file */
	bool keep;   /* of a pipe: they stay there as well, to be read */
	bool is_file;
	uint64_t at; /* of a file: their offset; its position is neither asked nor changed */
};

/* At most n bytes into `to`, of which and `from` at least one is a pipe; waits until there are some and there is room.
 * *done is 0 only when `from` has ended.  KV_END: the two cannot be connected so, nothing happened: read and write.
 * Fails: KV_EPIPE (the reader has gone), KV_EIO. */
int kv_fifo_hand(const struct kv_fifo_from *from, int to, size_t n, size_t *done, struct kv_err *e);

#endif
