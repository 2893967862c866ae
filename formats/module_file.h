/* SPDX-License-Identifier: MIT
 * LookaheadKV modules as files: safetensors with the module's description in its metadata (LOOKAHEAD.md).
 */
#ifndef KV_MODULE_FILE_H
#define KV_MODULE_FILE_H

#include "lib/model/module.h"

/* Read a module for a model.  Every tensor that the description promises must be there, in its shape, and no others;
 * F32, F16 and BF16 become f32.  The checksum is compared if the file has one.  Fails: KV_EIO, KV_EFORMAT
 * (no module, or a damaged one), KV_EMODEL (made for another model, numbers that are not finite), KV_EMEM; the sentence
 * begins with path. */
int kv_lookahead_read(struct kv_lookahead **out, const char *path, const struct kv_config *c, struct kv_err *e);

/* What one is made of, which needs no model; the checksum is compared here too.  Fails: KV_EIO, KV_EFORMAT, KV_EARG,
 * KV_EMEM; the sentence begins with path. */
int kv_lookahead_read_shape(struct kv_lookahead_shape *s, const char *path, struct kv_err *e);

/* Write one; the file appears under its name when it is complete.  type: F32, F16 or BF16, rounded to nearest even.
 * Same module, same bytes.  Fails: KV_EARG (another type; a number that is not finite in it), KV_EIO, KV_EMEM. */
int kv_lookahead_write(const struct kv_lookahead *m, const char *path, enum kvk_type type, struct kv_err *e);

/* One tensor of a module, as its file names it. */
struct kv_lookahead_tensor {
	char name[128];
	size_t rows, cols;
	float *data; /* in the module */
};
/* Number i of the module's tensors in the order of the file; false: there are no more. */
bool kv_lookahead_tensor(const struct kv_lookahead *m, size_t i, struct kv_lookahead_tensor *t);

#endif
