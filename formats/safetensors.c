/* SPDX-License-Identifier: MIT */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/format.h"
#include "lib/checksum.h"
#include "lib/tensor.h"

#define MAX_HEADER ((uint64_t)32 << 20) /* bytes; the largest published models have less than one MiB */
#define ALIGN      64                   /* bytes: where data begins in the files that we write */

static const struct {
	const char *name;
	enum kvk_type type;
} dtypes[] = { { "F32", KVK_F32 }, { "F16", KVK_F16 }, { "BF16", KVK_BF16 }, { "I32", KVK_I32 } };

/* What the first eight bytes say, if there are so many. */
static uint64_t
header_bytes(const struct kv_map *map)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < 8 && map->bytes >= 8; i++)
		n |= (uint64_t)map->data[i] << 8 * i;
	return n;
}

/* The header, new reference, and where the data begins. */
static int
read_header(const struct kv_map *map, json_t **header, size_t *start, struct kv_err *e)
{
	const uint64_t n = header_bytes(map);
	json_error_t why;

	if (map->bytes < 8)
		return kv_fail(
		    e, KV_EFORMAT, "not a safetensors file: %zu bytes have no room for a header", map->bytes);
	if (n > MAX_HEADER || n > map->bytes - 8)
		return kv_fail(e, KV_EFORMAT, "not a safetensors file: header of %" PRIu64 " bytes in a file of %zu%s",
		    n, map->bytes, n > MAX_HEADER ? "" : ": is it cut short?");
	*header = json_loadb((const char *)map->data + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
	if (*header == NULL)
		return kv_fail(e, KV_EFORMAT, "header: byte %d: %s", why.position, why.text);
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
	json_object_foreach (header, name, tensor) {
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

/* ---- checksums */

#define SUM_DIGITS (sizeof SAFETENSORS_NO_SUM - 1)

/* Where the digits of the sum stand in a header, n when there are none.  No text in it can look like this: quotes in
 * texts have a backslash in front. */
static size_t
find_sum(const unsigned char *header, size_t n)
{
	static const char key[] = "\"" SAFETENSORS_SUM "\":\"";
	const size_t key_bytes = sizeof key - 1;
	const unsigned char *at = memmem(header, n, key, key_bytes);
	const size_t digits = at != NULL ? (size_t)(at - header) + key_bytes : n;

	return n - digits > SUM_DIGITS && header[digits + SUM_DIGITS] == '"' ? digits : n;
}

static void
sum_text(uint64_t sum, char hex[SUM_DIGITS + 1])
{
	snprintf(hex, SUM_DIGITS + 1, "%016" PRIx64, sum);
}

void
safetensors_put_sum(struct kv_buf *header, uint64_t sum)
{
	const size_t at = find_sum((const unsigned char *)header->data, header->n);
	char hex[SUM_DIGITS + 1];

	if (at == header->n)
		return;
	sum_text(sum, hex);
	memcpy(header->data + at, hex, SUM_DIGITS);
}

/* Of the whole file, zeros in the place of its own digits. */
static int
sum_file(const struct kv_map *map, size_t digits, char hex[SUM_DIGITS + 1], struct kv_err *e)
{
	struct kv_summing *s = kv_summing_new(e);

	if (s == NULL)
		return KV_EMEM;
	kv_summing_add(s, map->data, digits);
	kv_summing_add(s, SAFETENSORS_NO_SUM, SUM_DIGITS);
	kv_summing_add(s, map->data + digits + SUM_DIGITS, map->bytes - digits - SUM_DIGITS);
	sum_text(kv_summing_get(s), hex);
	kv_summing_free(s);
	return KV_OK;
}

static int
compare_sum(const struct kv_map *map, const char *sum, size_t start, struct kv_err *e)
{
	const size_t digits = find_sum(map->data, start);
	char found[SUM_DIGITS + 1];
	int rc;

	if (sum == NULL || digits == start)
		return kv_fail(e, KV_EFORMAT, "the file was damaged: its checksum is not sixteen digits");
	if ((rc = sum_file(map, digits, found, e)) < 0)
		return rc;
	if (strcmp(sum, found) != 0)
		return kv_fail(e, KV_EFORMAT, "the file was damaged: its checksum is %s, expected %.40s", found, sum);
	return KV_OK;
}

int
safetensors_check_sum(const struct kv_map *map, struct kv_err *e)
{
	const json_t *sum;
	json_t *header;
	size_t start;
	int rc = read_header(map, &header, &start, e);

	if (rc < 0)
		return rc;
	if ((sum = json_object_get(json_object_get(header, "__metadata__"), SAFETENSORS_SUM)) != NULL)
		rc = compare_sum(map, json_string_value(sum), start, e);
	json_decref(header);
	return rc;
}

/* ---- writing */

int
safetensors_put_header(const json_t *header, struct kv_buf *b, struct kv_err *e)
{
	char *text = json_dumps(header, JSON_COMPACT);
	unsigned char length[8];
	size_t n, padded;
	int rc;

	if (text == NULL)
		return kv_no_memory(e, 1024);
	n = strlen(text);
	padded = (n + 8 + ALIGN - 1) / ALIGN * ALIGN - 8;
	for (size_t i = 0; i < 8; i++)
		length[i] = (unsigned char)(padded >> 8 * i);
	if ((rc = kv_buf_add(b, length, 8, e)) == KV_OK && (rc = kv_buf_add(b, text, n, e)) == KV_OK)
		rc = kv_buf_printf(b, e, "%*s", (int)(padded - n), "");
	free(text);
	return rc;
}

/* ---- one file for kv-show */

bool
safetensors_has_key(const char *path, const char *key)
{
	struct kv_map map = { 0 };
	json_t *metadata = NULL;
	bool yes;

	if (kv_map_open(&map, path, NULL) < 0)
		return false;
	yes = safetensors_metadata(&map, &metadata, NULL) == KV_OK && json_object_get(metadata, key) != NULL;
	json_decref(metadata);
	kv_map_close(&map);
	return yes;
}

int
safetensors_show(const char *path, safetensors_fn fn, void *ctx, struct kv_err *e)
{
	struct kv_map map = { 0 };
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = safetensors_each(&map, NULL, fn, ctx, e)) == KV_OK)
		rc = safetensors_check_sum(&map, e);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

static bool
ends_with(const char *path, const char *suffix)
{
	const size_t n = strlen(path), tail = strlen(suffix);

	return n >= tail && strcmp(path + n - tail, suffix) == 0;
}

/* By what it begins with; by its name when even that is damaged: then the fault can be told. */
static bool
safetensors_probe(const char *path)
{
	static const char first[] = "{\"__metadata__\"";
	struct kv_map map = { 0 };
	bool yes;

	if (kv_map_open(&map, path, NULL) < 0)
		return false;
	yes = (map.bytes > 8 && map.data[8] == '{' && header_bytes(&map) <= MAX_HEADER) ||
	      (map.bytes > 8 + strlen(first) && memcmp(map.data + 8, first, strlen(first)) == 0) ||
	      ends_with(path, ".safetensors") || ends_with(path, ".safetensors.checkpoint");
	kv_map_close(&map);
	return yes;
}

static int
metadata_of(const char *path, json_t **out, struct kv_err *e)
{
	struct kv_map map = { 0 };
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	rc = safetensors_metadata(&map, out, e);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

const struct kv_format kv_format_safetensors = {
	.name = "safetensors",
	.brief = "a safetensors file; a model is the folder that it lies in",
	.probe = safetensors_probe,
	.tensors = safetensors_show,
	.metadata = metadata_of,
};
