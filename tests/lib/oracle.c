/* SPDX-License-Identifier: MIT */
#include "tests/lib/oracle.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/oracle"

const char *const oracle_scores[] = { "s005_mha_w2", "s005_mha_w8", "s032_mha_w32", "s033_mha_w32", "s048_mha_flat",
	"s064_mha_dupkeys", "s130_gqa3_peaky", "s257_gqa4_onehead", "s300_mha_peaky", "s600_gqa4_peaky", NULL };

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* Little-endian number of n bytes. */
static size_t
le(const unsigned char *p, unsigned n)
{
	size_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

/* A whole file, NULL if it does not exist. */
static unsigned char *
slurp(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	unsigned char *p;
	long size;

	if (f == NULL)
		return NULL;
	if (fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0 || (p = malloc((size_t)size + 1)) == NULL)
		die("%s: cannot read", path);
	rewind(f);
	if (fread(p, 1, (size_t)size, f) != (size_t)size)
		die("%s: cannot read", path);
	fclose(f);
	*n = (size_t)size;
	return p;
}

/* .npy 1.0: magic (6), version (2), header length (2), header as a Python literal, values. */
static void
read_npy(struct oracle_array *a, const unsigned char *p, size_t n)
{
	size_t head = n > 10 ? 10 + le(p + 8, 2) : n, count = 1;
	char text[256] = "", *s;

	if (head >= n + 1 || head - 10 >= sizeof text || memcmp(p, "\x93NUMPY\1", 7) != 0)
		die("%s: not a .npy 1.0 member", a->name);
	memcpy(text, p + 10, head - 10);
	s = strstr(text, "'shape': (");
	if (strstr(text, "'descr': '<f4'") == NULL || strstr(text, "'fortran_order': False") == NULL || s == NULL)
		die("%s: not little-endian f32 in C order", a->name);
	for (s += strlen("'shape': ("); *s != ')' && a->n_axes < 4; s += strspn(s, ", ")) {
		a->shape[a->n_axes] = strtoul(s, &s, 10);
		count *= a->shape[a->n_axes++];
	}
	if (n - head != count * sizeof(float) || (a->data = malloc(count * sizeof(float) + 1)) == NULL)
		die("%s: %zu values expected", a->name, count);
	memcpy(a->data, p + head, count * sizeof(float));
}

/* Stored members of a zip file, by their local headers. */
static void
read_npz(struct oracle *o, const unsigned char *p, size_t n, const char *path)
{
	for (size_t at = 0; at + 30 < n && le(p + at, 4) == 0x04034b50;) {
		size_t name_n = le(p + at + 26, 2), size = le(p + at + 18, 4),
		       data = at + 30 + name_n + le(p + at + 28, 2);
		struct oracle_array *a;

		if (le(p + at + 8, 2) != 0 || data > n || size > n - data || name_n < 4 || name_n - 4 >= sizeof a->name)
			die("%s: not a zip file of stored members", path);
		if ((o->arrays = realloc(o->arrays, (o->n_arrays + 1) * sizeof *a)) == NULL)
			die("out of memory");
		a = &o->arrays[o->n_arrays++];
		*a = (struct oracle_array){ 0 };
		memcpy(a->name, p + at + 30, name_n - 4); /* without .npy */
		read_npy(a, p + data, size);
		at = data + size;
	}
}

/* JSON text with integers of 19 digits and more as strings; free() the result. */
static char *
quote_large(const char *p, size_t n, size_t *out_n)
{
	char *out = malloc(2 * n + 1), *to = out;

	if (out == NULL)
		die("out of memory");
	for (size_t i = 0, digits; i < n; i += digits > 0 ? digits : 1) {
		for (digits = 0; i + digits < n && isdigit((unsigned char)p[i + digits]); digits++)
			;
		if (digits >= 19 && i > 0 && strchr("[,: ", p[i - 1]) != NULL && i + digits < n &&
		    strchr("],} ", p[i + digits]) != NULL) {
			to += sprintf(to, "\"%.*s\"", (int)digits, p + i);
		} else {
			memcpy(to, p + i, digits > 0 ? digits : 1);
			to += digits > 0 ? digits : 1;
		}
	}
	*out_n = (size_t)(to - out);
	return out;
}

static json_t *
read_json(const char *path)
{
	size_t n, text_n;
	char *bytes = (char *)slurp(path, &n), *text;
	json_error_t why;
	json_t *x;

	if (bytes == NULL)
		die("%s: no such file (tests run in the repository's root)", path);
	text = quote_large(bytes, n, &text_n);
	if ((x = json_loadb(text, text_n, 0, &why)) == NULL)
		die("%s: %s", path, why.text);
	free(text);
	free(bytes);
	return x;
}

/* ---- which results there are, and which have been compared */

/* Keys of records that a test goes by, not results. */
static const char *const given[] = { "B", "C", "H", "L", "S", "W", "base", "beta", "cake_preference", "head",
	"head_scores", "heads", "inv_sqrt_n", "kl_arg", "layer", "n", "n_random", "n_sink", "n_recent", "pred", "scores",
	"seed", "temperature", NULL };

static bool
is_given(const char *key)
{
	for (const char *const *k = given; *k != NULL; k++)
		if (strcmp(*k, key) == 0)
			return true;
	return false;
}

/* What a record is as a whole; NULL: its keys are results of their own. */
static const char *
whole(const json_t *record)
{
	const char *method = json_string_value(json_object_get(record, "method"));

	return method != NULL ? method : json_string_value(json_object_get(record, "tag"));
}

static void
note(const char *verb, const struct oracle *o, size_t record, const char *what)
{
	FILE *f = fopen(getenv("KV_ORACLE_LOG"), "a");

	if (f == NULL || fprintf(f, "%s %s %zu %s\n", verb, oracle_text(o->meta, "name"), record, what) < 0 ||
	    fclose(f) != 0)
		die("cannot write to $KV_ORACLE_LOG");
}

static void
note_all(const struct oracle *o)
{
	const json_t *r, *value;
	const char *key;
	size_t i;

	json_array_foreach (oracle_results(o), i, r) {
		if (whole(r) != NULL)
			note("holds", o, i, whole(r));
		else
			json_object_foreach ((json_t *)r, key, value)
				if (!is_given(key))
					note("holds", o, i, key);
	}
}

void
oracle_checked(const struct oracle *o, const json_t *record, const char *what)
{
	const json_t *r;
	size_t i;

	if (getenv("KV_ORACLE_LOG") == NULL)
		return;
	json_array_foreach (oracle_results(o), i, r)
		if (r == record)
			note("checked", o, i, what != NULL ? what : whole(r));
}

/* ---- */

void
oracle_open(struct oracle *o, const char *name)
{
	const char *folder = getenv("KV_ORACLE") != NULL ? getenv("KV_ORACLE") : FOLDER;
	unsigned char *bytes;
	char path[256];
	size_t n;

	*o = (struct oracle){ 0 };
	snprintf(path, sizeof path, "%s/%s.json", folder, name);
	o->meta = read_json(path);
	if (getenv("KV_ORACLE_LOG") != NULL)
		note_all(o);
	snprintf(path, sizeof path, "%s/%s.npz", folder, name);
	if ((bytes = slurp(path, &n)) != NULL)
		read_npz(o, bytes, n, path);
	free(bytes);
}

void
oracle_fini(struct oracle *o)
{
	for (size_t i = 0; i < o->n_arrays; i++)
		free(o->arrays[i].data);
	free(o->arrays);
	json_decref(o->meta);
	*o = (struct oracle){ 0 };
}

const json_t *
oracle_results(const struct oracle *o)
{
	return json_object_get(o->meta, "results");
}

const struct oracle_array *
oracle_array(const struct oracle *o, const char *name)
{
	for (size_t i = 0; i < o->n_arrays; i++)
		if (strcmp(o->arrays[i].name, name) == 0)
			return &o->arrays[i];
	die("no array %s", name);
}

size_t
oracle_size(const json_t *record, const char *key)
{
	const json_t *x = json_object_get(record, key);

	if (!json_is_integer(x))
		die("no number %s", key);
	return (size_t)json_integer_value(x);
}

const char *
oracle_text(const json_t *record, const char *key)
{
	const char *s = json_string_value(json_object_get(record, key));

	if (s == NULL)
		die("no text %s", key);
	return s;
}

uint64_t
oracle_u64(const json_t *value)
{
	return json_is_string(value) ? strtoull(json_string_value(value), NULL, 10) :
				       (uint64_t)json_integer_value(value);
}

float
oracle_float(const json_t *value)
{
	return json_is_string(value) ? strtof(json_string_value(value), NULL) : (float)json_number_value(value);
}

int
oracle_equals(const json_t *list, const int32_t *x, size_t n)
{
	if (json_array_size(list) != n)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (json_integer_value(json_array_get(list, i)) != x[i])
			return 0;
	return 1;
}
