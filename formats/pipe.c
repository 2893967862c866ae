/* SPDX-License-Identifier: MIT
 * Several readers, one writer, and one step between them.
 *
 * Each input shows its next record ("head"); the step's layer is the lowest of all heads.  Loading a step takes
 * that layer's records from every input.  A head is fetched only when it is needed: after a layer_end record the
 * step goes to the program without waiting for what its producer computes next. */
#include "formats/pipe.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "formats/join.h"
#include "formats/record.h"

#define LAST_LAYER INT_MAX /* sorts KV_NO_LAYER behind all layers */

struct input {
	struct kv_reader *reader;
	struct kv_record head;
	bool has_head;
};

struct kv_pipe {
	struct input *in; /* [n_in] */
	size_t n_in;
	struct kv_writer *writer; /* NULL: a sink */
	json_t *header;           /* the first input's */
	json_t *history;          /* of all inputs, and our entry */
	char *skip, *bare;        /* ",name,name," or NULL */
	struct kv_buf names;      /* of all inputs, for messages */
	struct kv_step step;
	struct kv_sequence seq;
	int32_t *tokens;
	struct kv_buf seq_raw, close_raw; /* the first input's records */
	bool in_sequence, opened;         /* opened: the sequence's record has been written */
	bool has_step, layer_ended, ended;
	struct kv_buf end_raw;
};

/* ---- inputs */

/* Make sure that the head is there.  Faults carry their place already. */
static int
fetch(struct input *in, struct kv_err *e)
{
	int rc;

	if (in->has_head)
		return KV_OK;
	if ((rc = kv_reader_next(in->reader, &in->head, e)) == KV_OK)
		in->has_head = true;
	return rc == KV_END ? kv_fail(e, KV_EFORMAT, "%s: read beyond its end", kv_reader_name(in->reader)) : rc;
}

static void
consume(struct input *in)
{
	kv_record_fini(&in->head);
	in->has_head = false;
}

/* Puts the place of the step in front of a fault that input `in` brought. */
static int
at_input(const struct kv_pipe *p, const struct input *in, const char *tensor, struct kv_err *e)
{
	const char *name = kv_reader_name(in->reader), *sep = tensor ? ", " : "";

	tensor = tensor ? tensor : "";
	if (p->step.layer == KV_NO_LAYER)
		return kv_where(e, "%s: sequence %zu%s%s", name, p->seq.number, sep, tensor);
	return kv_where(e, "%s: sequence %zu, layer %d%s%s", name, p->seq.number, p->step.layer, sep, tensor);
}

/* ---- opening */

static int
open_inputs(struct kv_pipe *p, char *const *files, struct kv_err *e)
{
	static char *const only_stdin[] = { "-", NULL };
	size_t n = 0, n_stdin = 0;
	int rc;

	if (files == NULL || files[0] == NULL)
		files = only_stdin;
	for (; files[n] != NULL; n++)
		n_stdin += strcmp(files[n], "-") == 0;
	if (n_stdin > 1)
		return kv_fail(e, KV_EARG, "standard input is named %zu times among the inputs", n_stdin);
	if ((p->in = kv_alloc(n, sizeof *p->in, e)) == NULL)
		return KV_EMEM;
	for (; p->n_in < n; p->n_in++) {
		struct input *in = &p->in[p->n_in];

		if ((rc = kv_reader_open(&in->reader, files[p->n_in], e)) < 0)
			return rc;
		if ((rc = kv_buf_printf(&p->names, e, "%s%s", p->n_in ? " + " : "", kv_reader_name(in->reader))) < 0 ||
		    (rc = fetch(in, e)) < 0) {
			p->n_in++; /* for kv_pipe_finish() to free */
			return rc;
		}
	}
	return KV_OK;
}

/* Compares the headers, keeps the first and collects the history of all. */
static int
join_headers(struct kv_pipe *p, const json_t *entry, struct kv_err *e)
{
	const char *first = kv_reader_name(p->in[0].reader);
	json_t *model, *theirs, *earlier;
	int rc = KV_OK;

	if ((p->history = json_array()) == NULL)
		return kv_no_memory(e, sizeof *p->history);
	p->header = json_incref(p->in[0].head.map);
	model = json_object_get(p->header, "model");
	earlier = json_object_get(p->header, "history");
	/* the first input's entries all stay, those of the others when they are new */
	if (earlier != NULL && json_array_extend(p->history, earlier) < 0)
		return kv_no_memory(e, sizeof *p->history);
	for (size_t i = 1; i < p->n_in && rc == KV_OK; i++) {
		theirs = p->in[i].head.map;
		rc = kv_join_models(model, first, json_object_get(theirs, "model"), kv_reader_name(p->in[i].reader), e);
		if (rc == KV_OK)
			rc = kv_join_history(p->history, json_object_get(theirs, "history"), e);
	}
	for (size_t i = 0; i < p->n_in; i++)
		consume(&p->in[i]);
	if (rc == KV_OK && entry != NULL && json_array_append(p->history, (json_t *)entry) < 0)
		rc = kv_no_memory(e, sizeof *p->history);
	return rc;
}

/* ",name,name," is searched for ",name,". */
static int
copy_names(char **out, const char *names, struct kv_err *e)
{
	if (names == NULL || asprintf(out, ",%s,", names) >= 0)
		return KV_OK;
	*out = NULL;
	return kv_no_memory(e, strlen(names));
}

static int
open_all(struct kv_pipe *p, const struct kv_pipe_options *o, struct kv_err *e)
{
	int rc;

	if ((rc = copy_names(&p->skip, o->skip, e)) < 0 || (rc = copy_names(&p->bare, o->bare, e)) < 0 ||
	    (rc = open_inputs(p, o->files, e)) < 0 || (rc = join_headers(p, o->entry, e)) < 0 || o->no_output)
		return rc;
	if ((rc = kv_writer_open(&p->writer, o->output, o->only, o->drop, e)) < 0)
		return rc;
	return kv_writer_header_map(p->writer, p->header, p->history, e);
}

int
kv_pipe_open(struct kv_pipe **out, const struct kv_pipe_options *o, struct kv_err *e)
{
	struct kv_pipe *p = *out = kv_alloc(1, sizeof *p, e);
	int rc;

	if (p == NULL)
		return KV_EMEM;
	p->step.seq = &p->seq;
	if ((rc = open_all(p, o, e)) < 0) {
		kv_pipe_finish(p, rc, NULL);
		*out = NULL;
	}
	return rc;
}

const json_t *
kv_pipe_model(const struct kv_pipe *p)
{
	return json_object_get(p->header, "model");
}

const json_t *
kv_pipe_history(const struct kv_pipe *p)
{
	return p->history;
}

const char *
kv_pipe_name(const struct kv_pipe *p)
{
	return p->names.data;
}

/* ---- from one sequence to the next */

/* Unknown records between sequences go out at once. */
static int
pass_others(struct kv_pipe *p, struct input *in, struct kv_err *e)
{
	int rc;

	while ((rc = fetch(in, e)) == KV_OK && in->head.kind == KV_RECORD_OTHER) {
		if (p->writer != NULL && (rc = kv_writer_raw(p->writer, in->head.raw.data, in->head.raw.n, e)) < 0)
			return rc;
		consume(in);
	}
	return rc;
}

/* All heads are SEQUENCE or END; do they agree? */
static int
check_same_kind(struct kv_pipe *p, size_t number, struct kv_err *e)
{
	for (size_t i = 1; i < p->n_in; i++) {
		bool ends = p->in[i].head.kind == KV_RECORD_END, first_ends = p->in[0].head.kind == KV_RECORD_END;

		if (ends != first_ends)
			return kv_fail(e, KV_EMODEL, "sequence %zu is in %s and missing in %s", number,
			    kv_reader_name(p->in[ends ? 0 : i].reader), kv_reader_name(p->in[ends ? i : 0].reader));
	}
	return KV_OK;
}

static int
copy_tokens(struct kv_pipe *p, struct kv_err *e)
{
	const json_t *tokens = json_object_get(p->seq.map, "tokens"), *length = json_object_get(p->seq.map, "prompt_length");
	size_t n = json_array_size(tokens);

	free(p->tokens);
	if ((p->tokens = kv_alloc(n, sizeof *p->tokens, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		p->tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
	p->seq.tokens = p->tokens;
	p->seq.n_tokens = p->seq.T = n;
	if (length != NULL) /* the reader has seen that it is a number up to n */
		p->seq.T = (size_t)json_integer_value(length);
	return KV_OK;
}

/* Takes the opening maps of all inputs, which are their heads. */
static int
join_sequences(struct kv_pipe *p, struct kv_err *e)
{
	struct kv_record *first = &p->in[0].head;
	int rc = KV_OK;

	for (size_t i = 1; i < p->n_in && rc == KV_OK; i++) {
		const json_t *theirs = p->in[i].head.map;

		rc = kv_join_sequences(first->map, kv_reader_name(p->in[0].reader), theirs, kv_reader_name(p->in[i].reader),
		    p->seq.number, e);
		if (rc == KV_OK)
			rc = kv_join_maps(first->map, theirs, e);
	}
	json_decref(p->seq.map);
	p->seq.map = json_incref(first->map);
	kv_buf_fini(&p->seq_raw);
	p->seq_raw = first->raw;
	first->raw = (struct kv_buf){ 0 };
	for (size_t i = 0; i < p->n_in; i++)
		consume(&p->in[i]);
	return rc < 0 ? rc : copy_tokens(p, e);
}

/* KV_END when all inputs end. */
static int
open_sequence(struct kv_pipe *p, struct kv_err *e)
{
	size_t number = p->seq.map ? p->seq.number + 1 : 0;
	int rc;

	for (size_t i = 0; i < p->n_in; i++)
		if ((rc = pass_others(p, &p->in[i], e)) < 0)
			return rc;
	if ((rc = check_same_kind(p, number, e)) < 0)
		return rc;
	if (p->in[0].head.kind == KV_RECORD_END) {
		p->ended = true;
		p->end_raw = p->in[0].head.raw;
		p->in[0].head.raw = (struct kv_buf){ 0 };
		return KV_END;
	}
	p->seq.number = number;
	if ((rc = join_sequences(p, e)) < 0)
		return rc;
	p->in_sequence = true;
	p->opened = false;
	return KV_OK;
}

/* ---- loading a step */

/* Where the unknown records at the head belong to, once they are taken: the step, which has no layer yet. */
static int
take_others(struct kv_pipe *p, struct input *in, struct kv_err *e)
{
	int rc;

	while ((rc = fetch(in, e)) == KV_OK && in->head.kind == KV_RECORD_OTHER) {
		if ((rc = kv_step_add_other(&p->step, &in->head.raw, e)) < 0)
			return at_input(p, in, NULL, e);
		consume(in);
	}
	return rc;
}

static int
head_layer(const struct input *in)
{
	const struct kv_record *h = &in->head;

	if (h->kind == KV_RECORD_TENSOR && h->tensor.layer != KV_NO_LAYER)
		return h->tensor.layer;
	if (h->kind == KV_RECORD_LAYER_END)
		return (int)json_integer_value(json_object_get(h->map, "layer_end"));
	return LAST_LAYER;
}

static bool
is_named(const char *names, const char *name)
{
	char want[KV_NAME_MAX + 2];

	snprintf(want, sizeof want, ",%s,", name);
	return names != NULL && strstr(names, want) != NULL;
}

static int
take_tensor(struct kv_pipe *p, size_t which, struct kv_err *e)
{
	struct input *in = &p->in[which];
	struct kv_tensor *t = &in->head.tensor;
	struct kv_item *item = kv_step_item(&p->step, t->name);
	const bool bare = is_named(p->bare, t->name);
	int rc;

	if (item != NULL) {
		kv_fail(e, KV_EMODEL, "this tensor is in %s as well; leave it out of one of the two with --drop %s",
		    kv_reader_name(p->in[item->input].reader), t->name);
		return at_input(p, in, t->name, e);
	}
	if (!bare && (rc = kv_reader_payload(in->reader, t, e)) < 0)
		return rc;
	if ((item = kv_step_add(&p->step, e)) == NULL)
		return KV_EMEM;
	if (!bare)
		kv_reader_take_parts(in->reader, &item->parts);
	item->tensor = *t;
	item->raw = in->head.raw;
	item->input = which;
	*t = (struct kv_tensor){ 0 };
	in->head.raw = (struct kv_buf){ 0 };
	return KV_OK;
}

/* All that input `which` has of the step's layer. */
static int
take_layer(struct kv_pipe *p, size_t which, int layer, struct kv_err *e)
{
	struct input *in = &p->in[which];
	int rc;

	for (;;) {
		if ((rc = take_others(p, in, e)) < 0)
			return rc;
		if (in->head.kind == KV_RECORD_LAYER_END && head_layer(in) == layer) {
			p->layer_ended = true;
			consume(in);
			return KV_OK; /* and no fetch: that would wait for the next layer */
		}
		if (in->head.kind != KV_RECORD_TENSOR || head_layer(in) != layer)
			return KV_OK;
		if (!is_named(p->skip, in->head.tensor.name) && (rc = take_tensor(p, which, e)) < 0)
			return rc;
		consume(in);
	}
}

/* Every head is now a CLOSE. */
static void
take_close(struct kv_pipe *p)
{
	kv_buf_fini(&p->close_raw);
	p->close_raw = p->in[0].head.raw;
	p->in[0].head.raw = (struct kv_buf){ 0 };
	for (size_t i = 0; i < p->n_in; i++)
		consume(&p->in[i]);
}

static int
load_step(struct kv_pipe *p, struct kv_err *e)
{
	int layer = LAST_LAYER, rc;

	p->step.layer = KV_NO_LAYER;
	p->layer_ended = false;
	for (size_t i = 0; i < p->n_in; i++) {
		if ((rc = take_others(p, &p->in[i], e)) < 0)
			return rc;
		if (head_layer(&p->in[i]) < layer)
			layer = head_layer(&p->in[i]);
	}
	p->step.layer = layer == LAST_LAYER ? KV_NO_LAYER : layer;
	for (size_t i = 0; i < p->n_in; i++)
		if ((rc = take_layer(p, i, layer, e)) < 0)
			return rc;
	if (layer == LAST_LAYER)
		take_close(p);
	p->has_step = true;
	return KV_OK;
}

/* ---- writing a step */

/* The opening record: its own bytes when nobody changed the map. */
static int
write_opening(struct kv_pipe *p, struct kv_err *e)
{
	json_t *before = NULL;
	int rc = kv_pack_decode(p->seq_raw.data, p->seq_raw.n, &before, e);

	if (rc == KV_OK)
		rc = json_equal(before, p->seq.map) ? kv_writer_record(p->writer, KV_RECORD_SEQUENCE, &p->seq_raw, e)
		                                    : kv_writer_sequence(p->writer, p->seq.map, e);
	json_decref(before);
	p->opened = true;
	return rc;
}

static int
item_write(const struct kv_item *i, struct kv_writer *w, struct kv_err *e)
{
	if (!kv_item_is_tensor(i))
		return i->raw.n > 0 ? kv_writer_raw(w, i->raw.data, i->raw.n, e) : KV_OK;
	if (i->raw.n > 0)
		return kv_writer_tensor_parts(w, &i->raw, &i->tensor, &i->parts, e);
	return kv_writer_tensor(w, &i->tensor, e);
}

static int
write_items(const struct kv_step *s, struct kv_writer *w, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < s->n_items && rc == KV_OK; i++)
		rc = item_write(&s->items[i], w, e);
	return rc;
}

static int
write_step(struct kv_pipe *p, struct kv_err *e)
{
	int rc;

	if (p->writer == NULL)
		return KV_OK;
	if (!p->opened && (rc = write_opening(p, e)) < 0)
		return rc;
	if ((rc = write_items(&p->step, p->writer, e)) < 0)
		return rc;
	if (p->layer_ended)
		return kv_writer_layer_end(p->writer, p->step.layer, e);
	if (p->step.layer == KV_NO_LAYER)
		return kv_writer_record(p->writer, KV_RECORD_CLOSE, &p->close_raw, e);
	return KV_OK;
}

static int
leave_step(struct kv_pipe *p, struct kv_err *e)
{
	int rc;

	if (!p->has_step)
		return KV_OK;
	rc = write_step(p, e);
	kv_step_clear(&p->step);
	for (size_t i = 0; i < p->n_in; i++)
		kv_reader_forget(p->in[i].reader);
	p->has_step = false;
	if (p->step.layer == KV_NO_LAYER)
		p->in_sequence = false;
	return rc;
}

int
kv_pipe_next(struct kv_pipe *p, struct kv_step **step, struct kv_err *e)
{
	int rc;

	*step = NULL;
	if (p->ended)
		return KV_END;
	if ((rc = leave_step(p, e)) < 0)
		return rc;
	if (!p->in_sequence && (rc = open_sequence(p, e)) != KV_OK)
		return rc;
	if ((rc = load_step(p, e)) < 0)
		return rc;
	*step = &p->step;
	return KV_OK;
}

int
kv_step_where(const struct kv_pipe *p, const struct kv_step *s, struct kv_err *e)
{
	if (s->layer == KV_NO_LAYER)
		return kv_where(e, "%s: sequence %zu", p->names.data, s->seq->number);
	return kv_where(e, "%s: sequence %zu, layer %d", p->names.data, s->seq->number, s->layer);
}

/* ---- the end */

/* The last step, whatever input a program did not ask for, and the End record with its own bytes. */
static int
drain(struct kv_pipe *p, struct kv_err *e)
{
	struct kv_step *s;
	int rc;

	while ((rc = kv_pipe_next(p, &s, e)) == KV_OK)
		;
	return rc < 0 ? rc : kv_writer_record(p->writer, KV_RECORD_END, &p->end_raw, e);
}

int
kv_pipe_finish(struct kv_pipe *p, int rc, struct kv_err *e)
{
	if (p == NULL)
		return rc < 0 ? rc : KV_OK;
	if (p->writer != NULL && rc >= 0 && (rc = drain(p, e)) >= 0)
		rc = kv_writer_finish(p->writer, e);
	else
		kv_writer_drop(p->writer);
	kv_step_clear(&p->step);
	for (size_t i = 0; i < p->n_in; i++) {
		consume(&p->in[i]);
		kv_reader_free(p->in[i].reader);
	}
	free(p->in);
	free(p->skip);
	free(p->bare);
	free(p->tokens);
	json_decref(p->header);
	json_decref(p->history);
	json_decref(p->seq.map);
	kv_buf_fini(&p->names);
	kv_buf_fini(&p->seq_raw);
	kv_buf_fini(&p->close_raw);
	kv_buf_fini(&p->end_raw);
	free(p);
	return rc < 0 ? rc : KV_OK;
}
