/* SPDX-License-Identifier: MIT
 * The inside of a stream's reader, shared by stream_reader.c (records) and stream_payload.c.
 */
#ifndef KV_STREAM_READER_H
#define KV_STREAM_READER_H

#include "formats/record.h"
#include "formats/source.h"

struct kv_reader {
	struct kv_source src;
	bool header_given, ended, broken;
	struct kv_record header;
	json_int_t n_layers;    /* as the model says; INT_MAX when it does not */
	json_int_t n_sequences; /* opened so far */
	bool in_sequence;
	int layer; /* of the last tensor: layers ascend, KV_NO_LAYER comes last; below that before the first */
	bool layer_ended;
	char *names; /* [n_names][KV_NAME_MAX] of this layer's tensors */
	size_t n_names, names_cap;
	/* the tensor returned last, until its payload has been read or stepped over */
	bool pending;
	char tensor[KV_NAME_MAX];
	struct kv_payload payload;
	struct kv_parts parts;
	/* payloads that lie elsewhere */
	struct kv_borrower borrower;
	struct kv_loan *loan;     /* of the pending tensor */
	struct kv_reference file; /* kv_reader_refer() */
	char *path;               /* its path */
	bool path_known;
};

/* Puts the place in front of the fault; the reader is of no use afterwards.  tensor: NULL when it is none's. */
int kv_reader_broken(struct kv_reader *r, const char *tensor, struct kv_err *e);
/* The input ends where it must not; where: "inside a record". */
int kv_reader_cut_short(struct kv_reader *r, const char *where, struct kv_err *e);
/* Steps over nils.  KV_END: nothing behind them. */
int kv_reader_skip_nils(struct kv_reader *r, struct kv_err *e);
/* Steps over the pending payload.  Faults have no place yet. */
int kv_reader_discard(struct kv_reader *r, struct kv_err *e);

#endif
