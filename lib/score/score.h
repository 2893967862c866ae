/* SPDX-License-Identifier: MIT
 * Scoring methods: the importance of every prompt token, per KV head.  Higher means keep.
 *
 * A method is one row of kv_score_list (scores.c).  Members of the attention family are presets of attention.c; any other method is
 * one file.  Methods produce *raw* scores; pooling is named in the attributes and done by whoever ranks (kv_pooled()).
 */
#ifndef KV_SCORE_H
#define KV_SCORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/device.h"
#include "lib/err.h"
#include "lib/tensor.h"

/* What the user can set; a method's row has the defaults. */
struct kv_score_params {
	size_t window;            /* query rows that look back (METHODS: W) */
	enum kvk_pool pool;       /* how the ranking pools */
	size_t pool_width;        /* odd */
	enum kvk_reduce rows;     /* over query rows */
	enum kvk_reduce gqa;      /* over the query heads of a group */
	size_t n_sink, n_recent;  /* protected positions */
	uint64_t seed;
};

/* What a consumer has to know about a `score` tensor: its attrs, typed. */
struct kv_score_attrs {
	char method[KV_NAME_MAX];
	enum kvk_pool pool;
	size_t pool_width;
	size_t n_sink, n_recent;
	size_t n_tokens; /* prompt length T, of which the tensor scores the first n */
};
/* Attributes as an object and back.  from: missing keys are an error naming the key. */
json_t *kv_score_attrs_to_json(const struct kv_score_attrs *a, const struct kv_score_params *p);
int kv_score_attrs_from_json(struct kv_score_attrs *a, const json_t *o, struct kv_err *e);

/* One layer's tensors as they stand in the stream (host memory, borrowed). */
struct kv_score_input {
	const struct kv_device *device;
	int layer;
	size_t Hq, Hkv, D, T;
	float scale;
	const struct kv_tensor *k, *v; /* NULL when the method does not ask */
	const struct kv_tensor *q;     /* [head][query][dim], attrs: region, positions */
};

enum kv_score_need { KV_NEED_K = 1, KV_NEED_V = 2, KV_NEED_Q = 4 };

struct kv_score {
	const char *name, *brief, *paper;
	unsigned needs;                 /* of enum kv_score_need */
	const char *queries;            /* kv-prefill --queries value that brings what it needs: "window:32", "last"; NULL: none */
	struct kv_score_params defaults;
	/* How many columns are scored, given the prompt length (S - W for window methods). */
	size_t (*columns)(const struct kv_score_params *p, size_t T);
	/* raw [Hkv][n] f32, host memory, n = columns(p, T); -0 comes out as +0.  Fails: KV_ESHAPE, KV_EDEV. */
	int (*run)(const struct kv_score_input *in, const struct kv_score_params *p, size_t n, float *raw, struct kv_err *e);
};
extern const struct kv_score *const kv_score_list[]; /* ends with NULL */
const struct kv_score *kv_score_find(const char *name);

/* Which layers' tensors a method reads, and the whole step for one layer: check the inputs, run, describe.  `score` comes out as a
 * tensor [kv_head][token] ready for the stream.  A missing input is named with the kv-prefill option that brings it. */
int kv_score_layer(const struct kv_score *m, const struct kv_score_params *p, const struct kv_score_input *in,
    struct kv_tensor *score, struct kv_err *e);

/* The ranking view of raw scores: pooled [H][n] as the attributes say (METHODS 1.6), host memory. */
int kv_pooled(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n, float *pooled,
    struct kv_err *e);

#endif
