/* SPDX-License-Identifier: MIT */
#include "formats/borrower.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

/* One file or memory that loans lie in: open from the first of them to the end of the stream, so that a program's
 * memory outlives the program. */
struct kv_lent {
	char *path;
	bool is_memory, can_give_back;
	int fd; /* -1: could not be opened */
};

struct kv_loan {
	struct kv_loan *next;
	struct kv_borrower *of;
	size_t from; /* which of of->lent */
	struct kv_reference at; /* no path */
	size_t bytes;
	void *base; /* NULL: not mapped */
	size_t base_bytes;
	bool passed;
	char card[KV_CARD_MAX]; /* where the payload lies; "": in the memory itself */
	void *copy;             /* of it, on the host */
	const struct kv_device *by; /* has opened the card's memory; NULL: nobody has */
	const void *on_device;
};

/* ---- what is lent */

/* Is this memory that a program lent, and not just any file that a stream names?  It is never written to otherwise. */
static bool
is_lent_memory(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK);
}

static void
open_lent(struct kv_lent *f)
{
	int how = O_CLOEXEC | O_NONBLOCK | O_NOCTTY; /* non-blocking: a fifo is refused, not waited for */

	f->can_give_back = f->is_memory;
	f->fd = open(f->path, (f->is_memory ? O_RDWR : O_RDONLY) | how);
	if (f->fd < 0 && f->is_memory && errno == EACCES) {
		f->can_give_back = false;
		f->fd = open(f->path, O_RDONLY | how);
	}
	if (f->fd < 0 || !f->is_memory)
		return;
	if (is_lent_memory(f->fd)) {
		flock(f->fd, LOCK_SH); /* says to the lender that somebody is there */
		return;
	}
	close(f->fd);
	f->fd = -1;
	errno = EINVAL;
}

/* The file's number in b->lent. */
static int
find_lent(struct kv_borrower *b, const struct kv_reference *r, size_t *which, struct kv_err *e)
{
	struct kv_lent *more;

	for (*which = 0; *which < b->n_lent; ++*which)
		if (b->lent[*which].is_memory == r->is_memory && strcmp(b->lent[*which].path, r->path) == 0)
			return KV_OK;
	if ((more = realloc(b->lent, (b->n_lent + 1) * sizeof *more)) == NULL)
		return kv_no_memory(e, (b->n_lent + 1) * sizeof *more);
	b->lent = more;
	more[b->n_lent] = (struct kv_lent){ .path = strdup(r->path), .is_memory = r->is_memory, .fd = -1 };
	if (more[b->n_lent].path == NULL)
		return kv_no_memory(e, strlen(r->path));
	b->n_lent++;
	if (r->is_memory)
		open_lent(&more[*which]); /* a fault is told to whoever looks at it */
	return KV_OK;
}

int
kv_borrow(struct kv_borrower *b, const struct kv_reference *r, size_t bytes, struct kv_loan **loan, struct kv_err *e)
{
	struct kv_loan *l = kv_alloc(1, sizeof *l, e);
	int rc;

	*loan = NULL;
	if (l == NULL)
		return KV_EMEM;
	if ((rc = find_lent(b, r, &l->from, e)) < 0) {
		free(l);
		return rc;
	}
	l->of = b;
	l->at = *r;
	l->at.path = l->at.card = NULL;
	if (r->card != NULL)
		snprintf(l->card, sizeof l->card, "%s", r->card);
	l->bytes = bytes;
	l->next = b->loans;
	*loan = b->loans = l;
	return KV_OK;
}

/* ---- looking at it */

static int64_t
mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

int
kv_reference_date(struct kv_reference *r, int fd, struct kv_err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return kv_fail(e, KV_EIO, "cannot find out how old a file is: %s", strerror(errno));
	r->size = (uint64_t)st.st_size;
	r->mtime_ns = mtime_ns(&st);
	return KV_OK;
}

/* Is the payload there still, and not another one in its place? */
static bool
is_lent(const struct kv_lent *f, const struct kv_reference *r)
{
	uint64_t stamp;

	return pread(f->fd, &stamp, sizeof stamp, (off_t)(r->at - KV_LENT_STAMP)) == sizeof stamp && stamp == r->stamp;
}

static int
dead(const struct kv_lent *f, const char *why, struct kv_err *e)
{
	if (f->is_memory)
		return kv_fail(e, KV_EIO,
		    "the payload was left in the memory of another program, which is gone (%s: %s); run the pipeline "
		    "without --share, or keep that program running",
		    f->path, why);
	return kv_fail(e, KV_EIO,
	    "the payload was left in the file %s, which cannot be used: %s; put it back as it was, or run the pipeline "
	    "without --share",
	    f->path, why);
}

static bool
is_on_device(const struct kv_loan *l)
{
	return l->card[0] != '\0';
}

static int
check_lent(const struct kv_lent *f, const struct kv_loan *l, struct kv_err *e)
{
	const size_t bytes = is_on_device(l) ? sizeof(struct kv_device_payload) : l->bytes;
	struct stat st;

	if (f->fd < 0)
		return dead(f, strerror(errno), e);
	if (fstat(f->fd, &st) < 0)
		return dead(f, strerror(errno), e);
	if (!S_ISREG(st.st_mode))
		return dead(f, "it is not a regular file", e);
	if (l->at.at > (uint64_t)st.st_size || bytes > (uint64_t)st.st_size - l->at.at)
		return dead(f, "it is too short: it was truncated or replaced", e);
	if (f->is_memory && !is_lent(f, &l->at))
		return kv_fail(e, KV_EIO,
		    "the payload in %s has been given back by another reader; run the pipeline without --share",
		    f->path);
	if (!f->is_memory && ((uint64_t)st.st_size != l->at.size || mtime_ns(&st) != l->at.mtime_ns))
		return dead(f, "it was changed or replaced", e);
	return KV_OK;
}

/* The file or memory, open, and as it was when it was referred to. */
static int
find(struct kv_loan *l, struct kv_lent **f, struct kv_err *e)
{
	*f = &l->of->lent[l->from];
	errno = 0;
	if ((*f)->fd < 0)
		open_lent(*f);
	return check_lent(*f, l, e);
}

/* ---- in the memory of a card */

static bool
is_on(const struct kv_loan *l, const struct kv_device *d)
{
	return d != NULL && d->op != NULL && strcmp(d->card, l->card) == 0;
}

/* What can copy from there: the program's own device, or one that is opened for that. */
static int
find_other(struct kv_loan *l, const struct kv_device **d, struct kv_err *e)
{
	struct kv_borrower *b = l->of;
	int rc;

	if (is_on(l, b->device)) {
		*d = b->device;
		return KV_OK;
	}
	*d = &b->other;
	if (is_on(l, *d))
		return kv_device_use(*d, e);
	kv_device_close(&b->other);
	if ((rc = kv_device_open_card(&b->other, l->card, e)) < 0)
		return kv_where(e, "the payload was left on a card that cannot be opened here; "
		    "run the pipeline without --share");
	return KV_OK;
}

/* The card's memory: because its program has gone, or because this system does not pass it on. */
static int
cannot_open(const struct kv_lent *f, const char *why, struct kv_err *e)
{
	if (access(f->path, F_OK) < 0)
		return dead(f, why, e);
	return kv_fail(e, KV_EIO,
	    "the payload was left in the memory of a card, and this program cannot open it there (%s); "
	    "run the pipeline without --share",
	    why);
}

static int
open_on_device(struct kv_loan *l, const struct kv_device *d, struct kv_err *e)
{
	struct kv_lent *f;
	struct kv_device_payload payload;
	int rc;

	if (l->by != NULL)
		return KV_OK;
	if ((rc = find(l, &f, e)) < 0)
		return rc;
	if (pread(f->fd, &payload, sizeof payload, (off_t)l->at.at) != sizeof payload)
		return dead(f, strerror(errno), e);
	if (payload.bytes < l->bytes)
		return dead(f, "it is shorter than its tensor", e);
	if ((l->on_device = d->op->borrow(d->dev, &payload.handle)) == NULL)
		return cannot_open(f, d->op->error(d->dev), e);
	l->by = d;
	return KV_OK;
}

void
kv_loan_leave(struct kv_loan *l)
{
	if (l == NULL || l->by == NULL)
		return;
	l->by->op->unborrow(l->by->dev, l->on_device);
	l->by = NULL;
}

int
kv_loan_on_device(struct kv_loan *l, const void **on_device, struct kv_err *e)
{
	struct kv_device *d = l->of->device;
	int rc;

	if (!is_on_device(l) || d == NULL)
		return KV_END;
	if ((rc = kv_device_ready(d, "", e)) < 0)
		return rc;
	if (!is_on(l, d))
		return KV_END;
	if ((rc = open_on_device(l, d, e)) == KV_OK)
		*on_device = l->on_device;
	return rc;
}

/* The whole of it, to the host. */
static int
copy_here(struct kv_loan *l, struct kv_err *e)
{
	const struct kv_device *d = l->by;
	void *copy;
	int rc;

	if (l->copy != NULL)
		return KV_OK;
	if (d == NULL && (rc = find_other(l, &d, e)) < 0)
		return rc;
	if ((copy = kv_alloc_unset(l->bytes, 1, e)) == NULL)
		return KV_EMEM;
	if ((rc = open_on_device(l, d, e)) == KV_OK)
		rc = kv_device_get(d, copy, l->on_device, l->bytes, "what was shared", e);
	if (rc == KV_OK)
		l->copy = copy;
	else
		free(copy);
	return rc;
}

/* ---- as bytes */

static int
map_lent(struct kv_loan *l, bool all, const void **data, struct kv_err *e)
{
	size_t before = (size_t)(l->at.at % (uint64_t)sysconf(_SC_PAGESIZE));
	struct kv_lent *f;
	int rc;

	if ((rc = find(l, &f, e)) < 0)
		return rc;
	if (l->base == NULL) {
		l->base_bytes = before + l->bytes;
		l->base = mmap(NULL, l->base_bytes, PROT_READ, MAP_SHARED | (all ? MAP_POPULATE : 0), f->fd,
		    (off_t)(l->at.at - before));
	}
	if (l->base == MAP_FAILED) {
		l->base = NULL;
		return kv_fail(e, KV_EIO, "%s: cannot map: %s", f->path, strerror(errno));
	}
	*data = (const char *)l->base + before;
	return KV_OK;
}

int
kv_loan_map(struct kv_loan *l, bool all, const void **data, struct kv_err *e)
{
	const bool is_open = l->by != NULL;
	int rc;

	if (!is_on_device(l))
		return map_lent(l, all, data, e);
	rc = copy_here(l, e);
	if (!is_open)
		kv_loan_leave(l);
	*data = l->copy;
	return rc == KV_OK && l->of->device != NULL ? kv_device_use(l->of->device, e) : rc;
}

void
kv_loan_pass(struct kv_loan *l)
{
	l->passed = true;
}

bool
kv_loan_is_memory(const struct kv_loan *l)
{
	return l != NULL && l->of->lent[l->from].is_memory;
}

const char *
kv_loan_path(const struct kv_loan *l)
{
	return l != NULL ? l->of->lent[l->from].path : "";
}

/* ---- giving it back */

static void
give_back(struct kv_loan *l)
{
	const struct kv_lent *f = &l->of->lent[l->from];
	const uint64_t none = 0;

	if (l->base != NULL)
		munmap(l->base, l->base_bytes);
	free(l->copy);
	kv_loan_leave(l);
	if (f->can_give_back && f->fd >= 0 && !l->passed && is_lent(f, &l->at) &&
	    pwrite(f->fd, &none, sizeof none, (off_t)(l->at.at - KV_LENT_STAMP)) < 0)
		return; /* the lender says that it was not given back */
}

void
kv_borrower_return(struct kv_borrower *b, struct kv_loan *but)
{
	struct kv_loan *next;

	for (struct kv_loan *l = b->loans; l != NULL; l = next) {
		next = l->next;
		if (l == but)
			continue;
		give_back(l);
		free(l);
	}
	b->loans = but;
	if (but != NULL)
		but->next = NULL;
}

void
kv_borrower_fini(struct kv_borrower *b)
{
	kv_borrower_return(b, NULL);
	kv_device_close(&b->other);
	for (size_t i = 0; i < b->n_lent; i++) {
		if (b->lent[i].fd >= 0)
			close(b->lent[i].fd);
		free(b->lent[i].path);
	}
	free(b->lent);
	*b = (struct kv_borrower){ 0 };
}
