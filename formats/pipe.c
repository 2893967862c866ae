/* SPDX-License-Identifier: MIT
 * Several readers, one writer, and one step between them. */
#include "formats/pipe_inside.h"

#include <stdlib.h>
#include <string.h>

#include "formats/join.h"
#include "lib/names.h"

/* ---- opening */

static int
open_inputs(struct kv_pipe *p, char *const *files, struct kv_device *d, struct kv_err *e)
{
	static char *const only_stdin[] = { "-", NULL };
	size_t n = 0, n_stdin = 0;
	int rc;

	if (files == NULL || files[0] == NULL)
		files = only_stdin;
	for (; files[n] != NULL; n++)
		n_stdin += strcmp(files[n], "-") == 0 || strncmp(files[n], "-:", 2) == 0;
	if (n_stdin > 1)
		return kv_fail(e, KV_EARG, "standard input is named %zu times among the inputs", n_stdin);
	if ((p->in = kv_alloc(n, sizeof *p->in, e)) == NULL)
		return KV_EMEM;
	while (p->n_in < n) {
		struct kv_input *in = &p->in[p->n_in++];

		if ((rc = kv_input_open(in, files[in - p->in], e)) < 0 ||
		    (rc = kv_buf_printf(&p->names, e, "%s%s", in > p->in ? " + " : "", kv_reader_name(in->reader))) <
			0 ||
		    (rc = kv_input_fetch(in, e)) < 0)
			return rc;
		kv_reader_use(in->reader, d);
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
		kv_input_consume(&p->in[i]);
	if (rc == KV_OK && entry != NULL && json_array_append(p->history, (json_t *)entry) < 0)
		rc = kv_no_memory(e, sizeof *p->history);
	return rc;
}

static int
open_all(struct kv_pipe *p, const struct kv_pipe_options *o, struct kv_err *e)
{
	int rc;

	if ((rc = kv_names_check(o->uses, e)) < 0 || (rc = kv_names_check(o->keeps, e)) < 0 ||
	    (rc = kv_names_check(o->partly, e)) < 0 || (rc = kv_names_check(o->on_device, e)) < 0)
		return rc;
	if ((o->uses != NULL && (p->uses = strdup(o->uses)) == NULL) ||
	    (o->keeps != NULL && (p->keeps = strdup(o->keeps)) == NULL) ||
	    (o->partly != NULL && (p->partly = strdup(o->partly)) == NULL) ||
	    (o->on_device != NULL && (p->on_device = strdup(o->on_device)) == NULL))
		return kv_no_memory(e, KV_NAME_MAX);
	if ((rc = open_inputs(p, o->files, o->device, e)) < 0 || (rc = join_headers(p, o->entry, e)) < 0 ||
	    o->no_output)
		return rc;
	if ((rc = kv_writer_open(&p->writer, o->output, o->only, o->drop, e)) < 0)
		return rc;
	kv_writer_on_unmet(p->writer, o->unmet);
	if (o->share)
		kv_writer_share(p->writer);
	return kv_writer_header_map(p->writer, p->header, p->history, e);
}

int
kv_pipe_open(struct kv_pipe **out, const struct kv_pipe_options *o, struct kv_err *e)
{
	struct kv_pipe *p = *out = kv_alloc(1, sizeof *p, e);
	int rc;

	if (p == NULL)
		return KV_EMEM;
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

/* ---- from step to step */

/* The mapped pages of steps that have left; those of steps that are held are needed until the last of them. */
static void
forget(struct kv_pipe *p)
{
	for (size_t i = 0; i < p->n_in; i++)
		kv_reader_forget(p->in[i].reader);
}

static int
leave_step(struct kv_pipe *p, struct kv_err *e)
{
	struct kv_step *s = p->now;
	int rc;

	if (s == NULL)
		return KV_OK;
	p->now = NULL;
	/* closed before the next program, to which they are passed on, gives them back */
	for (size_t i = 0; i < s->n_items; i++)
		kv_loan_leave(s->items[i].loan);
	rc = kv_pipe_write(p, s, e);
	kv_step_clear(s);
	if (s->layer == KV_NO_LAYER) {
		p->in_sequence = false;
		p->n_held = p->at_held = 0;
		if (rc == KV_OK)
			rc = kv_spool_empty(&p->spool, e);
	}
	if (p->n_held == 0)
		forget(p);
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
	if (p->at_held < p->n_held) {
		*step = p->now = &p->held[p->at_held++];
		return KV_OK;
	}
	if (!p->in_sequence && (rc = kv_pipe_open_sequence(p, e)) != KV_OK)
		return rc;
	if ((rc = kv_pipe_load(p, &p->step, e)) < 0)
		return rc;
	*step = p->now = &p->step;
	return KV_OK;
}

/* The next step's place behind those that are held; NULL: no memory. */
static struct kv_step *
add_held(struct kv_pipe *p, struct kv_err *e)
{
	if (p->n_held == p->held_cap) {
		size_t cap = p->held_cap ? 2 * p->held_cap : 64;
		struct kv_step *more = realloc(p->held, cap * sizeof *more);

		if (more == NULL) {
			kv_no_memory(e, cap * sizeof *more);
			return NULL;
		}
		p->held = more;
		p->held_cap = cap;
	}
	p->held[p->n_held] = (struct kv_step){ 0 };
	return &p->held[p->n_held++];
}

static int
load_all(struct kv_pipe *p, struct kv_err *e)
{
	struct kv_step *s;
	int rc;

	do {
		if ((s = add_held(p, e)) == NULL)
			return KV_EMEM;
		if ((rc = kv_pipe_load(p, s, e)) < 0)
			return rc;
	} while (s->layer != KV_NO_LAYER);
	if ((rc = kv_spool_map(&p->spool, e)) < 0)
		return rc;
	return kv_pipe_place_spooled(p, e);
}

int
kv_pipe_hold(struct kv_pipe *p, struct kv_step **steps, size_t *n, struct kv_err *e)
{
	int rc;

	*steps = NULL;
	*n = 0;
	if (p->ended)
		return KV_END;
	if ((rc = leave_step(p, e)) < 0)
		return rc;
	if (p->in_sequence)
		return kv_fail(e, KV_EARG, "%s: steps can be held before the first of them was taken", p->names.data);
	if ((rc = kv_pipe_open_sequence(p, e)) != KV_OK)
		return rc;
	p->holding = true;
	rc = load_all(p, e);
	p->holding = false;
	*steps = p->held;
	*n = p->n_held;
	return rc;
}

static int
fetch(struct kv_step *s, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < s->n_items && rc == KV_OK; i++) {
		struct kv_item *x = &s->items[i];

		if (x->tensor.device == NULL)
			continue;
		rc = kv_loan_map(x->loan, true, &x->tensor.data, e);
		kv_loan_leave(x->loan);
		x->tensor.device = NULL;
	}
	return rc;
}

int
kv_pipe_fetch(struct kv_pipe *p, struct kv_err *e)
{
	int rc = fetch(&p->step, e);

	for (size_t i = 0; i < p->n_held && rc == KV_OK; i++)
		rc = fetch(&p->held[i], e);
	return rc;
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
	for (size_t i = 0; i < p->n_held; i++)
		kv_step_clear(&p->held[i]);
	free(p->held);
	for (size_t i = 0; i < p->n_in; i++)
		kv_input_close(&p->in[i]);
	kv_spool_fini(&p->spool);
	free(p->in);
	free(p->uses);
	free(p->keeps);
	free(p->partly);
	free(p->on_device);
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
