/* SPDX-License-Identifier: MIT
 * Writing archives: tar's bytes go through the sink, which compresses them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/archive.h"
#include "formats/libarchive.h"

#define CHUNK ((size_t)1 << 20)

struct kv_archive_writer {
	struct kv_sink sink;
	struct archive *a;
	struct kv_err err; /* the fault of sink, if there was one */
	bool dropped;      /* what comes now is nobody's */
	char *chunk;       /* [CHUNK] */
};

static la_ssize_t
put_out(struct archive *a, void *ctx, const void *bytes, size_t n)
{
	struct kv_archive_writer *w = ctx;

	if (w->dropped || kv_sink_write(&w->sink, bytes, n, &w->err) == KV_OK)
		return (la_ssize_t)n;
	kv_la.archive_set_error(a, EIO, "%s", w->err.text);
	return -1;
}

static int
writer_fault(struct kv_archive_writer *w, struct kv_err *e)
{
	const char *why = kv_la.archive_error_string(w->a);

	if (w->err.code < 0)
		return kv_fail(e, w->err.code, "%s", w->err.text);
	return kv_fail(e, KV_EFAIL, "%s: %s", w->sink.name, why != NULL ? why : "cannot write the archive");
}

/* GNU's tar format: names and sizes of any length, and bytes of names as they are. */
static int
writer_open(struct kv_archive_writer *w, const char *path, struct kv_err *e)
{
	int rc = kv_sink_open(&w->sink, path, e);

	if (rc < 0)
		return rc;
	if ((rc = kv_libarchive_open(e)) < 0)
		return rc;
	if ((w->chunk = malloc(CHUNK)) == NULL || (w->a = kv_la.archive_write_new()) == NULL)
		return kv_no_memory(e, CHUNK);
	if (kv_la.archive_write_set_format_gnutar(w->a) != ARCHIVE_OK ||
	    kv_la.archive_write_open(w->a, w, NULL, put_out, NULL) != ARCHIVE_OK)
		return writer_fault(w, e);
	return KV_OK;
}

int
kv_archive_writer_open(struct kv_archive_writer **out, const char *path, struct kv_err *e)
{
	struct kv_archive_writer *w = *out = kv_alloc(1, sizeof *w, e);
	int rc;

	if (w == NULL)
		return KV_EMEM;
	if ((rc = writer_open(w, path, e)) < 0) {
		kv_archive_writer_drop(w);
		*out = NULL;
	}
	return rc;
}

static int
put_header(struct kv_archive_writer *w, const char *name, uint64_t bytes, int64_t mtime, struct kv_err *e)
{
	struct archive_entry *entry = kv_la.archive_entry_new();
	int rc = KV_OK;

	if (entry == NULL)
		return kv_no_memory(e, 0);
	kv_la.archive_entry_set_pathname(entry, name);
	kv_la.archive_entry_set_size(entry, (la_int64_t)bytes);
	kv_la.archive_entry_set_filetype(entry, AE_IFREG);
	kv_la.archive_entry_set_perm(entry, 0644);
	kv_la.archive_entry_set_uid(entry, 0);
	kv_la.archive_entry_set_gid(entry, 0);
	kv_la.archive_entry_set_mtime(entry, (time_t)mtime, 0);
	if (kv_la.archive_write_header(w->a, entry) != ARCHIVE_OK)
		rc = writer_fault(w, e);
	kv_la.archive_entry_free(entry);
	return rc;
}

static int
put_data(struct kv_archive_writer *w, size_t n, struct kv_err *e)
{
	return kv_la.archive_write_data(w->a, w->chunk, n) == (la_ssize_t)n ? KV_OK : writer_fault(w, e);
}

int
kv_archive_add(struct kv_archive_writer *w, const char *name, uint64_t bytes, int64_t mtime, kv_pull *pull, void *ctx,
    struct kv_err *e)
{
	uint64_t n = 0;
	size_t got;
	int rc = put_header(w, name, bytes, mtime, e);

	while (rc == KV_OK && (rc = pull(ctx, w->chunk, CHUNK, &got, e)) == KV_OK && got > 0 && n + got <= bytes) {
		n += got;
		rc = put_data(w, got, e);
	}
	if (rc == KV_OK && (got > 0 || n < bytes))
		return kv_fail(
		    e, KV_EFORMAT, "%s: its size has changed from the %" PRIu64 " bytes it had", name, bytes);
	return rc;
}

int
kv_archive_writer_finish(struct kv_archive_writer *w, struct kv_err *e)
{
	int rc = kv_la.archive_write_close(w->a) == ARCHIVE_OK ? KV_OK : writer_fault(w, e);

	if (rc == KV_OK)
		rc = kv_sink_finish(&w->sink, e);
	kv_archive_writer_drop(w);
	return rc;
}

void
kv_archive_writer_drop(struct kv_archive_writer *w)
{
	if (w == NULL)
		return;
	w->dropped = true;
	if (w->a != NULL) {
		kv_la.archive_write_close(w->a); /* its buffers are freed here alone, after an error too */
		kv_la.archive_write_free(w->a);
	}
	kv_sink_drop(&w->sink);
	free(w->chunk);
	free(w);
}
