/* SPDX-License-Identifier: MIT
 * Streams and model files as text: what kv-show prints.
 *
 * A view is a row of functions that are fed a file's records in order.  They append text to show->out, which
 * kv_show_flush() writes whenever it has grown, so that memory stays bounded by one tensor and the `index` and `offset`
 * of its layer.
 *
 * Faults stick, as in struct kv_io: the first one is in show->err and show->rc, and nothing is said after it.
 *
 * Whatever comes from a file is escaped on its way into the text: no view ever emits a control byte of the file.
 */
#ifndef KV_SHOW_H
#define KV_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/model/model.h"
#include "lib/tensor.h"
#include "lib/text/escape.h"
#include "lib/text/tokenizer.h"

#define KV_SHOW_ALL ((size_t)-1) /* no choice of layer, head or sequence */

struct kv_show_options {
	bool stats;         /* read payloads: min, mean, max, kept entries */
	const char *tensor; /* rows view: whose values */
	size_t layer, head, sequence;
	bool column_names; /* rows view: a first line that names the columns */
	bool json;         /* tokens view: a JSON object per token */
	size_t width;      /* tokens view: columns of a line of text */
};

struct kv_show {
	struct kv_show_options o;
	const struct kv_tokenizer *tokenizer; /* borrowed; NULL: token ids instead of text */
	const char *file;                     /* as messages call it */
	struct kv_buf out;                    /* said, but not yet written to fd */
	int fd;
	int rc;
	struct kv_err err;
	/* The file so far; the caller counts. */
	size_t n_sequences, n_tensors, n_bytes;
	/* The current sequence, set by kv_show_begin(). */
	size_t sequence; /* its number */
	int32_t *tokens; /* [n_tokens], owned */
	size_t n_tokens;
	size_t T;               /* how many of them are the prompt, whose entries are kept or dropped */
	size_t n_heads, n_kept; /* layer-heads whose entries were seen, and how many they keep together */
	uint32_t *kept;         /* tokens view: [T] how many of them keep each token, owned */
	/* The current layer. */
	struct kv_tensor index, offset; /* when it has them */
	size_t n_full;                  /* tokens view: KV heads of k, if it was not evicted; 0: no k */
	struct kv_tensor value;         /* rows view: the tensor that waits for its index */
	size_t n_rows;                  /* rows view: rows of values so far, of all layers */
	bool named;                     /* rows view: the columns' names have been said */
};

/* A stream, record by record.  Each returns s->rc. */
struct kv_view {
	/* Does it look at this tensor's payload? */
	bool (*wants)(const struct kv_show *s, const struct kv_tensor *t);
	int (*header)(struct kv_show *s, const json_t *map);
	int (*sequence)(struct kv_show *s, const json_t *map);
	int (*tensor)(struct kv_show *s, struct kv_tensor *t); /* may take *t, and then leaves it zeroed */
	int (*layer)(struct kv_show *s);                       /* all tensors of the layer have come */
	int (*close)(struct kv_show *s);                       /* all layers of the sequence have come */
	int (*other)(struct kv_show *s, size_t bytes);         /* a record that this version does not know */
	int (*end)(struct kv_show *s);
};
extern const struct kv_view kv_view_text;   /* the default: a summary */
extern const struct kv_view kv_view_json;   /* the same as JSON Lines, one object per record */
extern const struct kv_view kv_view_rows;   /* one tensor's values, tab-separated */
extern const struct kv_view kv_view_tokens; /* which tokens the heads keep */

/* A model file. */
struct kv_model_view {
	int (*config)(struct kv_show *s, const char *format, const struct kv_model *m);
	int (*other)(struct kv_show *s, const char *format, const char *brief); /* instead: goes with a model */
	int (*metadata)(struct kv_show *s, const json_t *metadata);
	int (*weight)(struct kv_show *s, const char *name, const struct kv_matrix *w);
	int (*end)(struct kv_show *s);
};
extern const struct kv_model_view kv_model_view_text, kv_model_view_json;

/* A sequence begins: its tokens into s, its counters to zero. */
int kv_show_begin(struct kv_show *s, size_t number, const json_t *map);
/* Count a layer's index, or drop it: move `index` or `offset` into s and zero *t; other tensors stay where they are. */
void kv_show_hold(struct kv_show *s, struct kv_tensor *t);
/* Forget the layer's held tensors. */
void kv_show_layer_fini(struct kv_show *s);
void kv_show_fini(struct kv_show *s);
/* Write s->out to s->fd if it has grown beyond `bytes`. */
int kv_show_flush(struct kv_show *s, size_t bytes);

/* What the heads of one layer keep; borrowed from s->index and s->offset. */
struct kv_show_kept {
	const int32_t *index;  /* [n] positions, head after head */
	const int32_t *offset; /* [Hkv + 1] */
	size_t n, Hkv;
};
/* false when the layer has no index and offset that were loaded, or (s->rc then) when they do not fit each other:
 * offsets that do not cover the index in order, a negative position. */
bool kv_show_kept(struct kv_show *s, struct kv_show_kept *k);

/* ---- saying things (say.c) */

void kv_say(struct kv_show *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void kv_say_bytes(struct kv_show *s, const char *bytes, size_t n);       /* escaped */
void kv_say_string(struct kv_show *s, const char *text);                 /* escaped */
void kv_say_padded(struct kv_show *s, const char *text, size_t columns); /* escaped, blanks behind it */
void kv_say_count(struct kv_show *s, size_t n, int columns);             /* 1234567 as "1,234,567", blanks before it */
/* A JSON value on one line, escaped, for people: long arrays and strings are cut and say how long they are. */
void kv_say_value(struct kv_show *s, const json_t *value);
/* "  key=value key=value" of an object, but for the keys named in skip (NULL-terminated, or NULL). */
void kv_say_pairs(struct kv_show *s, const json_t *object, const char *const *skip);
/* An object as a line of JSON.  Drops the reference; NULL is a want of memory. */
void kv_say_json(struct kv_show *s, json_t *object);

/* ---- numbers (stats.c) */

struct kv_stats {
	size_t n, n_nan, n_inf;
	double min, mean, max; /* of the finite elements; NaN when there is none */
};
/* Is it of a type whose elements this version can read? */
bool kv_stats_can(const struct kv_tensor *t);
/* Of a loaded tensor of such a type. */
int kv_stats_of(const struct kv_tensor *t, struct kv_stats *st, struct kv_err *e);

#endif
