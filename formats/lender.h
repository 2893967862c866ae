/* SPDX-License-Identifier: MIT
 * Payloads that stay with the program that made them: they lie in a memfd, and the stream says where (STREAM.md,
 * References).  The counterpart of borrower.h.
 */
#ifndef KV_LENDER_H
#define KV_LENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

#define KV_LENT_PATH_MAX 64

/* Zeros have lent nothing. */
struct kv_lender {
	bool is_open;
	int fd;
	uint64_t end;                 /* where the next payload begins: a page's start */
	char path[KV_LENT_PATH_MAX]; /* as other processes name it: /proc/PID/fd/N */
};

/* The bytes from *at on, in pages of their own.  Fails: KV_EIO (no memory for them, no /proc). */
int kv_lender_put(struct kv_lender *l, const void *bytes, size_t n, uint64_t *at, struct kv_err *e);
/* Everything has been written, to the pipe `out` (-1: it is closed already): waits until all is given back.  The pipe is
 * closed when it is empty, for readers that wait for its end.
 * Fails: KV_EPIPE (the reader has gone), KV_EIO (nobody has come for it within two seconds, or all have gone). */
int kv_lender_wait(struct kv_lender *l, int out, struct kv_err *e);
void kv_lender_fini(struct kv_lender *l);

#endif
