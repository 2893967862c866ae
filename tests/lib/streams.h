/* SPDX-License-Identifier: MIT
 * Small streams and scratch files for tests.  Failures inside end the test (cmocka).
 */
#ifndef STREAMS_H
#define STREAMS_H

#include <jansson.h>
#include <stddef.h>

#include "lib/buf.h"
#include "lib/err.h"

/* End the test unless rc is no fault; unless e's sentence has `part` in it. */
void must(int rc, const struct kv_err *e);
void expect_text(const struct kv_err *e, const char *part);

/* A path "NAME" in a scratch folder that is removed at exit; borrowed, one of 16 in turn. */
const char *scratch(const char *name);
/* Names in the scratch folder, "." and ".." not counted. */
size_t scratch_count(void);
void scratch_write(const char *path, const void *bytes, size_t n);
struct kv_buf scratch_read(const char *path); /* kv_buf_fini() it */

struct sample {
	size_t sequences, layers, tokens;
	size_t behind;       /* tokens behind the prompt of `tokens` */
	int token0;          /* first token id: other prompts, other numbers */
	const char *tensors; /* per layer, of "k v score budget protect x"; NULL: "k v score" */
	bool logits;         /* per sequence, after the layers */
	bool layer_ends;
	const char *fingerprint; /* of the model; NULL: "f00d" */
	const char *id;          /* NULL: no id */
	size_t part_max;         /* bytes of a payload's parts; 0: as large as may be */
};
/* k, v f16 [kv_head 2][token][dim 4], score f32 [2][token], budget i32 [2], protect u8 [2][token], x f32 [token]
 * without axes' names, logits f32 [10]. */
void sample_write(const char *path, const struct sample *s);

/* Read it all, loading every payload if `load`.  KV_OK when it is a whole stream. */
int stream_walk(const char *path, bool load, struct kv_err *e);
/* The same for bytes that come through a pipe (n below 64 KiB). */
int stream_walk_piped(const void *bytes, size_t n, struct kv_err *e);

/* JSON with ' for ". */
json_t *json_of(const char *text);

#endif
