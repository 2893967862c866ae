/* SPDX-License-Identifier: MIT
 * Reading streams.  Nothing is believed: each object is walked before it is decoded, each size is compared with
 * what it describes, and memory grows with the bytes that have arrived, not with the bytes that are announced. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "formats/stream_reader.h"

#define NIL 0xc0

#define BEFORE_LAYERS (-2)

/* ---- messages */

/* Puts the place in front of the fault; the reader is of no use afterwards. */
int
kv_reader_broken(struct kv_reader *r, const char *tensor, struct kv_err *e)
{
	char layer[32] = "", seq[40] = "", name[KV_NAME_MAX + 2] = "";

	r->broken = true;
	if (e == NULL)
		return KV_EFORMAT;
	if (r->in_sequence)
		snprintf(seq, sizeof seq, ": sequence %" JSON_INTEGER_FORMAT, r->n_sequences - 1);
	if (r->in_sequence && r->layer >= 0)
		snprintf(layer, sizeof layer, ", layer %d", r->layer);
	if (tensor != NULL)
		snprintf(name, sizeof name, ", %s", tensor);
	return kv_where(e, "%s%s%s%s", r->src.name, seq, layer, name);
}

int
kv_reader_cut_short(struct kv_reader *r, const char *where, struct kv_err *e)
{
	if (r->src.offset + r->src.have == 0 && r->src.map.data == NULL)
		return kv_fail(e, KV_EFORMAT, "empty: the program before it in the pipe failed?");
	return kv_fail(e, KV_EFORMAT,
	    "the stream is cut short %s, after %" PRIu64 " bytes; the program that wrote it failed "
	    "or was killed",
	    where, r->src.offset + r->src.have);
}

/* ---- records */

/* Steps over nils.  KV_END: nothing behind them. */
int
kv_reader_skip_nils(struct kv_reader *r, struct kv_err *e)
{
	size_t n;
	int rc;

	for (;;) {
		if ((rc = kv_source_peek(&r->src, 1, e)) < 0)
			return rc;
		if (r->src.have == 0)
			return KV_END;
		for (n = 0; n < r->src.have && r->src.at[n] == NIL; n++)
			;
		kv_source_skip(&r->src, n);
		if (r->src.have > 0)
			return KV_OK;
	}
}

/* One whole object's bytes into raw. */
static int
read_object(struct kv_reader *r, struct kv_buf *raw, struct kv_err *e)
{
	struct kv_skim s = { 0 };
	int rc;

	while ((rc = kv_skim(&s, r->src.at, r->src.have, e)) == KV_END) {
		if ((rc = kv_source_peek(&r->src, s.need, e)) < 0)
			return rc;
		if (r->src.have < s.need)
			return kv_reader_cut_short(r, "inside a record", e);
	}
	if (rc < 0 || (rc = kv_buf_add(raw, r->src.at, s.at, e)) < 0)
		return rc;
	kv_source_skip(&r->src, s.at);
	return KV_OK;
}

static int
check_header(struct kv_reader *r, const json_t *map, struct kv_err *e)
{
	const json_t *model = json_object_get(map, "model"), *history = json_object_get(map, "history");
	json_int_t version;
	int rc;

	if ((rc = kv_map_int(map, "kvstream", 0, INT64_MAX, &version, e)) < 0)
		return rc;
	if (version != KV_STREAM_VERSION)
		return kv_fail(e, KV_EFORMAT, "stream version %" JSON_INTEGER_FORMAT "; this program reads version %d",
		    version, KV_STREAM_VERSION);
	if (!json_is_object(model))
		return kv_fail(e, KV_EFORMAT, "header: key 'model' is not a map");
	if (history != NULL && !json_is_array(history))
		return kv_fail(e, KV_EFORMAT, "header: key 'history' is not an array");
	r->n_layers = INT_MAX;
	if (json_object_get(model, "layers") != NULL &&
	    (rc = kv_map_int(model, "layers", 1, INT_MAX, &r->n_layers, e)) < 0)
		return kv_where(e, "header, model");
	return KV_OK;
}

static int
check_sequence(struct kv_reader *r, const json_t *map, struct kv_err *e)
{
	json_int_t number;
	int rc;

	if (r->in_sequence)
		return kv_fail(e, KV_EFORMAT, "a sequence opens before this one is closed");
	if ((rc = kv_map_int(map, "sequence", r->n_sequences, r->n_sequences, &number, e)) < 0)
		return rc;
	r->in_sequence = true;
	r->n_sequences++;
	r->layer = BEFORE_LAYERS;
	r->layer_ended = false;
	r->n_names = 0;
	return kv_sequence_check(map, e);
}

/* Remembers a tensor's name; the same twice in one layer is a fault. */
static int
note_name(struct kv_reader *r, const char *name, struct kv_err *e)
{
	char *p;

	for (size_t i = 0; i < r->n_names; i++)
		if (strcmp(r->names + i * KV_NAME_MAX, name) == 0)
			return kv_fail(e, KV_EFORMAT, "this layer has two tensors of that name");
	if (r->n_names == KV_TENSORS_MAX)
		return kv_fail(e, KV_EFORMAT, "more than %d tensors in one layer", KV_TENSORS_MAX);
	if (r->n_names == r->names_cap) {
		r->names_cap = r->names_cap ? 2 * r->names_cap : 16;
		if ((p = realloc(r->names, r->names_cap * KV_NAME_MAX)) == NULL)
			return kv_no_memory(e, r->names_cap * KV_NAME_MAX);
		r->names = p;
	}
	strcpy(r->names + r->n_names++ * KV_NAME_MAX, name);
	return KV_OK;
}

/* Is `layer` at its place?  Becomes the present one. */
static int
check_layer(struct kv_reader *r, int layer, struct kv_err *e)
{
	if (layer >= r->n_layers)
		return kv_fail(
		    e, KV_EFORMAT, "layer %d of a model with %" JSON_INTEGER_FORMAT " layers", layer, r->n_layers);
	if (layer == r->layer && !r->layer_ended)
		return KV_OK;
	if (layer == r->layer || r->layer == KV_NO_LAYER || (layer != KV_NO_LAYER && layer < r->layer))
		return kv_fail(
		    e, KV_EFORMAT, "layer %d is not at its place: layers ascend, and each stands together", layer);
	r->layer = layer;
	r->layer_ended = false;
	r->n_names = 0;
	return KV_OK;
}

static int
check_tensor(struct kv_reader *r, struct kv_record *rec, struct kv_err *e)
{
	struct kv_tensor *t = &rec->tensor;
	int rc;

	if (!r->in_sequence)
		return kv_fail(e, KV_EFORMAT, "a tensor outside of any sequence");
	if ((rc = kv_tensor_from_map(t, &r->payload, rec->map, e)) < 0)
		return t->name[0] ? kv_where(e, "tensor %s", t->name) : rc;
	if ((rc = check_layer(r, t->layer, e)) < 0 || (rc = note_name(r, t->name, e)) < 0)
		return kv_where(e, "tensor %s", t->name);
	strcpy(r->tensor, t->name);
	r->pending = true;
	r->loan = NULL;
	if (r->payload.reference.path == NULL)
		return KV_OK;
	return kv_borrow(&r->borrower, &r->payload.reference, t->bytes, &r->loan, e);
}

static int
check_layer_end(struct kv_reader *r, const json_t *map, struct kv_err *e)
{
	json_int_t layer;
	int rc;

	if (!r->in_sequence)
		return kv_fail(e, KV_EFORMAT, "a layer's end outside of any sequence");
	if ((rc = kv_map_int(map, "layer_end", 0, INT_MAX, &layer, e)) < 0 || (rc = check_layer(r, (int)layer, e)) < 0)
		return rc;
	r->layer_ended = true;
	return KV_OK;
}

static int
check_close(struct kv_reader *r, const json_t *map, struct kv_err *e)
{
	const char *status = json_string_value(json_object_get(map, "status"));
	json_int_t number;
	int rc;

	if (!r->in_sequence)
		return kv_fail(e, KV_EFORMAT, "a sequence is closed and none is open");
	if ((rc = kv_map_int(map, "close", r->n_sequences - 1, r->n_sequences - 1, &number, e)) < 0)
		return rc;
	if (status == NULL)
		return kv_fail(e, KV_EFORMAT, "key 'status' is not a string");
	if (strcmp(status, "ok") != 0)
		return kv_fail(e, KV_EFAIL, "failed in the program that wrote it: %s", status);
	r->in_sequence = false;
	return KV_OK;
}

static int
check_end(struct kv_reader *r, const json_t *map, struct kv_err *e)
{
	json_int_t n;
	int rc;

	if (r->in_sequence)
		return kv_fail(e, KV_EFORMAT, "the stream ends before this sequence is closed");
	if ((rc = kv_map_int(map, "end", r->n_sequences, r->n_sequences, &n, e)) < 0)
		return rc;
	if ((rc = kv_source_peek(&r->src, 1, e)) < 0)
		return rc;
	if (r->src.have > 0)
		return kv_fail(e, KV_EFORMAT, "bytes behind the End record; are two streams joined by cat?");
	r->ended = true;
	return KV_OK;
}

static int
check_record(struct kv_reader *r, struct kv_record *rec, struct kv_err *e)
{
	switch (rec->kind) {
	case KV_RECORD_HEADER: return kv_fail(e, KV_EFORMAT, "a second header; are two streams joined by cat?");
	case KV_RECORD_SEQUENCE: return check_sequence(r, rec->map, e);
	case KV_RECORD_TENSOR: return check_tensor(r, rec, e);
	case KV_RECORD_LAYER_END: return check_layer_end(r, rec->map, e);
	case KV_RECORD_CLOSE: return check_close(r, rec->map, e);
	case KV_RECORD_END: return check_end(r, rec->map, e);
	case KV_RECORD_OTHER: break;
	}
	return KV_OK;
}

/* ---- opening, going on, closing */

#define TAR_MAGIC_AT 257

/* What a file that is no stream starts with, for the message. */
static int
not_a_stream(const struct kv_reader *r, struct kv_err *e)
{
	char start[5] = "";

	if (r->src.have >= TAR_MAGIC_AT + 5 && memcmp(r->src.at + TAR_MAGIC_AT, "ustar", 5) == 0)
		return kv_fail(
		    e, KV_EFORMAT, "not a kvtools stream but a tar archive; name a stream in it as ARCHIVE:MEMBER");

	for (size_t i = 0; i < 4 && i < r->src.have && isprint(r->src.at[i]); i++)
		start[i] = (char)r->src.at[i];
	if (strcmp(start, "GGUF") == 0)
		return kv_fail(e, KV_EFORMAT, "not a kvtools stream but a GGUF model; models are named with -m");
	if (start[0] != '\0')
		return kv_fail(e, KV_EFORMAT, "not a kvtools stream (starts with '%s')", start);
	return kv_fail(e, KV_EFORMAT, "not a kvtools stream");
}

/* The header is read on opening and kept for the first kv_reader_next(). */
static int
read_header(struct kv_reader *r, struct kv_err *e)
{
	int rc = kv_source_peek(&r->src, 1, e);

	if (rc < 0)
		return rc;
	if (r->src.have == 0)
		return kv_reader_cut_short(r, "at its start", e);
	if ((r->src.at[0] & 0xf0) != 0x80 && r->src.at[0] != 0xde && r->src.at[0] != 0xdf)
		return (rc = kv_source_peek(&r->src, TAR_MAGIC_AT + 5, e)) < 0 ? rc : not_a_stream(r, e);
	if ((rc = read_object(r, &r->header.raw, e)) < 0 || (rc = kv_record_parse(&r->header, e)) < 0)
		return kv_where(e, "header");
	if (r->header.kind != KV_RECORD_HEADER)
		return kv_fail(e, KV_EFORMAT, "not a kvtools stream (no header)");
	return check_header(r, r->header.map, e);
}

int
kv_reader_take(struct kv_reader **out, struct kv_source *src, struct kv_err *e)
{
	struct kv_reader *r = *out = kv_alloc(1, sizeof *r, e);
	int rc;

	if (r == NULL) {
		kv_source_close(src);
		return KV_EMEM;
	}
	r->src = *src;
	*src = (struct kv_source){ .fd = -1 };
	if ((rc = read_header(r, e)) < 0) {
		rc = kv_reader_broken(r, NULL, e);
		kv_reader_free(r);
		*out = NULL;
	}
	return rc;
}

int
kv_reader_open(struct kv_reader **out, const char *path, struct kv_err *e)
{
	struct kv_source src;
	int rc = kv_source_open(&src, path, e);

	*out = NULL;
	if (rc == KV_OK)
		return kv_reader_take(out, &src, e);
	kv_source_close(&src);
	return rc;
}

const char *
kv_reader_name(const struct kv_reader *r)
{
	return r->src.name;
}

void
kv_reader_free(struct kv_reader *r)
{
	if (r == NULL)
		return;
	kv_source_close(&r->src);
	kv_record_fini(&r->header);
	kv_parts_fini(&r->parts);
	kv_borrower_fini(&r->borrower);
	free(r->path);
	free(r->names);
	free(r);
}

static int
next_record(struct kv_reader *r, struct kv_record *rec, struct kv_err *e)
{
	int rc = kv_reader_skip_nils(r, e);

	if (rc == KV_END)
		return kv_reader_cut_short(r, "before its End record", e);
	if (rc < 0 || (rc = read_object(r, &rec->raw, e)) < 0)
		return rc;
	if ((rc = kv_record_parse(rec, e)) < 0)
		return rc;
	return check_record(r, rec, e);
}

int
kv_reader_next(struct kv_reader *r, struct kv_record *rec, struct kv_err *e)
{
	int rc;

	*rec = (struct kv_record){ 0 };
	if (r->broken)
		return kv_fail(e, KV_EFORMAT, "%s: nothing more can be read after a fault", r->src.name);
	if (r->ended)
		return KV_END;
	if (!r->header_given) {
		*rec = r->header;
		r->header = (struct kv_record){ 0 };
		r->header_given = true;
		return KV_OK;
	}
	if (r->pending && (rc = kv_reader_discard(r, e)) < 0)
		return kv_reader_broken(r, r->tensor, e);
	r->pending = false;
	if ((rc = next_record(r, rec, e)) == KV_OK)
		return KV_OK;
	kv_record_fini(rec);
	return kv_reader_broken(r, NULL, e);
}
