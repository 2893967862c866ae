/* SPDX-License-Identifier: MIT
 * Scoring methods: the importance of every prompt token, per head.  Higher means keep.
 *
 * A method is one file, lib/score/NAME.c, and one row of kv_score_list (scores.c).  Those with attention in them are a
 * few lines around kv_attention() (lib/attention.h).  Methods produce *raw* scores; pooling is named in the
 * attributes and done by whoever ranks (kv_pooled(), kv_pooled_on_device()).
 */
#ifndef KV_SCORE_H
#define KV_SCORE_H

#include <jansson.h>

#include "lib/layer.h"
#include "lib/method.h"

#define KV_USES_MAX 512

/* What stays whatever its score: the first n_sink positions, and the last n_recent ones. */
struct kv_protection {
	size_t n_sink, n_recent; /* at most KV_COUNT_MAX; may exceed the prompt */
	double recent_share;     /* 0 .. 1: n_recent is floor(share * (C - n_sink)) instead; < 0: n_recent counts */
};
/* n_recent for C entries per head, from the share if there is one; recent_share becomes -1. */
void kv_protection_resolve(struct kv_protection *p, size_t C);

/* What a method's run() fills. */
struct kv_raw {
	size_t H, n;   /* heads (KV heads, or query heads with --granularity head) and columns */
	float *s;      /* [H][n] zeros, host memory; column j is position j */
	json_t *attrs; /* object: further attributes of the tensor; what is set here is not overwritten */
};

struct kv_score_method {
	struct kv_method about;
	const char *needs; /* tensors that must be there: "k,q"; NULL: none */
	const char *looks; /* others that run() may look for, "score.*,k.response" (lib/names.h); NULL: none */
	/* What kv-prefill --queries must bring; NULL: no queries. */
	struct kv_queries (*queries)(const struct kv_params *p);
	/* How many columns are scored, given the prompt's length; NULL: all. */
	size_t (*columns)(const struct kv_params *p, size_t T);
	/* Instead: heads and columns as something in the stream has them. */
	int (*size)(const struct kv_layer *l, const struct kv_params *p, size_t *H, size_t *n, struct kv_err *e);
	/* Changes what kv_param_sink, _recent and _recent_share say; NULL: they say it (those not listed: nothing). */
	void (*protect)(const struct kv_params *p, size_t T, struct kv_protection *out);
	/* The scores of one layer.  The needed tensors are there and have the model's shape.  n may be 0.  -0 becomes
	 * +0 afterwards, NaN is legal and ranks last.  Fails: KV_ESHAPE, KV_EDEV, KV_EMEM. */
	int (*run)(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e);
};
extern const struct kv_score_method *const kv_score_list[]; /* ends with NULL */
const struct kv_score_method *kv_score_find(const char *name);

/* The whole step for one layer: check the inputs, run, describe, put `score` [kv_head][token] (or [head][token]) f32
 * into the step; it has no columns when the prompt has nothing to score.  Attributes: method, its parameters, pool,
 * pool_width, n_sink, n_recent or recent_share, n_tokens, and the method's own.  p must be that method's.
 * Fails: KV_ESHAPE (a missing input is named with what brings it), KV_EDEV, KV_EMEM; the step is then unchanged. */
int kv_score_layer(const struct kv_layer *l, const struct kv_params *p, struct kv_err *e);

/* All that the method looks at, and the score: text for kv_pipe_options.uses.  Returns text. */
const char *kv_score_uses(const struct kv_score_method *m, char text[KV_USES_MAX]);

/* What --queries the method wants with these parameters. */
struct kv_queries kv_score_queries(const struct kv_score_method *m, const struct kv_params *p);
/* Does it need what kv-prefill brings with --response alone: keys of tokens behind the prompt? */
bool kv_score_wants_response(const struct kv_score_method *m);
/* Does it need what kv-prefill brings with --lookahead alone: queries and keys of learned tokens? */
bool kv_score_wants_lookahead(const struct kv_score_method *m);

/* For rows: columns and queries of the usual methods, from kv_window(). */
size_t kv_columns_history(const struct kv_params *p, size_t T); /* T - W, 0 when T <= W */
size_t kv_columns_none(const struct kv_params *p, size_t T);    /* 0: there is nothing but protection */
struct kv_queries kv_queries_window(const struct kv_params *p);
struct kv_queries kv_queries_last(const struct kv_params *p);
struct kv_queries kv_queries_all(const struct kv_params *p);

/* For methods that compute on the host: *y, all elements of tensor t (F32, F16 or BF16) as floats; free() it.  Fails:
 * KV_EMEM, KV_EDEV. */
int kv_score_floats(const struct kv_layer *l, const struct kv_tensor *t, float **y, struct kv_err *e);
double kv_dot(const float *x, const float *y, size_t n);

/* ---- what consumers need to know about a `score` tensor (attrs.c) */

struct kv_score_attrs {
	char method[KV_NAME_MAX];
	enum kvk_pool pool;
	size_t pool_width;
	struct kv_protection protect;
	size_t n_tokens; /* prompt length T, of which the tensor scores the first n */
};
/* As an object {method, pool, pool_width, n_sink, n_recent or recent_share, n_tokens} and back; keys that are there
 * stay.
 * from: a missing or senseless key is KV_EFORMAT, naming it. */
int kv_score_attrs_to_json(const struct kv_score_attrs *a, json_t *o, struct kv_err *e);
int kv_score_attrs_from_json(struct kv_score_attrs *a, const json_t *o, struct kv_err *e);

/* Read a `score` tensor: [kv_head][token] or [head][token] f32 for a prompt of T tokens, its attributes into a.  *n:
 * its columns; *H: its rows, Hkv or a multiple of it.  Fails: KV_ESHAPE, KV_EFORMAT. */
int kv_score_read(const struct kv_tensor *score, size_t Hkv, size_t T, struct kv_score_attrs *a, size_t *H, size_t *n,
    struct kv_err *e);

/* The `score` tensor that is in the stream already, for methods that change it (`who` names them in messages).  *t is
 * borrowed from the step.  Fails: KV_ESHAPE (there is none), and as kv_score_read(). */
int kv_score_earlier(const struct kv_layer *l, const char *who, const struct kv_tensor **t, struct kv_score_attrs *a,
    size_t *H, size_t *n, struct kv_err *e);

/* The ranking view of raw scores: pooled [H][n] as the attributes say (METHODS 1.6), host memory. */
int kv_pooled(struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n, float *pooled,
    struct kv_err *e);
/* The same, of and to memory of a device that is ready to pool: the one place where scores are pooled. */
int kv_pooled_on_device(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n,
    float *pooled, struct kv_err *e);

/* The methods: each the only symbol of its file. */
extern const struct kv_score_method kv_score_snapkv;
extern const struct kv_score_method kv_score_tova;
extern const struct kv_score_method kv_score_h2o;
extern const struct kv_score_method kv_score_observed;
extern const struct kv_score_method kv_score_nacl;
extern const struct kv_score_method kv_score_cake;
extern const struct kv_score_method kv_score_lookahead;
extern const struct kv_score_method kv_score_truth;
extern const struct kv_score_method kv_score_laq;
extern const struct kv_score_method kv_score_speckv;
extern const struct kv_score_method kv_score_streaming;
extern const struct kv_score_method kv_score_knorm;
extern const struct kv_score_method kv_score_keydiff;
extern const struct kv_score_method kv_score_expected_attention;
extern const struct kv_score_method kv_score_random;
extern const struct kv_score_method kv_score_first_k;
extern const struct kv_score_method kv_score_shuffled;
extern const struct kv_score_method kv_score_inverted;
extern const struct kv_score_method kv_score_combine;

#endif
