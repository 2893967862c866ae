/* SPDX-License-Identifier: MIT
 * One safetensors file: a JSON header and tensors behind it (formats/HUGGINGFACE.md).
 */
#ifndef KV_SAFETENSORS_H
#define KV_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>

#include "lib/err.h"
#include "lib/file.h"
#include "lib/model/model.h"

/* A borrowed view of one tensor: a matrix whose columns are the last dimension. */
typedef int (*safetensors_fn)(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e);

/* Check the file in the map and call fn for each tensor, in the order of the file's header.  keep NULL: for all, else
 * for the names it accepts; the others' element types need not be known. Fails: KV_EFORMAT (naming the tensor),
 * KV_EMODEL (element type), and fn's. */
int safetensors_each(
    const struct kv_map *map, bool (*keep)(const char *name), safetensors_fn fn, void *ctx, struct kv_err *e);

/* The header's __metadata__, new reference; an empty object if there is none. */
int safetensors_metadata(const struct kv_map *map, json_t **out, struct kv_err *e);

#endif
