/* SPDX-License-Identifier: MIT
 * MessagePack objects: walking them safely, and jansson values out of and into them (through msgpack-c).
 *
 * Bytes from outside are walked first (kv_skim) and given to msgpack-c only when one whole object within all limits
 * has arrived, so that a length that lies costs nothing.
 */
#ifndef KV_MESSAGEPACK_H
#define KV_MESSAGEPACK_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"

#define KV_DEPTH_MAX    16          /* nesting of maps and arrays */
#define KV_ELEMENTS_MAX (3u << 19)  /* of one object, all levels together: decoding takes some 70 bytes for each */
#define KV_COST_STRING  2           /* what a string counts for among them, */
#define KV_COST_NEST    16          /* and a map or an array beside what is in it; anything else is one */
#define KV_RECORD_MAX   (32u << 20) /* bytes of one object */

/* A walk over one object that may arrive in pieces.  Start from zeros. */
struct kv_skim {
	uint64_t left[KV_DEPTH_MAX + 1]; /* objects still to come on each open level; level 0 is the object itself */
	unsigned depth;
	bool started;
	size_t elements; /* so far, and those that an open map or array still has to bring */
	size_t at;   /* bytes walked; the object's size when it is complete */
	size_t need; /* bytes wanted before the walk can go on, counted from the object's start */
};

/* Walk on; p [n] are the object's bytes so far, from its start.  KV_OK: complete.  KV_END: needs s->need bytes.
 * Fails: KV_EFORMAT (too deep, too long, too many elements, a byte that MessagePack does not use). */
int kv_skim(struct kv_skim *s, const unsigned char *p, size_t n, struct kv_err *e);

/* In a whole object that is a map: how many of `keys` (ends with NULL) does it have at top level?  *which is the
 * last one found. */
size_t kv_pack_find(const unsigned char *p, size_t n, const char *const *keys, size_t *which);

/* A whole object as a new jansson value.  Strings keep their bytes, whatever they are.
 * Fails: KV_EFORMAT (bin, ext, unsigned beyond 2^63-1, a float that is not finite, keys that are no strings or
 * stand twice), KV_EMEM. */
int kv_pack_decode(const char *p, size_t n, json_t **out, struct kv_err *e);

/* Append v.  Fails: KV_EFORMAT (too deep), KV_EMEM.  The other limits are for the caller to see to: kv_skim(). */
int kv_pack_encode(struct kv_buf *b, const json_t *v, struct kv_err *e);

/* Append the head of a bin object of n bytes. */
int kv_pack_bin_head(struct kv_buf *b, uint32_t n, struct kv_err *e);
/* Bytes of that head. */
size_t kv_pack_bin_head_bytes(uint32_t n);
/* Read such a head: its bytes and *n, or 0 when p [have] is none or too short. */
size_t kv_pack_bin_head_read(const unsigned char *p, size_t have, uint32_t *n);

#endif
