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

	*s = (struct kv_sink){ .file.fd = -1, .fd = -1 };
	if ((s->name = strdup(is_stdout ? "<stdout>" : path)) == NULL)
		return kv_no_memory(e, strlen(path ? path : ""));
	return is_stdout ? open_stdout(s, e) : open_file(s, path, e);
}

int
kv_sink_write(struct kv_sink *s, const void *bytes, size_t n, struct kv_err *e)
{
	int rc = s->compressor ? kv_compressor_write(s->compressor, bytes, n, e) : kv_write_all(s->fd, bytes, n, e);

	return rc < 0 ? kv_where(e, "%s", s->name) : KV_OK;
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
