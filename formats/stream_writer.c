/* SPDX-License-Identifier: MIT
 * Writing streams.  Small records gather in a buffer; a payload goes out directly behind it, never copied. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/backlog.h"
#include "formats/join.h"
#include "formats/lender.h"
#include "formats/record.h"
#include "formats/sink.h"
#include "lib/checksum.h"
#include "lib/names.h"

#define FLUSH_AT  ((size_t)1 << 16)
#define ROOMS_MAX 8

enum stage { BEFORE_HEADER, BETWEEN_SEQUENCES, IN_SEQUENCE, AFTER_END };

struct kv_writer {
	struct kv_sink sink;
	struct kv_backlog *backlog; /* NULL: what is put out has been written */
	struct kv_buf buf;
	uint64_t offset; /* bytes since the stream's start, those in buf included */
	enum stage stage;
	size_t n_sequences; /* opened so far */
	struct choice {
		char *list; /* of names; NULL: no choice was made */
		bool *met;  /* for each of them: has it been asked about? */
	} only, drop;
	kv_unmet_fn *unmet;
	bool shares;
	struct kv_lender lender;
	struct room { /* kv_writer_room(), _on_device(), until its tensor is written */
		const void *data; /* NULL: none */
		struct kv_reference at;
	} rooms[ROOMS_MAX];
	size_t part_max;    /* bytes of the largest part that is made */
};

/* ---- opening */

static int
choose(struct choice *c, const char *list, struct kv_err *e)
{
	int rc = kv_names_check(list, e);
	size_t n = 0;

	if (rc < 0 || list == NULL)
		return rc;
	for (const char *at = list; at != NULL; at = kv_names_next(at))
		n++;
	c->list = strdup(list);
	c->met = kv_alloc(n, sizeof *c->met, e);
	return c->list != NULL && c->met != NULL ? KV_OK : kv_no_memory(e, strlen(list));
}

static void
choice_fini(struct choice *c)
{
	free(c->list);
	free(c->met);
}

static bool
is_chosen(const struct choice *c, const char *name)
{
	bool chosen = false, *met = c->met;

	for (const char *at = c->list; at != NULL; at = kv_names_next(at), met++)
		if (kv_names_first_is(at, name))
			*met = chosen = true;
	return chosen;
}

static void
tell_unmet(const struct kv_writer *w, const struct choice *c, const char *option)
{
	const bool *met = c->met;

	for (const char *at = c->list; at != NULL && w->unmet != NULL; at = kv_names_next(at), met++)
		if (!*met)
			w->unmet(option, (int)strcspn(at, ","), at);
}

int
kv_writer_open(struct kv_writer **out, const char *path, const char *only, const char *drop, struct kv_err *e)
{
	struct kv_writer *w = *out = kv_alloc(1, sizeof *w, e);
	int rc;

	if (w == NULL)
		return KV_EMEM;
	w->part_max = UINT32_MAX;
	if ((rc = choose(&w->only, only, e)) < 0 || (rc = choose(&w->drop, drop, e)) < 0 ||
	    (rc = kv_sink_open(&w->sink, path, e)) < 0) {
		kv_writer_drop(w);
		*out = NULL;
	}
	return rc;
}

void
kv_writer_share(struct kv_writer *w)
{
	w->shares = kv_writer_refers(w);
}

void
kv_writer_share_on(struct kv_writer *w, struct kv_device *d)
{
	w->lender.device = d;
	kv_writer_share(w);
}

bool
kv_writer_refers(const struct kv_writer *w)
{
	return w->sink.is_pipe && w->sink.compressor == NULL;
}

bool
kv_writer_shares(const struct kv_writer *w)
{
	return w->shares;
}

void
kv_writer_part_max(struct kv_writer *w, size_t bytes)
{
	w->part_max = bytes;
}

bool
kv_writer_leaves(const struct kv_writer *w, const char *name)
{
	bool chosen = is_chosen(&w->only, name), dropped = is_chosen(&w->drop, name); /* both are to be marked */

	return (w->only.list == NULL || chosen) && !dropped;
}

void
kv_writer_on_unmet(struct kv_writer *w, kv_unmet_fn *unmet)
{
	w->unmet = unmet;
}

/* ---- bytes */

/* What has gathered, and bytes behind it that are not copied. */
static int
put_out(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e)
{
	size_t n_head = w->buf.n;

	w->buf.n = 0;
	if (n_head + n == 0)
		return KV_OK;
	if (w->backlog != NULL)
		return kv_backlog_put(w->backlog, w->buf.data, n_head, bytes, n, e);
	return kv_sink_write_both(&w->sink, w->buf.data, n_head, bytes, n, e);
}

int
kv_writer_background(struct kv_writer *w, struct kv_err *e)
{
	return kv_backlog_new(&w->backlog, &w->sink, e);
}

int
kv_writer_settle(struct kv_writer *w, struct kv_err *e)
{
	return w->backlog != NULL ? kv_backlog_settle(w->backlog, e) : KV_OK;
}

static int
flush(struct kv_writer *w, struct kv_err *e)
{
	return put_out(w, NULL, 0, e);
}

static int
put(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e)
{
	int rc = kv_buf_add(&w->buf, bytes, n, e);

	if (rc < 0)
		return rc;
	w->offset += n;
	return w->buf.n >= FLUSH_AT ? flush(w, e) : KV_OK;
}

/* A map, into a buffer of its own first: nothing of a record that cannot be encoded, or that a reader would refuse,
 * gets out. */
static int
put_map(struct kv_writer *w, const json_t *map, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	struct kv_skim s = { 0 };
	int rc;

	if (map == NULL)
		return kv_no_memory(e, sizeof(json_t *));
	if ((rc = kv_pack_encode(&b, map, e)) == KV_OK && b.n > KV_RECORD_MAX)
		rc = kv_fail(e, KV_EFORMAT, "a record of %zu bytes; a stream's may have %u", b.n, KV_RECORD_MAX);
	if (rc == KV_OK && (rc = kv_skim(&s, (const unsigned char *)b.data, b.n, e)) < 0)
		kv_where(e, "what a stream cannot carry");
	if (rc == KV_OK)
		rc = put(w, b.data, b.n, e);
	kv_buf_fini(&b);
	return rc;
}

/* nils until a bin object of n bytes has its payload on a multiple of KV_ALIGN, then that object's head. */
int
kv_writer_part(struct kv_writer *w, uint32_t n, struct kv_err *e)
{
	unsigned char nils[KV_ALIGN];
	size_t head = kv_pack_bin_head_bytes(n), before = w->buf.n;
	size_t pad = (KV_ALIGN - (w->offset + head) % KV_ALIGN) % KV_ALIGN;
	int rc;

	memset(nils, 0xc0, sizeof nils);
	if ((rc = kv_buf_add(&w->buf, nils, pad, e)) < 0 || (rc = kv_pack_bin_head(&w->buf, n, e)) < 0)
		return rc;
	w->offset += w->buf.n - before;
	return KV_OK;
}

int
kv_writer_bytes(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e)
{
	w->offset += n;
	return n > 0 ? put_out(w, bytes, n, e) : KV_OK;
}

int
kv_writer_hand(struct kv_writer *w, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e)
{
	int rc = flush(w, e);

	*done = 0;
	if (rc == KV_OK && (rc = kv_writer_settle(w, e)) == KV_OK)
		rc = kv_sink_hand(&w->sink, from, n, done, e);
	w->offset += *done;
	return rc;
}

static int
put_payload(struct kv_writer *w, const struct kv_tensor *t, const struct kv_parts *p, struct kv_err *e)
{
	const char *at = t->data;
	int rc;

	for (size_t i = 0; i < p->n; at += p->size[i++])
		if ((rc = kv_writer_part(w, p->size[i], e)) < 0 || (rc = kv_writer_bytes(w, at, p->size[i], e)) < 0)
			return rc;
	return KV_OK;
}

/* ---- records */

static int
expect(const struct kv_writer *w, enum stage stage, const char *what, struct kv_err *e)
{
	if (w->stage == stage)
		return KV_OK;
	return kv_fail(e, KV_EARG, "%s: %s at a place where no stream has one", w->sink.name, what);
}

int
kv_writer_header_map(struct kv_writer *w, const json_t *header, const json_t *history, struct kv_err *e)
{
	json_t *map = json_pack("{s:i}", "kvstream", KV_STREAM_VERSION);
	int rc = expect(w, BEFORE_HEADER, "a header", e);

	if (rc == KV_OK && (map == NULL || kv_join_maps(map, header, e) < 0 ||
			       json_object_set_nocheck(map, "history", (json_t *)history) < 0))
		rc = kv_no_memory(e, sizeof(json_t *));
	if (rc == KV_OK && (rc = put_map(w, map, e)) == KV_OK)
		rc = flush(w, e);
	w->stage = BETWEEN_SEQUENCES;
	json_decref(map);
	return rc;
}

int
kv_writer_header(struct kv_writer *w, const json_t *model, const json_t *history, const json_t *entry, struct kv_err *e)
{
	json_t *header = json_object(), *all = history ? json_copy((json_t *)history) : json_array();
	int rc;

	if (header == NULL || all == NULL || json_object_set_nocheck(header, "model", (json_t *)model) < 0 ||
	    (entry != NULL && json_array_append(all, (json_t *)entry) < 0))
		rc = kv_no_memory(e, sizeof(json_t *));
	else
		rc = kv_writer_header_map(w, header, all, e);
	json_decref(all);
	json_decref(header);
	return rc;
}

int
kv_writer_sequence(struct kv_writer *w, const json_t *map, struct kv_err *e)
{
	json_t *full = json_pack("{s:I}", "sequence", (json_int_t)w->n_sequences);
	int rc = expect(w, BETWEEN_SEQUENCES, "a sequence", e);

	if (rc == KV_OK && (full == NULL || kv_join_maps(full, map, e) < 0))
		rc = kv_no_memory(e, sizeof(json_t *));
	if (rc == KV_OK && (rc = kv_sequence_check(full, e)) < 0)
		rc = kv_where(e, "%s: sequence %zu", w->sink.name, w->n_sequences);
	if (rc == KV_OK && (rc = put_map(w, full, e)) == KV_OK)
		rc = flush(w, e);
	w->stage = IN_SEQUENCE;
	w->n_sequences++;
	json_decref(full);
	return rc;
}

static bool
is_lent(const struct kv_writer *w, const char *name, size_t bytes)
{
	return w->shares && bytes > KV_SHARE_MIN && kv_writer_leaves(w, name);
}

/* The room whose data these are, with NULL one that is free; NULL: none. */
static struct room *
find_room(struct kv_writer *w, const void *data)
{
	for (size_t i = 0; i < ROOMS_MAX; i++)
		if (w->rooms[i].data == data)
			return &w->rooms[i];
	return NULL;
}

static int
take_room(struct kv_writer *w, int (*take)(struct kv_lender *, size_t, void **, struct kv_reference *, struct kv_err *),
    const char *name, size_t n, void **data, struct kv_err *e)
{
	struct room *r = find_room(w, NULL);

	*data = NULL;
	if (r == NULL || !is_lent(w, name, n))
		return KV_OK;
	if (take(&w->lender, n, data, &r->at, e) < 0)
		return kv_where(e, "%s", w->sink.name);
	r->data = *data;
	return KV_OK;
}

int
kv_writer_room(struct kv_writer *w, const char *name, size_t n, void **room, struct kv_err *e)
{
	return take_room(w, kv_lender_take, name, n, room, e);
}

int
kv_writer_room_on_device(struct kv_writer *w, const char *name, size_t n, void **room, struct kv_err *e)
{
	return take_room(w, kv_lender_take_on_device, name, n, room, e);
}

/* Where a tensor's payload lies already; NULL: in its own memory. */
static struct room *
room_of(struct kv_writer *w, const struct kv_tensor *t)
{
	const void *data = t->data != NULL ? t->data : t->device;

	return data != NULL ? find_room(w, data) : NULL;
}

/* A payload that stays in memory; it may be there already. */
static int
lend(struct kv_writer *w, const struct kv_tensor *t, struct kv_payload *p, struct kv_err *e)
{
	struct room *r = room_of(w, t);
	void *data;

	if (r != NULL) {
		p->reference = r->at;
		r->data = NULL;
		return KV_OK;
	}
	if (kv_lender_take(&w->lender, t->bytes, &data, &p->reference, e) < 0)
		return kv_where(e, "%s", w->sink.name);
	memcpy(data, t->data, t->bytes);
	return KV_OK;
}

int
kv_writer_tensor(struct kv_writer *w, const struct kv_tensor *t, struct kv_err *e)
{
	const bool lent = w->shares && t->bytes > KV_SHARE_MIN;
	struct kv_payload payload = { .bytes = t->bytes, .has_sum = !lent };
	struct kv_parts parts = { 0 };
	json_t *map = NULL;
	int rc = expect(w, IN_SEQUENCE, "a tensor", e);

	if (rc < 0 || !kv_writer_leaves(w, t->name))
		return rc;
	if (t->data == NULL && t->bytes > 0 && room_of(w, t) == NULL)
		return kv_fail(e, KV_EARG, "%s: tensor %s has no data", w->sink.name, t->name);
	rc = lent ? lend(w, t, &payload, e) : kv_parts_split(&parts, t->bytes, kv_tensor_row(t), w->part_max, e);
	if (rc < 0)
		goto done;
	payload.parts = parts.n;
	payload.xxh3 = lent ? 0 : kv_checksum(t->data, t->bytes);
	map = kv_tensor_to_map(t, &payload);
	if ((rc = put_map(w, map, e)) == KV_OK)
		rc = put_payload(w, t, &parts, e);
done:
	json_decref(map);
	kv_parts_fini(&parts);
	return rc;
}

int
kv_writer_tensor_map(struct kv_writer *w, const struct kv_buf *raw, struct kv_err *e)
{
	int rc = expect(w, IN_SEQUENCE, "a tensor", e);

	return rc < 0 ? rc : put(w, raw->data, raw->n, e);
}

int
kv_writer_tensor_parts(struct kv_writer *w, const struct kv_buf *raw, const struct kv_tensor *t,
    const struct kv_parts *p, struct kv_err *e)
{
	int rc;

	if (!kv_writer_leaves(w, t->name))
		return expect(w, IN_SEQUENCE, "a tensor", e);
	rc = kv_writer_tensor_map(w, raw, e);
	return rc < 0 ? rc : put_payload(w, t, p, e);
}

int
kv_writer_raw(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e)
{
	if (w->stage == BEFORE_HEADER || w->stage == AFTER_END)
		return kv_fail(e, KV_EARG, "%s: a record outside of the stream", w->sink.name);
	return put(w, bytes, n, e);
}

/* Where a record with its own bytes may stand, and what comes then. */
static const struct {
	enum stage before, after;
	const char *what;
} moves[] = {
	[KV_RECORD_HEADER] = { BEFORE_HEADER, BETWEEN_SEQUENCES, "a header" },
	[KV_RECORD_SEQUENCE] = { BETWEEN_SEQUENCES, IN_SEQUENCE, "a sequence" },
	[KV_RECORD_TENSOR] = { IN_SEQUENCE, IN_SEQUENCE, "a tensor" },
	[KV_RECORD_LAYER_END] = { IN_SEQUENCE, IN_SEQUENCE, "a layer's end" },
	[KV_RECORD_CLOSE] = { IN_SEQUENCE, BETWEEN_SEQUENCES, "a sequence's end" },
	[KV_RECORD_END] = { BETWEEN_SEQUENCES, AFTER_END, "an End record" },
};

static int
advance(struct kv_writer *w, enum kv_record_kind kind, struct kv_err *e)
{
	int rc = expect(w, moves[kind].before, moves[kind].what, e);

	w->stage = moves[kind].after;
	w->n_sequences += kind == KV_RECORD_SEQUENCE;
	return rc;
}

int
kv_writer_record(struct kv_writer *w, enum kv_record_kind kind, const struct kv_buf *raw, struct kv_err *e)
{
	int rc = advance(w, kind, e);

	if (rc < 0 || (rc = put(w, raw->data, raw->n, e)) < 0)
		return rc;
	return flush(w, e);
}

/* A record that says little: a new reference to its map, dropped here. */
static int
put_small(struct kv_writer *w, enum kv_record_kind kind, json_t *map, struct kv_err *e)
{
	int rc = advance(w, kind, e);

	if (rc == KV_OK && (rc = put_map(w, map, e)) == KV_OK)
		rc = flush(w, e);
	json_decref(map);
	return rc;
}

int
kv_writer_layer_end(struct kv_writer *w, int layer, struct kv_err *e)
{
	return put_small(w, KV_RECORD_LAYER_END, json_pack("{s:i}", "layer_end", layer), e);
}

int
kv_writer_close(struct kv_writer *w, struct kv_err *e)
{
	json_t *map = json_pack("{s:I,s:s}", "close", (json_int_t)w->n_sequences - 1, "status", "ok");

	return put_small(w, KV_RECORD_CLOSE, map, e);
}

/* ---- the end */

int
kv_writer_finish(struct kv_writer *w, struct kv_err *e)
{
	const bool to_file = w->sink.file.path != NULL; /* which is closed by then */
	int rc = KV_OK;

	if (w->stage != AFTER_END)
		rc = put_small(w, KV_RECORD_END, json_pack("{s:I}", "end", (json_int_t)w->n_sequences), e);
	if (rc == KV_OK && (rc = kv_writer_settle(w, e)) == KV_OK && (rc = kv_sink_finish(&w->sink, e)) == KV_OK)
		rc = kv_lender_wait(&w->lender, to_file ? -1 : w->sink.fd, e);
	if (rc == KV_OK && w->n_sequences > 0) {
		tell_unmet(w, &w->only, "only");
		tell_unmet(w, &w->drop, "drop");
	}
	kv_writer_drop(w);
	return rc;
}

void
kv_writer_drop(struct kv_writer *w)
{
	if (w == NULL)
		return;
	kv_backlog_free(w->backlog);
	kv_sink_drop(&w->sink);
	kv_lender_fini(&w->lender);
	kv_buf_fini(&w->buf);
	choice_fini(&w->only);
	choice_fini(&w->drop);
	free(w);
}

json_t *
kv_history_entry(const char *program, const char *version, int argc, char *const *argv)
{
	json_t *arguments = json_array(), *entry;
	bool ok = arguments != NULL;

	/* an argument need not be UTF-8: jansson and MessagePack carry its bytes as they are */
	for (int i = 0; i < argc && ok; i++)
		ok = json_array_append_new(arguments, json_string_nocheck(argv[i])) == 0;
	entry = ok ? json_pack("{s:s,s:s,s:O}", "program", program, "version", version, "arguments", arguments) : NULL;
	json_decref(arguments);
	return entry;
}
