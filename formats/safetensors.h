/* SPDX-License-Identifier: MIT
 * One safetensors file: a JSON header and tensors behind it (formats/HUGGINGFACE.md).
 */
#ifndef KV_SAFETENSORS_H
#define KV_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
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

/* Our own files keep a checksum in the metadata: XXH3-64 of the whole file, header included, in which its own sixteen
 * digits are zeros.  A header is made with zeros, which take part in the sum and give way to it. */
#define SAFETENSORS_SUM    "xxh3"
#define SAFETENSORS_NO_SUM "0000000000000000"
void safetensors_put_sum(struct kv_buf *header, uint64_t sum);
/* It is right, or there is none.  Fails: KV_EFORMAT, KV_EMEM. */
int safetensors_check_sum(const struct kv_map *map, struct kv_err *e);

/* A header's text into b, padded so that data begins on a line, with its length in front.  Fails: KV_EMEM. */
int safetensors_put_header(const json_t *header, struct kv_buf *b, struct kv_err *e);

/* One file by its path, for rows of kv_formats. */
bool safetensors_has_key(const char *path, const char *key); /* in its metadata */
/* safetensors_each(), then the checksum; faults begin with path. */
int safetensors_show(const char *path, safetensors_fn fn, void *ctx, struct kv_err *e);

#endif
