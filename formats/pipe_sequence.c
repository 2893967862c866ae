/* SPDX-License-Identifier: MIT */
#include "formats/pipe_inside.h"

#include <stdlib.h>

#include "formats/join.h"

/* Unknown records between sequences go out at once. */
static int
pass_others(struct kv_pipe *p, struct kv_input *in, struct kv_err *e)
{
	int rc;

	while ((rc = kv_input_fetch(in, e)) == KV_OK && in->head.kind == KV_RECORD_OTHER) {
		if (p->writer != NULL && (rc = kv_writer_raw(p->writer, in->head.raw.data, in->head.raw.n, e)) < 0)
			return rc;
		kv_input_consume(in);
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
	const json_t *tokens = json_object_get(p->seq.map, "tokens");
	const json_t *length = json_object_get(p->seq.map, "prompt_length");
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

		rc = kv_join_sequences(first->map, kv_reader_name(p->in[0].reader), theirs,
		    kv_reader_name(p->in[i].reader), p->seq.number, e);
		if (rc == KV_OK)
			rc = kv_join_maps(first->map, theirs, e);
	}
	json_decref(p->seq.map);
	p->seq.map = json_incref(first->map);
	kv_buf_fini(&p->seq_raw);
	p->seq_raw = first->raw;
	first->raw = (struct kv_buf){ 0 };
	for (size_t i = 0; i < p->n_in; i++)
		kv_input_consume(&p->in[i]);
	return rc < 0 ? rc : copy_tokens(p, e);
}

static int
take_end(struct kv_pipe *p, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < p->n_in && rc == KV_OK && p->seq.map != NULL; i++)
		rc = kv_input_ended(&p->in[i], e);
	if (rc < 0)
		return rc;
	p->ended = true;
	p->end_raw = p->in[0].head.raw;
	p->in[0].head.raw = (struct kv_buf){ 0 };
	return KV_END;
}

int
kv_pipe_open_sequence(struct kv_pipe *p, struct kv_err *e)
{
	size_t number = p->seq.map ? p->seq.number + 1 : 0;
	int rc;

	for (size_t i = 0; i < p->n_in; i++)
		if ((rc = pass_others(p, &p->in[i], e)) < 0)
			return rc;
	if ((rc = check_same_kind(p, number, e)) < 0)
		return rc;
	if (p->in[0].head.kind == KV_RECORD_END)
		return take_end(p, e);
	p->seq.number = number;
	if ((rc = join_sequences(p, e)) < 0)
		return rc;
	p->in_sequence = true;
	p->opened = false;
	return KV_OK;
}

void
kv_pipe_take_close(struct kv_pipe *p)
{
	kv_buf_fini(&p->close_raw);
	p->close_raw = p->in[0].head.raw;
	p->in[0].head.raw = (struct kv_buf){ 0 };
	for (size_t i = 0; i < p->n_in; i++)
		kv_input_consume(&p->in[i]);
}

int
kv_pipe_write_opening(struct kv_pipe *p, struct kv_err *e)
{
	json_t *before = NULL;
	int rc;

	if (p->opened)
		return KV_OK;
	/* its own bytes, if other inputs had nothing to add */
	if ((rc = kv_pack_decode(p->seq_raw.data, p->seq_raw.n, &before, e)) == KV_OK)
		rc = json_equal(before, p->seq.map) ? kv_writer_record(p->writer, KV_RECORD_SEQUENCE, &p->seq_raw, e)
						    : kv_writer_sequence(p->writer, p->seq.map, e);
	json_decref(before);
	p->opened = true;
	return rc;
}
