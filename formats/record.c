/* SPDX-License-Identifier: MIT */
#include "formats/record.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- kinds */

/* The key that makes a map a record of its kind, in the order of enum kv_record_kind. */
static const char *const kind_keys[] = { "kvstream", "sequence", "tensor", "layer_end", "close", "end", NULL };

int
kv_record_parse(struct kv_record *rec, struct kv_err *e)
{
	size_t which = KV_RECORD_OTHER;
	size_t n = kv_pack_find((const unsigned char *)rec->raw.data, rec->raw.n, kind_keys, &which);

	rec->kind = KV_RECORD_OTHER;
	if (n > 1)
		return kv_fail(
		    e, KV_EFORMAT, "a map that would be several records at once (%s and others)", kind_keys[which]);
	if (n == 0)
		return KV_OK;
	rec->kind = (enum kv_record_kind)which;
	return kv_pack_decode(rec->raw.data, rec->raw.n, &rec->map, e);
}

void
kv_record_fini(struct kv_record *r)
{
	if (r == NULL)
		return;
	json_decref(r->map);
	kv_buf_fini(&r->raw);
	kv_tensor_fini(&r->tensor);
	*r = (struct kv_record){ 0 };
}

/* ---- values of maps */

int
kv_map_int(const json_t *map, const char *key, json_int_t min, json_int_t max, json_int_t *out, struct kv_err *e)
{
	const json_t *v = json_object_get(map, key);

	if (v == NULL)
		return kv_fail(e, KV_EFORMAT, "key '%s' is missing", key);
	if (!json_is_integer(v))
		return kv_fail(e, KV_EFORMAT, "key '%s' is not an integer", key);
	*out = json_integer_value(v);
	if (*out < min || *out > max)
		return kv_fail(e, KV_EFORMAT,
		    "key '%s' is %" JSON_INTEGER_FORMAT ", expected %" JSON_INTEGER_FORMAT " .. %" JSON_INTEGER_FORMAT,
		    key, *out, min, max);
	return KV_OK;
}

bool
kv_name_is_valid(const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~' || name[i] == ',')
			return false;
	return n > 0 && n < KV_NAME_MAX;
}

/* A string of 1 .. cap-1 printable ASCII characters, neither blank nor comma (which separate names on command
 * lines). */
static int
copy_name(const json_t *v, const char *key, char *out, size_t cap, struct kv_err *e)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	if (v == NULL)
		return kv_fail(e, KV_EFORMAT, "key '%s' is missing", key);
	if (s == NULL || n == 0 || n >= cap)
		return kv_fail(e, KV_EFORMAT, "key '%s' is not a string of 1 to %zu bytes", key, cap - 1);
	if (!kv_name_is_valid(s, n))
		return kv_fail(e, KV_EFORMAT, "key '%s' has a byte that no name may have", key);
	memcpy(out, s, n + 1);
	return KV_OK;
}

int
kv_sequence_check(const json_t *map, struct kv_err *e)
{
	const json_t *tokens = json_object_get(map, "tokens"), *v;
	json_int_t length;
	size_t n = json_array_size(tokens);

	if (!json_is_array(tokens))
		return kv_fail(e, KV_EFORMAT, "key 'tokens' is not an array");
	for (size_t i = 0; i < n; i++) {
		v = json_array_get(tokens, i);
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
			return kv_fail(e, KV_EFORMAT, "token %zu is not an integer from 0 to 2^31-1", i);
	}
	if (json_object_get(map, "prompt_length") == NULL)
		return KV_OK;
	return kv_map_int(map, "prompt_length", 0, (json_int_t)n, &length, e);
}

/* ---- tensors */

static int
shape_from_map(struct kv_tensor *t, const json_t *map, struct kv_err *e)
{
	const json_t *shape = json_object_get(map, "shape"), *axes = json_object_get(map, "axes"), *v;
	int rc = KV_OK;

	if (!json_is_array(shape) || json_array_size(shape) > KV_AXES_MAX)
		return kv_fail(e, KV_EFORMAT, "key 'shape' is not an array of at most %d sizes", KV_AXES_MAX);
	t->n_axes = (unsigned)json_array_size(shape);
	if (axes != NULL && (!json_is_array(axes) || json_array_size(axes) != t->n_axes))
		return kv_fail(e, KV_EFORMAT, "key 'axes' is not an array of as many names as 'shape' has sizes");
	for (unsigned i = 0; i < t->n_axes && rc == KV_OK; i++) {
		v = json_array_get(shape, i);
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return kv_fail(e, KV_EFORMAT, "size %u of 'shape' is not an integer of 0 or more", i);
		t->shape[i] = (size_t)json_integer_value(v);
		if (axes != NULL)
			rc = copy_name(json_array_get(axes, i), "axes", t->axis[i], sizeof t->axis[i], e);
	}
	return rc;
}

/* Does the shape explain the bytes?  A type this version does not know is taken at its word. */
static int
check_bytes(const struct kv_tensor *t, struct kv_err *e)
{
	size_t n = 1, bytes;
	bool fits = true;

	for (unsigned i = 0; i < t->n_axes; i++)
		if (t->shape[i] == 0)
			n = 0;
	for (unsigned i = 0; i < t->n_axes && n > 0 && fits; i++)
		fits = kv_mul(n, t->shape[i], &n);
	if (!fits)
		return kv_fail(e, KV_EFORMAT, "a shape of more elements than can be counted");
	if (t->type == KVK_N_TYPES)
		return KV_OK;
	if (!kv_type_bytes(t->type, n, &bytes) || bytes != t->bytes)
		return kv_fail(e, KV_EFORMAT, "%zu elements of %s do not make %zu bytes", n, t->type_name, t->bytes);
	return KV_OK;
}

static int
reference_from_map(struct kv_payload *p, const json_t *map, struct kv_err *e)
{
	const json_t *path = json_object_get(map, "path"), *memory = json_object_get(map, "memory"),
		     *card = json_object_get(map, "device");
	const char *text = json_string_value(path);
	json_int_t at, stamp = 0, size = 0, mtime = 0;
	int rc;

	if (!json_is_object(map))
		return kv_fail(e, KV_EFORMAT, "key 'reference' is not a map");
	if (text == NULL || text[0] != '/' || json_string_length(path) >= PATH_MAX ||
	    strlen(text) != json_string_length(path))
		return kv_fail(e, KV_EFORMAT, "key 'path' of 'reference' is not an absolute path");
	if (memory != NULL && !json_is_boolean(memory))
		return kv_fail(e, KV_EFORMAT, "key 'memory' of 'reference' is neither true nor false");
	if ((rc = kv_map_int(map, "offset", json_is_true(memory) ? KV_LENT_STAMP : 0,
		 INT64_MAX - (json_int_t)p->bytes, &at, e)) < 0)
		return kv_where(e, "reference");
	rc = json_is_true(memory) ? kv_map_int(map, "stamp", 1, INT64_MAX, &stamp, e)
				  : kv_map_int(map, "size", 0, INT64_MAX, &size, e);
	if (rc == KV_OK && !json_is_true(memory))
		rc = kv_map_int(map, "mtime_ns", INT64_MIN, INT64_MAX, &mtime, e);
	if (rc < 0)
		return kv_where(e, "reference");
	if (json_is_true(memory) && at % KV_LENT_STAMP != 0)
		return kv_fail(
		    e, KV_EFORMAT, "key 'offset' of a 'reference' to memory is no multiple of %d", KV_LENT_STAMP);
	if (card != NULL &&
	    (!json_is_true(memory) || !kv_name_is_valid(json_string_value(card), json_string_length(card))))
		return kv_fail(e, KV_EFORMAT, "key 'device' of 'reference' is not the name of a device, of memory");
	p->reference = (struct kv_reference){ .path = text,
		.at = (uint64_t)at,
		.is_memory = json_is_true(memory),
		.stamp = (uint64_t)stamp,
		.card = json_string_value(card),
		.size = (uint64_t)size,
		.mtime_ns = mtime };
	return KV_OK;
}

/* Lent memory may do without. */
static int
sum_from_map(struct kv_payload *p, const json_t *map, const json_t *reference, struct kv_err *e)
{
	const json_t *sum = json_object_get(map, "xxh3");
	const char *hex = json_string_value(sum);

	if (json_is_null(sum) && json_is_true(json_object_get(reference, "memory")))
		return KV_OK;
	if (hex == NULL || json_string_length(sum) != 16 || strspn(hex, "0123456789abcdef") != 16)
		return kv_fail(e, KV_EFORMAT, "key 'xxh3' is not a checksum of 16 lower-case hexadecimal digits");
	p->has_sum = true;
	p->xxh3 = strtoull(hex, NULL, 16);
	return KV_OK;
}

static int
payload_from_map(struct kv_payload *p, const json_t *map, struct kv_err *e)
{
	const json_t *reference = json_object_get(map, "reference");
	json_int_t bytes, parts;
	int rc;

	if ((rc = kv_map_int(map, "bytes", reference != NULL, INT64_MAX, &bytes, e)) < 0)
		return rc;
	*p = (struct kv_payload){ .bytes = (size_t)bytes };
	if ((rc = sum_from_map(p, map, reference, e)) < 0)
		return rc;
	if (reference != NULL) {
		if ((rc = kv_map_int(map, "parts", 0, 0, &parts, e)) < 0)
			return kv_where(e, "with a reference");
		return reference_from_map(p, reference, e);
	}
	/* no part is empty unless the whole payload is */
	if ((rc = kv_map_int(map, "parts", 1,
		 bytes < 1              ? 1
		 : bytes < KV_PARTS_MAX ? bytes
					: KV_PARTS_MAX,
		 &parts, e)) < 0)
		return rc;
	if (bytes / UINT32_MAX + (bytes % UINT32_MAX > 0) > parts)
		return kv_fail(e, KV_EFORMAT,
		    "%" JSON_INTEGER_FORMAT " bytes do not fit %" JSON_INTEGER_FORMAT " parts", bytes, parts);
	p->parts = (size_t)parts;
	return KV_OK;
}

int
kv_tensor_from_map(struct kv_tensor *t, struct kv_payload *p, const json_t *map, struct kv_err *e)
{
	json_t *attrs = json_object_get(map, "attrs");
	json_int_t layer = KV_NO_LAYER;
	int rc;

	*t = (struct kv_tensor){ 0 };
	if ((rc = copy_name(json_object_get(map, "tensor"), "tensor", t->name, sizeof t->name, e)) < 0)
		return rc;
	if (json_object_get(map, "layer") != NULL && (rc = kv_map_int(map, "layer", 0, INT_MAX, &layer, e)) < 0)
		return rc;
	t->layer = (int)layer;
	if ((rc = copy_name(json_object_get(map, "dtype"), "dtype", t->type_name, sizeof t->type_name, e)) < 0)
		return rc;
	t->type = kv_type_find(t->type_name);
	if ((rc = shape_from_map(t, map, e)) < 0 || (rc = payload_from_map(p, map, e)) < 0)
		return rc;
	t->bytes = p->bytes;
	if ((rc = check_bytes(t, e)) < 0)
		return rc;
	if (attrs != NULL && !json_is_object(attrs))
		return kv_fail(e, KV_EFORMAT, "key 'attrs' is not a map");
	t->attrs = json_incref(attrs);
	return KV_OK;
}

/* Sets key to a new value; false, with the value freed, when that fails. */
static bool
set(json_t *map, const char *key, json_t *v)
{
	return v != NULL && json_object_set_new_nocheck(map, key, v) == 0;
}

static bool
set_shape(json_t *map, const struct kv_tensor *t)
{
	json_t *shape = json_array(), *axes = json_array();
	bool ok = shape != NULL && axes != NULL, named = true;

	for (unsigned i = 0; i < t->n_axes && ok; i++) {
		ok = json_array_append_new(shape, json_integer((json_int_t)t->shape[i])) == 0 &&
		     json_array_append_new(axes, json_string_nocheck(t->axis[i])) == 0;
		named = named && t->axis[i][0] != '\0';
	}
	if (!ok || !named) {
		json_decref(axes);
		axes = NULL;
	}
	if (!ok) {
		json_decref(shape);
		return false;
	}
	ok = set(map, "shape", shape);
	return axes == NULL ? ok : set(map, "axes", axes) && ok;
}

static bool
set_place(json_t *map, size_t parts, const struct kv_reference *r)
{
	if (!set(map, "parts", json_integer((json_int_t)parts)))
		return false;
	if (r == NULL || r->path == NULL)
		return json_object_del(map, "reference") <= 0; /* there may be none */
	if (r->is_memory)
		return set(map, "reference",
		    json_pack("{s:s, s:I, s:b, s:I, s:s*}", "path", r->path, "offset", (json_int_t)r->at, "memory", 1,
			"stamp", (json_int_t)r->stamp, "device", r->card));
	return set(map, "reference",
	    json_pack("{s:s, s:I, s:I, s:I}", "path", r->path, "offset", (json_int_t)r->at, "size", (json_int_t)r->size,
		"mtime_ns", (json_int_t)r->mtime_ns));
}

static json_t *
sum_of(uint64_t xxh3)
{
	char hex[17];

	snprintf(hex, sizeof hex, "%016" PRIx64, xxh3);
	return json_string_nocheck(hex);
}

int
kv_record_place(struct kv_buf *raw, size_t parts, const struct kv_reference *reference, const uint64_t *sum,
    struct kv_err *e)
{
	struct kv_buf placed = { 0 };
	json_t *map = NULL;
	int rc = kv_pack_decode(raw->data, raw->n, &map, e);

	if (rc == KV_OK &&
	    (!set_place(map, parts, reference) || (sum != NULL && !set(map, "xxh3", sum_of(*sum)))))
		rc = kv_no_memory(e, raw->n);
	if (rc == KV_OK)
		rc = kv_pack_encode(&placed, map, e);
	json_decref(map);
	if (rc < 0) {
		kv_buf_fini(&placed);
		return rc;
	}
	kv_buf_fini(raw);
	*raw = placed;
	return KV_OK;
}

json_t *
kv_tensor_to_map(const struct kv_tensor *t, const struct kv_payload *p)
{
	json_t *map = json_object();
	bool ok = map != NULL;

	ok = ok && set(map, "tensor", json_string_nocheck(t->name));
	if (t->layer != KV_NO_LAYER)
		ok = ok && set(map, "layer", json_integer(t->layer));
	ok = ok && set(map, "dtype", json_string_nocheck(t->type_name)) && set_shape(map, t) &&
	     set(map, "bytes", json_integer((json_int_t)p->bytes)) &&
	     set(map, "parts", json_integer((json_int_t)p->parts)) &&
	     set(map, "xxh3", p->has_sum ? sum_of(p->xxh3) : json_null());
	if (t->attrs != NULL)
		ok = ok && set(map, "attrs", json_incref(t->attrs));
	if (ok && set_place(map, p->parts, &p->reference))
		return map;
	json_decref(map);
	return NULL;
}

/* ---- parts */

size_t
kv_tensor_row(const struct kv_tensor *t)
{
	return t->n_axes > 0 && t->shape[0] > 0 ? t->bytes / t->shape[0] : t->bytes;
}

int
kv_parts_split(struct kv_parts *p, size_t bytes, size_t row, size_t max, struct kv_err *e)
{
	size_t each = row > 0 && row <= max ? max - max % row : max, n = bytes ? (bytes - 1) / each + 1 : 1;

	*p = (struct kv_parts){ 0 };
	if (n > KV_PARTS_MAX)
		return kv_fail(e, KV_EFORMAT, "a payload of %zu bytes needs more than %d parts", bytes, KV_PARTS_MAX);
	if ((p->size = kv_alloc(n, sizeof *p->size, e)) == NULL)
		return KV_EMEM;
	p->n = n;
	for (size_t i = 0; i < n; i++) {
		p->size[i] = (uint32_t)(i + 1 < n ? each : bytes);
		bytes -= p->size[i];
	}
	return KV_OK;
}
