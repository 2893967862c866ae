/* SPDX-License-Identifier: MIT */
#include "formats/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "formats/safetensors.h"
#include "lib/buf.h"

#define ALIGN 64 /* bytes: where the data begins */

static const char *const names[KV_CHECKPOINT_PARTS] = { "parameters", "adam.m", "adam.v", "best" };

/* XXH3-64 of the parts, one behind the other. */
static int
sum_of(const float *const *parts, size_t n, char hex[17], struct kv_err *e)
{
	XXH3_state_t *s = XXH3_createState();

	if (s == NULL)
		return kv_no_memory(e, sizeof(float));
	XXH3_64bits_reset(s);
	for (size_t i = 0; i < KV_CHECKPOINT_PARTS; i++)
		XXH3_64bits_update(s, parts[i], n * sizeof(float));
	snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(s));
	XXH3_freeState(s);
	return KV_OK;
}

static int
header_of(const json_t *state, const char *hex, size_t n, struct kv_buf *b, struct kv_err *e)
{
	const size_t bytes = n * sizeof(float);
	char *inner = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)), *text = NULL;
	json_t *o = json_pack(
	    "{s:{s:s s:s s:s}}", "__metadata__", "kvtrain", "1", "state", inner != NULL ? inner : "", "xxh3", hex);
	unsigned char length[8];
	size_t size, padded;
	int bad = o == NULL || inner == NULL, rc;

	for (size_t i = 0; i < KV_CHECKPOINT_PARTS && !bad; i++)
		bad = json_object_set_new(o, names[i],
		    json_pack("{s:s s:[I] s:[II]}", "dtype", "F32", "shape", (json_int_t)n, "data_offsets",
			(json_int_t)(i * bytes), (json_int_t)((i + 1) * bytes)));
	if (bad || (text = json_dumps(o, JSON_COMPACT)) == NULL) {
		rc = kv_no_memory(e, n);
		goto done;
	}
	size = strlen(text);
	padded = (size + 8 + ALIGN - 1) / ALIGN * ALIGN - 8;
	for (size_t i = 0; i < 8; i++)
		length[i] = (unsigned char)(padded >> 8 * i);
	if ((rc = kv_buf_add(b, length, 8, e)) == KV_OK && (rc = kv_buf_add(b, text, size, e)) == KV_OK)
		rc = kv_buf_printf(b, e, "%*s", (int)(padded - size), "");
done:
	free(text);
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
	char hex[17];
	int rc = kv_outfile_open(&f, path, e);

	if (rc < 0)
		return rc;
	if ((rc = sum_of((const float *const *)parts, n, hex, e)) == KV_OK &&
	    (rc = header_of(state, hex, n, &header, e)) == KV_OK)
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

static int
read_map(const struct kv_map *map, json_t **state, float *const parts[KV_CHECKPOINT_PARTS], size_t n, struct kv_err *e)
{
	struct taking t = { parts, n, 0 };
	const char *text, *sum;
	json_t *metadata;
	char hex[17];
	int rc = safetensors_metadata(map, &metadata, e);

	if (rc < 0)
		return rc;
	text = json_string_value(json_object_get(metadata, "state"));
	sum = json_string_value(json_object_get(metadata, "xxh3"));
	if (json_object_get(metadata, "kvtrain") == NULL || text == NULL || sum == NULL)
		rc = kv_fail(e, KV_EFORMAT, "no checkpoint of kv-train");
	else if ((rc = safetensors_each(map, NULL, take, &t, e)) == KV_OK &&
		 (rc = sum_of((const float *const *)parts, n, hex, e)) == KV_OK &&
		 (t.found != ((size_t)1 << KV_CHECKPOINT_PARTS) - 1 || strcmp(sum, hex) != 0))
		rc = kv_fail(e, KV_EFORMAT, "the checkpoint is damaged");
	if (rc == KV_OK)
		*state = json_loads(text, 0, NULL);
	if (rc == KV_OK && !json_is_object(*state)) {
		json_decref(*state);
		*state = NULL;
		rc = kv_fail(e, KV_EFORMAT, "the checkpoint is damaged");
	}
	json_decref(metadata);
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
