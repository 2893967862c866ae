/* SPDX-License-Identifier: MIT */
#include "formats/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/compressed.h"

#define CHUNK        ((size_t)1 << 16)
#define EXPAND_MAX   1000               /* bytes that one byte may become; keys and values become two at most */
#define EXPAND_SLACK ((size_t)64 << 10) /* bytes that were read ahead */

/* ---- opening */

static int
read_manifest(struct kv_unpack *u, const struct kv_member *m, struct kv_err *e)
{
	struct kv_buf text = { 0 };
	size_t got = 1;
	int rc = KV_OK;

	if (m->bytes > KV_MANIFEST_MAX)
		return kv_fail(e, KV_EFORMAT, KV_MANIFEST_NAME ": longer than %zu bytes", KV_MANIFEST_MAX);
	while (rc == KV_OK && got > 0 && (rc = kv_buf_reserve(&text, CHUNK, e)) == KV_OK &&
	       (rc = kv_archive_pull(u->archive, text.data + text.n, CHUNK, &got, e)) == KV_OK)
		text.n += got;
	if (rc == KV_OK && (rc = kv_manifest_parse(&u->manifest, text.data, text.n, e)) < 0)
		kv_where(e, KV_MANIFEST_NAME);
	kv_buf_fini(&text);
	return rc;
}

int
kv_unpack_open(struct kv_unpack *u, const char *path, struct kv_err *e)
{
	struct kv_source src;
	int rc;

	*u = (struct kv_unpack){ .seen = json_object() };
	if ((rc = kv_source_open_raw(&src, path, e)) < 0) {
		kv_source_close(&src);
		return rc;
	}
	if ((rc = kv_source_expand(&src, e)) < 0)
		kv_source_close(&src);
	else
		rc = kv_archive_open(&u->archive, &src, e);
	if (rc == KV_OK && (rc = kv_archive_next(u->archive, &u->next, e)) == KV_OK) {
		u->has_next = !(u->next.is_file && strcmp(u->next.name, KV_MANIFEST_NAME) == 0);
		if (!u->has_next)
			rc = read_manifest(u, &u->next, e);
	}
	return rc < 0 ? kv_where(e, "%s", path != NULL && strcmp(path, "-") != 0 ? path : "<stdin>") : KV_OK;
}

void
kv_unpack_close(struct kv_unpack *u)
{
	kv_archive_free(u->archive);
	json_decref(u->manifest);
	json_decref(u->seen);
	*u = (struct kv_unpack){ 0 };
}

/* ---- members */

static int
check_member(struct kv_unpack *u, const struct kv_member *m, const json_t **file, struct kv_err *e)
{
	const char *unsafe = kv_archive_unsafe(m->name);

	*file = NULL;
	if (unsafe != NULL)
		return kv_fail(e, KV_EFORMAT, "refused, its name %s", unsafe);
	if (m->is_folder)
		return KV_OK;
	if (!m->is_file)
		return kv_fail(e, KV_EFORMAT, "refused, it is %s", m->what);
	if (json_object_get(u->seen, m->name) != NULL)
		return kv_fail(e, KV_EFORMAT, "refused, it is there twice");
	if (json_object_set_new_nocheck(u->seen, m->name, json_true()) < 0)
		return kv_no_memory(e, 0);
	if (u->manifest == NULL)
		return KV_OK;
	if ((*file = kv_manifest_find(u->manifest, m->name)) == NULL)
		return kv_fail(e, KV_EFORMAT, "refused, the manifest does not have it");
	if (m->bytes != (uint64_t)json_integer_value(json_object_get(*file, "bytes")))
		return kv_fail(e, KV_EFORMAT, "refused, its size is not that of the manifest");
	return KV_OK;
}

static int
check_all_seen(const struct kv_unpack *u, struct kv_err *e)
{
	const json_t *file;
	size_t i;

	json_array_foreach (json_object_get(u->manifest, "files"), i, file) {
		const char *name = json_string_value(json_object_get(file, "name"));

		if (json_object_get(u->seen, name) == NULL)
			return kv_fail(
			    e, KV_EFORMAT, "%s: missing, the manifest has it; is the archive cut short?", name);
	}
	return KV_END;
}

int
kv_unpack_next(struct kv_unpack *u, struct kv_member *m, const json_t **file, struct kv_err *e)
{
	int rc;

	do {
		*m = u->next;
		rc = u->has_next ? KV_OK : kv_archive_next(u->archive, m, e);
		u->has_next = false;
		if (rc == KV_END)
			return check_all_seen(u, e);
		if (rc == KV_OK && (rc = check_member(u, m, file, e)) < 0)
			kv_where(e, "%s", m->name);
	} while (rc == KV_OK && m->is_folder);
	return rc;
}

int
kv_unpack_pull(void *unpack, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct kv_unpack *u = unpack;
	uint64_t expanded, raw;
	int rc = kv_archive_pull(u->archive, dst, n < CHUNK ? n : CHUNK, got, e);

	if (rc < 0)
		return rc;
	kv_archive_taken(u->archive, &expanded, &raw);
	if (expanded / EXPAND_MAX > raw + EXPAND_SLACK)
		return kv_fail(e, KV_EFORMAT, "refused, it expands more than %d times", EXPAND_MAX);
	return KV_OK;
}

/* ---- files */

/* Every folder on the way to path, below the first `n` bytes, which are there.  Folders are made, links refused. */
static int
make_folders(char *path, size_t n, struct kv_err *e)
{
	struct stat st;
	int rc = KV_OK;

	for (char *slash = path + n; rc == KV_OK && (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
		*slash = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			rc = kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
		else if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			rc = kv_fail(e, KV_EIO, "%s: is there and is not a folder", path);
	}
	return rc;
}

static int
check_target(const char *path, bool force, struct kv_err *e)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? KV_OK : kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return kv_fail(e, KV_EIO, "%s: is there and is not a file", path);
	return force ? KV_OK : kv_fail(e, KV_EIO, "%s: exists; --force replaces it", path);
}

static int
write_file(struct kv_unpack *u, const char *path, const json_t *file, struct kv_err *e)
{
	struct kv_outfile out = { .fd = -1 };
	struct kv_hash h = { 0 };
	char *chunk = malloc(CHUNK);
	size_t got = 1;
	int rc = chunk != NULL ? kv_hash_init(&h, kv_unpack_pull, u, e) : kv_no_memory(e, CHUNK);

	if (rc == KV_OK)
		rc = kv_outfile_open(&out, path, e);
	while (rc == KV_OK && got > 0 && (rc = kv_hash_pull(&h, chunk, CHUNK, &got, e)) == KV_OK)
		rc = kv_write_all(out.fd, chunk, got, e);
	if (rc == KV_OK && file != NULL)
		rc = kv_manifest_compare_hash(file, &h, e);
	if (rc == KV_OK)
		rc = kv_outfile_finish(&out, e);
	kv_outfile_drop(&out);
	kv_hash_fini(&h);
	free(chunk);
	return rc;
}

int
kv_unpack_file(struct kv_unpack *u, const struct kv_member *m, const json_t *file, const char *folder, bool force,
    struct kv_err *e)
{
	struct kv_buf path = { 0 };
	int rc;

	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return kv_fail(e, KV_EIO, "%s: %s", folder, strerror(errno));
	if ((rc = kv_buf_printf(&path, e, "%s/%s", folder, m->name)) == KV_OK &&
	    (rc = make_folders(path.data, strlen(folder), e)) == KV_OK &&
	    (rc = check_target(path.data, force, e)) == KV_OK)
		rc = write_file(u, path.data, file, e);
	kv_buf_fini(&path);
	return rc < 0 ? kv_where(e, "%s", m->name) : KV_OK;
}
