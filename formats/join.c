/* SPDX-License-Identifier: MIT */
#include "formats/join.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value as a message shows it: JSON, cut short. */
static void
spell(const json_t *v, char out[64])
{
	char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

	snprintf(out, 64, "%.60s%s", text ? text : "?", text && strnlen(text, 61) > 60 ? ".." : "");
	free(text);
}

/* Nothing to compare: a key that one side lacks, or left empty. */
static bool
is_unknown(const json_t *v)
{
	return v == NULL || (json_is_string(v) && json_string_length(v) == 0);
}

int
kv_join_models(const json_t *a, const char *a_file, const json_t *b, const char *b_file, struct kv_err *e)
{
	char of_a[64], of_b[64];
	const char *key;
	json_t *v, *w;

	json_object_foreach((json_t *)a, key, v) {
		/* the same weights may have been opened under another name */
		w = json_object_get(b, key);
		if (strcmp(key, "name") == 0 || is_unknown(v) || is_unknown(w) || json_equal(v, w))
			continue;
		spell(v, of_a);
		spell(w, of_b);
		return kv_fail(e, KV_EMODEL, "%s and %s come from different models: %s is %s and %s", a_file, b_file,
		    key, of_a, of_b);
	}
	return KV_OK;
}

static int
compare_tokens(const json_t *a, const char *a_file, const json_t *b, const char *b_file, size_t number,
    struct kv_err *e)
{
	size_t n = json_array_size(a), m = json_array_size(b);
	json_int_t x, y;

	for (size_t i = 0; i < n && i < m; i++) {
		x = json_integer_value(json_array_get(a, i));
		y = json_integer_value(json_array_get(b, i));
		if (x != y)
			return kv_fail(e, KV_EMODEL, "different prompts: sequence %zu, token %zu: %" JSON_INTEGER_FORMAT
			    " in %s, %" JSON_INTEGER_FORMAT " in %s", number, i, x, a_file, y, b_file);
	}
	if (n != m)
		return kv_fail(e, KV_EMODEL, "different prompts: sequence %zu: %zu tokens in %s, %zu in %s", number, n,
		    a_file, m, b_file);
	return KV_OK;
}

int
kv_join_sequences(const json_t *a, const char *a_file, const json_t *b, const char *b_file, size_t number,
    struct kv_err *e)
{
	const json_t *x = json_object_get(a, "prompt_length"), *y = json_object_get(b, "prompt_length");
	int rc = compare_tokens(json_object_get(a, "tokens"), a_file, json_object_get(b, "tokens"), b_file, number, e);

	if (rc < 0 || x == NULL || y == NULL || json_equal(x, y))
		return rc;
	return kv_fail(e, KV_EMODEL, "different prompts: sequence %zu: prompt_length %" JSON_INTEGER_FORMAT " in %s, %"
	    JSON_INTEGER_FORMAT " in %s", number, json_integer_value(x), a_file, json_integer_value(y), b_file);
}

static bool
has(const json_t *array, const json_t *v)
{
	for (size_t i = 0; i < json_array_size(array); i++)
		if (json_equal(json_array_get(array, i), v))
			return true;
	return false;
}

int
kv_join_history(json_t *all, const json_t *more, struct kv_err *e)
{
	for (size_t i = 0; i < json_array_size(more); i++) {
		json_t *entry = json_array_get(more, i);

		if (!has(all, entry) && json_array_append(all, entry) < 0)
			return kv_no_memory(e, sizeof *entry);
	}
	return KV_OK;
}

int
kv_join_maps(json_t *map, const json_t *more, struct kv_err *e)
{
	json_t *from = (json_t *)more; /* jansson's iterators want it so; nothing is changed */
	int rc = KV_OK;

	for (void *i = json_object_iter(from); i != NULL && rc == KV_OK; i = json_object_iter_next(from, i)) {
		const char *key = json_object_iter_key(i);
		size_t n = json_object_iter_key_len(i);
		json_t *mine = json_object_getn(map, key, n), *theirs = json_object_iter_value(i);

		if (mine == NULL && json_object_setn_nocheck(map, key, n, theirs) < 0)
			rc = kv_no_memory(e, n);
		else if (json_is_object(mine) && json_is_object(theirs))
			rc = kv_join_maps(mine, theirs, e);
	}
	return rc;
}
