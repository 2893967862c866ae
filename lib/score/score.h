/* SPDX-License-Identifier: MIT
 * Scoring methods: the importance of every prompt token, per KV head.  Higher means keep.
 *
 * A method is one row of kv_score_list (scores.c).  Members of the attention family are presets: rows that name the
 * functions of attention.c; any other method is one file with its row.  Methods produce *raw* scores; pooling is named
 * in the attributes and done by whoever ranks (kv_pooled()).
 */
#ifndef KV_SCORE_H
#define KV_SCORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/device.h"
#include "lib/err.h"
#include "lib/tensor.h"

#define KV_ALL       ((size_t)-1) /* a window of all prompt tokens */
#define KV_SAME      ((size_t)-2) /* n_recent in a method's row: as many as the window */
#define KV_UNSET     ((size_t)-1) /* an option the user did not give */
#define KV_COUNT_MAX 2147483647.0 /* of tokens: positions are i32 */

/* How a method runs; its row has the defaults. */
struct kv_score_params {
	size_t window;           /* query rows that look back (METHODS: W), or KV_ALL */
	enum kvk_pool pool;      /* how the ranking pools */
	size_t pool_width;       /* odd; 1 when pool is none */
	enum kvk_reduce rows;    /* over query rows */
	enum kvk_reduce gqa;     /* over the query heads of a group */
	bool all_heads;          /* over all query heads of the layer instead: every KV head gets the same scores */
	size_t n_sink, n_recent; /* protected positions */
	uint64_t seed;
};

/* Which of the parameters a method lets the user set; pooling and protection are open in every method. */
enum kv_score_takes { KV_TAKES_WINDOW = 1, KV_TAKES_ROWS = 2, KV_TAKES_GQA = 4 };

/* What the user gave; KV_UNSET and NULL where he did not. */
struct kv_score_options {
	size_t window, pool_width, n_sink, n_recent;
	const char *pool, *rows, *gqa; /* "max|avg|none", "mean|sum|max" */
	uint64_t seed;
};
#define KV_SCORE_OPTIONS_NONE                                                                                          \
	{                                                                                                              \
		KV_UNSET, KV_UNSET, KV_UNSET, KV_UNSET, NULL, NULL, NULL, 0                                            \
	}

struct kv_score;
/* The options over the method's defaults.  Fails: KV_EARG (a value out of range, an even pooling width, an option that
 * means nothing to this method). */
int kv_score_configure(
    struct kv_score_params *p, const struct kv_score *m, const struct kv_score_options *o, struct kv_err *e);

/* What a consumer has to know about a `score` tensor: its attrs, typed. */
struct kv_score_attrs {
	char method[KV_NAME_MAX];
	enum kvk_pool pool;
	size_t pool_width;
	size_t n_sink, n_recent;
	size_t n_tokens; /* prompt length T, of which the tensor scores the first n */
};
/* Attributes as an object {method, pool, pool_width, n_sink, n_recent, n_tokens} and back; p adds what else the method
 * ran with (window, rows, gqa), for the record.  to: a new reference, NULL without memory.  from: a missing or
 * senseless key is KV_EFORMAT, naming it. */
json_t *kv_score_attrs_to_json(const struct kv_score_attrs *a, const struct kv_score_params *p);
int kv_score_attrs_from_json(struct kv_score_attrs *a, const json_t *o, struct kv_err *e);

/* One layer's tensors as they stand in the stream (host memory, borrowed). */
struct kv_score_input {
	const struct kv_device *device;
	int layer;
	size_t Hq, Hkv, D, T;
	float scale;                   /* of q.k in the softmax */
	const struct kv_tensor *k, *v; /* NULL: not in the stream */
	const struct kv_tensor *q;     /* [head][query][dim], attrs: region, positions [query] */
};

enum kv_score_need { KV_NEED_K = 1, KV_NEED_V = 2, KV_NEED_Q = 4 };

struct kv_score {
	const char *name, *brief, *paper;
	unsigned needs;      /* of enum kv_score_need */
	unsigned takes;      /* of enum kv_score_takes */
	const char *queries; /* kv-prefill --queries value that brings what the defaults need: "window:32", "last";
				NULL: none */
	struct kv_score_params defaults;
	/* How many columns are scored, given the prompt length (S - W for window methods). */
	size_t (*columns)(const struct kv_score_params *p, size_t T);
	/* raw [Hkv][n] f32, host memory, n = columns(p, T) > 0; -0 comes out as +0.  The inputs are there and have the
	 * shapes that `in` says.  Fails: KV_ESHAPE (q lacks rows), KV_EDEV, KV_EMEM. */
	int (*run)(
	    const struct kv_score_input *in, const struct kv_score_params *p, size_t n, float *raw, struct kv_err *e);
};
extern const struct kv_score *const kv_score_list[]; /* ends with NULL */
const struct kv_score *kv_score_find(const char *name);

/* The whole step for one layer: check the inputs, run, describe.  `score` comes out as a tensor [kv_head][token] f32
 * ready for the stream, [Hkv][0] when the prompt has nothing to score (it is no longer than the window).  A missing
 * input is named with the kv-prefill option that brings it.  Fails: KV_ESHAPE, KV_EDEV, KV_EMEM; score is then empty.
 */
int kv_score_layer(const struct kv_score *m, const struct kv_score_params *p, const struct kv_score_input *in,
    struct kv_tensor *score, struct kv_err *e);

/* The ranking view of raw scores: pooled [H][n] as the attributes say (METHODS 1.6), host memory. */
int kv_pooled(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n,
    float *pooled, struct kv_err *e);

/* The kv-prefill --queries value that brings the queries p asks for: "window:32", "last", "all"; returns text. */
const char *kv_score_queries(const struct kv_score_params *p, char text[32]);

/* Names of the enumerations in options and attributes; find returns -1 for an unknown one. */
const char *kv_pool_name(enum kvk_pool pool);
const char *kv_reduce_name(enum kvk_reduce how);
int kv_pool_find(const char *name);
int kv_reduce_find(const char *name);

/* ---- the attention family (attention.c); source of each preset: its row */

size_t kv_columns_all(const struct kv_score_params *p, size_t T);     /* T */
size_t kv_columns_history(const struct kv_score_params *p, size_t T); /* T - W, 0 when T <= W */

/* Softmax over all visible keys for the last min(W, T) prompt queries, reduced over rows, then over heads
 * (METHODS 1.2, 1.5, 1.7). q may hold more rows than that, ending with the prompt's last. */
int kv_attention_score(
    const struct kv_score_input *in, const struct kv_score_params *p, size_t n, float *raw, struct kv_err *e);

#endif
