/* SPDX-License-Identifier: MIT */
#include "lib/text/ids.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BETWEEN " \t\r\n,"

void
kv_ids_fini(struct kv_ids *ids)
{
	if (ids == NULL)
		return;
	free(ids->v);
	*ids = (struct kv_ids){ 0 };
}

int
kv_ids_add(struct kv_ids *ids, int32_t id, struct kv_err *e)
{
	size_t cap = ids->cap ? 2 * ids->cap : 64;
	int32_t *v;

	if (ids->n == ids->cap) {
		if ((v = realloc(ids->v, cap * sizeof *v)) == NULL)
			return kv_no_memory(e, cap * sizeof *v);
		ids->v = v;
		ids->cap = cap;
	}
	ids->v[ids->n++] = id;
	return KV_OK;
}

int
kv_ids_parse(struct kv_ids *ids, const char *list, struct kv_err *e)
{
	int rc = KV_OK;

	for (const char *s = list; rc == KV_OK && *(s += strspn(s, BETWEEN)) != '\0';) {
		int word = (int)strcspn(s, BETWEEN);
		char *end;
		long long id;

		errno = 0;
		id = strtoll(s, &end, 10);
		if (!isdigit((unsigned char)*s) || end != s + word || errno == ERANGE || id > INT32_MAX)
			return kv_fail(e, KV_EARG, "'%.*s' is not a token id", word < 40 ? word : 40, s);
		rc = kv_ids_add(ids, (int32_t)id, e);
		s = end;
	}
	return rc;
}

int
kv_ids_from_json(struct kv_ids *ids, const json_t *array, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; rc == KV_OK && i < json_array_size(array); i++) {
		const json_t *v = json_array_get(array, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
			return kv_fail(e, KV_EFORMAT, "element %zu is not a token id", i);
		rc = kv_ids_add(ids, (int32_t)json_integer_value(v), e);
	}
	return rc;
}

json_t *
kv_ids_to_json(const struct kv_ids *ids)
{
	json_t *array = json_array();

	for (size_t i = 0; i < ids->n; i++)
		if (json_array_append_new(array, json_integer(ids->v[i])) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

int
kv_ids_check(const struct kv_ids *ids, size_t vocab, size_t first, struct kv_err *e)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->v[i] < 0 || (size_t)ids->v[i] >= vocab)
			return kv_fail(e, KV_EARG, "token id %d at position %zu is outside the vocabulary of %zu",
			    (int)ids->v[i], first + i, vocab);
	return KV_OK;
}
