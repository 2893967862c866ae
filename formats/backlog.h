/* SPDX-License-Identifier: MIT
 * A thread in front of a sink: who computes goes on while bytes wait for the next program to take them.
 */
#ifndef KV_BACKLOG_H
#define KV_BACKLOG_H

#include "formats/sink.h"

struct kv_backlog;

/* The sink is the thread's until kv_backlog_free().  Fails: KV_EMEM, KV_EFAIL (no thread). */
int kv_backlog_new(struct kv_backlog **out, struct kv_sink *to, struct kv_err *e);
/* head [n_head] is copied; the bytes have to stay until kv_backlog_settle().
 * Fails: KV_EMEM, or as writing what was put before did. */
int kv_backlog_put(struct kv_backlog *b, const void *head, size_t n_head, const void *bytes, size_t n,
    struct kv_err *e);
/* Waits until all has been written, or has failed: nobody looks at the bytes any more. */
int kv_backlog_settle(struct kv_backlog *b, struct kv_err *e);
/* What was put is written first, unless that fails.  NULL is fine. */
void kv_backlog_free(struct kv_backlog *b);

#endif
