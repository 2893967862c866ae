/* SPDX-License-Identifier: MIT
 * Which queries of a prompt: one language for what kv-prefill writes, what methods need and what messages ask for.
 *	none | last | window:N | part:N | all
 */
#ifndef KV_QUERIES_H
#define KV_QUERIES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/tensor.h"

enum kv_queries_kind { KV_QUERIES_NONE, KV_QUERIES_LAST, KV_QUERIES_WINDOW, KV_QUERIES_PART, KV_QUERIES_ALL };

struct kv_queries {
	enum kv_queries_kind kind;
	size_t n; /* of a window: tokens; of a part: the last N-th of the prompt, at least one token; 1 .. 2^31-1 */
};

/* Fails: KV_EARG, saying what is expected. */
int kv_queries_parse(struct kv_queries *q, const char *text, struct kv_err *e);
/* As on the command line; returns text. */
const char *kv_queries_print(struct kv_queries q, char text[32]);
/* The attribute `region` of the tensor: "window" (of parts as well), "last", "all", "none". */
const char *kv_queries_region(struct kv_queries q);
/* The last n tokens' queries: none for 0, last for 1, all for SIZE_MAX. */
struct kv_queries kv_queries_of(size_t n);
/* How many rows of a prompt of T tokens. */
size_t kv_queries_rows(struct kv_queries q, size_t T);

/* Do the last W rows of q stand at first, first + 1, ...?  pos [W] out, may be NULL.  Fails: KV_ESHAPE. */
int kv_queries_positions(const struct kv_tensor *q, size_t W, size_t first, int32_t *pos, struct kv_err *e);
/* Does q [head][query][dim] end with the queries of the prompt's last W tokens?  pos [W] out, may be NULL.
 * Fails: KV_ESHAPE, naming `want`, the option that brings them. */
int kv_queries_match(
    const struct kv_tensor *q, size_t W, size_t T, struct kv_queries want, int32_t *pos, struct kv_err *e);

#endif
