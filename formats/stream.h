/* SPDX-License-Identifier: MIT
 * Reading and writing kvtools streams, record by record.  STREAM.md is the specification; formats/pipe.h is what
 * filters use.
 *
 * Record maps are jansson objects: MessagePack maps with string keys, integers, floats, strings, arrays, booleans,
 * nil.  Bytes of a record that was not changed are written again exactly as they came.
 */
#ifndef KV_STREAM_H
#define KV_STREAM_H

#include <jansson.h>

#include "formats/messagepack.h" /* the limits of one record: KV_RECORD_MAX, KV_DEPTH_MAX, KV_ELEMENTS_MAX */
#include "lib/buf.h"
#include "lib/device.h"
#include "lib/err.h"
#include "lib/tensor.h"

#define KV_STREAM_VERSION 1
#define KV_ALIGN          64    /* payloads start at a multiple of this, counted from the stream's start */
#define KV_PARTS_MAX      65536 /* bin objects of one payload */
#define KV_TENSORS_MAX    1024  /* tensors of one layer */

enum kv_record_kind {
	KV_RECORD_HEADER,
	KV_RECORD_SEQUENCE, /* opens a sequence */
	KV_RECORD_TENSOR,
	KV_RECORD_LAYER_END, /* a layer is complete: its reader need not wait for what comes next; optional */
	KV_RECORD_CLOSE, /* closes a sequence */
	KV_RECORD_END,
	KV_RECORD_OTHER, /* something this version does not know; raw bytes only */
};

struct kv_record {
	enum kv_record_kind kind;
	json_t *map;             /* new reference, for the caller to drop; NULL for OTHER */
	struct kv_buf raw;       /* the record's own bytes, without padding and payload; caller's */
	struct kv_tensor tensor; /* TENSOR: described, data NULL; caller's */
};
void kv_record_fini(struct kv_record *r);

struct kv_reader;

/* path NULL or "-": standard input, called <stdin>.  Reads and checks the header: the first kv_reader_next()
 * returns it. A regular file is mapped.  Streams compressed by zstd, gzip or xz are read as what they expand to, and
 * "ARCHIVE:MEMBER" is one in a tar archive (source.h).
 * Fails: KV_EIO (missing, a directory, a terminal), KV_EFORMAT (not a stream, another version). */
int kv_reader_open(struct kv_reader **out, const char *path, struct kv_err *e);
const char *kv_reader_name(const struct kv_reader *r); /* for messages */
void kv_reader_free(struct kv_reader *r);

/* The next record, KV_END after a proper End record.  A payload not loaded is skipped.  The order of records is
 * checked here: tensors stand in sequences, layers ascend, the closing map's status is "ok".
 * Fails: KV_EFORMAT, saying "sequence 3, layer 7, k: ..." and, for a stream without End, that it is cut short. */
int kv_reader_next(struct kv_reader *r, struct kv_record *rec, struct kv_err *e);

/* Load the payload of the tensor just returned into t, which is that tensor, moved or not (data, owned), check its
 * length and checksum.  From a mapped file the data is borrowed from the map when it is whole and aligned, and
 * lives as long as the reader. */
int kv_reader_payload(struct kv_reader *r, struct kv_tensor *t, struct kv_err *e);

/* ---- writing */

struct kv_writer;

/* path NULL or "-": standard output (refused when that is a terminal).  A path that ends in .zst, .gz or .xz is written
 * compressed.  only, drop: lists of tensor names (lib/names.h) or NULL.  Nothing appears under path before
 * kv_writer_finish(). */
int kv_writer_open(struct kv_writer **out, const char *path, const char *only, const char *drop, struct kv_err *e);

/* From now on payloads larger than a page stay in our memory, and the stream says where (STREAM.md, References);
 * kv_writer_finish() then waits until they have been given back.  Only in a pipe: elsewhere nothing changes. */
void kv_writer_share(struct kv_writer *w);
/* The same on a device that has a card's name: see kv_writer_room_on_device() in record.h.  It stays open until the
 * writer has finished. */
void kv_writer_share_on(struct kv_writer *w, struct kv_device *d);

/* From now on a thread does the writing, for programs that compute meanwhile.  A tensor's data has to stay as it is
 * until kv_writer_settle(), which waits until all has been written; a fault comes from the next call, whichever it is.
 * Fails: KV_EMEM, KV_EFAIL (no thread). */
int kv_writer_background(struct kv_writer *w, struct kv_err *e);
int kv_writer_settle(struct kv_writer *w, struct kv_err *e);

/* model: the header's model object (borrowed); history: array of earlier entries or NULL (borrowed); entry: ours
 * (borrowed). */
int kv_writer_header(struct kv_writer *w, const json_t *model, const json_t *history, const json_t *entry,
    struct kv_err *e);
/* map: the opening map, without the `sequence` key, which the writer adds (borrowed). */
int kv_writer_sequence(struct kv_writer *w, const json_t *map, struct kv_err *e);
int kv_writer_tensor(struct kv_writer *w, const struct kv_tensor *t, struct kv_err *e); /* honours only and drop */
int kv_writer_raw(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e);
/* Hears, when the stream is finished and had sequences, of each name in --only or --drop that no tensor had: name
 * [n]. */
typedef void kv_unmet_fn(const char *option, int n, const char *name);
void kv_writer_on_unmet(struct kv_writer *w, kv_unmet_fn *unmet);

/* Call it when a layer's last tensor has been written: the next program can then work on the layer while we work on
 * ours. */
int kv_writer_layer_end(struct kv_writer *w, int layer, struct kv_err *e);
int kv_writer_close(struct kv_writer *w, struct kv_err *e); /* closes the sequence with status ok */

/* End record, flush, rename; frees w in any case. */
int kv_writer_finish(struct kv_writer *w, struct kv_err *e);
/* After a failure: no End record, no file.  NULL is fine. */
void kv_writer_drop(struct kv_writer *w);

/* A history entry: {program, version, arguments}. */
json_t *kv_history_entry(const char *program, const char *version, int argc, char *const *argv);

#endif
