/* SPDX-License-Identifier: MIT
 * A temporary file without a name in $TMPDIR (else /tmp), for payloads that are too large to wait in memory.  It is
 * written, then mapped, then emptied for the next sequence.
 */
#ifndef KV_SPOOL_H
#define KV_SPOOL_H

#include <stddef.h>

#include "formats/record.h"

/* Zeros are an empty spool. */
struct kv_spool {
	bool is_open;
	int fd;
	size_t end; /* bytes in it */
	void *base; /* what is mapped: [end] */
};

/* The next payload goes to *at, a page's start, by way of *to.  Fails: KV_EIO, saying which folder is full. */
int kv_spool_begin(struct kv_spool *s, struct kv_taker *to, size_t *at, struct kv_err *e);
int kv_spool_map(struct kv_spool *s, struct kv_err *e);
/* Its room is given back; what was mapped is gone. */
int kv_spool_empty(struct kv_spool *s, struct kv_err *e);
void kv_spool_fini(struct kv_spool *s);

#endif
