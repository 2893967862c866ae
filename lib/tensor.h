/* SPDX-License-Identifier: MIT
 * Tensors as streams carry them: a name, a layer, a shape with named axes, attributes, and bytes.
 */
#ifndef KV_TENSOR_H
#define KV_TENSOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "lib/err.h"

#define KV_NAME_MAX 64 /* bytes of a tensor's or an axis' name, terminator included */
#define KV_AXES_MAX 4
#define KV_NO_LAYER (-1) /* the layer of a tensor that belongs to the sequence as a whole */

struct kv_tensor {
	char name[KV_NAME_MAX];
	int layer;          /* 0 .. L-1, or KV_NO_LAYER */
	enum kvk_type type; /* KVK_N_TYPES: a type this version does not know; bytes still says the size */
	char type_name[16]; /* as in the stream */
	unsigned n_axes;
	size_t shape[KV_AXES_MAX];
	char axis[KV_AXES_MAX][KV_NAME_MAX]; /* "" when the stream does not name them */
	json_t *attrs;                       /* object; owned; NULL means none */
	const void *data;                    /* payload; NULL until it has been read */
	const void *device;                  /* with data NULL, on the device of a program that asked for it there */
	size_t bytes;
	void *owned; /* what kv_tensor_fini() frees: data itself, or NULL when data is borrowed */
};

/* The pieces a payload is cut into where it is written (the bin objects of a stream).  Zeros are an empty list. */
struct kv_parts {
	size_t n;
	uint32_t *size;  /* [n] bytes */
	const void **at; /* [n] where they lie, borrowed; NULL: nowhere, or one behind the other in the tensor's data */
	uint64_t xxh3;   /* what all bytes together sum up to, where they came with a checksum */
};
void kv_parts_fini(struct kv_parts *p);

/* Drops the attributes and the owned bytes and zeroes *t.  NULL is fine. */
void kv_tensor_fini(struct kv_tensor *t);

/* Describe a tensor: `axes` lists names slowest first, separated by spaces ("kv_head token dim"), one size each follows
 * in shape.  Computes bytes.  Fails: KV_ESHAPE (product too large, too many axes), KV_EARG (type not a plain one). */
int kv_tensor_init(struct kv_tensor *t, const char *name, int layer, enum kvk_type type, const char *axes,
    const size_t *shape, struct kv_err *e);

/* The same, with zeroed memory of its own; the caller writes through t->owned. */
int kv_tensor_new(struct kv_tensor *t, const char *name, int layer, enum kvk_type type, const char *axes,
    const size_t *shape, struct kv_err *e);

/* Number of elements (product of the shape; 1 without axes). */
size_t kv_tensor_n(const struct kv_tensor *t);

/* Check what a program expects: the type (KVK_N_TYPES: any of F32, F16, BF16), the axes by name, and the sizes
 * (KV_ANY for any).  Fails: KV_ESHAPE, naming expected and found. */
#define KV_ANY ((size_t)-1)
int kv_tensor_expect(
    const struct kv_tensor *t, enum kvk_type type, const char *axes, const size_t *shape, struct kv_err *e);

/* The true position of row i of n rows, as the attributes tell: `first_position` of rows that follow each other, or a
 * list `positions`.  -1: they do not, or tell it of another number of rows. */
json_int_t kv_tensor_position(const struct kv_tensor *t, size_t i, size_t n);

/* "f16" -> KVK_F16; KVK_N_TYPES when unknown. */
enum kvk_type kv_type_find(const char *name);

/* Bytes of n elements of a type, n a multiple of its block; false on overflow or a partial block. */
bool kv_type_bytes(enum kvk_type type, size_t n, size_t *bytes);

/* One element of a plain type as double (F32, F16, BF16, I32, U8); for inspection, not for hot loops. */
double kv_tensor_get(const struct kv_tensor *t, size_t i);

float kv_f16_to_f32(uint16_t h);
float kv_bf16_to_f32(uint16_t h);
uint16_t kv_f32_to_f16(float x); /* both round to nearest even; beyond the range: infinity */
uint16_t kv_f32_to_bf16(float x);

#endif
