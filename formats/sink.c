/* SPDX-License-Identifier: MIT */
#include "formats/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/compressed.h"

static int
open_stdout(struct kv_sink *s, struct kv_err *e)
{
	struct stat st;

	s->fd = STDOUT_FILENO;
	if (fstat(s->fd, &st) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", s->name, strerror(errno));
	if (isatty(s->fd))
		return kv_fail(e, KV_EIO,
		    "%s: is a terminal and streams are binary; pipe into another program or give -o FILE", s->name);
	return KV_OK;
}

static int
open_file(struct kv_sink *s, const char *path, struct kv_err *e)
{
	int rc = kv_outfile_open(&s->file, path, e);

	s->fd = s->file.fd;
	if (rc < 0)
		return rc;
	if (isatty(s->fd))
		return kv_fail(e, KV_EIO, "%s: is a terminal and streams are binary", s->name);
	if (!kv_compressed_name(path))
		return KV_OK;
	return kv_compressor_new(&s->compressor, path, s->fd, e) < 0 ? kv_where(e, "%s", s->name) : KV_OK;
}

int
kv_sink_open(struct kv_sink *s, const char *path, struct kv_err *e)
{
	bool is_stdout = path == NULL || strcmp(path, "-") == 0;
	int rc;

	*s = (struct kv_sink){ .file.fd = -1, .fd = -1 };
	if ((s->name = strdup(is_stdout ? "<stdout>" : path)) == NULL)
		return kv_no_memory(e, strlen(path ? path : ""));
	rc = is_stdout ? open_stdout(s, e) : open_file(s, path, e);
	s->is_pipe = rc == KV_OK && kv_fifo_widen(s->fd);
	return rc;
}

static int
compress(struct kv_sink *s, const void *bytes, size_t n, struct kv_err *e)
{
	return n > 0 ? kv_compressor_write(s->compressor, bytes, n, e) : KV_OK;
}

int
kv_sink_write_both(struct kv_sink *s, const void *head, size_t n_head, const void *bytes, size_t n, struct kv_err *e)
{
	int rc;

	if (s->compressor == NULL)
		rc = kv_write_both(s->fd, head, n_head, bytes, n, e);
	else if ((rc = compress(s, head, n_head, e)) == KV_OK)
		rc = compress(s, bytes, n, e);
	return rc < 0 ? kv_where(e, "%s", s->name) : KV_OK;
}

int
kv_sink_write(struct kv_sink *s, const void *bytes, size_t n, struct kv_err *e)
{
	return kv_sink_write_both(s, NULL, 0, bytes, n, e);
}

int
kv_sink_hand(struct kv_sink *s, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e)
{
	int rc;

	*done = 0;
	if (s->refuses || s->compressor != NULL || (!s->is_pipe && (from->is_file || from->keep)))
		return KV_END;
	rc = kv_fifo_hand(from, s->fd, n, done, e);
	s->refuses = rc == KV_END;
	return rc < 0 ? kv_where(e, "%s", s->name) : rc;
}

/* A disk that was full says so on close at the latest; closing a copy asks without giving up the descriptor. */
static int
close_stdout(struct kv_sink *s, struct kv_err *e)
{
	int copy = dup(s->fd);

	if (copy < 0 || close(copy) < 0)
		return kv_fail(e, KV_EIO, "%s: cannot close: %s", s->name, strerror(errno));
	return KV_OK;
}

int
kv_sink_finish(struct kv_sink *s, struct kv_err *e)
{
	if (s->compressor && kv_compressor_finish(s->compressor, e) < 0)
		return kv_where(e, "%s", s->name);
	return s->file.path ? kv_outfile_finish(&s->file, e) : close_stdout(s, e);
}

void
kv_sink_drop(struct kv_sink *s)
{
	kv_compressor_free(s->compressor);
	kv_outfile_drop(&s->file);
	free(s->name);
	*s = (struct kv_sink){ .file.fd = -1, .fd = -1 };
}
