/* SPDX-License-Identifier: MIT
 * The loop of every filter: several streams in, joined by (sequence, layer), one stream out.
 *
 * kv_pipe_next() hands out one step at a time: each layer of each sequence in order with all its tensors, then one step
 * with layer KV_NO_LAYER per sequence (its `logits` and other whole-sequence tensors, maybe none).  The program looks
 * at the tensors, puts new ones in, removes some; the next call writes the step and frees it.
 *
 * Memory: at most one layer, and of it what the program uses.  Other payloads stay in a file that is mapped, and
 * through a pipe they go straight on; only one that follows a tensor that is used has to wait for it in memory, as
 * records keep their order.
 */
#ifndef KV_PIPE_H
#define KV_PIPE_H

#include "formats/stream.h"
#include "lib/step.h"

struct kv_pipe;

/* An operand is FILE, ARCHIVE:MEMBER (source.h), or either with ":tensor=newname[,tensor=newname]" behind it, which
 * gives tensors other names before anything else is asked about them; but a file that has the whole operand for its
 * name comes first. */
struct kv_pipe_options {
	char *const *files;      /* NULL-terminated; none or "-": standard input */
	const char *output;      /* NULL or "-": standard output */
	bool no_output;          /* a sink: nothing is written */
	const char *only, *drop; /* of what leaves */
	kv_unmet_fn *unmet;      /* hears of names in these that no tensor had; may be NULL */
	const char *uses;        /* tensors that the program reads, replaces or removes (lib/names.h); NULL: all */
	const char *keeps;       /* of these, tensors that it reads only: they may leave before it has; NULL: none */
	const char *partly;      /* of these, tensors of which it reads a part: where the stream refers to a payload,
				  * the rest is not touched, and the checksum not compared; NULL: none */
	struct kv_device *device; /* the program's, for payloads that lie on one; NULL: it has none.  It need not be
				  * open, and outlives the pipe */
	const char *on_device;   /* of `uses`, tensors whose payload it takes from t->device where it lies on that
				  * device, and data is NULL: kv_device_view_tensor(); NULL: none */
	bool share;              /* large payloads are written as references, where that goes: kv_writer_share() */
	const json_t *entry;     /* our history entry (borrowed) */
};

/* Opens inputs and output.  Fails as kv_reader_open and kv_writer_open do, with KV_EARG for a renaming or a list that
 * is none, and with KV_EMODEL when two inputs come from different models, naming both files and the first difference.
 */
int kv_pipe_open(struct kv_pipe **out, const struct kv_pipe_options *o, struct kv_err *e);
const json_t *kv_pipe_model(const struct kv_pipe *p); /* the header's model object, borrowed */
/* What all inputs' headers tell, each entry once, and then options.entry; an array, borrowed. */
const json_t *kv_pipe_history(const struct kv_pipe *p);
const char *kv_pipe_name(const struct kv_pipe *p); /* what messages call the input: "a.kv + b.kv" */

/* KV_OK with *step borrowed until the next call, KV_END after the last.  Faults carry file, sequence, layer and
 * tensor. */
int kv_pipe_next(struct kv_pipe *p, struct kv_step **step, struct kv_err *e);

/* For what must see all layers before it can change the first: the steps [*n] of the next sequence at once, borrowed
 * until the last of them has been left.  kv_pipe_next() then hands out each in turn, to be changed and written, and
 * this can be called again when the step with KV_NO_LAYER has been handed out; looking further while they are held is
 * fine. Memory: small payloads that are used.  What came through a pipe and is not used, or has a MiB and more, waits
 * in a file without a name in $TMPDIR (else /tmp), mapped when it is used. KV_END after the last sequence.  Fails as
 * kv_pipe_next does, KV_EIO naming $TMPDIR when that is full, KV_EARG in the middle of a sequence. */
int kv_pipe_hold(struct kv_pipe *p, struct kv_step **steps, size_t *n, struct kv_err *e);

/* What steps have on the program's device (options.on_device) comes to the host: t->data, with t->device NULL.  The
 * device may go then.  Fails: as kv_pipe_next() does. */
int kv_pipe_fetch(struct kv_pipe *p, struct kv_err *e);

/* Put "FILE: sequence N, layer L: " in front of a fault that a program found in this step. */
int kv_step_where(const struct kv_pipe *p, const struct kv_step *s, struct kv_err *e);

/* rc >= 0: writes what is left and the End record, closes.  rc < 0: drops the output.  Frees p in any case; returns
 * the first fault. */
int kv_pipe_finish(struct kv_pipe *p, int rc, struct kv_err *e);

#endif
