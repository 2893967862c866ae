/* SPDX-License-Identifier: MIT */
#include "formats/archive.h"
#include "formats/libarchive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK     ((size_t)1 << 20) /* of a mapped file, handed out at a time */
#define SKIP_MAX  ((int64_t)1 << 30)
#define NAMES_MAX 20 /* that a message lists */

struct kv_archive {
	struct kv_source src;
	struct archive *a;
	size_t lent;       /* of src's bytes, with libarchive until it asks for more */
	struct kv_err err; /* the fault of src, if there was one */
	bool ended;
};

/* ---- libarchive's side */

static int
source_fault(struct kv_archive *a)
{
	kv_la.archive_set_error(a->a, EIO, "%s", a->err.text);
	return ARCHIVE_FATAL;
}

static la_ssize_t
lend(struct archive *unused, void *ctx, const void **bytes)
{
	struct kv_archive *a = ctx;

	(void)unused;
	kv_source_skip(&a->src, a->lent);
	a->lent = 0;
	if (kv_source_peek(&a->src, 1, &a->err) < 0)
		return source_fault(a);
	a->lent = a->src.have < CHUNK ? a->src.have : CHUNK;
	*bytes = a->src.at;
	return (la_ssize_t)a->lent;
}

/* A mapped archive is stepped through without reading it. */
static la_int64_t
skip(struct archive *unused, void *ctx, la_int64_t n)
{
	struct kv_archive *a = ctx;
	size_t got;

	(void)unused;
	kv_source_skip(&a->src, a->lent);
	a->lent = 0;
	if (kv_source_discard(&a->src, (size_t)(n < SKIP_MAX ? n : SKIP_MAX), &got, &a->err) < 0)
		return source_fault(a);
	return (la_int64_t)got;
}

static int
archive_fault(struct kv_archive *a, struct kv_err *e)
{
	const char *why = kv_la.archive_error_string(a->a);

	if (a->err.code < 0)
		return kv_fail(e, a->err.code, "%s", a->err.text);
	return kv_fail(e, KV_EFORMAT, "not a tar archive, or one that is damaged or cut short (%s)",
	    why != NULL ? why : "no reason given");
}

/* ---- reading */

static int
open_tar(struct kv_archive *a, struct kv_err *e)
{
	int rc = kv_libarchive_open(e);

	if (rc < 0)
		return rc;
	if ((a->a = kv_la.archive_read_new()) == NULL)
		return kv_no_memory(e, 0);
	if (kv_la.archive_read_support_format_tar(a->a) != ARCHIVE_OK ||
	    kv_la.archive_read_set_callback_data(a->a, a) != ARCHIVE_OK ||
	    kv_la.archive_read_set_read_callback(a->a, lend) != ARCHIVE_OK ||
	    kv_la.archive_read_set_skip_callback(a->a, skip) != ARCHIVE_OK ||
	    kv_la.archive_read_open1(a->a) != ARCHIVE_OK)
		return archive_fault(a, e);
	return KV_OK;
}

int
kv_archive_open(struct kv_archive **out, struct kv_source *src, struct kv_err *e)
{
	struct kv_archive *a = *out = kv_alloc(1, sizeof *a, e);
	int rc;

	if (a == NULL) {
		kv_source_close(src);
		return KV_EMEM;
	}
	a->src = *src;
	*src = (struct kv_source){ .fd = -1 };
	if ((rc = open_tar(a, e)) < 0) {
		kv_archive_free(a);
		*out = NULL;
	}
	return rc;
}

/* Names of pax archives are UTF-8, which the C locale cannot say otherwise. */
static const char *
entry_name(struct archive_entry *entry)
{
	const char *name = kv_la.archive_entry_pathname(entry);

	if (name == NULL)
		name = kv_la.archive_entry_pathname_utf8(entry);
	if (name == NULL)
		return "";
	while (name[0] == '.' && name[1] == '/')
		name += 2;
	return name;
}

static void
describe(struct kv_member *m, struct archive_entry *entry)
{
	static const struct {
		int type;
		const char *what;
	} types[] = { { AE_IFREG, "a file" }, { AE_IFDIR, "a folder" }, { AE_IFLNK, "a symbolic link" },
		{ AE_IFCHR, "a device" }, { AE_IFBLK, "a device" }, { AE_IFIFO, "a fifo" }, { AE_IFSOCK, "a socket" } };
	int type = (int)kv_la.archive_entry_filetype(entry);

	*m = (struct kv_member){ .name = entry_name(entry), .what = "of an unknown kind" };
	if (kv_la.archive_entry_size_is_set(entry) && kv_la.archive_entry_size(entry) > 0)
		m->bytes = (uint64_t)kv_la.archive_entry_size(entry);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (types[i].type == type)
			m->what = types[i].what;
	if (kv_la.archive_entry_hardlink(entry) != NULL || kv_la.archive_entry_hardlink_utf8(entry) != NULL)
		m->what = "a hard link";
	else if (kv_la.archive_entry_sparse_count(entry) > 0)
		m->what = "a file with holes";
	else {
		m->is_file = type == AE_IFREG;
		m->is_folder = type == AE_IFDIR;
	}
}

/* What is behind the last member: padding, and the checksum of the compressed bytes. */
static int
read_rest(struct kv_archive *a, struct kv_err *e)
{
	size_t got;

	kv_source_skip(&a->src, a->lent);
	a->lent = 0;
	return kv_source_discard(&a->src, SIZE_MAX, &got, e) < 0 ? e->code : KV_END;
}

int
kv_archive_next(struct kv_archive *a, struct kv_member *m, struct kv_err *e)
{
	struct archive_entry *entry;
	int r;

	*m = (struct kv_member){ 0 };
	if (a->ended)
		return KV_END;
	r = kv_la.archive_read_next_header(a->a, &entry);
	a->ended = r == ARCHIVE_EOF;
	if (a->ended)
		return read_rest(a, e);
	if (r < ARCHIVE_WARN)
		return archive_fault(a, e);
	describe(m, entry);
	return KV_OK;
}

int
kv_archive_pull(void *archive, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct kv_archive *a = archive;
	la_ssize_t r;

	*got = 0;
	if (n == 0)
		return KV_OK;
	if ((r = kv_la.archive_read_data(a->a, dst, n)) < 0)
		return archive_fault(a, e);
	*got = (size_t)r;
	return KV_OK;
}

void
kv_archive_taken(const struct kv_archive *a, uint64_t *expanded, uint64_t *raw)
{
	*expanded = a->src.offset;
	*raw = kv_source_taken(&a->src);
}

void
kv_archive_free(struct kv_archive *a)
{
	if (a == NULL)
		return;
	if (a->a != NULL)
		kv_la.archive_read_free(a->a);
	kv_source_close(&a->src);
	free(a);
}

const char *
kv_archive_unsafe(const char *name)
{
	if (name[0] == '\0')
		return "is empty";
	if (name[0] == '/')
		return "is an absolute path";
	for (const char *p = name; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
			return "leads out of its folder by '..'";
	}
	return NULL;
}

/* ---- one member as a source */

static int
no_member(const struct kv_buf *names, size_t n, struct kv_err *e)
{
	if (n == 0)
		return kv_fail(e, KV_EFORMAT, "no such member: the archive has no files");
	return kv_fail(e, KV_EFORMAT, "no such member; there are %s%s", names->data, n > NAMES_MAX ? ", .." : "");
}

static int
find_member(struct kv_archive *a, const char *want, struct kv_err *e)
{
	struct kv_buf names = { 0 };
	struct kv_member m;
	size_t n = 0;
	int rc;

	while (want[0] == '.' && want[1] == '/')
		want += 2;
	while ((rc = kv_archive_next(a, &m, e)) == KV_OK && strcmp(m.name, want) != 0)
		if (m.is_file && n++ < NAMES_MAX &&
		    (rc = kv_buf_printf(&names, e, "%s%.60s", n > 1 ? ", " : "", m.name)) < 0)
			break;
	if (rc == KV_OK && !m.is_file)
		rc = kv_fail(e, KV_EFORMAT, "%s, not a file", m.what);
	if (rc == KV_END)
		rc = no_member(&names, n, e);
	kv_buf_fini(&names);
	return rc;
}

static void
drop_archive(void *ctx)
{
	kv_archive_free(ctx);
}

int
kv_source_enter(struct kv_source *s, const char *member, struct kv_err *e)
{
	struct kv_archive *a;
	char *name = strdup(s->name);
	int rc;

	if (name == NULL)
		return kv_no_memory(e, strlen(s->name));
	rc = kv_archive_open(&a, s, e);
	*s = (struct kv_source){ .name = name, .fd = -1, .pull = kv_archive_pull, .ctx = a, .drop = drop_archive };
	s->below = rc == KV_OK ? &a->src : NULL;
	return rc < 0 ? rc : find_member(a, member, e);
}
