/* SPDX-License-Identifier: MIT
 * What a record's map says, checked: shared by the stream's reader, its writer and the pipe.  Programs use stream.h
 * and pipe.h.
 */
#ifndef KV_RECORD_H
#define KV_RECORD_H

#include "formats/borrower.h"
#include "formats/stream.h"
#include "lib/fifo.h"

/* The payload behind a tensor's map, or elsewhere. */
struct kv_payload {
	size_t bytes, parts;
	bool has_sum;  /* lent memory has none */
	uint64_t xxh3; /* XXH3-64 of all parts together */
	struct kv_reference reference; /* with parts 0; its path is the map's */
};

/* Bytes of one index of the outermost axis. */
size_t kv_tensor_row(const struct kv_tensor *t);
/* Cut `bytes` into parts of at most `max` bytes: whole multiples of `row` (bytes of one index of the outermost axis)
 * where a row fits a part.  Fails: KV_EFORMAT (too many parts). */
int kv_parts_split(struct kv_parts *p, size_t bytes, size_t row, size_t max, struct kv_err *e);

/* Fill kind and, unless it is OTHER, map from rec->raw; no other check.  Fails: KV_EFORMAT, KV_EMEM. */
int kv_record_parse(struct kv_record *rec, struct kv_err *e);

/* A tensor's map into a description and back.  t is zeroed first, its attrs are shared with the map.
 * Fails: KV_EFORMAT, naming the key. */
int kv_tensor_from_map(struct kv_tensor *t, struct kv_payload *p, const json_t *map, struct kv_err *e);
json_t *kv_tensor_to_map(const struct kv_tensor *t, const struct kv_payload *p); /* NULL: no memory */

/* A tensor's record that says where its payload lies: in `parts` parts behind it (reference NULL), or elsewhere; and
 * its checksum, if sum is not NULL. */
int kv_record_place(struct kv_buf *raw, size_t parts, const struct kv_reference *reference, const uint64_t *sum,
    struct kv_err *e);

/* May a tensor or an axis be called so?  1 to KV_NAME_MAX - 1 printable bytes, no space, no comma. */
bool kv_name_is_valid(const char *name, size_t n);

/* An integer of a map within [min, max].  Fails: KV_EFORMAT, naming the key and what is expected. */
int kv_map_int(const json_t *map, const char *key, json_int_t min, json_int_t max, json_int_t *out, struct kv_err *e);

/* A sequence's opening map: tokens, prompt_length.  Fails: KV_EFORMAT. */
int kv_sequence_check(const json_t *map, struct kv_err *e);

/* kv_reader_open() for a source, which it takes over, whether it fails or not. */
struct kv_source;
int kv_reader_take(struct kv_reader **out, struct kv_source *src, struct kv_err *e);

/* ---- payloads, for the pipe: instead of kv_reader_payload(), once per tensor that was just returned */

bool kv_reader_is_mapped(const struct kv_reader *r);

/* Where the parts lie in a mapped file, which nobody has looked at yet.  KV_END: the input is not mapped. */
int kv_reader_locate(struct kv_reader *r, const struct kv_tensor *t, struct kv_err *e);

/* Who takes a payload piece by piece: a part's size, and then its bytes in pieces. */
struct kv_taker {
	int (*part)(void *ctx, uint32_t n, struct kv_err *e);
	int (*bytes)(void *ctx, const void *bytes, size_t n, struct kv_err *e);
	/* Takes some of the next n bytes from a descriptor; KV_END: by bytes() then.  NULL: always by bytes(). */
	int (*hand)(void *ctx, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e);
	void *ctx;
	bool unseen; /* nobody looks at the bytes here: no checksum, that is for who uses them */
};
/* Hands the payload on without holding it, and, unless unseen, compares its checksum when all has gone. */
int kv_reader_copy(struct kv_reader *r, const struct kv_tensor *t, const struct kv_taker *to, struct kv_err *e);
/* kv_reader_payload() that hands the payload on as well (unless `part` is NULL), for input that is not mapped; to NULL:
 * the same. */
int kv_reader_fork(struct kv_reader *r, struct kv_tensor *t, const struct kv_taker *to, struct kv_err *e);
/* The loan that stands for the payload of the tensor just returned, NULL: it lies in the stream.  kv_reader_payload()
 * maps it. */
struct kv_loan *kv_reader_loan(const struct kv_reader *r);
/* Instead of kv_reader_payload(): t->device, if the payload lies on the reader's device.  KV_END: it does not. */
int kv_reader_on_device(struct kv_reader *r, struct kv_tensor *t, struct kv_err *e);
/* The program's device, for payloads that lie on one. */
void kv_reader_use(struct kv_reader *r, struct kv_device *d);
/* A mapped input's file, as any process can open it: path, size and date are set.  KV_END: it has no name. */
int kv_reader_refer(struct kv_reader *r, struct kv_reference *to, struct kv_err *e);
/* Where bytes of a mapped input lie in its file; false: these are none. */
bool kv_reader_file_at(const struct kv_reader *r, const void *at, size_t n, struct kv_fifo_from *from);

/* How the payload that was loaded, located or copied last was cut; yours now. */
void kv_reader_take_parts(struct kv_reader *r, struct kv_parts *to);

/* The payloads handed out so far are done with: a mapped file's pages need not stay in memory for them. */
void kv_reader_forget(struct kv_reader *r);

/* Do payloads that lie elsewhere stay there?  Only in a pipe: what is stored stands for itself. */
bool kv_writer_refers(const struct kv_writer *w);
/* And those that this program writes: kv_writer_share(). */
bool kv_writer_shares(const struct kv_writer *w);
#define KV_SHARE_MIN 4096 /* bytes of a payload that may lie elsewhere: more than this */

/* Memory of n bytes for a tensor of this name that is going to be written: put its data there and kv_writer_tensor()
 * need not copy them.  NULL: it will not be lent, or several are waiting to be written; use your own. */
int kv_writer_room(struct kv_writer *w, const char *name, size_t n, void **room, struct kv_err *e);
/* The same on the device, for a tensor whose `device` this is; wait for the device before it is written. */
int kv_writer_room_on_device(struct kv_writer *w, const char *name, size_t n, void **room, struct kv_err *e);

/* Does a tensor of this name leave?  kv_writer_tensor_map() and what follows do not ask. */
bool kv_writer_leaves(const struct kv_writer *w, const char *name);
/* A tensor piece by piece: its map, then, for each part, the part's size and its bytes. */
int kv_writer_tensor_map(struct kv_writer *w, const struct kv_buf *raw, struct kv_err *e);
int kv_writer_part(struct kv_writer *w, uint32_t n, struct kv_err *e);
int kv_writer_bytes(struct kv_writer *w, const void *bytes, size_t n, struct kv_err *e);
int kv_writer_hand(struct kv_writer *w, const struct kv_fifo_from *from, size_t n, size_t *done, struct kv_err *e);
/* Parts that are made have at most so many bytes; for tests, which want parts without 4 GiB. */
void kv_writer_part_max(struct kv_writer *w, size_t bytes);

/* The writer's ways to keep what came in: a known record with its own bytes, a header with its own keys (history is
 * replaced), a tensor with its own map and its payload cut as it was. */
int kv_writer_record(struct kv_writer *w, enum kv_record_kind kind, const struct kv_buf *raw, struct kv_err *e);
int kv_writer_header_map(struct kv_writer *w, const json_t *header, const json_t *history, struct kv_err *e);
int kv_writer_tensor_parts(struct kv_writer *w, const struct kv_buf *raw, const struct kv_tensor *t,
    const struct kv_parts *p, struct kv_err *e);

#endif
