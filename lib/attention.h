/* SPDX-License-Identifier: MIT
 * The attention family: A = softmax(scale q.k) of some queries over all keys that they see, reduced over the query
 * rows, then over heads (METHODS 1.2, 1.5, 1.7).  Members differ in whose queries they are.
 */
#ifndef KV_ATTENTION_H
#define KV_ATTENTION_H

#include "lib/layer.h"

struct kv_attention {
	size_t window;         /* the last so many prompt queries, fewer if the prompt is shorter; SIZE_MAX: all */
	const char *behind;    /* "response", "lookahead": the rows of q.NAME behind the prompt as well; NULL: none */
	bool behind_keys;      /* are the keys of those tokens, k.NAME, in the denominator too?  A row sees its own */
	bool move_back;        /* rows see as much as if the last of them stood on the prompt's last token */
	enum kvk_reduce rows;  /* over all query rows together */
	float *mean;           /* out, with KVK_VAR: the mean over the rows [H][n] as well; NULL: not wanted */
	enum kvk_reduce heads; /* over query heads: KVK_MEAN, KVK_SUM or KVK_MAX */
};

/* y [H][n]: columns 0 .. n-1, reduced over the query heads of each of H equal groups: H is Hkv, Hq (nothing to reduce)
 * or 1 (all heads of the layer).  Host memory; nothing is computed when n is 0.
 * Fails: KV_ESHAPE (q, q.NAME or k.NAME is missing, lacks rows or does not fit), KV_EDEV, KV_EMEM. */
int kv_attention(const struct kv_layer *l, const char *who, const struct kv_attention *a, size_t H, size_t n, float *y,
    struct kv_err *e);

#endif
