/* SPDX-License-Identifier: MIT */
#include "formats/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "formats/format.h"
#include "formats/safetensors.h"
#include "lib/buf.h"
#include "lib/checksum.h"

#define MARK "kvtrain" /* the metadata key that makes a safetensors file a checkpoint; its value is the version */

static const char *const names[KV_CHECKPOINT_PARTS] = { "parameters", "adam.m", "adam.v", "best" };

/* Of the header and the parts, one behind the other, into the header. */
static int
put_sum(struct kv_buf *header, float *const *parts, size_t n, struct kv_err *e)
{
	struct kv_summing *s = kv_summing_new(e);

	if (s == NULL)
		return KV_EMEM;
	kv_summing_add(s, header->data, header->n);
	for (size_t i = 0; i < KV_CHECKPOINT_PARTS; i++)
		kv_summing_add(s, parts[i], n * sizeof(float));
	safetensors_put_sum(header, kv_summing_get(s));
	kv_summing_free(s);
	return KV_OK;
}

static int
put_header(const json_t *state, size_t n, struct kv_buf *b, struct kv_err *e)
{
	const size_t bytes = n * sizeof(float);
	char *inner = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
	json_t *o = json_pack("{s:{s:s s:s s:s}}", "__metadata__", MARK, "1", "state", inner != NULL ? inner : "",
	    SAFETENSORS_SUM, SAFETENSORS_NO_SUM);
	int bad = o == NULL || inner == NULL, rc;

	for (size_t i = 0; i < KV_CHECKPOINT_PARTS && !bad; i++)
		bad = json_object_set_new(o, names[i],
		    json_pack("{s:s s:[I] s:[II]}", "dtype", "F32", "shape", (json_int_t)n, "data_offsets",
			(json_int_t)(i * bytes), (json_int_t)((i + 1) * bytes)));
	rc = bad ? kv_no_memory(e, n) : safetensors_put_header(o, b, e);
	free(inner);
	json_decref(o);
	return rc;
}

int
kv_checkpoint_write(
    const char *path, const json_t *state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e)
{
	struct kv_buf header = { 0 };
	struct kv_outfile f;
	int rc = kv_outfile_open(&f, path, e);

	if (rc < 0)
		return rc;
	if ((rc = put_header(state, n, &header, e)) == KV_OK && (rc = put_sum(&header, parts, n, e)) == KV_OK)
		rc = kv_write_all(f.fd, header.data, header.n, e);
	for (size_t i = 0; i < KV_CHECKPOINT_PARTS && rc == KV_OK; i++)
		rc = kv_write_all(f.fd, parts[i], n * sizeof(float), e);
	kv_buf_fini(&header);
	if (rc == KV_OK)
		return kv_outfile_finish(&f, e);
	kv_outfile_drop(&f);
	return kv_where(e, "%s", path);
}

/* ---- reading */

struct taking {
	float *const *parts;
	size_t n, found;
};

static int
take(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	struct taking *t = ctx;

	for (size_t i = 0; i < KV_CHECKPOINT_PARTS; i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		if (w->type != KVK_F32 || w->rows != 1 || w->cols != t->n)
			return kv_fail(e, KV_EFORMAT,
			    "%s has %zu numbers, this module has %zu: is it of another training?", name,
			    w->rows * w->cols, t->n);
		memcpy(t->parts[i], w->data, t->n * sizeof(float));
		t->found |= (size_t)1 << i;
	}
	return KV_OK;
}

/* What the metadata say, new reference. */
static int
read_state(const struct kv_map *map, json_t **state, struct kv_err *e)
{
	const char *text;
	json_t *metadata;
	int rc = safetensors_metadata(map, &metadata, e);

	*state = NULL;
	if (rc < 0)
		return rc;
	text = json_string_value(json_object_get(metadata, "state"));
	if (text != NULL)
		*state = json_loads(text, 0, NULL);
	if (json_object_get(metadata, MARK) == NULL)
		rc = kv_fail(e, KV_EFORMAT, "no checkpoint of kv-train");
	else if (text == NULL || json_object_get(metadata, SAFETENSORS_SUM) == NULL)
		rc = kv_fail(e, KV_EFORMAT, "the checkpoint is damaged: no %s in its metadata",
		    text == NULL ? "state" : SAFETENSORS_SUM);
	else if (!json_is_object(*state))
		rc = kv_fail(e, KV_EFORMAT, "the checkpoint is damaged: its state is no JSON object");
	if (rc < 0) {
		json_decref(*state);
		*state = NULL;
	}
	json_decref(metadata);
	return rc;
}

static int
read_map(const struct kv_map *map, json_t **state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e)
{
	struct taking t = { parts, n, 0 };
	int rc = read_state(map, state, e);

	if (rc == KV_OK && (rc = safetensors_each(map, NULL, take, &t, e)) == KV_OK &&
	    (rc = safetensors_check_sum(map, e)) == KV_OK && t.found != ((size_t)1 << KV_CHECKPOINT_PARTS) - 1)
		rc = kv_fail(e, KV_EFORMAT, "the checkpoint is damaged: some numbers are missing");
	if (rc < 0) {
		json_decref(*state);
		*state = NULL;
	}
	return rc;
}

int
kv_checkpoint_read(
    const char *path, json_t **state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e)
{
	struct kv_map map = { 0 };
	int rc = kv_map_open(&map, path, e);

	*state = NULL;
	if (rc < 0)
		return rc;
	rc = read_map(&map, state, parts, n, e);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

/* ---- inspection */

static bool
checkpoint_probe(const char *path)
{
	return safetensors_has_key(path, MARK);
}

static int
checkpoint_metadata(const char *path, json_t **out, struct kv_err *e)
{
	struct kv_map map = { 0 };
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	rc = read_state(&map, out, e);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

const struct kv_format kv_format_checkpoint = {
	.name = "checkpoint",
	.brief = "a training between two steps: kv-train --resume goes on from it",
	.probe = checkpoint_probe,
	.tensors = safetensors_show,
	.metadata = checkpoint_metadata,
};
