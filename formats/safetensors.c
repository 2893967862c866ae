/* SPDX-License-Identifier: MIT */
#include "formats/safetensors.h"

#include <string.h>

#include "lib/buf.h"
#include "lib/tensor.h"

#define MAX_HEADER ((uint64_t)32 << 20) /* bytes; the largest published models have less than one MiB */

static const struct {
	const char *name;
	enum kvk_type type;
} dtypes[] = { { "F32", KVK_F32 }, { "F16", KVK_F16 }, { "BF16", KVK_BF16 }, { "I32", KVK_I32 } };

/* The header, new reference, and where the data begins. */
static int
read_header(const struct kv_map *map, json_t **header, size_t *start, struct kv_err *e)
{
	json_error_t why;
	uint64_t n = 0;

	for (unsigned i = 0; i < 8 && map->bytes >= 8; i++)
		n |= (uint64_t)map->data[i] << 8 * i;
	if (map->bytes < 8 || n > MAX_HEADER || n > map->bytes - 8)
		return kv_fail(e, KV_EFORMAT, "not a safetensors file: header of %llu bytes in a file of %zu",
		    (unsigned long long)n, map->bytes);
	*header = json_loadb((const char *)map->data + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
	if (*header == NULL)
		return kv_fail(e, KV_EFORMAT, "header: %s", why.text);
	if (!json_is_object(*header)) {
		json_decref(*header);
		return kv_fail(e, KV_EFORMAT, "header: expected a JSON object");
	}
	*start = 8 + (size_t)n;
	return KV_OK;
}

static int
read_type(const char *name, const json_t *tensor, enum kvk_type *type, struct kv_err *e)
{
	const char *dtype = json_string_value(json_object_get(tensor, "dtype"));

	if (dtype == NULL)
		return kv_fail(e, KV_EFORMAT, "tensor %s: no dtype", name);
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		if (strcmp(dtypes[i].name, dtype) == 0) {
			*type = dtypes[i].type;
			return KV_OK;
		}
	}
	return kv_fail(e, KV_EMODEL, "tensor %s: dtype %s is not supported (F32, F16 and BF16 are)", name, dtype);
}

/* Rows are all dimensions but the last one together; a scalar is [1][1]. */
static int
read_shape(const char *name, const json_t *shape, struct kv_matrix *w, struct kv_err *e)
{
	size_t n = json_array_size(shape), bytes;
	json_int_t v;

	w->rows = w->cols = 1;
	if (!json_is_array(shape))
		return kv_fail(e, KV_EFORMAT, "tensor %s: no shape", name);
	for (size_t i = 0; i < n; i++) {
		const json_t *size = json_array_get(shape, i);

		v = json_integer_value(size);
		if (!json_is_integer(size) || v <= 0)
			return kv_fail(e, KV_EFORMAT, "tensor %s: dimension %zu is no positive number", name, i);
		if (i + 1 == n)
			w->cols = (size_t)v;
		else if (!kv_mul(w->rows, (size_t)v, &w->rows))
			return kv_fail(e, KV_EFORMAT, "tensor %s: its shape is absurd", name);
	}
	if (!kv_mul(w->rows, w->cols, &bytes) || !kv_type_bytes(w->type, bytes, &bytes))
		return kv_fail(e, KV_EFORMAT, "tensor %s: its shape is absurd", name);
	return KV_OK;
}

static int
place(const char *name, const json_t *offsets, const struct kv_map *map, size_t start, struct kv_matrix *w,
    struct kv_err *e)
{
	const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
	size_t bytes = w->rows * w->cols * kvk_types[w->type].bytes, room = map->bytes - start;
	json_int_t a = json_integer_value(from), b = json_integer_value(to);

	if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to) || a < 0 || b < a)
		return kv_fail(e, KV_EFORMAT, "tensor %s: data_offsets: expected two ascending numbers", name);
	if ((size_t)b > room)
		return kv_fail(e, KV_EFORMAT,
		    "tensor %s: ends at byte %lld of %zu bytes of data: is the file truncated?", name, (long long)b,
		    room);
	if ((size_t)(b - a) != bytes)
		return kv_fail(e, KV_EFORMAT, "tensor %s: [%zu][%zu] %s takes %zu bytes, but the header gives it %lld",
		    name, w->rows, w->cols, kvk_types[w->type].name, bytes, (long long)(b - a));
	if ((start + (size_t)a) % kvk_types[w->type].bytes != 0)
		return kv_fail(e, KV_EFORMAT,
		    "tensor %s: not aligned to its elements; save the file anew with a current safetensors", name);
	w->data = map->data + start + a;
	return KV_OK;
}

static int
read_tensor(const char *name, const json_t *tensor, const struct kv_map *map, size_t start, struct kv_matrix *w,
    struct kv_err *e)
{
	int rc;

	for (const char *p = name; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 127) /* messages print names */
			return kv_fail(e, KV_EFORMAT, "the name of a tensor has control characters");
	if ((rc = read_type(name, tensor, &w->type, e)) < 0 ||
	    (rc = read_shape(name, json_object_get(tensor, "shape"), w, e)) < 0)
		return rc;
	return place(name, json_object_get(tensor, "data_offsets"), map, start, w, e);
}

int
safetensors_each(
    const struct kv_map *map, bool (*keep)(const char *name), safetensors_fn fn, void *ctx, struct kv_err *e)
{
	json_t *header, *tensor;
	struct kv_matrix w;
	const char *name;
	size_t start;
	int rc;

	if ((rc = read_header(map, &header, &start, e)) < 0)
		return rc;
	json_object_foreach(header, name, tensor)
	{
		if (strcmp(name, "__metadata__") == 0 || (keep != NULL && !keep(name)))
			continue;
		if ((rc = read_tensor(name, tensor, map, start, &w, e)) < 0 || (rc = fn(ctx, name, &w, e)) < 0)
			break;
	}
	json_decref(header);
	return rc;
}

int
safetensors_metadata(const struct kv_map *map, json_t **out, struct kv_err *e)
{
	json_t *header, *meta;
	size_t start;
	int rc = read_header(map, &header, &start, e);

	if (rc < 0)
		return rc;
	meta = json_object_get(header, "__metadata__");
	*out = json_is_object(meta) ? json_incref(meta) : json_object();
	json_decref(header);
	return KV_OK;
}
