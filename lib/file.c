/* SPDX-License-Identifier: MIT */
#include "lib/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- maps */

/* Is this something kv_map_open() can take?  Says what it is when not. */
static int
check_regular(const struct stat *st, const char *name, struct kv_err *e)
{
	if (S_ISREG(st->st_mode))
		return KV_OK;
	return kv_fail(e, KV_EIO, "%s: %s", name,
	    S_ISDIR(st->st_mode) ? "is a directory" : "is not a regular file, which it must be to be mapped");
}

int
kv_map_fd(struct kv_map *m, int fd, const char *name, struct kv_err *e)
{
	struct stat st;
	off_t at;
	int rc;

	*m = (struct kv_map){ 0 };
	if (fstat(fd, &st) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", name, strerror(errno));
	if ((rc = check_regular(&st, name, e)) < 0)
		return rc;
	if ((at = lseek(fd, 0, SEEK_CUR)) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", name, strerror(errno));
	if (at >= st.st_size)
		return KV_OK;
	m->base_bytes = (size_t)st.st_size;
	m->base = mmap(NULL, m->base_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return kv_fail(e, KV_EIO, "%s: cannot map: %s", name, strerror(errno));
	}
	m->data = (const unsigned char *)m->base + at;
	m->bytes = m->base_bytes - (size_t)at;
	return KV_OK;
}

int
kv_map_open(struct kv_map *m, const char *path, struct kv_err *e)
{
	/* non-blocking: a fifo is refused, not waited for */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

	*m = (struct kv_map){ 0 };
	if (fd < 0)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	rc = kv_map_fd(m, fd, path, e);
	close(fd);
	return rc;
}

void
kv_map_close(struct kv_map *m)
{
	if (m == NULL)
		return;
	if (m->base != NULL)
		munmap(m->base, m->base_bytes);
	*m = (struct kv_map){ 0 };
}

void
kv_map_forget(const void *at, size_t n)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)at + page - 1) / page * page;
	uintptr_t to = ((uintptr_t)at + n) / page * page;

	if (to > from)
		madvise((void *)from, to - from, MADV_DONTNEED); /* a hint: refusing it is no fault */
}

/* ---- reading whole files */

static int
read_to_end(int fd, const char *name, size_t limit, struct kv_buf *b, struct kv_err *e)
{
	size_t start = b->n;
	ssize_t got;
	int rc;

	for (;;) {
		if ((rc = kv_buf_reserve(b, 1 << 16, e)) < 0)
			return rc;
		got = read(fd, b->data + b->n, b->cap - b->n - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return kv_fail(e, KV_EIO, "%s: %s", name, strerror(errno));
		b->n += (size_t)got;
		b->data[b->n] = '\0';
		if (b->n - start > limit)
			return kv_fail(e, KV_EIO, "%s: longer than %zu bytes", name, limit);
		if (got == 0)
			return KV_OK;
	}
}

int
kv_file_read(const char *path, size_t limit, struct kv_buf *b, struct kv_err *e)
{
	int fd, rc;

	if (strcmp(path, "-") == 0)
		return read_to_end(STDIN_FILENO, "<stdin>", limit, b, e);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	rc = read_to_end(fd, path, limit, b, e);
	close(fd);
	return rc;
}

/* ---- writing */

/* Waits until a non-blocking descriptor (inherited from a shell) takes more. */
static void
wait_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	poll(&p, 1, -1);
}

/* `put` bytes of v[0] and what follows have left. */
static void
advance(struct iovec v[2], size_t put)
{
	for (size_t i = 0, n; i < 2; i++, put -= n) {
		n = put < v[i].iov_len ? put : v[i].iov_len;
		v[i].iov_base = (char *)v[i].iov_base + n;
		v[i].iov_len -= n;
	}
}

int
kv_write_both(int fd, const void *head, size_t n_head, const void *bytes, size_t n, struct kv_err *e)
{
	struct iovec v[2] = { { (void *)head, n_head }, { (void *)bytes, n } };
	ssize_t put;

	while (v[0].iov_len + v[1].iov_len > 0) {
		bool one = v[0].iov_len == 0;

		put = writev(fd, v + one, one ? 1 : 2);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && errno == EAGAIN) {
			wait_writable(fd);
			continue;
		}
		if (put < 0)
			return kv_fail(e, errno == EPIPE ? KV_EPIPE : KV_EIO, "cannot write: %s", strerror(errno));
		advance(v, (size_t)put);
	}
	return KV_OK;
}

int
kv_write_all(int fd, const void *bytes, size_t n, struct kv_err *e)
{
	return n > 0 ? kv_write_both(fd, "", 0, bytes, n, e) : KV_OK;
}

/* ---- temporary files that a signal removes: a table that the handler can read at any moment */

#define N_TEMPS 8

static struct {
	atomic_int used; /* 0 free, 1 being filled, 2 to be removed on a signal */
	char path[PATH_MAX];
} temps[N_TEMPS];

static const int fatal_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ };

/* Only what POSIX allows in a handler.  SA_RESETHAND has put the default action back, so raising ends the program. */
static void
on_fatal_signal(int sig)
{
	for (size_t i = 0; i < N_TEMPS; i++)
		if (atomic_load(&temps[i].used) == 2)
			unlink(temps[i].path);
	raise(sig);
}

/* A signal that somebody ignores (nohup) or handles stays as it is. */
static void
watch_signals(void)
{
	struct sigaction old, act = { .sa_handler = on_fatal_signal, .sa_flags = SA_RESETHAND };

	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++)
		if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(fatal_signals[i], &act, NULL);
}

static int
temp_register(const char *path, struct kv_err *e)
{
	int expected;

	if (strlen(path) >= PATH_MAX)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(ENAMETOOLONG));
	watch_signals();
	for (size_t i = 0; i < N_TEMPS; i++) {
		expected = 0;
		if (!atomic_compare_exchange_strong(&temps[i].used, &expected, 1))
			continue;
		strcpy(temps[i].path, path);
		atomic_store(&temps[i].used, 2);
		return KV_OK;
	}
	return kv_fail(e, KV_EFAIL, "%s: more than %d output files open", path, N_TEMPS);
}

static void
temp_forget(const char *path)
{
	for (size_t i = 0; i < N_TEMPS; i++)
		if (atomic_load(&temps[i].used) == 2 && strcmp(temps[i].path, path) == 0)
			atomic_store(&temps[i].used, 0);
}

/* ---- output files */

/* "dir/.base.PID-N": beside the target, so that rename() stays on one file system; hidden, so that *.kv does not
 * match. */
static char *
temp_name(const char *path, unsigned n)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	char *name = NULL;

	if (asprintf(&name, "%.*s.%.100s.%ld-%u", (int)(base - path), path, base, (long)getpid(), n) < 0)
		return NULL;
	return name;
}

/* mode: of the file that is to be replaced; NULL: there is none. */
static int
open_temp(struct kv_outfile *f, const mode_t *mode, struct kv_err *e)
{
	int rc;

	for (unsigned n = 0; n < 1000; n++) {
		if ((f->temp = temp_name(f->path, n)) == NULL)
			return kv_no_memory(e, strlen(f->path) + 32);
		/* registered first: a signal between open and register would leave the file behind */
		if ((rc = temp_register(f->temp, e)) < 0)
			return rc;
		f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode != NULL ? *mode & 0600 : 0666);
		if (f->fd >= 0) {
			/* what a file system without modes refuses would be refused to the old file too */
			return mode != NULL && fchmod(f->fd, *mode & 0777) < 0 && errno != EPERM
			    ? kv_fail(e, KV_EIO, "%s: cannot set the mode: %s", f->path, strerror(errno))
			    : KV_OK;
		}
		temp_forget(f->temp);
		free(f->temp);
		f->temp = NULL;
		if (errno != EEXIST)
			break;
	}
	return kv_fail(e, KV_EIO, "%s: cannot create: %s", f->path, strerror(errno));
}

/* What is written directly: a device, a fifo, a socket. */
static int
open_direct(struct kv_outfile *f, struct kv_err *e)
{
	f->fd = open(f->path, O_WRONLY | O_CLOEXEC);
	if (f->fd < 0)
		return kv_fail(e, KV_EIO, "%s: %s", f->path, strerror(errno));
	return KV_OK;
}

#define LINKS_MAX 40

/* Where a symbolic link leads, whether or not there is anything; free() it.  NULL with errno. */
static char *
behind_links(const char *path)
{
	char *at = strdup(path), to[PATH_MAX], *next;
	const char *slash;
	ssize_t n;

	for (int i = 0; at != NULL && i < LINKS_MAX; i++, at = next) {
		if ((n = readlink(at, to, sizeof to - 1)) < 0)
			return at;
		to[n] = '\0';
		slash = to[0] == '/' ? NULL : strrchr(at, '/');
		if (asprintf(&next, "%.*s%s", slash != NULL ? (int)(slash + 1 - at) : 0, at, to) < 0)
			next = NULL;
		free(at);
	}
	free(at);
	errno = at != NULL ? ELOOP : ENOMEM;
	return NULL;
}

int
kv_outfile_open(struct kv_outfile *f, const char *path, struct kv_err *e)
{
	struct stat st;
	bool exists = stat(path, &st) == 0;
	int rc;

	*f = (struct kv_outfile){ .fd = -1 };
	/* behind a symbolic link, the file it points to is replaced or made, not the link; what is written directly
	 * keeps its name, as links in /proc lead to none */
	if (exists)
		f->path = S_ISREG(st.st_mode) ? realpath(path, NULL) : strdup(path);
	else
		f->path = behind_links(path);
	if (f->path == NULL)
		return kv_fail(e, errno == ENOMEM ? KV_EMEM : KV_EIO, "%s: %s", path, strerror(errno));
	rc = exists && !S_ISREG(st.st_mode) ? open_direct(f, e) : open_temp(f, exists ? &st.st_mode : NULL, e);
	if (rc < 0)
		kv_outfile_drop(f);
	return rc;
}

static void
outfile_fini(struct kv_outfile *f)
{
	if (f->temp != NULL)
		temp_forget(f->temp);
	free(f->temp);
	free(f->path);
	*f = (struct kv_outfile){ .fd = -1 };
}

int
kv_outfile_finish(struct kv_outfile *f, struct kv_err *e)
{
	int rc = KV_OK;

	if (close(f->fd) < 0)
		rc = kv_fail(e, KV_EIO, "%s: cannot close: %s", f->path, strerror(errno));
	else if (f->temp != NULL && rename(f->temp, f->path) < 0)
		rc = kv_fail(e, KV_EIO, "%s: cannot rename: %s", f->path, strerror(errno));
	if (rc < 0 && f->temp != NULL)
		unlink(f->temp);
	outfile_fini(f);
	return rc;
}

void
kv_outfile_drop(struct kv_outfile *f)
{
	if (f == NULL || f->path == NULL)
		return;
	if (f->fd >= 0) {
		close(f->fd);
		if (f->temp != NULL)
			unlink(f->temp);
	}
	outfile_fini(f);
}
