/* SPDX-License-Identifier: MIT */
#include "formats/source.h"

#include "formats/archive.h"
#include "formats/compressed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_MIN ((size_t)1 << 16)
#define PEEK_MIN   ((size_t)1 << 11) /* bytes of a pipe that are read at least: records are small */

static int
check_input(const struct kv_source *s, const struct stat *st, struct kv_err *e)
{
	if (S_ISDIR(st->st_mode))
		return kv_fail(e, KV_EIO, "%s: is a directory, not a stream", s->name);
	if (isatty(s->fd))
		return kv_fail(e, KV_EIO, "%s: is a terminal; name a stream's FILE, or pipe a stream in", s->name);
	return KV_OK;
}

int
kv_source_of(struct kv_source *s, const char *name, kv_pull *pull, void *ctx, struct kv_err *e)
{
	*s = (struct kv_source){ .fd = -1, .null_fd = -1, .pull = pull, .ctx = ctx };
	return (s->name = strdup(name)) != NULL ? KV_OK : kv_no_memory(e, strlen(name));
}

int
kv_source_open_raw(struct kv_source *s, const char *path, struct kv_err *e)
{
	bool is_stdin = path == NULL || strcmp(path, "-") == 0;
	struct stat st;
	int rc;

	*s = (struct kv_source){ .fd = -1, .null_fd = -1, .close_fd = !is_stdin };
	if ((s->name = strdup(is_stdin ? "<stdin>" : path)) == NULL)
		return kv_no_memory(e, 0);
	s->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", s->name, strerror(errno));
	if ((rc = check_input(s, &st, e)) < 0)
		return rc;
	s->is_pipe = kv_fifo_widen(s->fd);
	if (!S_ISREG(st.st_mode))
		return KV_OK;
	if ((rc = kv_map_fd(&s->map, s->fd, s->name, e)) < 0)
		return rc;
	s->at = s->map.data;
	s->have = s->map.bytes;
	s->at_end = true;
	return KV_OK;
}

void
kv_source_unmap(struct kv_source *s)
{
	if (s->map.data == NULL)
		return;
	kv_map_close(&s->map); /* which has left the descriptor's position alone */
	s->at = NULL;
	s->have = 0;
	s->at_end = false;
}

/* "ARCHIVE:MEMBER" divided at the first colon behind the name of a file, into *archive (free() it) and the result,
 * which lies in path.  NULL: it is no such thing, or out of memory. */
static const char *
find_member(const char *path, char **archive)
{
	struct stat st;

	*archive = NULL;
	if (path == NULL || strcmp(path, "-") == 0 || stat(path, &st) == 0)
		return NULL;
	for (const char *colon = path; (colon = strchr(colon, ':')) != NULL; colon++) {
		free(*archive);
		if ((*archive = strndup(path, (size_t)(colon - path))) == NULL)
			return NULL;
		if (colon[1] != '\0' && stat(*archive, &st) == 0 && !S_ISDIR(st.st_mode))
			return colon + 1;
	}
	return NULL;
}

int
kv_source_open(struct kv_source *s, const char *path, struct kv_err *e)
{
	char *archive, *name;
	const char *member = find_member(path, &archive);
	int rc = kv_source_open_raw(s, member != NULL ? archive : path, e);

	free(archive);
	if (rc < 0)
		return rc;
	rc = kv_source_expand(s, e);
	if (rc == KV_OK && member != NULL) {
		if ((name = strdup(path)) == NULL)
			return kv_no_memory(e, strlen(path));
		free(s->name);
		s->name = name;
		if ((rc = kv_source_enter(s, member, e)) == KV_OK)
			rc = kv_source_expand(s, e);
	}
	return rc < 0 ? kv_where(e, "%s", s->name) : KV_OK;
}

void
kv_source_close(struct kv_source *s)
{
	if (s->drop != NULL)
		s->drop(s->ctx);
	kv_map_close(&s->map);
	if (s->close_fd && s->fd >= 0)
		close(s->fd);
	if (s->null_fd >= 0)
		close(s->null_fd);
	free(s->buf);
	free(s->name);
	*s = (struct kv_source){ .fd = -1, .null_fd = -1 };
}

uint64_t
kv_source_taken(const struct kv_source *s)
{
	while (s->below != NULL)
		s = s->below;
	return s->offset;
}

/* One read(), whatever the signals; 0 at the end. */
static int
read_some(struct kv_source *s, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct pollfd p = { .fd = s->fd, .events = POLLIN };
	ssize_t r;

	if (s->pull != NULL)
		return s->pull(s->ctx, dst, n, got, e);
	while ((r = read(s->fd, dst, n)) < 0 && (errno == EINTR || errno == EAGAIN))
		if (errno == EAGAIN)
			poll(&p, 1, -1);
	if (r < 0)
		return kv_fail(e, KV_EIO, "cannot read: %s", strerror(errno));
	*got = (size_t)r;
	return KV_OK;
}

/* Room for more behind the bytes at hand: those are moved to the front, or the buffer doubles. */
static int
make_room(struct kv_source *s, struct kv_err *e)
{
	size_t cap = s->cap ? s->cap : BUFFER_MIN;
	unsigned char *p = s->buf;

	if (s->have > 0 && s->at != s->buf)
		memmove(s->buf, s->at, s->have);
	if (s->have == s->cap && s->cap > 0)
		cap *= 2;
	if (cap != s->cap && (p = realloc(s->buf, cap)) == NULL)
		return kv_no_memory(e, cap);
	s->buf = p;
	s->cap = cap;
	s->at = p;
	return KV_OK;
}

int
kv_source_peek(struct kv_source *s, size_t n, struct kv_err *e)
{
	size_t got, room;
	int rc;

	while (s->have < n && !s->at_end) {
		if ((s->cap == 0 || s->at + s->have == s->buf + s->cap) && (rc = make_room(s, e)) < 0)
			return rc;
		if (s->have == 0)
			s->at = s->buf;
		room = s->cap - (size_t)(s->at - s->buf) - s->have;
		if (s->is_pipe && room > n - s->have && room > PEEK_MIN)
			room = n - s->have > PEEK_MIN ? n - s->have : PEEK_MIN;
		if ((rc = read_some(s, s->buf + (s->at - s->buf) + s->have, room, &got, e)) < 0)
			return rc;
		s->have += got;
		s->at_end = got == 0;
	}
	return KV_OK;
}

void
kv_source_skip(struct kv_source *s, size_t n)
{
	if (n == 0)
		return;
	s->at += n;
	s->have -= n;
	s->offset += n;
}

int
kv_source_read(struct kv_source *s, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	size_t some = n < s->have ? n : s->have;
	int rc;

	if (some > 0)
		memcpy(dst, s->at, some);
	kv_source_skip(s, some);
	for (*got = some; *got < n && !s->at_end; *got += some) {
		if ((rc = read_some(s, (char *)dst + *got, n - *got, &some, e)) < 0)
			return rc;
		s->offset += some;
		s->at_end = some == 0;
	}
	return KV_OK;
}

bool
kv_source_in_pipe(const struct kv_source *s, struct kv_fifo_from *from)
{
	*from = (struct kv_fifo_from){ .fd = s->fd };
	return s->is_pipe && s->have == 0 && !s->at_end;
}

void
kv_source_passed(struct kv_source *s, size_t n)
{
	s->offset += n;
	s->at_end = n == 0;
}

/* Some of n bytes at least, from the buffer or without looking at them; 0 at the end. */
static int
discard_some(struct kv_source *s, size_t n, size_t *done, struct kv_err *e)
{
	struct kv_fifo_from from;
	int rc;

	if (s->null_fd < 0 && n > BUFFER_MIN)
		s->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (s->null_fd >= 0 && kv_source_in_pipe(s, &from) &&
	    (rc = kv_fifo_hand(&from, s->null_fd, n, done, e)) != KV_END) {
		if (rc == KV_OK)
			kv_source_passed(s, *done);
		return rc;
	}
	if ((rc = kv_source_peek(s, n < BUFFER_MIN ? n : BUFFER_MIN, e)) < 0)
		return rc;
	*done = n < s->have ? n : s->have;
	kv_source_skip(s, *done);
	return KV_OK;
}

int
kv_source_discard(struct kv_source *s, size_t n, size_t *got, struct kv_err *e)
{
	size_t some;
	int rc;

	for (*got = 0; *got < n; *got += some) {
		if ((rc = discard_some(s, n - *got, &some, e)) < 0)
			return rc;
		if (some == 0)
			return KV_OK;
	}
	return KV_OK;
}

void
kv_source_forget(struct kv_source *s)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), done;
	char *base = s->map.base;

	if (base == NULL)
		return;
	done = (size_t)(s->at - (const unsigned char *)base) / page * page;
	if (done > s->forgotten)
		madvise(base + s->forgotten, done - s->forgotten, MADV_DONTNEED); /* a hint: refusing it is no fault */
	s->forgotten = done > s->forgotten ? done : s->forgotten;
}
