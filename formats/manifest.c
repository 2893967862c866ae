/* SPDX-License-Identifier: MIT */
#include "formats/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "formats/archive.h"
#include "formats/compressed.h"
#include "formats/record.h"
#include "lib/show/show.h"

#define MANIFEST_VERSION 1
#define CHUNK            ((size_t)1 << 16)

/* ---- bytes and their checksum */

int
kv_hash_init(struct kv_hash *h, kv_pull *pull, void *ctx, struct kv_err *e)
{
	*h = (struct kv_hash){ .pull = pull, .ctx = ctx, .state = XXH3_createState() };
	if (h->state == NULL)
		return kv_no_memory(e, 0);
	XXH3_128bits_reset(h->state);
	return KV_OK;
}

int
kv_hash_pull(void *hash, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct kv_hash *h = hash;
	int rc = h->pull(h->ctx, dst, n, got, e);

	if (rc < 0)
		return rc;
	XXH3_128bits_update(h->state, dst, *got);
	h->bytes += *got;
	return KV_OK;
}

int
kv_hash_rest(struct kv_hash *h, struct kv_err *e)
{
	char *chunk = malloc(CHUNK);
	size_t got = 1;
	int rc = chunk != NULL ? KV_OK : kv_no_memory(e, CHUNK);

	while (rc == KV_OK && got > 0)
		rc = kv_hash_pull(h, chunk, CHUNK, &got, e);
	free(chunk);
	return rc;
}

void
kv_hash_text(const struct kv_hash *h, char text[33])
{
	XXH128_hash_t sum = XXH3_128bits_digest(h->state);

	snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64, (uint64_t)sum.low64);
}

void
kv_hash_fini(struct kv_hash *h)
{
	XXH3_freeState(h->state);
	*h = (struct kv_hash){ 0 };
}

/* ---- one file */

static bool
has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && strcmp(name + n - m, suffix) == 0;
}

static bool
is_stream_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	if (has_suffix(name, ".kv"))
		return true;
	return kv_compressed_name(name) && dot != NULL && dot - name > 3 && strncmp(dot - 3, ".kv", 3) == 0;
}

/* The header's part of a description. */
static int
add_header(json_t *file, const json_t *header, struct kv_err *e)
{
	const json_t *model = json_object_get(header, "model");
	const char *const keys[][2] = { { "model", "name" }, { "fingerprint", "fingerprint" } };
	json_t *history = json_object_get(header, "history");

	for (size_t i = 0; i < 2; i++) {
		json_t *value = json_object_get(model, keys[i][1]);

		if (json_is_string(value) && json_object_set(file, keys[i][0], value) < 0)
			return kv_no_memory(e, 0);
	}
	if (history == NULL ? json_object_set_new(file, "history", json_array()) < 0
			    : json_object_set(file, "history", history) < 0)
		return kv_no_memory(e, 0);
	return KV_OK;
}

/* Through the End record; every payload is compared with its checksum, one at a time. */
static int
walk_stream(struct kv_reader *r, json_t *facts, struct kv_err *e)
{
	struct kv_record rec = { 0 };
	json_int_t n = 0;
	int rc;

	while ((rc = kv_reader_next(r, &rec, e)) == KV_OK) {
		if (rec.kind == KV_RECORD_HEADER)
			rc = add_header(facts, rec.map, e);
		else if (rec.kind == KV_RECORD_TENSOR)
			rc = kv_reader_payload(r, &rec.tensor, e);
		n += rec.kind == KV_RECORD_SEQUENCE;
		kv_record_fini(&rec);
		if (rc < 0)
			return rc;
	}
	if (rc == KV_END && (json_object_set_new(facts, "sequences", json_integer(n)) < 0 ||
				json_object_set_new(facts, "complete", json_true()) < 0))
		return kv_no_memory(e, 0);
	return rc == KV_END ? KV_OK : rc;
}

/* KV_END: not a stream; how far it was read does not matter. */
static int
look_into(const char *name, struct kv_hash *h, json_t *facts, struct kv_err *e)
{
	struct kv_source src;
	struct kv_reader *r = NULL;
	int rc = kv_source_of(&src, name, kv_hash_pull, h, e);

	if (rc == KV_OK && (rc = kv_source_expand(&src, e)) < 0)
		kv_where(e, "%s", name);
	if (rc < 0)
		kv_source_close(&src);
	else
		rc = kv_reader_take(&r, &src, e);
	if (rc == KV_EFORMAT && !is_stream_name(name))
		return KV_END;
	if (rc == KV_OK)
		rc = walk_stream(r, facts, e);
	kv_reader_free(r);
	return rc;
}

int
kv_manifest_look(const char *name, kv_pull *pull, void *ctx, json_t **file, struct kv_err *e)
{
	json_t *facts = json_object();
	struct kv_hash h;
	bool is_stream;
	char sum[33];
	int rc = kv_hash_init(&h, pull, ctx, e);

	*file = NULL;
	if (rc < 0 || (rc = look_into(name, &h, facts, e)) < 0)
		goto done;
	is_stream = rc == KV_OK;
	if ((rc = kv_hash_rest(&h, e)) < 0)
		goto done;
	kv_hash_text(&h, sum);
	*file = json_pack("{s:s, s:I, s:s, s:s}", "name", name, "bytes", (json_int_t)h.bytes, "xxh3_128", sum, "kind",
	    is_stream ? "stream" : "other");
	if (*file == NULL || facts == NULL || (is_stream && json_object_update(*file, facts) < 0)) {
		json_decref(*file);
		*file = NULL;
		rc = kv_no_memory(e, 0);
	}
done:
	json_decref(facts);
	kv_hash_fini(&h);
	return rc;
}

/* ---- all files */

json_t *
kv_manifest_new(void)
{
	return json_pack("{s:i, s:s, s:i, s:[]}", "kvpack", MANIFEST_VERSION, "kvtools", KV_VERSION, "kvstream",
	    KV_STREAM_VERSION, "files");
}

int
kv_manifest_add(json_t *manifest, json_t *file, struct kv_err *e)
{
	return json_array_append_new(json_object_get(manifest, "files"), file) < 0 ? kv_no_memory(e, 0) : KV_OK;
}

const json_t *
kv_manifest_find(const json_t *manifest, const char *name)
{
	const json_t *file;
	size_t i;

	json_array_foreach (json_object_get(manifest, "files"), i, file)
		if (strcmp(json_string_value(json_object_get(file, "name")), name) == 0)
			return file;
	return NULL;
}

int
kv_manifest_text(const json_t *manifest, struct kv_buf *out, struct kv_err *e)
{
	struct kv_show s = { 0 };
	const char *key;
	json_t *value, *file;
	size_t i;

	json_object_foreach ((json_t *)manifest, key, value)
		if (!json_is_array(value)) {
			kv_say(&s, "%s\"%s\": ", s.out.n > 0 ? ",\n " : "{", key);
			kv_say_json(&s, json_incref(value));
			s.out.n -= s.rc == KV_OK;
		}
	kv_say(&s, ",\n \"files\": [");
	json_array_foreach (json_object_get(manifest, "files"), i, file) {
		kv_say(&s, "%s\n  ", i > 0 ? "," : "");
		kv_say_json(&s, json_incref(file));
		s.out.n -= s.rc == KV_OK; /* the line end behind it */
	}
	kv_say(&s, "\n ]}\n");
	if (s.rc == KV_OK)
		s.rc = kv_buf_add(out, s.out.data, s.out.n, &s.err);
	if (s.rc < 0)
		kv_fail(e, s.err.code, "%s", s.err.text);
	kv_buf_fini(&s.out);
	return s.rc;
}

static int
check_file(const json_t *file, json_t *seen, struct kv_err *e)
{
	const char *name = json_string_value(json_object_get(file, "name"));
	const char *sum = json_string_value(json_object_get(file, "xxh3_128"));
	const char *unsafe = name != NULL ? kv_archive_unsafe(name) : "is missing";

	if (unsafe != NULL)
		return kv_fail(e, KV_EFORMAT, "a file's name '%.200s' %s", name != NULL ? name : "", unsafe);
	if (json_object_get(seen, name) != NULL || strcmp(name, KV_MANIFEST_NAME) == 0)
		return kv_fail(e, KV_EFORMAT, "%.200s is there twice", name);
	if (sum == NULL || strlen(sum) != 32 || json_integer_value(json_object_get(file, "bytes")) < 0 ||
	    !json_is_integer(json_object_get(file, "bytes")) || !json_is_string(json_object_get(file, "kind")))
		return kv_fail(e, KV_EFORMAT, "%.200s: expected bytes, xxh3_128 and kind", name);
	return json_object_set_new(seen, name, json_true()) < 0 ? kv_no_memory(e, 0) : KV_OK;
}

int
kv_manifest_parse(json_t **out, const char *text, size_t n, struct kv_err *e)
{
	json_error_t fault;
	json_t *manifest = json_loadb(text, n, JSON_REJECT_DUPLICATES, &fault), *files, *file;
	json_t *seen = json_object();
	size_t i;
	int rc = KV_OK;

	*out = NULL;
	files = json_object_get(manifest, "files");
	if (manifest == NULL)
		rc = kv_fail(e, KV_EFORMAT, "not JSON (line %d: %s)", fault.line, fault.text);
	else if (json_integer_value(json_object_get(manifest, "kvpack")) != MANIFEST_VERSION || !json_is_array(files))
		rc = kv_fail(e, KV_EFORMAT, "not a manifest of kv-pack, version %d", MANIFEST_VERSION);
	json_array_foreach (files, i, file)
		if (rc == KV_OK)
			rc = check_file(file, seen, e);
	json_decref(seen);
	if (rc < 0)
		json_decref(manifest);
	else
		*out = manifest;
	return rc;
}

/* ---- comparing */

static int
compare_sums(const json_t *file, uint64_t bytes, const char *sum, struct kv_err *e)
{
	json_int_t want = json_integer_value(json_object_get(file, "bytes"));
	const char *want_sum = json_string_value(json_object_get(file, "xxh3_128"));

	if (want < 0 || (uint64_t)want != bytes)
		return kv_fail(
		    e, KV_EFORMAT, "has %" PRIu64 " bytes, the manifest says %" JSON_INTEGER_FORMAT, bytes, want);
	if (strcmp(want_sum, sum) != 0)
		return kv_fail(e, KV_EFORMAT, "was damaged or replaced: its checksum is %s, the manifest says %.32s",
		    sum, want_sum);
	return KV_OK;
}

int
kv_manifest_compare_hash(const json_t *file, const struct kv_hash *h, struct kv_err *e)
{
	char sum[33];

	kv_hash_text(h, sum);
	return compare_sums(file, h->bytes, sum, e);
}

/* As text, which replaces what no JSON can carry. */
static bool
same_value(const json_t *a, const json_t *b)
{
	struct kv_show s[2] = { 0 };
	bool same;

	kv_say_json(&s[0], json_incref((json_t *)a));
	kv_say_json(&s[1], json_incref((json_t *)b));
	same = s[0].rc == KV_OK && s[1].rc == KV_OK && strcmp(s[0].out.data, s[1].out.data) == 0;
	kv_buf_fini(&s[0].out);
	kv_buf_fini(&s[1].out);
	return same;
}

int
kv_manifest_compare(const json_t *file, const json_t *found, struct kv_err *e)
{
	const char *key;
	json_t *value;
	int rc = compare_sums(file, (uint64_t)json_integer_value(json_object_get(found, "bytes")),
	    json_string_value(json_object_get(found, "xxh3_128")), e);

	if (rc < 0)
		return rc;
	json_object_foreach ((json_t *)found, key, value)
		if (json_object_get(file, key) == NULL || !same_value(json_object_get(file, key), value))
			return kv_fail(
			    e, KV_EFORMAT, "is as it was, but the manifest says something else of its '%s'", key);
	return KV_OK;
}
