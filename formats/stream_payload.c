/* SPDX-License-Identifier: MIT
 * Payloads: loaded, left where they are, taken piece by piece, or stepped over. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "formats/stream_reader.h"

#define LOAD_FIRST ((size_t)16 << 20) /* bytes of a payload that a pipe may announce and get at once */

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
	return kv_fail(e, KV_EFORMAT, "the payload was damaged: its checksum is %016" PRIx64 ", expected %016" PRIx64,
	    found, r->payload.xxh3);
}

/* Where the bytes go: memory that grows with what arrives.  Large blocks are remapped when they grow, not copied. */
struct load {
	char *data;
	size_t cap, n;
	XXH3_state_t *sum;
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

/* n bytes more, of a payload of `bytes` in all. */
static int
load_part(struct kv_reader *r, struct load *l, size_t n, size_t bytes, struct kv_err *e)
{
	size_t want, got;
	int rc;

	while (n > 0) {
		if (l->n == l->cap && (rc = load_grow(l, bytes, e)) < 0)
			return rc;
		want = n < l->cap - l->n ? n : l->cap - l->n;
		if ((rc = kv_source_read(&r->src, l->data + l->n, want, &got, e)) < 0)
			return rc;
		if (got < want)
			return kv_reader_cut_short(r, "inside a payload", e);
		XXH3_64bits_update(l->sum, l->data + l->n, got);
		l->n += got;
		n -= got;
	}
	return KV_OK;
}

static int
load_payload(struct kv_reader *r, struct load *l, struct kv_err *e)
{
	size_t bytes = r->payload.bytes;
	int rc;

	if ((l->sum = XXH3_createState()) == NULL)
		return kv_no_memory(e, 0);
	XXH3_64bits_reset(l->sum);
	if (r->src.map.data != NULL && bytes > r->src.have)
		return kv_reader_cut_short(r, "inside a payload", e);
	if ((rc = load_grow(l, bytes, e)) < 0)
		return rc;
	for (size_t i = 0; i < r->payload.parts; i++) {
		if ((rc = read_part_head(r, i, bytes - l->n, &r->parts.size[i], e)) < 0 ||
		    (rc = load_part(r, l, r->parts.size[i], bytes, e)) < 0)
			return rc;
	}
	return check_sum(r, XXH3_64bits_digest(l->sum), e);
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
	if ((rc = check_sum(r, XXH3_64bits(r->src.at + head, n), e)) < 0)
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

int
kv_reader_payload(struct kv_reader *r, struct kv_tensor *t, struct kv_err *e)
{
	struct load l = { 0 };
	int rc = begin(r, t->bytes, e);

	if (rc < 0)
		return rc;
	if ((rc = borrow_payload(r, &t->data, e)) == KV_END && (rc = load_payload(r, &l, e)) == KV_OK) {
		t->data = t->owned = l.data;
		l.data = NULL;
	}
	XXH3_freeState(l.sum);
	free(l.data);
	return rc < 0 ? kv_reader_broken(r, r->tensor, e) : KV_OK;
}

/* ---- without holding it */

#define PIECE ((size_t)1 << 18) /* bytes that are copied at once */

struct copy {
	char *piece; /* [PIECE] */
	XXH3_state_t *sum;
};

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

/* The next bytes of a part, at most PIECE. */
static int
next_piece(struct kv_reader *r, struct copy *c, size_t n, struct kv_err *e)
{
	size_t got;
	int rc = kv_source_read(&r->src, c->piece, n, &got, e);

	if (rc == KV_OK && got < n)
		rc = kv_reader_cut_short(r, "inside a payload", e);
	if (rc == KV_OK)
		XXH3_64bits_update(c->sum, c->piece, n);
	return rc < 0 ? kv_reader_broken(r, r->tensor, e) : KV_OK;
}

static int
copy_payload(struct kv_reader *r, struct copy *c, const struct kv_taker *to, struct kv_err *e)
{
	size_t left = r->payload.bytes, n;
	int rc;

	for (size_t i = 0; i < r->parts.n; i++) {
		if (read_part_head(r, i, left, &r->parts.size[i], e) < 0)
			return kv_reader_broken(r, r->tensor, e);
		if ((rc = to->part(to->ctx, r->parts.size[i], e)) < 0)
			return rc;
		left -= r->parts.size[i];
		for (size_t of_part = r->parts.size[i]; of_part > 0; of_part -= n) {
			n = of_part < PIECE ? of_part : PIECE;
			if ((rc = next_piece(r, c, n, e)) < 0 || (rc = to->bytes(to->ctx, c->piece, n, e)) < 0)
				return rc;
		}
	}
	return check_sum(r, XXH3_64bits_digest(c->sum), e) < 0 ? kv_reader_broken(r, r->tensor, e) : KV_OK;
}

int
kv_reader_copy(struct kv_reader *r, const struct kv_tensor *t, const struct kv_taker *to, struct kv_err *e)
{
	struct copy c = { 0 };
	int rc = begin(r, t->bytes, e);

	if (rc < 0)
		return rc;
	if ((c.piece = malloc(PIECE)) == NULL || (c.sum = XXH3_createState()) == NULL)
		rc = kv_no_memory(e, PIECE);
	if (rc == KV_OK) {
		XXH3_64bits_reset(c.sum);
		rc = copy_payload(r, &c, to, e);
	}
	XXH3_freeState(c.sum);
	free(c.piece);
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
}
