/* SPDX-License-Identifier: MIT */
#include "formats/responses.h"

#include <stdlib.h>
#include <string.h>

#include "formats/join.h"
#include "formats/stream.h"
#include "lib/buf.h"

struct kv_responses {
	char *path;
	json_t *maps; /* array of the sequences' opening maps */
};

void
kv_responses_free(struct kv_responses *r)
{
	if (r == NULL)
		return;
	json_decref(r->maps);
	free(r->path);
	free(r);
}

/* One record: the header is compared, opening maps are kept. */
static int
take(struct kv_responses *r, const struct kv_record *rec, const json_t *model, struct kv_err *e)
{
	if (rec->kind == KV_RECORD_HEADER)
		return kv_join_models(json_object_get(rec->map, "model"), r->path, model, "the cache", e);
	if (rec->kind == KV_RECORD_SEQUENCE && json_array_append(r->maps, rec->map) < 0)
		return kv_no_memory(e, 1);
	return KV_OK;
}

static int
read_all(struct kv_responses *r, struct kv_reader *reader, const json_t *model, struct kv_err *e)
{
	struct kv_record rec = { 0 };
	int rc;

	while ((rc = kv_reader_next(reader, &rec, e)) == KV_OK) {
		rc = take(r, &rec, model, e);
		kv_record_fini(&rec);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return kv_where(e, "%s", r->path);
	return KV_OK;
}

int
kv_responses_open(struct kv_responses **out, const char *path, const json_t *model, struct kv_err *e)
{
	struct kv_responses *r = kv_alloc(1, sizeof *r, e);
	struct kv_reader *reader = NULL;
	int rc = KV_EMEM;

	*out = NULL;
	if (r == NULL)
		return KV_EMEM;
	if ((r->path = strdup(path)) == NULL || (r->maps = json_array()) == NULL)
		kv_no_memory(e, 1);
	else if ((rc = kv_reader_open(&reader, path, e)) == KV_OK)
		rc = read_all(r, reader, model, e);
	kv_reader_free(reader);
	if (rc < 0)
		kv_responses_free(r);
	else
		*out = r;
	return rc;
}

/* NULL if there is none. */
static const json_t *
find(const struct kv_responses *r, const json_t *id, size_t number)
{
	const json_t *same = json_array_get(r->maps, number), *map;
	size_t i;

	if (id == NULL || json_equal(json_object_get(same, "id"), id))
		return same;
	json_array_foreach (r->maps, i, map)
		if (json_equal(json_object_get(map, "id"), id))
			return map;
	return NULL;
}

static int
missing(const struct kv_responses *r, const json_t *id, size_t number, struct kv_err *e)
{
	char *text = id != NULL ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
	int rc = text != NULL ? kv_fail(e, KV_EARG, "%s has no sequence with the id %s to follow", r->path, text)
			      : kv_fail(e, KV_EARG, "%s has no sequence %zu to follow", r->path, number);

	free(text);
	return rc;
}

int
kv_responses_find(
    const struct kv_responses *r, const json_t *map, size_t number, const json_t **found, struct kv_err *e)
{
	const json_t *id = json_object_get(map, "id");
	int rc;

	if ((*found = find(r, id, number)) == NULL)
		return missing(r, id, number, e);
	if ((rc = kv_join_sequences(*found, r->path, map, "the cache", number, e)) < 0)
		return rc;
	if (!json_is_array(json_object_get(*found, "response")))
		return kv_fail(e, KV_EARG, "%s has no response to follow: kv-decode -o writes it", r->path);
	return KV_OK;
}
