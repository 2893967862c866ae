/* SPDX-License-Identifier: MIT
 * Payloads: loaded, left where they are, taken piece by piece, or stepped over. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/stream_reader.h"
#include "lib/checksum.h"

#define LOAD_FIRST ((size_t)16 << 20) /* bytes of a payload that a pipe may announce and get at once */
#define PIECE      ((size_t)1 << 18)  /* bytes that are taken at once, and summed up while they are near */

/* The head of the next bin object: its size, which must fit what is left of the payload. */
static int
read_part_head(struct kv_reader *r, size_t i, size_t left, uint32_t *n, struct kv_err *e)
{
	bool last = i + 1 == r->payload.parts;
	size_t head;
	int rc;

	if ((rc = kv_reader_skip_nils(r, e)) == KV_OK)
		rc = kv_source_peek(&r->src, 5, e);
	if (rc < 0)
		return rc;
	if (rc == KV_END)
		return kv_reader_cut_short(r, "before a payload", e);
	head = kv_pack_bin_head_read(r->src.at, r->src.have, n);
	if (head == 0 && r->src.at[0] >= 0xc4 && r->src.at[0] <= 0xc6)
		return kv_reader_cut_short(r, "before a payload", e);
	if (head == 0)
		return kv_fail(e, KV_EFORMAT, "part %zu of its %zu is no bin object", i + 1, r->payload.parts);
	if (*n > left || (last && *n != left) || (*n == 0 && r->payload.bytes > 0))
		return kv_fail(e, KV_EFORMAT, "part %zu of %zu has %" PRIu32 " bytes, with %zu of the payload to come",
		    i + 1, r->payload.parts, *n, left);
	kv_source_skip(&r->src, head);
	return KV_OK;
}

int
kv_reader_discard(struct kv_reader *r, struct kv_err *e)
{
	size_t left = r->payload.bytes, got;
	uint32_t n;
	int rc;

	for (size_t i = 0; i < r->payload.parts; i++) {
		if ((rc = read_part_head(r, i, left, &n, e)) < 0 || (rc = kv_source_discard(&r->src, n, &got, e)) < 0)
			return rc;
		if (got < n)
			return kv_reader_cut_short(r, "inside a payload", e);
		left -= n;
	}
	return KV_OK;
}

static int
check_sum(const struct kv_reader *r, uint64_t found, struct kv_err *e)
{
	if (found == r->payload.xxh3)
		return KV_OK;
	if (r->loan != NULL)
		return kv_fail(e, KV_EFORMAT,
		    "the payload in %s was changed: its checksum is %016" PRIx64
		    ", expected %016" PRIx64 "; run the pipeline without --share",
		    kv_loan_path(r->loan), found, r->payload.xxh3);
	return kv_fail(e, KV_EFORMAT, "the payload was damaged: its checksum is %016" PRIx64 ", expected %016" PRIx64,
	    found, r->payload.xxh3);
}

/* Where the bytes go: memory that grows with what arrives.  Large blocks are remapped when they grow, not copied. */
struct load {
	char *data;
	size_t cap, n;
	struct kv_summing *sum;
	const struct kv_taker *also; /* gets them too; NULL: nobody */
	bool refused;                /* by `also`, whose fault it is */
	bool unseen;                 /* no checksum */
};

static int
load_grow(struct load *l, size_t bytes, struct kv_err *e)
{
	size_t cap = l->cap ? (l->cap > bytes / 2 ? bytes : 2 * l->cap) : bytes < LOAD_FIRST ? bytes : LOAD_FIRST;
	char *p = realloc(l->data, cap ? cap : 1);

	if (p == NULL)
		return kv_no_memory(e, cap);
	l->data = p;
	l->cap = cap;
	return KV_OK;
}

/* Some of the next *n bytes of a pipe go to l->also, and are still here to be read: *n of them.  KV_END: none. */
static int
copy_ahead(struct kv_reader *r, struct load *l, size_t *n, struct kv_err *e)
{
	struct kv_fifo_from from;
	size_t done;
	int rc;

	if (l->also == NULL || l->also->hand == NULL || !kv_source_in_pipe(&r->src, &from))
		return KV_END;
	from.keep = true;
	if ((rc = l->also->hand(l->also->ctx, &from, *n, &done, e)) == KV_OK)
		*n = done;
	l->refused = rc < 0;
	return rc == KV_OK && *n == 0 ? kv_reader_cut_short(r, "inside a payload", e) : rc;
}

/* Some more bytes, at most n of them, for which there is room. */
static int
load_some(struct kv_reader *r, struct load *l, size_t n, struct kv_err *e)
{
	char *to = l->data + l->n;
	size_t want = n < PIECE ? n : PIECE, got;
	int copied, rc;

	if (l->also != NULL && r->src.have > 0 && r->src.have < want)
		want = r->src.have;
	if ((copied = copy_ahead(r, l, &want, e)) < 0)
		return copied;
	if ((rc = kv_source_read(&r->src, to, want, &got, e)) < 0)
		return rc;
	if (got < want)
		return kv_reader_cut_short(r, "inside a payload", e);
	if (!l->unseen)
		kv_summing_add(l->sum, to, got);
	l->n += got;
	if (l->also == NULL || copied == KV_OK)
		return KV_OK;
	rc = l->also->bytes(l->also->ctx, to, got, e);
	l->refused = rc < 0;
	return rc;
}

/* The next part, of n bytes, of a payload of `bytes` in all. */
static int
load_part(struct kv_reader *r, struct load *l, size_t n, size_t bytes, struct kv_err *e)
{
	size_t end = l->n + n;
	int rc;

	if (l->also != NULL && (rc = l->also->part(l->also->ctx, (uint32_t)n, e)) < 0) {
		l->refused = true;
		return rc;
	}
	while (l->n < end) {
		if (l->n == l->cap && (rc = load_grow(l, bytes, e)) < 0)
			return rc;
		if ((rc = load_some(r, l, end < l->cap ? end - l->n : l->cap - l->n, e)) < 0)
			return rc;
	}
	return KV_OK;
}

static int
load_payload(struct kv_reader *r, struct load *l, struct kv_err *e)
{
	size_t bytes = r->payload.bytes;
	int rc;

	if (!l->unseen && (l->sum = kv_summing_new(e)) == NULL)
		return KV_EMEM;
	if (r->src.map.data != NULL && bytes > r->src.have)
		return kv_reader_cut_short(r, "inside a payload", e);
	if ((rc = load_grow(l, bytes, e)) < 0)
		return rc;
	for (size_t i = 0; i < r->payload.parts; i++) {
		if ((rc = read_part_head(r, i, bytes - l->n, &r->parts.size[i], e)) < 0 ||
		    (rc = load_part(r, l, r->parts.size[i], bytes, e)) < 0)
			return rc;
	}
	return l->unseen ? KV_OK : check_sum(r, kv_summing_get(l->sum), e);
}

/* A whole, aligned payload of a mapped file stays where it is.  KV_END: not that lucky. */
static int
borrow_payload(struct kv_reader *r, const void **data, struct kv_err *e)
{
	size_t head, n;
	int rc;

	if (r->src.map.data == NULL || r->payload.parts != 1 || r->payload.bytes == 0)
		return KV_END;
	if ((rc = kv_reader_skip_nils(r, e)) != KV_OK)
		return rc; /* the end of the file: load_payload() says so */
	n = r->payload.bytes;
	head = kv_pack_bin_head_read(r->src.at, r->src.have, &r->parts.size[0]);
	if (head == 0 || r->parts.size[0] != n || r->src.have - head < n ||
	    (uintptr_t)(r->src.at + head) % KV_ALIGN != 0)
		return KV_END;
	if ((rc = check_sum(r, kv_checksum(r->src.at + head, n), e)) < 0)
		return rc;
	*data = r->src.at + head;
	kv_source_skip(&r->src, head + n);
	return KV_OK;
}

/* Whatever is done with the payload, it is done once. */
static int
begin(struct kv_reader *r, size_t bytes, struct kv_err *e)
{
	size_t n = r->payload.parts;

	if (!r->pending || r->broken || bytes != r->payload.bytes)
		return kv_fail(e, KV_EARG, "%s: no tensor's payload stands here", r->src.name);
	r->pending = false;
	kv_parts_fini(&r->parts);
	if ((r->parts.size = kv_alloc(n, sizeof *r->parts.size, e)) == NULL)
		return kv_reader_broken(r, r->tensor, e);
	r->parts.n = n;
	r->parts.xxh3 = r->payload.xxh3;
	return KV_OK;
}

static int
map_loan(struct kv_reader *r, const void **data, bool unseen, struct kv_err *e)
{
	int rc = kv_loan_map(r->loan, !unseen, data, e);

	if (rc < 0 || unseen || !r->payload.has_sum)
		return rc;
	return check_sum(r, kv_checksum(*data, r->payload.bytes), e);
}

int
kv_reader_fork(struct kv_reader *r, struct kv_tensor *t, const struct kv_taker *to, struct kv_err *e)
{
	struct load l = { .also = to != NULL && to->part != NULL ? to : NULL, .unseen = to != NULL && to->unseen };
	int rc = begin(r, t->bytes, e);

	if (rc < 0)
		return rc;
	if (r->loan != NULL)
		rc = map_loan(r, &t->data, l.unseen, e);
	else
		rc = to == NULL ? borrow_payload(r, &t->data, e) : KV_END;
	if (rc == KV_END && (rc = load_payload(r, &l, e)) == KV_OK) {
		t->data = t->owned = l.data;
		l.data = NULL;
	}
	kv_summing_free(l.sum);
	free(l.data);
	return rc < 0 && !l.refused ? kv_reader_broken(r, r->tensor, e) : rc;
}

int
kv_reader_payload(struct kv_reader *r, struct kv_tensor *t, struct kv_err *e)
{
	return kv_reader_fork(r, t, NULL, e);
}

/* ---- without holding it */

static int
locate(struct kv_reader *r, struct kv_err *e)
{
	size_t left = r->payload.bytes, got;
	int rc;

	if ((r->parts.at = kv_alloc(r->parts.n, sizeof *r->parts.at, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < r->parts.n; left -= r->parts.size[i++]) {
		if ((rc = read_part_head(r, i, left, &r->parts.size[i], e)) < 0)
			return rc;
		r->parts.at[i] = r->src.at;
		if ((rc = kv_source_discard(&r->src, r->parts.size[i], &got, e)) < 0)
			return rc;
		if (got < r->parts.size[i])
			return kv_reader_cut_short(r, "inside a payload", e);
	}
	return KV_OK;
}

bool
kv_reader_is_mapped(const struct kv_reader *r)
{
	return r->src.map.data != NULL;
}

int
kv_reader_locate(struct kv_reader *r, const struct kv_tensor *t, struct kv_err *e)
{
	int rc;

	if (!kv_reader_is_mapped(r))
		return KV_END;
	if ((rc = begin(r, t->bytes, e)) < 0)
		return rc;
	return locate(r, e) < 0 ? kv_reader_broken(r, r->tensor, e) : KV_OK;
}

struct kv_loan *
kv_reader_loan(const struct kv_reader *r)
{
	return r->pending ? r->loan : NULL;
}

void
kv_reader_use(struct kv_reader *r, struct kv_device *d)
{
	r->borrower.device = d;
}

int
kv_reader_on_device(struct kv_reader *r, struct kv_tensor *t, struct kv_err *e)
{
	int rc = kv_loan_on_device(r->loan, &t->device, e);

	if (rc == KV_OK)
		return begin(r, t->bytes, e);
	return rc < 0 ? kv_reader_broken(r, r->tensor, e) : rc;
}

/* Of an open file, if it still has that name; free() it.  NULL: none, or no memory. */
static char *
name_of(int fd)
{
	char link[64], path[PATH_MAX];
	struct stat a, b;
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if ((n = readlink(link, path, sizeof path - 1)) <= 0)
		return NULL;
	path[n] = '\0';
	if (path[0] != '/' || fstat(fd, &a) < 0 || stat(path, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return NULL;
	return strdup(path);
}

int
kv_reader_refer(struct kv_reader *r, struct kv_reference *to, struct kv_err *e)
{
	int rc;

	if (!r->path_known && kv_reader_is_mapped(r)) {
		if ((rc = kv_reference_date(&r->file, r->src.fd, e)) < 0)
			return rc;
		r->path = name_of(r->src.fd);
		r->file.path = r->path;
	}
	r->path_known = true;
	*to = r->file;
	return to->path != NULL ? KV_OK : KV_END;
}

bool
kv_reader_file_at(const struct kv_reader *r, const void *at, size_t n, struct kv_fifo_from *from)
{
	const unsigned char *p = at;
	const struct kv_map *m = &r->src.map;

	if (m->data == NULL || p < m->data || (size_t)(p - m->data) > m->bytes || n > m->bytes - (size_t)(p - m->data))
		return false;
	*from = (struct kv_fifo_from){ .fd = r->src.fd, .is_file = true,
		.at = (uint64_t)(p - (const unsigned char *)m->base) };
	return true;
}

struct copy {
	const struct kv_taker *to;
	struct kv_summing *sum; /* NULL: unseen */
};

/* Some of the next n bytes of a part: from descriptor to descriptor where that goes, or from the buffer. */
static int
copy_some(struct kv_reader *r, struct copy *c, size_t n, size_t *done, struct kv_err *e)
{
	struct kv_fifo_from from;
	int rc = KV_END;

	if (c->sum == NULL && c->to->hand != NULL && kv_source_in_pipe(&r->src, &from) &&
	    (rc = c->to->hand(c->to->ctx, &from, n, done, e)) == KV_OK)
		kv_source_passed(&r->src, *done);
	if (rc != KV_END)
		return rc;
	if (r->src.have == 0 && kv_source_peek(&r->src, n < PIECE ? n : PIECE, e) < 0)
		return kv_reader_broken(r, r->tensor, e);
	*done = n < r->src.have ? n : r->src.have;
	*done = *done < PIECE ? *done : PIECE;
	if (c->sum != NULL)
		kv_summing_add(c->sum, r->src.at, *done);
	rc = c->to->bytes(c->to->ctx, r->src.at, *done, e);
	kv_source_skip(&r->src, *done);
	return rc;
}

static int
copy_part(struct kv_reader *r, struct copy *c, size_t n, struct kv_err *e)
{
	size_t done;
	int rc = c->to->part(c->to->ctx, (uint32_t)n, e);

	for (; n > 0 && rc == KV_OK; n -= done)
		if ((rc = copy_some(r, c, n, &done, e)) == KV_OK && done == 0) {
			kv_reader_cut_short(r, "inside a payload", e);
			return kv_reader_broken(r, r->tensor, e);
		}
	return rc;
}

static int
copy_payload(struct kv_reader *r, struct copy *c, struct kv_err *e)
{
	size_t left = r->payload.bytes;
	int rc;

	for (size_t i = 0; i < r->parts.n; left -= r->parts.size[i++]) {
		if (read_part_head(r, i, left, &r->parts.size[i], e) < 0)
			return kv_reader_broken(r, r->tensor, e);
		if ((rc = copy_part(r, c, r->parts.size[i], e)) < 0)
			return rc;
	}
	if (c->sum == NULL || check_sum(r, kv_summing_get(c->sum), e) == KV_OK)
		return KV_OK;
	return kv_reader_broken(r, r->tensor, e);
}

int
kv_reader_copy(struct kv_reader *r, const struct kv_tensor *t, const struct kv_taker *to, struct kv_err *e)
{
	struct copy c = { .to = to };
	int rc = begin(r, t->bytes, e);

	if (rc < 0)
		return rc;
	if (!to->unseen && (c.sum = kv_summing_new(e)) == NULL)
		return KV_EMEM;
	rc = copy_payload(r, &c, e);
	kv_summing_free(c.sum);
	return rc;
}

/* ---- afterwards */

void
kv_reader_take_parts(struct kv_reader *r, struct kv_parts *to)
{
	*to = r->parts;
	r->parts = (struct kv_parts){ 0 };
}

void
kv_reader_forget(struct kv_reader *r)
{
	kv_source_forget(&r->src);
	kv_borrower_return(&r->borrower, kv_reader_loan(r)); /* the head that waits for the next step stays */
}
