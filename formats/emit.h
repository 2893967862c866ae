/* SPDX-License-Identifier: MIT
 * What a prefill produces, on its way into a stream: per layer the queries that are wanted, keys and values of the
 * prompt, queries and keys of what stands behind it.
 */
#ifndef KV_EMIT_H
#define KV_EMIT_H

#include "formats/stream.h"
#include "lib/model/engine.h"
#include "lib/queries.h"

struct kv_emit_options {
	struct kv_writer *writer; /* a sequence is open */
	const struct kv_device *device;
	const struct kv_config *cfg;
	enum kvk_type type;        /* of keys and values */
	struct kv_queries queries; /* of the prompt */
	const char *behind; /* "response": `q.response` and `k.response` of the rows behind; NULL: nothing of them */
};

/* Everything in the options stays borrowed. */
struct kv_emit;

/* For one prompt of T tokens and n_behind rows behind it.  The device is asked for nothing, and may become another,
 * before the first layer comes.  Fails: KV_EMEM. */
int kv_emit_new(struct kv_emit **out, const struct kv_emit_options *o, size_t T, size_t n_behind, struct kv_err *e);
void kv_emit_free(struct kv_emit *x); /* settles the writer, which may be reading x's memory: kv_writer_settle() */

/* One layer, as kv_prefill() shows it, and its layer end. */
int kv_emit_layer(struct kv_emit *x, const struct kv_layer_view *view, struct kv_err *e);

/* The attributes of rows at positions first, first + 1, ..: {region, first_position}.  region: of `q` alone, else NULL.
 * NULL: no memory. */
json_t *kv_row_attrs(const char *region, size_t first);

#endif
