/* SPDX-License-Identifier: MIT
 * One layer's keys and values as a step of a stream has them: whole, or what an eviction left.
 */
#ifndef KV_LAYER_CACHE_H
#define KV_LAYER_CACHE_H

#include "formats/pipe.h"
#include "lib/config.h"

struct kv_layer_cache {
	const struct kv_tensor *k, *v; /* [kv_head][token][dim] or [entry][dim]; borrowed from the step */
	const struct kv_device *d;     /* borrowed */
	const void *k_on_device, *v_on_device; /* their payloads on d, as kv_cache_set() takes them */
	size_t H;                      /* heads: the model's KV heads or, after an eviction per query head, more */
	size_t *offset;                /* [H + 1] owned; head h has entries offset[h] .. offset[h+1]-1 */
	size_t next_position;          /* true position of the next token */
	bool evicted;
};

/* k and v may lie on the device, which is open and can tell what is `finite`.  Fails: KV_EFORMAT (no k or v, an index
 * without offset, an index that does not ascend), KV_ESHAPE (sizes that do not fit c or each other), KV_EFAIL (a key or
 * value that is not finite), KV_EMEM, KV_EDEV. */
int kv_layer_cache_read(struct kv_layer_cache *x, const struct kv_step *s, const struct kv_config *c,
    const struct kv_device *d, struct kv_err *e);
void kv_layer_cache_fini(struct kv_layer_cache *x);

#endif
