/* SPDX-License-Identifier: MIT
 * Who is done with a payload cuts a hole into the memfd in its place (borrower.c), so memory is bounded by what is on its
 * way, and a file without blocks has been given back whole.  Who has a payload on its way holds a shared lock. */
#include "formats/lender.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS  1
#define GRACE_MS 2000 /* nobody has been seen for so long: nobody will come */

static int
refused(struct kv_err *e)
{
	return kv_fail(e, KV_EIO, "cannot keep what is to be shared in memory: %s; run without --share", strerror(errno));
}

static int
open_memory(struct kv_lender *l, struct kv_err *e)
{
	if ((l->fd = memfd_create("kvtools", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
		return refused(e);
	l->is_open = true;
	/* it never shrinks under somebody who has mapped it */
	if (fcntl(l->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return refused(e);
	snprintf(l->path, sizeof l->path, "/proc/%ld/fd/%d", (long)getpid(), l->fd);
	return access(l->path, R_OK) == 0 ? KV_OK : refused(e);
}

int
kv_lender_put(struct kv_lender *l, const void *bytes, size_t n, uint64_t *at, struct kv_err *e)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t done = 0;
	ssize_t put;
	int rc;

	if (!l->is_open && (rc = open_memory(l, e)) < 0)
		return rc;
	while (done < n) {
		put = pwrite(l->fd, (const char *)bytes + done, n - done, (off_t)(l->end + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return refused(e);
		done += (size_t)put;
	}
	*at = l->end;
	l->end = (l->end + n + page - 1) / page * page;
	return KV_OK;
}

static bool
all_given_back(const struct kv_lender *l)
{
	struct stat st;

	return fstat(l->fd, &st) == 0 && st.st_blocks == 0;
}

static bool
is_held(const struct kv_lender *l)
{
	if (flock(l->fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK;
	flock(l->fd, LOCK_UN);
	return false;
}

static bool
reader_has_gone(int out)
{
	struct pollfd p = { .fd = out };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

static bool
is_empty(int out)
{
	int n;

	return ioctl(out, FIONREAD, &n) < 0 || n == 0;
}

/* Its number stays taken. */
static void
close_output(int out)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, out) < 0)
		close(out);
	if (null >= 0 && null != out)
		close(null);
}

int
kv_lender_wait(struct kv_lender *l, int out, struct kv_err *e)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000 };
	int idle = 0;

	while (l->is_open && !all_given_back(l)) {
		if (out >= 0 && reader_has_gone(out) && !is_held(l) && !all_given_back(l))
			return kv_fail(e, KV_EPIPE, "the reader of what is shared has gone");
		if (out >= 0 && is_empty(out)) {
			close_output(out);
			out = -1;
		}
		idle = out >= 0 || is_held(l) ? 0 : idle + TICK_MS;
		if (idle >= GRACE_MS)
			return kv_fail(e, KV_EIO,
			    "nobody has fetched what was left in memory, and it is lost: the reader is no program of kvtools, "
			    "or it failed; run without --share");
		nanosleep(&tick, NULL);
	}
	return KV_OK;
}

void
kv_lender_fini(struct kv_lender *l)
{
	if (l->is_open)
		close(l->fd);
	*l = (struct kv_lender){ 0 };
}
