/* SPDX-License-Identifier: MIT */
#include "formats/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *
folder(void)
{
	const char *name = getenv("TMPDIR");

	return name != NULL && name[0] != '\0' ? name : "/tmp";
}

static int
refused(const struct kv_spool *s, struct kv_err *e)
{
	const char *why = strerror(errno);

	return kv_fail(e, KV_EIO,
	    "$TMPDIR (%s): %s, with %zu MB of keys and values there; set TMPDIR to a folder with room", folder(), why,
	    s->end / 1000000);
}

static int
open_unlinked(struct kv_spool *s, struct kv_err *e)
{
	char path[4096];
	int n;

	s->fd = open(folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (s->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) { /* a file system that lacks such files */
		n = snprintf(path, sizeof path, "%s/kvtools-XXXXXX", folder());
		if (n > 0 && (size_t)n < sizeof path && (s->fd = mkostemp(path, O_CLOEXEC)) >= 0)
			unlink(path);
	}
	if (s->fd < 0)
		return kv_fail(e, KV_EIO, "$TMPDIR (%s): %s", folder(), strerror(errno));
	s->is_open = true;
	return KV_OK;
}

static int
take_part(void *ctx, uint32_t n, struct kv_err *e)
{
	(void)ctx;
	(void)n;
	(void)e;
	return KV_OK;
}

static int
take_bytes(void *ctx, const void *bytes, size_t n, struct kv_err *e)
{
	struct kv_spool *s = ctx;
	const char *at = bytes;
	ssize_t done;

	while (n > 0) {
		done = pwrite(s->fd, at, n, (off_t)s->end);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return refused(s, e);
		s->end += (size_t)done;
		at += done;
		n -= (size_t)done;
	}
	return KV_OK;
}

int
kv_spool_begin(struct kv_spool *s, struct kv_taker *to, size_t *at, struct kv_err *e)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	if (!s->is_open && (rc = open_unlinked(s, e)) < 0)
		return rc;
	*at = s->end = (s->end + page - 1) / page * page;
	*to = (struct kv_taker){ .part = take_part, .bytes = take_bytes, .ctx = s };
	return KV_OK;
}

int
kv_spool_map(struct kv_spool *s, struct kv_err *e)
{
	if (s->end == 0)
		return KV_OK;
	/* a last, empty payload may begin where the file ends */
	if (ftruncate(s->fd, (off_t)s->end) < 0)
		return refused(s, e);
	s->base = mmap(NULL, s->end, PROT_READ, MAP_SHARED, s->fd, 0);
	if (s->base == MAP_FAILED) {
		s->base = NULL;
		return kv_fail(e, KV_EIO, "$TMPDIR (%s): cannot map: %s", folder(), strerror(errno));
	}
	return KV_OK;
}

int
kv_spool_empty(struct kv_spool *s, struct kv_err *e)
{
	if (!s->is_open)
		return KV_OK;
	if (s->base != NULL)
		munmap(s->base, s->end);
	s->base = NULL;
	s->end = 0;
	if (ftruncate(s->fd, 0) < 0)
		return kv_fail(e, KV_EIO, "$TMPDIR (%s): %s", folder(), strerror(errno));
	return KV_OK;
}

void
kv_spool_fini(struct kv_spool *s)
{
	if (s->is_open) {
		kv_spool_empty(s, NULL);
		close(s->fd);
	}
	*s = (struct kv_spool){ 0 };
}
