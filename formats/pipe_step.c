/* SPDX-License-Identifier: MIT
 * A step in and out.  Its layer is the lowest of all heads; loading it takes that layer's records from every input.
 *
 * A payload that the program does not use is never loaded where that can be avoided: it stays in the mapped file, or,
 * when all that stands before it has been written, goes straight on, or into the spool when steps are held. */
#include "formats/pipe_inside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/checksum.h"
#include "lib/file.h"
#include "lib/names.h"

#define LAST_LAYER INT_MAX           /* sorts KV_NO_LAYER behind all layers */
#define SPOOL_MIN  ((size_t)1 << 20) /* bytes of a payload that is used and yet does not wait in memory */

/* ---- payloads out */

/* Bytes of a mapped file go from there into a pipe; elsewhere, and other bytes, from memory. */
static int
write_bytes(struct kv_pipe *p, const struct kv_item *item, const char *at, size_t n, struct kv_err *e)
{
	struct kv_fifo_from from;
	size_t done;
	int rc;

	for (; n > 0 && kv_reader_file_at(p->in[item->input].reader, at, n, &from); n -= done, at += done)
		if ((rc = kv_writer_hand(p->writer, &from, n, &done, e)) < 0)
			return rc;
		else if (rc == KV_END || done == 0)
			break;
	return kv_writer_bytes(p->writer, at, n, e);
}

/* Where item's payload begins. */
static const void *
first_byte(const struct kv_item *item)
{
	return item->parts.at != NULL ? item->parts.at[0] : item->tensor.data;
}

/* A payload in a mapped file becomes a reference to it, if those are wanted.  KV_END: it does not. */
static int
write_reference(struct kv_pipe *p, const struct kv_item *item, struct kv_err *e)
{
	struct kv_reader *r = p->in[item->input].reader;
	struct kv_reference to = { 0 };
	struct kv_fifo_from from;
	struct kv_buf raw = { 0 };
	int rc;

	if (!kv_writer_shares(p->writer) || item->parts.n != 1 || item->parts.size[0] <= KV_SHARE_MIN ||
	    !kv_reader_file_at(r, first_byte(item), item->parts.size[0], &from))
		return KV_END;
	if ((rc = kv_reader_refer(r, &to, e)) != KV_OK)
		return rc;
	to.at = from.at;
	if ((rc = kv_buf_add(&raw, item->raw.data, item->raw.n, e)) == KV_OK &&
	    (rc = kv_record_place(&raw, 0, &to, NULL, e)) == KV_OK)
		rc = kv_writer_tensor_map(p->writer, &raw, e);
	kv_buf_fini(&raw);
	return rc;
}

/* A payload in one piece at `data`: where its parts lie. */
static int
place_parts(struct kv_parts *parts, const void *data, struct kv_err *e)
{
	const char *at = data;

	if ((parts->at = kv_alloc(parts->n, sizeof *parts->at, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < parts->n; at += parts->size[i++])
		parts->at[i] = at;
	return KV_OK;
}

/* A payload that lies elsewhere is to be in the output, as if it had always been in the stream. */
static int
expand(struct kv_pipe *p, struct kv_item *item, struct kv_err *e)
{
	const struct kv_tensor *t = &item->tensor;
	const bool unsummed = kv_loan_is_memory(item->loan);
	const void *data;
	uint64_t sum = 0;
	int rc;

	if ((rc = kv_loan_map(item->loan, true, &data, e)) < 0)
		return kv_input_where(&p->in[item->input], p->seq.number, t->layer, t->name, e);
	if (unsummed)
		sum = kv_checksum(data, t->bytes);
	if ((rc = kv_parts_split(&item->parts, t->bytes, kv_tensor_row(t), UINT32_MAX, e)) < 0 ||
	    (rc = place_parts(&item->parts, data, e)) < 0)
		return rc;
	return kv_record_place(&item->raw, item->parts.n, NULL, unsummed ? &sum : NULL, e);
}

/* A tensor that came in, as it came: nobody has changed it.  Its payload's pages, if a file's, are given back. */
static int
write_whole(struct kv_pipe *p, struct kv_item *item, struct kv_err *e)
{
	const char *next = item->tensor.data, *at;
	int rc;

	if (item->loan != NULL && kv_writer_refers(p->writer))
		kv_loan_pass(item->loan);
	else if (item->loan != NULL && (rc = expand(p, item, e)) < 0)
		return rc;
	if ((rc = write_reference(p, item, e)) != KV_END)
		return rc;
	rc = kv_writer_tensor_map(p->writer, &item->raw, e);
	for (size_t i = 0; i < item->parts.n && rc == KV_OK; i++) {
		at = item->parts.at != NULL ? item->parts.at[i] : next;
		if ((rc = kv_writer_part(p->writer, item->parts.size[i], e)) == KV_OK)
			rc = write_bytes(p, item, at, item->parts.size[i], e);
		if (rc == KV_OK && item->tensor.owned == NULL && !item->sent)
			kv_map_forget(at, item->parts.size[i]);
		next = item->parts.at == NULL ? next + item->parts.size[i] : next;
	}
	return rc;
}

/* ---- in: payloads */

/* May the next item be written before the program has seen the step? */
static bool
can_send(const struct kv_pipe *p, const struct kv_step *s)
{
	return p->writer != NULL && !p->holding && p->n_sent == s->n_items;
}

static int
send_part(void *ctx, uint32_t n, struct kv_err *e)
{
	return kv_writer_part(ctx, n, e);
}

static int
send_bytes(void *ctx, const void *bytes, size_t n, struct kv_err *e)
{
	return kv_writer_bytes(ctx, bytes, n, e);
}

static int
send_from(void *ctx, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e)
{
	return kv_writer_hand(ctx, from, n, done, e);
}

/* From the reader straight to the writer; a program that uses it gets it as well. */
static int
send_payload(struct kv_pipe *p, struct kv_item *item, bool used, struct kv_err *e)
{
	const struct kv_taker to = {
		.part = send_part, .bytes = send_bytes, .hand = send_from, .ctx = p->writer, .unseen = !used
	};
	struct kv_reader *r = p->in[item->input].reader;
	int rc;

	if ((rc = kv_pipe_write_opening(p, e)) < 0 || (rc = kv_writer_tensor_map(p->writer, &item->raw, e)) < 0)
		return rc;
	rc = used ? kv_reader_fork(r, &item->tensor, &to, e) : kv_reader_copy(r, &item->tensor, &to, e);
	kv_buf_fini(&item->raw);
	return rc;
}

static int
spool_payload(struct kv_pipe *p, struct kv_item *item, struct kv_err *e)
{
	struct kv_reader *r = p->in[item->input].reader;
	struct kv_taker to;
	int rc;

	if ((rc = kv_spool_begin(&p->spool, &to, &item->spooled_at, e)) < 0)
		return rc;
	to.unseen = item->unused;
	if ((rc = kv_reader_copy(r, &item->tensor, &to, e)) < 0)
		return rc;
	kv_reader_take_parts(r, &item->parts);
	item->spooled = true;
	return KV_OK;
}

static int
load_used(struct kv_pipe *p, struct kv_item *item, struct kv_err *e)
{
	struct kv_reader *r = p->in[item->input].reader;
	struct kv_tensor *t = &item->tensor;
	int rc;

	if (p->holding && t->bytes >= SPOOL_MIN && !kv_reader_is_mapped(r))
		return spool_payload(p, item, e);
	if (item->sent && !kv_reader_is_mapped(r))
		return send_payload(p, item, true, e);
	if ((rc = kv_reader_payload(r, t, e)) < 0)
		return rc;
	kv_reader_take_parts(r, &item->parts);
	if (item->sent && (rc = kv_pipe_write_opening(p, e)) == KV_OK)
		return write_whole(p, item, e);
	if (p->holding && t->owned == NULL)
		kv_map_forget(t->data, t->bytes); /* it was looked at for its checksum, and is needed later */
	return KV_OK;
}

/* May a tensor that the program uses leave before the program has seen it? */
static bool
is_kept(const struct kv_pipe *p, const char *name)
{
	return p->keeps != NULL && kv_names_have(p->keeps, name) && kv_writer_leaves(p->writer, name);
}

/* In a mapped file: written from there, now or later. */
static int
take_located(struct kv_pipe *p, struct kv_item *item, bool first, struct kv_err *e)
{
	int rc;

	kv_reader_take_parts(p->in[item->input].reader, &item->parts);
	for (size_t i = 0; p->holding && i < item->parts.n; i++)
		kv_map_forget(item->parts.at[i], item->parts.size[i]); /* looking at the heads brought pages of it */
	if (!first)
		return KV_OK;
	if ((rc = kv_pipe_write_opening(p, e)) == KV_OK)
		rc = write_whole(p, item, e);
	kv_buf_fini(&item->raw);
	return rc;
}

/* The program sees no data.  first: all that stands before it in the step has been sent. */
static int
take_unused(struct kv_pipe *p, struct kv_item *item, bool first, struct kv_err *e)
{
	struct kv_reader *r = p->in[item->input].reader;
	int rc;

	item->unused = true;
	if (p->writer == NULL || !kv_writer_leaves(p->writer, item->tensor.name)) {
		kv_buf_fini(&item->raw);
		return KV_OK; /* the reader steps over it */
	}
	if ((rc = kv_reader_locate(r, &item->tensor, e)) == KV_OK)
		return take_located(p, item, first, e);
	if (rc < 0)
		return rc;
	if (first)
		return send_payload(p, item, false, e);
	if (p->holding)
		return spool_payload(p, item, e);
	if ((rc = kv_reader_fork(r, &item->tensor, &(struct kv_taker){ .unseen = true }, e)) < 0)
		return rc;
	kv_reader_take_parts(r, &item->parts);
	if ((rc = place_parts(&item->parts, item->tensor.data, e)) == KV_OK)
		item->tensor.data = NULL; /* still owned */
	return rc;
}

/* A payload that lies elsewhere stays there, if the output may say so; else it is to be in the output. */
static int
take_loan(struct kv_pipe *p, struct kv_item *item, bool used, bool first, struct kv_err *e)
{
	struct kv_reader *r = p->in[item->input].reader;
	struct kv_tensor *t = &item->tensor;
	bool leaves = p->writer != NULL && kv_writer_leaves(p->writer, t->name);
	const struct kv_taker partly = { .unseen = true };
	int rc = KV_OK;

	item->loan = kv_reader_loan(r);
	item->unused = !used;
	if (used && kv_names_have(p->on_device, t->name) && (rc = kv_reader_on_device(r, t, e)) < 0)
		return rc;
	if (used && t->device == NULL)
		rc = kv_reader_fork(r, t, kv_names_have(p->partly, t->name) ? &partly : NULL, e);
	if (rc < 0)
		return rc;
	if (t->data != NULL && p->holding)
		kv_map_forget(t->data, t->bytes); /* it was looked at for its checksum, and is needed later */
	if (leaves && first && (!used || item->sent)) {
		if ((rc = kv_pipe_write_opening(p, e)) == KV_OK)
			rc = write_whole(p, item, e);
		kv_buf_fini(&item->raw);
		return rc;
	}
	if (!used && !leaves)
		kv_buf_fini(&item->raw);
	return KV_OK;
}

/* ---- in: records */

static int
take_tensor(struct kv_pipe *p, struct kv_step *s, size_t which, struct kv_err *e)
{
	struct kv_input *in = &p->in[which];
	struct kv_tensor *t = &in->head.tensor;
	const bool used = p->uses == NULL || kv_names_have(p->uses, t->name), first = can_send(p, s);
	struct kv_item *item = kv_step_item(s, t->name);
	int rc;

	if (item != NULL) {
		kv_fail(e, KV_EMODEL,
		    "this tensor is in %s as well; leave it out of one of the two with --drop %s, or rename it: "
		    "FILE:%s=NEWNAME",
		    kv_reader_name(p->in[item->input].reader), t->name, t->name);
		return kv_input_where(in, p->seq.number, s->layer, t->name, e);
	}
	if ((item = kv_step_add(s, e)) == NULL)
		return KV_EMEM;
	item->tensor = *t;
	item->raw = in->head.raw;
	item->input = which;
	*t = (struct kv_tensor){ 0 };
	in->head.raw = (struct kv_buf){ 0 };
	item->sent = used && first && is_kept(p, item->tensor.name);
	if (kv_reader_loan(in->reader) != NULL)
		rc = take_loan(p, item, used, first, e);
	else
		rc = used ? load_used(p, item, e) : take_unused(p, item, first, e);
	if (first && (item->sent || !used))
		p->n_sent = s->n_items;
	return rc;
}

/* Unknown records at the head belong to the step, which need not have a layer yet. */
static int
take_others(struct kv_pipe *p, struct kv_step *s, struct kv_input *in, struct kv_err *e)
{
	int rc;

	while ((rc = kv_input_fetch(in, e)) == KV_OK && in->head.kind == KV_RECORD_OTHER) {
		const struct kv_buf *raw = &in->head.raw;

		if (can_send(p, s)) {
			if ((rc = kv_pipe_write_opening(p, e)) < 0 ||
			    (rc = kv_writer_raw(p->writer, raw->data, raw->n, e)) < 0)
				return rc;
		} else if (p->writer != NULL && kv_step_add_other(s, raw, e) < 0)
			return kv_input_where(in, p->seq.number, s->layer, NULL, e);
		kv_input_consume(in);
	}
	return rc;
}

static int
head_layer(const struct kv_input *in)
{
	const struct kv_record *h = &in->head;

	if (h->kind == KV_RECORD_TENSOR && h->tensor.layer != KV_NO_LAYER)
		return h->tensor.layer;
	if (h->kind == KV_RECORD_LAYER_END)
		return (int)json_integer_value(json_object_get(h->map, "layer_end"));
	return LAST_LAYER;
}

/* All that input `which` has of the step's layer. */
static int
take_layer(struct kv_pipe *p, struct kv_step *s, size_t which, int layer, struct kv_err *e)
{
	struct kv_input *in = &p->in[which];
	int rc;

	for (;;) {
		if ((rc = take_others(p, s, in, e)) < 0)
			return rc;
		if (in->head.kind == KV_RECORD_LAYER_END && head_layer(in) == layer) {
			s->ended = true;
			kv_input_consume(in);
			return KV_OK; /* and no fetch: that would wait for the next layer */
		}
		if (in->head.kind != KV_RECORD_TENSOR || head_layer(in) != layer)
			return KV_OK;
		if ((rc = take_tensor(p, s, which, e)) < 0)
			return rc;
		kv_input_consume(in);
	}
}

int
kv_pipe_load(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	int layer = LAST_LAYER, rc;

	*s = (struct kv_step){ .seq = &p->seq, .layer = KV_NO_LAYER };
	p->n_sent = 0;
	for (size_t i = 0; i < p->n_in; i++) {
		if ((rc = take_others(p, s, &p->in[i], e)) < 0)
			return rc;
		if (head_layer(&p->in[i]) < layer)
			layer = head_layer(&p->in[i]);
	}
	s->layer = layer == LAST_LAYER ? KV_NO_LAYER : layer;
	for (size_t i = 0; i < p->n_in; i++)
		if ((rc = take_layer(p, s, i, layer, e)) < 0)
			return rc;
	if (layer == LAST_LAYER)
		kv_pipe_take_close(p);
	return KV_OK;
}

int
kv_pipe_place_spooled(struct kv_pipe *p, struct kv_err *e)
{
	const char *base = p->spool.base;
	int rc = KV_OK;

	for (size_t i = 0; i < p->n_held; i++) {
		for (size_t k = 0; k < p->held[i].n_items && rc == KV_OK; k++) {
			struct kv_item *item = &p->held[i].items[k];

			if (item->spooled && item->unused)
				rc = place_parts(&item->parts, base + item->spooled_at, e);
			else if (item->spooled)
				item->tensor.data = base + item->spooled_at;
		}
	}
	return rc;
}

/* ---- out */

static int
write_item(struct kv_pipe *p, struct kv_item *i, struct kv_err *e)
{
	if (!kv_item_is_tensor(i))
		return i->raw.n > 0 ? kv_writer_raw(p->writer, i->raw.data, i->raw.n, e) : KV_OK;
	if (i->raw.n == 0) /* made by the program; or unused, and sent or not to leave */
		return i->unused ? KV_OK : kv_writer_tensor(p->writer, &i->tensor, e);
	return i->unused || kv_writer_leaves(p->writer, i->tensor.name) ? write_whole(p, i, e) : KV_OK;
}

int
kv_pipe_write(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	int rc;

	if (p->writer == NULL)
		return KV_OK;
	if ((rc = kv_pipe_write_opening(p, e)) < 0)
		return rc;
	for (size_t i = s == &p->step ? p->n_sent : 0; i < s->n_items; i++)
		if ((rc = write_item(p, &s->items[i], e)) < 0)
			return rc;
	if (s->ended)
		return kv_writer_layer_end(p->writer, s->layer, e);
	if (s->layer == KV_NO_LAYER)
		return kv_writer_record(p->writer, KV_RECORD_CLOSE, &p->close_raw, e);
	return KV_OK;
}
