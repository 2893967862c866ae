/* SPDX-License-Identifier: MIT
 * Each payload has a stamp in front of it.  Who is done with it puts zeros there (borrower.c), and its pages are used
 * again for the next one of their size: no page is asked of the system, or filled with zeros, twice.  Who has a payload
 * on its way holds a shared lock. */
#include "formats/lender.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

#define TICK_MS  1
#define GRACE_MS 2000 /* nobody has been seen for so long: nobody will come */
#define IDLE_MAX 64   /* payloads that were lent since a room was last of use: its memory goes back to the system */

/* Memory of a card is asked for in multiples of this, its own unit: what is lent then shares no unit with other
 * memory. */
#define CARD_UNIT ((size_t)2 << 20)
#define CARD_FREE 4 /* times as much must be free as is taken: the program has need of it too */

/* Some pages of the memfd: a stamp, 0 when they have been given back, and KV_LENT_STAMP bytes behind it the payload, or
 * where it lies on a card. */
struct kv_room {
	unsigned char *base;
	uint64_t at; /* in the memfd */
	size_t bytes;
	unsigned idle;
	void *on_device; /* NULL: on the host */
	size_t bytes_on_device;
};

static int
refused(struct kv_err *e)
{
	return kv_fail(
	    e, KV_EIO, "cannot keep what is to be shared in memory: %s; run without --share", strerror(errno));
}

static int
open_memory(struct kv_lender *l, struct kv_err *e)
{
	struct timespec now;

	if ((l->fd = memfd_create("kvtools", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
		return refused(e);
	l->is_open = true;
	/* it never shrinks under somebody who has mapped it */
	if (fcntl(l->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return refused(e);
	clock_gettime(CLOCK_REALTIME, &now);
	/* no other memfd of that name has had these */
	l->stamp = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	snprintf(l->path, sizeof l->path, "/proc/%ld/fd/%d", (long)getpid(), l->fd);
	return access(l->path, R_OK) == 0 ? KV_OK : refused(e);
}

static bool
is_free(const struct kv_room *r)
{
	return __atomic_load_n((const uint64_t *)r->base, __ATOMIC_ACQUIRE) == 0;
}

static void
drop_room(struct kv_lender *l, struct kv_room *r)
{
	if (r->on_device != NULL)
		kv_device_free(l->device, r->on_device);
	munmap(r->base, r->bytes);
	fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->at, (off_t)r->bytes);
	*r = l->rooms[--l->n_rooms];
}

/* One that has been given back, of just this size, here and on the card; NULL: none. */
static struct kv_room *
find_room(struct kv_lender *l, size_t bytes, size_t bytes_on_device)
{
	struct kv_room *found = NULL;

	for (size_t i = l->n_rooms; i-- > 0;) {
		struct kv_room *r = &l->rooms[i];

		if (!is_free(r))
			continue;
		if (r->bytes == bytes && r->bytes_on_device == bytes_on_device)
			found = r;
		else if (++r->idle > IDLE_MAX)
			drop_room(l, r);
	}
	return found;
}

static int
add_room(struct kv_lender *l, size_t bytes, struct kv_room **out, struct kv_err *e)
{
	struct kv_room *more = realloc(l->rooms, (l->n_rooms + 1) * sizeof *more);
	void *base;

	if (more == NULL)
		return kv_no_memory(e, (l->n_rooms + 1) * sizeof *more);
	l->rooms = more;
	/* memory that is not there is noticed now, not by a signal */
	if (fallocate(l->fd, 0, (off_t)l->end, (off_t)bytes) < 0)
		return refused(e);
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, l->fd, (off_t)l->end);
	if (base == MAP_FAILED)
		return refused(e);
	*out = &more[l->n_rooms++];
	**out = (struct kv_room){ .base = base, .at = l->end, .bytes = bytes };
	l->end += bytes;
	return KV_OK;
}

/* Whole pages for a stamp and n bytes behind it. */
static size_t
pages(size_t n)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + KV_LENT_STAMP + page - 1) / page * page;
}

static struct kv_reference
lend(struct kv_lender *l, struct kv_room *r)
{
	r->idle = 0;
	__atomic_store_n((uint64_t *)r->base, ++l->stamp, __ATOMIC_RELEASE);
	return (struct kv_reference){
		.path = l->path, .at = r->at + KV_LENT_STAMP, .is_memory = true, .stamp = l->stamp
	};
}

int
kv_lender_take(struct kv_lender *l, size_t n, void **bytes, struct kv_reference *reference, struct kv_err *e)
{
	struct kv_room *r;
	int rc;

	if (!l->is_open && (rc = open_memory(l, e)) < 0)
		return rc;
	if ((r = find_room(l, pages(n), 0)) == NULL && (rc = add_room(l, pages(n), &r, e)) < 0)
		return rc;
	*bytes = r->base + KV_LENT_STAMP;
	*reference = lend(l, r);
	return KV_OK;
}

/* Memory of the card and, as the payload, how to find it; NULL: there is none to spare, or it cannot be lent. */
static void *
take_on_device(const struct kv_lender *l, size_t bytes, struct kv_device_payload *payload)
{
	struct kv_device *d = l->device;
	void *p = NULL;

	if (d->op->room(d->dev) / CARD_FREE >= bytes)
		p = d->op->alloc(d->dev, bytes);
	if (p != NULL && d->op->lend(d->dev, p, &payload->handle) == 0) {
		d->lent = true;
		return p;
	}
	kv_device_free(d, p);
	return NULL;
}

static int
add_room_on_device(struct kv_lender *l, size_t bytes, struct kv_room **out, struct kv_err *e)
{
	struct kv_device_payload payload = { .bytes = bytes };
	void *on_device = take_on_device(l, bytes, &payload);
	int rc;

	*out = NULL;
	if (on_device == NULL)
		return KV_OK;
	if ((rc = add_room(l, pages(sizeof payload), out, e)) < 0) {
		kv_device_free(l->device, on_device);
		return rc;
	}
	memcpy((*out)->base + KV_LENT_STAMP, &payload, sizeof payload);
	(*out)->on_device = on_device;
	(*out)->bytes_on_device = bytes;
	return KV_OK;
}

int
kv_lender_take_on_device(
    struct kv_lender *l, size_t n, void **on_device, struct kv_reference *reference, struct kv_err *e)
{
	const size_t bytes = (n + CARD_UNIT - 1) / CARD_UNIT * CARD_UNIT;
	struct kv_room *r;
	int rc;

	*on_device = NULL;
	if (l->device == NULL || l->device->card[0] == '\0')
		return KV_OK;
	if (!l->is_open && (rc = open_memory(l, e)) < 0)
		return rc;
	if ((r = find_room(l, pages(sizeof(struct kv_device_payload)), bytes)) == NULL &&
	    ((rc = add_room_on_device(l, bytes, &r, e)) < 0 || r == NULL))
		return rc;
	*on_device = r->on_device;
	*reference = lend(l, r);
	reference->card = l->device->card;
	return KV_OK;
}

static bool
all_given_back(const struct kv_lender *l)
{
	for (size_t i = 0; i < l->n_rooms; i++)
		if (!is_free(&l->rooms[i]))
			return false;
	return true;
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

/* Of a clock that nobody sets: a busy machine makes ticks longer. */
static double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
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
	double seen = now_ms(); /* when somebody was there last */

	while (l->is_open && !all_given_back(l)) {
		if (out >= 0 && reader_has_gone(out) && !is_held(l) && !all_given_back(l))
			return kv_fail(e, KV_EPIPE, "the reader of what is shared has gone");
		if (out >= 0 && is_empty(out)) {
			close_output(out);
			out = -1;
		}
		if (out >= 0 || is_held(l))
			seen = now_ms();
		else if (now_ms() - seen >= GRACE_MS)
			return kv_fail(e, KV_EIO,
			    "nobody has fetched what was left in memory, and it is lost: "
			    "the reader is no program of kvtools, or it failed; run without --share");
		nanosleep(&tick, NULL);
	}
	return KV_OK;
}

void
kv_lender_fini(struct kv_lender *l)
{
	while (l->n_rooms > 0)
		drop_room(l, &l->rooms[l->n_rooms - 1]);
	free(l->rooms);
	if (l->is_open)
		close(l->fd);
	*l = (struct kv_lender){ 0 };
}
