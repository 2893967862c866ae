/* SPDX-License-Identifier: MIT
 * The state of a training as a safetensors file: `parameters`, `adam.m`, `adam.v` and `best`, f32 [n] each, and in the
 * metadata `kvtrain` "1", `state` (a JSON object as text) and `xxh3`, the checksum of all this (LOOKAHEAD.md).
 */
#ifndef KV_CHECKPOINT_H
#define KV_CHECKPOINT_H

#include <jansson.h>

#include "lib/err.h"

enum kv_checkpoint_part {
	KV_CHECKPOINT_PARAMETERS,
	KV_CHECKPOINT_M,
	KV_CHECKPOINT_V,
	KV_CHECKPOINT_BEST,
	KV_CHECKPOINT_PARTS
};

/* The file appears under its name when it is complete.  Fails: KV_EIO, KV_EMEM. */
int kv_checkpoint_write(
    const char *path, const json_t *state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e);

/* Into the caller's parts [n]; state: a new reference.  Fails: KV_EIO (there is none), KV_EFORMAT (damaged, or of
 * another module). */
int kv_checkpoint_read(
    const char *path, json_t **state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e);

#endif
