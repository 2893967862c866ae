/* SPDX-License-Identifier: MIT
 * The inside of a pipe, shared by pipe.c (the loop), pipe_input.c (what comes in), pipe_sequence.c (from one sequence
 * to the next) and pipe_step.c (a step in and out).
 */
#ifndef KV_PIPE_INSIDE_H
#define KV_PIPE_INSIDE_H

#include "formats/pipe.h"
#include "formats/record.h"
#include "formats/spool.h"

struct kv_renaming {
	char from[KV_NAME_MAX], to[KV_NAME_MAX];
	bool met; /* a tensor of that name has come */
};

/* Each input shows its next record, the head.  It is fetched only when it is needed: after a layer_end record the step
 * goes to the program without waiting for what its producer computes next. */
struct kv_input {
	struct kv_reader *reader;
	struct kv_record head;
	bool has_head;
	struct kv_renaming *renamings;
	size_t n_renamings;
};

struct kv_pipe {
	struct kv_input *in; /* [n_in] */
	size_t n_in;
	struct kv_writer *writer; /* NULL: a sink */
	json_t *header;           /* the first input's */
	json_t *history;          /* of all inputs, and our entry */
	char *uses, *keeps, *partly, *on_device; /* lists of names; NULL: all, none, none, none */
	struct kv_buf names;      /* of all inputs, for messages */
	struct kv_sequence seq;
	int32_t *tokens;
	struct kv_buf seq_raw, close_raw, end_raw; /* the first input's records */
	bool in_sequence, opened, ended;           /* opened: the sequence's record has been written */
	struct kv_step *now;                       /* what the program has; NULL between two steps */
	struct kv_step step;                       /* the one step, when they are not held */
	size_t n_sent; /* items of `step`, its first ones, which have been written already */
	/* kv_pipe_hold(): the sequence's steps, of which those before `at_held` have been handed out */
	struct kv_step *held; /* [n_held] */
	size_t n_held, held_cap, at_held;
	bool holding; /* steps are being loaded */
	struct kv_spool spool;
};

/* ---- inputs */

/* Opens "FILE" or "FILE:tensor=newname,..".  *in is to be closed, whether it fails or not. */
int kv_input_open(struct kv_input *in, const char *operand, struct kv_err *e);
void kv_input_close(struct kv_input *in);
/* Make sure that the head is there, with its new name.  Faults carry their place already. */
int kv_input_fetch(struct kv_input *in, struct kv_err *e);
/* The head is done with. */
void kv_input_consume(struct kv_input *in);
/* The stream has ended: was there something to rename?  Fails: KV_EFORMAT, with its place. */
int kv_input_ended(const struct kv_input *in, struct kv_err *e);
/* Puts the place in front of a fault that this input brought; layer and tensor may be KV_NO_LAYER and NULL. */
int kv_input_where(const struct kv_input *in, size_t sequence, int layer, const char *tensor, struct kv_err *e);

/* ---- sequences */

/* The next one: all inputs' opening records.  KV_END when all inputs have ended. */
int kv_pipe_open_sequence(struct kv_pipe *p, struct kv_err *e);
/* Every input's head is the closing record: takes them. */
void kv_pipe_take_close(struct kv_pipe *p);
/* Writes the opening record, unless it has been. */
int kv_pipe_write_opening(struct kv_pipe *p, struct kv_err *e);

/* ---- steps */

/* The next layer, or what follows the layers, of all inputs into s. */
int kv_pipe_load(struct kv_pipe *p, struct kv_step *s, struct kv_err *e);
/* Steps are held and the spool is mapped: payloads in it get their addresses. */
int kv_pipe_place_spooled(struct kv_pipe *p, struct kv_err *e);
/* Writes what of s has not been sent. */
int kv_pipe_write(struct kv_pipe *p, struct kv_step *s, struct kv_err *e);

#endif
