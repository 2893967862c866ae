/* SPDX-License-Identifier: MIT */
#include "lib/fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool
kv_fifo_widen(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return false;
	if (fcntl(fd, F_GETPIPE_SZ) < KV_FIFO_BYTES)
		fcntl(fd, F_SETPIPE_SZ, KV_FIFO_BYTES); /* a hint: refusing it is no fault */
	return true;
}

/* One of the two does not block, and is not ready: first what comes in, then room for it. */
static void
wait_ready(int from, int to)
{
	struct pollfd p[] = { { .fd = from, .events = POLLIN }, { .fd = to, .events = POLLOUT } };

	poll(&p[0], 1, -1);
	poll(&p[1], 1, -1);
}

int
kv_fifo_hand(const struct kv_fifo_from *from, int to, size_t n, size_t *done, struct kv_err *e)
{
	off64_t at = (off64_t)from->at;
	ssize_t got;

	*done = 0;
	for (;;) {
		got = from->keep ? tee(from->fd, to, n, 0)
				 : splice(from->fd, from->is_file ? &at : NULL, to, NULL, n, 0);
		if (got >= 0 || (errno != EINTR && errno != EAGAIN))
			break;
		if (errno == EAGAIN)
			wait_ready(from->fd, to);
	}
	if (got < 0 && (errno == EINVAL || errno == ENOSYS))
		return KV_END;
	if (got < 0)
		return kv_fail(e, errno == EPIPE ? KV_EPIPE : KV_EIO, "cannot write: %s", strerror(errno));
	*done = (size_t)got;
	return KV_OK;
}
