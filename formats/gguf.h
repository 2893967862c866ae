/* SPDX-License-Identifier: MIT
 * A GGUF file as a container: key/value pairs and tensors, every length checked against the file (formats/GGUF.md).
 *
 * Everything points into the map and lives as long as it does.
 */
#ifndef KV_GGUF_H
#define KV_GGUF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "lib/err.h"
#include "lib/file.h"
#include "lib/text/vocab.h"

enum gguf_type { /* of values, as the file numbers them */
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_N_TYPES
};

#define GGUF_NAME_MAX 128 /* bytes of a key or a tensor's name here, terminator included */

struct gguf_value {
	enum gguf_type type; /* of the elements if is_array */
	bool is_array;
	uint64_t n; /* elements; 1 if not an array */
	const unsigned char *data; /* the elements, unaligned; strings and arrays each with their header */
	size_t bytes;
};

struct gguf_pair {
	char key[GGUF_NAME_MAX];
	struct gguf_value value;
};

struct gguf_tensor {
	char name[GGUF_NAME_MAX];
	enum kvk_type type;
	unsigned n_dims;
	size_t dims[4];   /* fastest first, as in the file; 1 beyond n_dims */
	const void *data; /* aligned to general.alignment */
	size_t bytes;
};

struct gguf {
	unsigned version;
	size_t alignment;
	struct gguf_pair *pairs; /* [n_pairs], file order */
	size_t n_pairs;
	struct gguf_tensor *tensors; /* [n_tensors], file order */
	size_t n_tensors;
};

/* Parse what a map holds into a zeroed *g.  Call gguf_fini in any case.  Takes no more memory than a few times the
 * file's size. Fails: KV_EFORMAT (naming the key or tensor), KV_EMODEL (element type we do not know), KV_EMEM. */
int gguf_parse(struct gguf *g, const struct kv_map *map, struct kv_err *e);
void gguf_fini(struct gguf *g);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL if none */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Element i of a number value; false if it is not of that kind (or negative, for gguf_uint). */
bool gguf_uint(const struct gguf_value *v, uint64_t i, uint64_t *out);
bool gguf_int(const struct gguf_value *v, uint64_t i, int64_t *out);
bool gguf_real(const struct gguf_value *v, uint64_t i, double *out); /* integers too */

/* Walk the strings of a value: *at starts at v->data and moves on; the result is not terminated. */
const char *gguf_string(const unsigned char **at, size_t *n);

/* Name of a value type: "u32". */
const char *gguf_type_name(enum gguf_type t);

/* Fill a zeroed vocabulary from tokenizer.* (gguf_vocab.c).  Copies everything. */
int gguf_vocab(const struct gguf *g, struct kv_vocab *v, struct kv_err *e);

#endif
