/* SPDX-License-Identifier: MIT
 * The GGUF container: header, key/value pairs, tensor infos.  Layout: formats/GGUF.md. */
#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/tensor.h"

#define MAX_PAIRS     ((uint64_t)1 << 16)
#define MAX_TENSORS   ((uint64_t)1 << 17)
#define MAX_DEPTH     4 /* arrays within arrays */
#define MAX_ALIGNMENT ((uint64_t)1 << 20)

static const struct {
	const char *name;
	unsigned bytes; /* 0: of no fixed size */
} types[GGUF_N_TYPES] = {
	[GGUF_U8] = { "u8", 1 },
	[GGUF_I8] = { "i8", 1 },
	[GGUF_U16] = { "u16", 2 },
	[GGUF_I16] = { "i16", 2 },
	[GGUF_U32] = { "u32", 4 },
	[GGUF_I32] = { "i32", 4 },
	[GGUF_F32] = { "f32", 4 },
	[GGUF_BOOL] = { "bool", 1 },
	[GGUF_STRING] = { "string", 0 },
	[GGUF_ARRAY] = { "array", 0 },
	[GGUF_U64] = { "u64", 8 },
	[GGUF_I64] = { "i64", 8 },
	[GGUF_F64] = { "f64", 8 },
};

/* Element types of tensors, as the file numbers them. */
static const struct {
	uint32_t number;
	enum kvk_type type;
} tensor_types[] = {
	{ 0, KVK_F32 },
	{ 1, KVK_F16 },
	{ 2, KVK_Q4_0 },
	{ 3, KVK_Q4_1 },
	{ 6, KVK_Q5_0 },
	{ 7, KVK_Q5_1 },
	{ 8, KVK_Q8_0 },
	{ 10, KVK_Q2_K },
	{ 11, KVK_Q3_K },
	{ 12, KVK_Q4_K },
	{ 13, KVK_Q5_K },
	{ 14, KVK_Q6_K },
	{ 26, KVK_I32 },
	{ 30, KVK_BF16 },
};
enum { N_TENSOR_TYPES = sizeof tensor_types / sizeof *tensor_types };

/* ---- a cursor over the file; the first read beyond the end sticks ---- */

struct cursor {
	const unsigned char *at, *end;
	bool overrun;
};

static size_t
left(const struct cursor *c)
{
	return (size_t)(c->end - c->at);
}

static const unsigned char *
take(struct cursor *c, uint64_t n)
{
	const unsigned char *p = c->at;

	if (n > left(c)) {
		c->overrun = true;
		c->at = c->end;
		return NULL;
	}
	c->at += n;
	return p;
}

static uint64_t
little(const unsigned char *p, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static uint64_t
take_uint(struct cursor *c, unsigned bytes)
{
	const unsigned char *p = take(c, bytes);

	return p != NULL ? little(p, bytes) : 0;
}

/* A key or a name into out, with control bytes shown as '?', so that messages can print it. */
static int
take_name(struct cursor *c, char out[GGUF_NAME_MAX], const char *what, uint64_t i, struct kv_err *e)
{
	uint64_t n = take_uint(c, 8);
	const unsigned char *p = take(c, n);

	if (c->overrun)
		return kv_fail(e, KV_EFORMAT, "%s %llu: its name ends beyond the file", what, (unsigned long long)i);
	if (n == 0 || n >= GGUF_NAME_MAX)
		return kv_fail(e, KV_EFORMAT, "%s %llu: a name of %llu bytes, expected 1 to %d", what,
		    (unsigned long long)i, (unsigned long long)n, GGUF_NAME_MAX - 1);
	for (uint64_t k = 0; k < n; k++)
		out[k] = p[k] < ' ' || p[k] == 127 ? '?' : (char)p[k];
	out[n] = '\0';
	return KV_OK;
}

/* ---- values ---- */

/* Skip n elements; NULL or why they cannot be right. */
static const char *
skip(struct cursor *c, enum gguf_type type, uint64_t n, unsigned depth)
{
	size_t bytes;

	if (types[type].bytes != 0) {
		if (!kv_mul(n, types[type].bytes, &bytes) || take(c, bytes) == NULL)
			return "ends beyond the file";
		return NULL;
	}
	if (n > left(c) / 8) /* each begins with a length of 8 bytes or more */
		return "ends beyond the file";
	for (; n > 0; n--) {
		if (type == GGUF_STRING) {
			if (take(c, take_uint(c, 8)) == NULL || c->overrun)
				return "a string ends beyond the file";
		} else {
			uint64_t inner = take_uint(c, 4), count = take_uint(c, 8);
			const char *why;

			if (c->overrun)
				return "ends beyond the file";
			if (inner >= GGUF_N_TYPES)
				return "array of an unknown type";
			if (depth == MAX_DEPTH)
				return "arrays nested too deeply";
			if ((why = skip(c, (enum gguf_type)inner, count, depth + 1)) != NULL)
				return why;
		}
	}
	return NULL;
}

static int
read_pair(struct cursor *c, struct gguf_pair *p, uint64_t i, struct kv_err *e)
{
	struct gguf_value *v = &p->value;
	uint64_t type;
	const char *why;
	int rc = take_name(c, p->key, "key", i, e);

	if (rc < 0)
		return rc;
	type = take_uint(c, 4);
	v->n = 1;
	if (type == GGUF_ARRAY) {
		v->is_array = true;
		type = take_uint(c, 4);
		v->n = take_uint(c, 8);
	}
	if (c->overrun)
		return kv_fail(e, KV_EFORMAT, "key %s: ends beyond the file", p->key);
	if (type >= GGUF_N_TYPES)
		return kv_fail(e, KV_EFORMAT, "key %s: unknown value type %llu", p->key, (unsigned long long)type);
	v->type = (enum gguf_type)type;
	v->data = c->at;
	if ((why = skip(c, v->type, v->n, 1)) != NULL)
		return kv_fail(e, KV_EFORMAT, "key %s: %s", p->key, why);
	v->bytes = (size_t)(c->at - v->data);
	return KV_OK;
}

bool
gguf_int(const struct gguf_value *v, uint64_t i, int64_t *out)
{
	unsigned bytes = types[v->type].bytes;
	uint64_t raw;

	if (bytes == 0 || i >= v->n || v->type == GGUF_F32 || v->type == GGUF_F64)
		return false;
	raw = little(v->data + i * bytes, bytes);
	switch (v->type) {
	case GGUF_I8: *out = (int8_t)raw; break;
	case GGUF_I16: *out = (int16_t)raw; break;
	case GGUF_I32: *out = (int32_t)raw; break;
	case GGUF_BOOL: *out = raw != 0; break;
	default: *out = (int64_t)raw; break;
	}
	return v->type != GGUF_U64 || raw <= INT64_MAX;
}

bool
gguf_uint(const struct gguf_value *v, uint64_t i, uint64_t *out)
{
	int64_t n;

	if (!gguf_int(v, i, &n) || n < 0)
		return false;
	*out = (uint64_t)n;
	return true;
}

bool
gguf_real(const struct gguf_value *v, uint64_t i, double *out)
{
	int64_t n;
	float f;

	if (v->type == GGUF_F32 && i < v->n) {
		memcpy(&f, v->data + i * sizeof f, sizeof f);
		*out = f;
	} else if (v->type == GGUF_F64 && i < v->n) {
		memcpy(out, v->data + i * sizeof *out, sizeof *out);
	} else if (gguf_int(v, i, &n)) {
		*out = (double)n;
	} else {
		return false;
	}
	return true;
}

const char *
gguf_string(const unsigned char **at, size_t *n)
{
	const char *s = (const char *)*at + 8;

	*n = (size_t)little(*at, 8);
	*at += 8 + *n;
	return s;
}

const char *
gguf_type_name(enum gguf_type t)
{
	return t < GGUF_N_TYPES ? types[t].name : "?";
}

/* ---- tensor infos ---- */

static int
unknown_type(const struct gguf_tensor *t, uint32_t number, struct kv_err *e)
{
	char known[200] = "";
	size_t at = 0;

	for (size_t i = 0; i < N_TENSOR_TYPES; i++)
		at += (size_t)snprintf(known + at, sizeof known - at, " %s", kvk_types[tensor_types[i].type].name);
	return kv_fail(e, KV_EMODEL,
	    "tensor %s: element type number %u is not known (known:%s); quantise the model to one of these", t->name,
	    number, known);
}

static int
set_type(struct gguf_tensor *t, uint32_t number, struct kv_err *e)
{
	for (size_t i = 0; i < N_TENSOR_TYPES; i++) {
		if (tensor_types[i].number == number) {
			t->type = tensor_types[i].type;
			return KV_OK;
		}
	}
	return unknown_type(t, number, e);
}

static int
read_dims(struct cursor *c, struct gguf_tensor *t, struct kv_err *e)
{
	uint64_t n_dims = take_uint(c, 4);

	if (n_dims == 0 || n_dims > 4)
		return kv_fail(
		    e, KV_EFORMAT, "tensor %s: %llu dimensions, expected 1 to 4", t->name, (unsigned long long)n_dims);
	t->n_dims = (unsigned)n_dims;
	for (unsigned i = 0; i < 4; i++) {
		t->dims[i] = i < n_dims ? take_uint(c, 8) : 1;
		if (!c->overrun && t->dims[i] == 0)
			return kv_fail(e, KV_EFORMAT, "tensor %s: dimension %u is 0", t->name, i);
	}
	return KV_OK;
}

/* The offset is kept in t->bytes until place() knows where the data begins. */
static int
read_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t i, struct kv_err *e)
{
	uint32_t type;
	int rc;

	if ((rc = take_name(c, t->name, "tensor", i, e)) < 0 || (rc = read_dims(c, t, e)) < 0)
		return rc;
	type = (uint32_t)take_uint(c, 4);
	t->bytes = take_uint(c, 8);
	if (c->overrun)
		return kv_fail(e, KV_EFORMAT, "tensor %s: its description ends beyond the file", t->name);
	return set_type(t, type, e);
}

static int
place(struct gguf_tensor *t, const struct kv_map *map, size_t start, size_t alignment, struct kv_err *e)
{
	size_t offset = t->bytes, rows, bytes;
	size_t room = start < map->bytes ? map->bytes - start : 0;

	if (t->dims[0] % kvk_types[t->type].block != 0)
		return kv_fail(e, KV_EFORMAT, "tensor %s: rows of %zu elements are no whole number of %s blocks",
		    t->name, t->dims[0], kvk_types[t->type].name);
	if (!kv_mul(t->dims[1], t->dims[2], &rows) || !kv_mul(rows, t->dims[3], &rows) ||
	    !kv_type_bytes(t->type, t->dims[0], &bytes) || !kv_mul(rows, bytes, &bytes))
		return kv_fail(e, KV_EFORMAT, "tensor %s: dimensions [%zu %zu %zu %zu] are absurd", t->name, t->dims[0],
		    t->dims[1], t->dims[2], t->dims[3]);
	if (offset % alignment != 0)
		return kv_fail(e, KV_EFORMAT, "tensor %s: offset %zu is no multiple of the alignment %zu", t->name,
		    offset, alignment);
	if (offset > room || bytes > room - offset)
		return kv_fail(e, KV_EFORMAT,
		    "tensor %s: %zu bytes at offset %zu end beyond the file (%zu bytes of data): is it truncated?",
		    t->name, bytes, offset, room);
	t->data = map->data + start + offset;
	t->bytes = bytes;
	return KV_OK;
}

/* ---- the whole ---- */

static int
by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names are the first member of both kinds of records: n records of `size` bytes from `first` on. */
static int
check_unique(const void *first, size_t n, size_t size, const char *what, struct kv_err *e)
{
	const char **names = kv_alloc(n, sizeof *names, e);
	int rc = KV_OK;

	if (names == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		names[i] = (const char *)first + i * size;
	qsort(names, n, sizeof *names, by_name);
	for (size_t i = 1; i < n && rc == KV_OK; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			rc = kv_fail(e, KV_EFORMAT, "%s %s: there are two of it", what, names[i]);
	free(names);
	return rc;
}

static int
read_alignment(struct gguf *g, struct kv_err *e)
{
	const struct gguf_value *v = gguf_find(g, "general.alignment");
	uint64_t n = 32;

	if (v != NULL && (v->is_array || !gguf_uint(v, 0, &n) || n < 8 || n > MAX_ALIGNMENT || (n & (n - 1)) != 0))
		return kv_fail(e, KV_EFORMAT, "general.alignment: expected a power of two from 8 to %llu",
		    (unsigned long long)MAX_ALIGNMENT);
	g->alignment = (size_t)n;
	return KV_OK;
}

static int
read_header(struct gguf *g, struct cursor *c, uint64_t *n_tensors, uint64_t *n_pairs, struct kv_err *e)
{
	const unsigned char *magic = take(c, 4);

	if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
		return kv_fail(e, KV_EFORMAT, "does not begin with GGUF");
	g->version = (unsigned)take_uint(c, 4);
	if (g->version != 0 && (g->version & 0xffff) == 0)
		return kv_fail(e, KV_EFORMAT, "a big-endian GGUF file; only little-endian ones are read");
	if (g->version != 2 && g->version != 3)
		return kv_fail(e, KV_EFORMAT, "GGUF version %u; versions 2 and 3 are read", g->version);
	*n_tensors = take_uint(c, 8);
	*n_pairs = take_uint(c, 8);
	if (c->overrun)
		return kv_fail(e, KV_EFORMAT, "ends within the header");
	/* The shortest pair takes 8 + 1 + 4 + 1 bytes, the shortest tensor info 8 + 1 + 4 + 8 + 4 + 8. */
	if (*n_pairs > MAX_PAIRS || *n_pairs > left(c) / 14)
		return kv_fail(e, KV_EFORMAT, "announces %llu keys, more than a file of this size can hold",
		    (unsigned long long)*n_pairs);
	if (*n_tensors > MAX_TENSORS || *n_tensors > left(c) / 33)
		return kv_fail(e, KV_EFORMAT, "announces %llu tensors, more than a file of this size can hold",
		    (unsigned long long)*n_tensors);
	return KV_OK;
}

static int
read_pairs(struct gguf *g, struct cursor *c, uint64_t n, struct kv_err *e)
{
	int rc;

	if ((g->pairs = kv_alloc(n, sizeof *g->pairs, e)) == NULL)
		return KV_EMEM;
	for (; g->n_pairs < n; g->n_pairs++)
		if ((rc = read_pair(c, &g->pairs[g->n_pairs], g->n_pairs, e)) < 0)
			return rc;
	return check_unique(g->pairs, g->n_pairs, sizeof *g->pairs, "key", e);
}

static int
read_tensors(struct gguf *g, struct cursor *c, uint64_t n, struct kv_err *e)
{
	int rc;

	if ((g->tensors = kv_alloc(n, sizeof *g->tensors, e)) == NULL)
		return KV_EMEM;
	for (; g->n_tensors < n; g->n_tensors++)
		if ((rc = read_tensor(c, &g->tensors[g->n_tensors], g->n_tensors, e)) < 0)
			return rc;
	return check_unique(g->tensors, g->n_tensors, sizeof *g->tensors, "tensor", e);
}

int
gguf_parse(struct gguf *g, const struct kv_map *map, struct kv_err *e)
{
	struct cursor c = { .at = map->data, .end = map->data + map->bytes };
	uint64_t n_tensors = 0, n_pairs = 0;
	size_t start;
	int rc;

	if (map->bytes == 0)
		return kv_fail(e, KV_EFORMAT, "the file is empty");
	if ((rc = read_header(g, &c, &n_tensors, &n_pairs, e)) < 0 || (rc = read_pairs(g, &c, n_pairs, e)) < 0 ||
	    (rc = read_alignment(g, e)) < 0 || (rc = read_tensors(g, &c, n_tensors, e)) < 0)
		return rc;
	start = ((size_t)(c.at - map->data) + g->alignment - 1) & ~(g->alignment - 1);
	for (size_t i = 0; i < g->n_tensors; i++)
		if ((rc = place(&g->tensors[i], map, start, g->alignment, e)) < 0)
			return rc;
	return KV_OK;
}

void
gguf_fini(struct gguf *g)
{
	if (g == NULL)
		return;
	free(g->pairs);
	free(g->tensors);
	*g = (struct gguf){ 0 };
}

const struct gguf_value *
gguf_find(const struct gguf *g, const char *key)
{
	for (size_t i = 0; i < g->n_pairs; i++)
		if (strcmp(g->pairs[i].key, key) == 0)
			return &g->pairs[i].value;
	return NULL;
}

const struct gguf_tensor *
gguf_find_tensor(const struct gguf *g, const char *name)
{
	for (size_t i = 0; i < g->n_tensors; i++)
		if (strcmp(g->tensors[i].name, name) == 0)
			return &g->tensors[i];
	return NULL;
}
