/* SPDX-License-Identifier: MIT */
#include "bin/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/manifest.h"
#include "formats/unpack.h"
#include "lib/text/escape.h"
#include "lib/text/json_text.h"

static struct {
	const char *output, *folder;
	size_t mtime;
	bool force, json;
} o = { .folder = "." };

static const struct kv_opt opts[] = {
	{ "output", 'o', KV_STRING, &o.output, "ARCHIVE",
	    "create: write here, compressed by suffix; - is standard output", 0, 0, NULL },
	{ "mtime", 0, KV_SIZE, &o.mtime, "SECONDS", "create: the members' time, since 1970", 0, 0, NULL },
	{ "directory", 'C', KV_STRING, &o.folder, "DIR", "extract: below this folder", 0, 0, NULL },
	{ "force", 0, KV_FLAG, &o.force, NULL, "extract: replace files that exist", 0, 0, NULL },
	{ "json", 'j', KV_FLAG, &o.json, NULL, "list: the manifest as it is", 0, 0, NULL },
	{ 0 },
};

static const struct kv_method *list_commands(size_t i);

static const struct kv_tool tool = {
	.name = "kv-pack",
	.usage = "create -o ARCHIVE FILE... | list ARCHIVE | verify ARCHIVE | extract ARCHIVE [MEMBER...]",
	.brief = "bundle streams and other files of an experiment, with a manifest",
	.opts = opts,
	.methods = list_commands,
	.method = "COMMAND",
};

/* ---- create */

static int
pull_source(void *source, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	return kv_source_read(source, dst, n, got, e);
}

static int
open_file(struct kv_source *s, const char *path, struct kv_err *e)
{
	struct stat st;
	int rc;

	*s = (struct kv_source){ .fd = -1 };
	if (stat(path, &st) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return kv_fail(e, KV_EIO, "%s: is a directory; name the files in it", path);
	if (!S_ISREG(st.st_mode))
		return kv_fail(e, KV_EIO, "%s: is not a regular file, and has to be read twice", path);
	if ((rc = kv_source_open_raw(s, path, e)) == KV_OK)
		kv_source_unmap(s);
	return rc;
}

/* The member's name: the path, without "./". */
static const char *
member_name(const char *path)
{
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	return path;
}

static int
check_name(const char *name, const json_t *manifest, struct kv_err *e)
{
	const char *unsafe = kv_archive_unsafe(name);
	json_t *text = kv_json_text(name, strlen(name));
	bool is_text = text != NULL && strcmp(json_string_value(text), name) == 0;

	json_decref(text);
	if (unsafe != NULL)
		return kv_fail(e, KV_EARG, "%s: %s; go to a folder above it and name it from there", name, unsafe);
	if (!is_text)
		return kv_fail(e, KV_EARG, "%s: a member's name has to be UTF-8", name);
	if (strcmp(name, KV_MANIFEST_NAME) == 0)
		return kv_fail(e, KV_EARG, "%s: is the name of the manifest that is added", name);
	if (kv_manifest_find(manifest, name) != NULL)
		return kv_fail(e, KV_EARG, "%s: named twice", name);
	return KV_OK;
}

static int
describe_files(char *const *files, json_t *manifest, struct kv_err *e)
{
	struct kv_source s;
	json_t *file;
	int rc = KV_OK;

	for (; *files != NULL && rc == KV_OK; files++) {
		if ((rc = check_name(member_name(*files), manifest, e)) < 0)
			return rc;
		if ((rc = open_file(&s, *files, e)) == KV_OK &&
		    (rc = kv_manifest_look(member_name(*files), pull_source, &s, &file, e)) == KV_OK)
			rc = kv_manifest_add(manifest, file, e);
		kv_source_close(&s);
	}
	return rc;
}

/* The second reading: what the manifest says must still be true. */
static int
add_file(struct kv_archive_writer *w, const char *path, const json_t *file, struct kv_err *e)
{
	json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
	struct kv_hash h = { 0 };
	struct kv_source s;
	int rc = open_file(&s, path, e);

	if (rc == KV_OK && (rc = kv_hash_init(&h, pull_source, &s, e)) == KV_OK)
		rc = kv_archive_add(w, member_name(path), (uint64_t)bytes, (int64_t)o.mtime, kv_hash_pull, &h, e);
	if (rc == KV_OK && kv_manifest_compare_hash(file, &h, e) < 0)
		rc = kv_fail(e, KV_EFORMAT, "%s: has changed while it was packed", path);
	kv_hash_fini(&h);
	kv_source_close(&s);
	return rc;
}

static int
pull_text(void *text, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct kv_buf *rest = text; /* a view: data and n move on */

	(void)e;
	*got = n < rest->n ? n : rest->n;
	memcpy(dst, rest->data, *got);
	rest->data += *got;
	rest->n -= *got;
	return KV_OK;
}

static int
write_archive(char *const *files, const json_t *manifest, struct kv_err *e)
{
	struct kv_archive_writer *w = NULL;
	struct kv_buf text = { 0 }, rest;
	int rc = kv_manifest_text(manifest, &text, e);

	rest = text;
	if (rc == KV_OK && (rc = kv_archive_writer_open(&w, o.output, e)) == KV_OK)
		rc = kv_archive_add(w, KV_MANIFEST_NAME, text.n, (int64_t)o.mtime, pull_text, &rest, e);
	for (; *files != NULL && rc == KV_OK; files++)
		rc = add_file(w, *files, kv_manifest_find(manifest, member_name(*files)), e);
	kv_buf_fini(&text);
	if (rc == KV_OK)
		return kv_archive_writer_finish(w, e);
	kv_archive_writer_drop(w);
	return rc;
}

static int
create(char *const *files, struct kv_err *e)
{
	json_t *manifest;
	int rc;

	if (o.output == NULL)
		kv_usage(&tool, "create: which archive? give -o ARCHIVE");
	if (*files == NULL)
		kv_usage(&tool, "create: name the files to pack");
	if ((manifest = kv_manifest_new()) == NULL)
		return kv_no_memory(e, 0);
	if ((rc = describe_files(files, manifest, e)) == KV_OK)
		rc = write_archive(files, manifest, e);
	json_decref(manifest);
	return rc;
}

/* ---- list */

static int
say_row(
    struct kv_buf *out, const char *kind, uint64_t bytes, const json_t *sequences, const char *name, struct kv_err *e)
{
	int rc = kv_buf_printf(out, e, "%-6.20s %15" PRIu64 " ", kind, bytes);

	if (rc == KV_OK)
		rc = sequences != NULL
			 ? kv_buf_printf(out, e, "%9" JSON_INTEGER_FORMAT "  ", json_integer_value(sequences))
			 : kv_buf_printf(out, e, "%9s  ", "-");
	if (rc == KV_OK && (rc = kv_escape(out, name, strlen(name), e)) == KV_OK)
		rc = kv_buf_add(out, "\n", 1, e);
	return rc;
}

static int
list_manifest(const json_t *manifest, struct kv_buf *out, struct kv_err *e)
{
	const json_t *file;
	size_t i;
	int rc = KV_OK;

	if (o.json)
		return kv_manifest_text(manifest, out, e);
	json_array_foreach (json_object_get(manifest, "files"), i, file)
		if (rc == KV_OK)
			rc = say_row(out, json_string_value(json_object_get(file, "kind")),
			    (uint64_t)json_integer_value(json_object_get(file, "bytes")),
			    json_object_get(file, "sequences"), json_string_value(json_object_get(file, "name")), e);
	return rc;
}

/* From the manifest alone, which comes first; an archive of somebody else is read through. */
static int
list(struct kv_unpack *u, char *const *names, struct kv_err *e)
{
	struct kv_buf out = { 0 };
	struct kv_member m;
	const json_t *file;
	int rc = KV_OK;

	(void)names;
	if (u->manifest != NULL)
		rc = list_manifest(u->manifest, &out, e);
	else if (o.json)
		rc = kv_fail(e, KV_EFORMAT, "no " KV_MANIFEST_NAME " comes first: not made by kv-pack");
	else
		while ((rc = kv_unpack_next(u, &m, &file, e)) == KV_OK &&
		       (rc = say_row(&out, "-", m.bytes, NULL, m.name, e)) == KV_OK)
			;
	if (rc >= 0)
		rc = kv_write_all(STDOUT_FILENO, out.data, out.n, e);
	kv_buf_fini(&out);
	return rc;
}

/* ---- verify */

static int
verify_file(struct kv_unpack *u, const struct kv_member *m, const json_t *file, struct kv_err *e)
{
	json_t *found;
	int rc = kv_manifest_look(m->name, kv_unpack_pull, u, &found, e);

	if (rc < 0)
		return strstr(e->text, m->name) == e->text ? rc : kv_where(e, "%s", m->name);
	if ((rc = kv_manifest_compare(file, found, e)) < 0)
		kv_where(e, "%s", m->name);
	json_decref(found);
	return rc;
}

static int
verify(struct kv_unpack *u, char *const *names, struct kv_err *e)
{
	const json_t *file;
	struct kv_member m;
	size_t n = 0;
	int rc;

	(void)names;
	if (u->manifest == NULL)
		return kv_fail(e, KV_EFORMAT, "no " KV_MANIFEST_NAME " comes first: not made by kv-pack");
	while ((rc = kv_unpack_next(u, &m, &file, e)) == KV_OK && (rc = verify_file(u, &m, file, e)) == KV_OK)
		n++;
	if (rc == KV_END)
		kv_note("%zu files, all as the manifest says", n);
	return rc;
}

/* ---- extract */

/* Is it asked for?  *names are those still to come, NULL-terminated; found ones leave. */
static bool
take_name(char **names, const char *name)
{
	for (char **p = names; *p != NULL; p++)
		if (strcmp(member_name(*p), name) == 0) {
			for (; *p != NULL; p++)
				p[0] = p[1];
			return true;
		}
	return false;
}

static int
extract(struct kv_unpack *u, char *const *wanted, struct kv_err *e)
{
	bool all = wanted[0] == NULL;
	char **names = (char **)wanted; /* of argv, which is ours */
	const json_t *file;
	struct kv_member m;
	int rc;

	if (u->manifest == NULL)
		kv_warn("no " KV_MANIFEST_NAME " comes first, so nothing is compared with its checksum");
	while ((rc = kv_unpack_next(u, &m, &file, e)) == KV_OK)
		if ((all || take_name(names, m.name)) && (rc = kv_unpack_file(u, &m, file, o.folder, o.force, e)) < 0)
			return rc;
	if (rc == KV_END && names[0] != NULL)
		rc = kv_fail(e, KV_EARG, "%s: no such member; '%s list' says which there are", names[0], tool.name);
	return rc;
}

/* ---- commands */

static const struct command {
	struct kv_method about;
	bool members; /* takes MEMBER... behind its ARCHIVE */
	int (*run)(struct kv_unpack *u, char *const *names, struct kv_err *e);
} commands[] = {
	{ { .name = "create", .brief = "pack files into ARCHIVE (.tar.zst), and what they are into its manifest" },
	    true, NULL },
	{ { .name = "list", .brief = "what is in ARCHIVE, as the manifest says" }, false, list },
	{ { .name = "verify", .brief = "read all of ARCHIVE, compare it with the manifest, check its streams" }, false,
	    verify },
	{ { .name = "extract", .brief = "unpack ARCHIVE, or some of its members" }, true, extract },
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static const struct kv_method *
list_commands(size_t i)
{
	return i < N_COMMANDS ? &commands[i].about : NULL;
}

static int
with_archive(const struct command *c, char *const *operands, struct kv_err *e)
{
	const char *path = operands[0];
	struct kv_unpack u;
	int rc;

	if (path == NULL)
		kv_usage(&tool, "%s: which archive?", c->about.name);
	if (operands[1] != NULL && !c->members)
		kv_usage(&tool, "%s: unexpected '%s'", c->about.name, operands[1]);
	if ((rc = kv_unpack_open(&u, path, e)) == KV_OK && (rc = c->run(&u, operands + 1, e)) < 0 && rc != KV_EPIPE)
		kv_where(e, "%s", strcmp(path, "-") != 0 ? path : "<stdin>");
	kv_unpack_close(&u);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct command *c = commands;
	struct kv_err e = { 0 };
	int rc;

	kv_options(argc, argv, &tool);
	while (&c->about != kv_common.params.method)
		c++;
	rc = c->run != NULL ? with_archive(c, argv + 2, &e) : create(argv + 2, &e);
	return kv_report(rc, &e);
}
