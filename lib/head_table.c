/* SPDX-License-Identifier: MIT */
#include "lib/head_table.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/file.h"

#define FILE_MAX ((size_t)256 << 20)
#define SIDE_MAX 65536 /* layers, and heads */

void
kv_head_table_fini(struct kv_head_table *t)
{
	free(t->x);
	*t = (struct kv_head_table){ 0 };
}

/* L x H numbers that are not there yet. */
static int
table_init(struct kv_head_table *t, size_t L, size_t H, struct kv_err *e)
{
	if (L == 0 || H == 0 || L > SIDE_MAX || H > SIDE_MAX)
		return kv_fail(e, KV_EFORMAT, "expected numbers of 1 to %d layers with as many heads, got %zu and %zu",
		    SIDE_MAX, L, H);
	t->L = L;
	t->H = H;
	if ((t->x = kv_alloc(L * H, sizeof *t->x, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < L * H; i++)
		t->x[i] = NAN;
	return KV_OK;
}

/* ---- JSON */

/* A number, or the mean of a list of them; NaN for anything else. */
static double
number_of(const json_t *v)
{
	double sum = 0;
	size_t i;
	const json_t *one;

	if (json_is_number(v))
		return json_number_value(v);
	json_array_foreach(v, i, one) sum += json_is_number(one) ? json_number_value(one) : NAN;
	return sum / (double)json_array_size(v);
}

/* "LAYER-HEAD" */
static int
parse_key(const char *key, size_t *l, size_t *h, struct kv_err *e)
{
	char *end = NULL;

	*l = key[0] >= '0' && key[0] <= '9' ? strtoul(key, &end, 10) : SIZE_MAX;
	*h = end != NULL && end[0] == '-' && end[1] >= '0' && end[1] <= '9' ? strtoul(end + 1, &end, 10) : SIZE_MAX;
	if (*l >= SIDE_MAX || *h >= SIDE_MAX || *end != 0)
		return kv_fail(e, KV_EFORMAT, "key '%.40s': expected LAYER-HEAD, as 0-3", key);
	return KV_OK;
}

static int
from_object(struct kv_head_table *t, json_t *o, struct kv_err *e)
{
	size_t L = 0, H = 0, l, h;
	const char *key;
	json_t *v;
	int rc;

	json_object_foreach(o, key, v)
	{
		if ((rc = parse_key(key, &l, &h, e)) < 0)
			return rc;
		L = l >= L ? l + 1 : L;
		H = h >= H ? h + 1 : H;
	}
	if (L * H > json_object_size(o))
		return kv_fail(
		    e, KV_EFORMAT, "%zu heads, where %zu layers of %zu heads are named", json_object_size(o), L, H);
	if ((rc = table_init(t, L, H, e)) < 0)
		return rc;
	json_object_foreach(o, key, v)
	{
		if ((rc = parse_key(key, &l, &h, e)) < 0)
			return rc;
		t->x[l * H + h] = number_of(v);
	}
	return KV_OK;
}

static int
from_array(struct kv_head_table *t, const json_t *rows, struct kv_err *e)
{
	const size_t L = json_array_size(rows), H = json_array_size(json_array_get(rows, 0));
	const json_t *row;
	size_t l;
	int rc;

	if ((rc = table_init(t, L, H, e)) < 0)
		return rc;
	json_array_foreach(rows, l, row)
	{
		if (json_array_size(row) != H)
			return kv_fail(
			    e, KV_EFORMAT, "layer %zu has %zu numbers, layer 0 has %zu", l, json_array_size(row), H);
		for (size_t h = 0; h < H; h++)
			t->x[l * H + h] = number_of(json_array_get(row, h));
	}
	return KV_OK;
}

static int
from_json(struct kv_head_table *t, const struct kv_buf *b, struct kv_err *e)
{
	json_error_t why;
	json_t *o = json_loadb(b->data, b->n, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
	int rc;

	if (o == NULL)
		return kv_fail(e, KV_EFORMAT, "line %d: %s", why.line, why.text);
	rc = json_is_object(o) ? from_object(t, o, e) : from_array(t, o, e);
	json_decref(o);
	return rc;
}

/* ---- text */

#define APART " \t\r,;"

/* The numbers of one line, at most `room` of them into x (NULL: counted only); -1: something else is there. */
static long
parse_line(const char *s, double *x, size_t room)
{
	size_t n = 0;

	for (s += strspn(s, APART); *s != 0 && *s != '#'; s += strspn(s, APART)) {
		char *end;
		const double v = strtod(s, &end);

		if (end == s || strcspn(end, APART "#") != 0)
			return -1;
		if (x != NULL && n < room)
			x[n] = v;
		n++;
		s = end;
	}
	return (long)n;
}

/* Cuts lines in place; *line moves on; NULL behind the last. */
static char *
next_line(char **rest)
{
	char *line = *rest, *end = line != NULL ? strchr(line, '\n') : NULL;

	if (end != NULL)
		*end = 0;
	*rest = end != NULL ? end + 1 : NULL;
	return line;
}

static int
from_text(struct kv_head_table *t, struct kv_buf *b, struct kv_err *e)
{
	size_t L = 0, H = 0, number = 0, l = 0;
	char *copy = strdup(b->data), *rest = copy, *line;
	int rc = KV_OK;

	if (copy == NULL)
		return kv_no_memory(e, b->n);
	while ((line = next_line(&rest)) != NULL && rc == KV_OK) {
		const long n = parse_line(line, NULL, 0);

		number++;
		if (n < 0 || (n > 0 && L > 0 && (size_t)n != H))
			rc = kv_fail(e, KV_EFORMAT, "line %zu: expected %s", number,
			    n < 0 ? "numbers, one per head" : "as many numbers as in the lines before");
		else if (n > 0)
			L++, H = (size_t)n;
	}
	free(copy);
	if (rc < 0 || (rc = table_init(t, L, H, e)) < 0)
		return rc;
	for (rest = b->data; (line = next_line(&rest)) != NULL;)
		if (parse_line(line, NULL, 0) > 0)
			parse_line(line, t->x + l++ * H, H);
	return KV_OK;
}

/* ---- either */

static int
check_values(const struct kv_head_table *t, double min, struct kv_err *e)
{
	for (size_t i = 0; i < t->L * t->H; i++)
		if (!isfinite(t->x[i]) || t->x[i] < min)
			return kv_fail(e, KV_EFORMAT, "layer %zu, head %zu: expected a number%s, got %g", i / t->H,
			    i % t->H, min == 0 ? " of 0 or more" : "", t->x[i]);
	return KV_OK;
}

int
kv_head_table_read(struct kv_head_table *t, const char *path, double min, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	int rc;

	*t = (struct kv_head_table){ 0 };
	if ((rc = kv_file_read(path, FILE_MAX, &b, e)) < 0)
		return rc; /* names the file */
	if (b.n == 0) {
		rc = kv_fail(e, KV_EFORMAT, "the file is empty");
	} else {
		const char first = b.data[strspn(b.data, " \t\r\n")];

		rc = first == '{' || first == '[' ? from_json(t, &b, e) : from_text(t, &b, e);
	}
	if (rc == KV_OK)
		rc = check_values(t, min, e);
	if (rc < 0)
		kv_where(e, "%s", path);
	if (rc < 0)
		kv_head_table_fini(t);
	kv_buf_fini(&b);
	return rc;
}
