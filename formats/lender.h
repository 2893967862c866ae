/* SPDX-License-Identifier: MIT
 * Payloads that stay with the program that made them: they lie in a memfd, and the stream says where (STREAM.md,
 * References).  The counterpart of borrower.h.
 */
#ifndef KV_LENDER_H
#define KV_LENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/borrower.h"

#define KV_LENT_PATH_MAX 64

struct kv_room;

/* Zeros have lent nothing. */
struct kv_lender {
	bool is_open;
	int fd;
	char path[KV_LENT_PATH_MAX]; /* as other processes name it: /proc/PID/fd/N */
	uint64_t stamp;               /* the last one: they ascend */
	uint64_t end;                 /* of the memfd */
	struct kv_device *device; /* what can be lent where it lies; NULL: nothing */
	struct kv_room *rooms;        /* [n_rooms]: what was lent, and what has been given back and can be lent again */
	size_t n_rooms;
};

/* Room for a payload of n bytes, which is lent from now on; *bytes are to be filled in before *reference, whose path is
 * the lender's, is told to anybody.  Fails: KV_EIO (no memory for them, no /proc), KV_EMEM. */
int kv_lender_take(struct kv_lender *l, size_t n, void **bytes, struct kv_reference *reference, struct kv_err *e);
/* The same in the memory of l->device, which must stay open; *on_device NULL: it cannot be lent there, or has no room.
 * What is put there must have arrived before *reference is told. */
int kv_lender_take_on_device(
    struct kv_lender *l, size_t n, void **on_device, struct kv_reference *reference, struct kv_err *e);
/* Everything has been written, to the pipe `out` (-1: it is closed already): waits until all is given back.  The pipe
 * is closed when it is empty, for readers that wait for its end.
 * Fails: KV_EPIPE (the reader has gone), KV_EIO (nobody has come for it within two seconds, or all have gone). */
int kv_lender_wait(struct kv_lender *l, int out, struct kv_err *e);
void kv_lender_fini(struct kv_lender *l);

#endif
