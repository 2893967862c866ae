/* SPDX-License-Identifier: MIT
 * Quantities: what can be measured on a stream, or on two of the same prompts (METHODS 6.1 - 6.3, 6.5).
 *
 * A quantity is one row of kv_stat_list (quantities.c).  Its function measures one layer, or one sequence as a whole,
 * and leaves a cell per head, or a single one.  The row says how cells become the layer's value, and layers the
 * sequence's; means, deviations and tests over sequences are the same for all (series.c, paired.c).
 */
#ifndef KV_STAT_H
#define KV_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/device.h"
#include "lib/err.h"
#include "lib/evict/evict.h"
#include "lib/score/score.h"
#include "lib/tensor.h"

/* ---- what is measured (stat_view.c) */

/* One layer of one stream, or, with layer KV_NO_LAYER, a sequence's own tensors.  Everything in the first part is
 * borrowed; NULL: not in the stream.  Of k only the description is looked at, not the values. */
struct kv_stat_view {
	const char *name; /* of the stream, for messages */
	struct kv_device *device;
	int layer;
	size_t T, Hkv; /* prompt length; the model's KV heads, 0: unknown */
	const struct kv_tensor *score, *budget, *protect, *index, *offset, *k, *logits;
	const int32_t *response; /* [n_response] the tokens that the rows of logits were made for */
	size_t n_response;
	enum kv_tie tie; /* of a selection that has not been made yet */
	/* What has been worked out so far; private. */
	bool has_scores, has_kept;
	struct kv_score_attrs attrs;
	size_t H, n; /* of the scores */
	const float *raw;
	float *pooled;
	size_t kept_H;
	int32_t *index_own;
	size_t *offset_own;
};
void kv_stat_view_fini(struct kv_stat_view *v);

/* Heads of a layer are KV heads, or query heads where the stream says so.  These three check what they hand out.
 * KV_END: the stream does not have it, and e says which program brings it. */

/* KV_END, saying so. */
int kv_stat_lacks(const struct kv_stat_view *v, const char *tensor, const char *who, struct kv_err *e);

struct kv_stat_scores {
	const float *x; /* [H][n]; column j is position j; borrowed from the view */
	size_t H, n;
};
int kv_stat_scores(struct kv_stat_view *v, bool pooled, struct kv_stat_scores *s, struct kv_err *e);
/* The raw scores as shares of attention: KV_END when one is negative or infinite.  NaN counts as nothing. */
int kv_stat_masses(struct kv_stat_view *v, struct kv_stat_scores *s, struct kv_err *e);
/* kv_evict_select() on the view's device, which may become the CPU. */
int kv_stat_select(const struct kv_stat_view *v, const struct kv_selection *job, int32_t *index, struct kv_err *e);

/* The positions that each head keeps: `index`; else what kv-evict would keep by `score` and `budget`; else, of a cache
 * that nobody evicted from, all. */
struct kv_stat_kept {
	const int32_t *index; /* [offset[H]], ascending within a head */
	const size_t *offset; /* [H + 1] */
	size_t H;
};
int kv_stat_kept(struct kv_stat_view *v, struct kv_stat_kept *k, struct kv_err *e);

/* Entries per head; as kv_stat_kept(), but a budget needs no scores. */
int kv_stat_budgets(struct kv_stat_view *v, size_t *H, size_t **B, struct kv_err *e); /* free(*B) */

/* ---- how it is measured */

struct kv_stat_options {
	size_t k;    /* of recall */
	bool pooled; /* compare scores as they are ranked, not raw ones */
};

struct kv_stat_cell {
	double x, y; /* what they are, the row says; a cell alone is worth x / y, see kv_moments_value() */
};
struct kv_stat_cells {
	struct kv_stat_cell *cell; /* [n], owned */
	size_t n;
};
/* n cells, zeroed; what was there is freed. */
int kv_stat_cells_new(struct kv_stat_cells *c, size_t n, struct kv_err *e);

/* What many cells are worth together. */
enum kv_stat_total {
	KV_STAT_MEAN,    /* the mean of what each (or each layer) is worth */
	KV_STAT_RATIO,   /* sum of x / sum of y; 1 when that is 0: of nothing, all is there */
	KV_STAT_SUM,     /* sum of what each is worth */
	KV_STAT_PEARSON, /* correlation of x and y over all cells; 0 when one is constant */
	KV_STAT_SLOPE,   /* of the line y = slope * x through the origin: sum xy / sum xx */
};

enum kv_stat_per { KV_STAT_OVERALL, KV_STAT_SEQUENCE, KV_STAT_LAYER, KV_STAT_HEAD };

/* b is NULL unless the quantity compares two.  KV_END: there is nothing to measure here, and e says why. */
typedef int kv_measure_fn(struct kv_stat_view *a, struct kv_stat_view *b, const struct kv_stat_options *o,
    struct kv_stat_cells *c, struct kv_err *e);

struct kv_stat {
	const char *name, *unit, *brief;
	bool two;                       /* compares two streams; a, the first, is the reference */
	enum kv_stat_per finest;        /* HEAD: a cell per head; SEQUENCE: measured behind all layers */
	enum kv_stat_total of_layer;    /* cells of a layer */
	enum kv_stat_total of_sequence; /* MEAN: of the layers' values; else of all cells of all layers */
	kv_measure_fn *measure;
};
extern const struct kv_stat kv_stat_list[];                     /* ends with name NULL */
const struct kv_stat *kv_stat_find(const char *name, size_t n); /* of n bytes; NULL if none */

/* ---- one vector against another (vectors.c, kendall.c); sums in double precision */

/* Kendall's tau-b; ties counted exactly, NaN ranks as -inf, -0 as +0; 0 when a side is constant.  O(n log n). */
int kv_kendall(const float *x, const float *y, size_t n, double *tau, struct kv_err *e);
/* The order of scores (METHODS 1.4) as an integer: NaN as -inf, -0 as +0. */
uint32_t kv_score_key(float x);
/* Pearson's r; 0 when a side is constant. */
double kv_pearson(const float *x, const float *y, size_t n);
/* sum g ln(g / p) in nats of both scaled to sum 1; sums and p are at least 1e-12.  NaN counts as 0. */
double kv_kl_scores(const float *g, const float *p, size_t n);
/* sum p ln(p / q) in nats of the softmax of two rows of logits. */
double kv_kl_logits(const float *p, const float *q, size_t n);
/* ln of the softmax's value at i. */
double kv_log_softmax(const float *x, size_t n, size_t i);
size_t kv_argmax(const float *x, size_t n); /* the first of equals */

/* ---- many cells (moments.c) */

struct kv_moments { /* zeros: empty */
	size_t n;
	double sum, x, y, xx, xy;     /* sums of values, of x, y, x^2, xy */
	double mx, my, cxx, cyy, cxy; /* means and centred products */
};
void kv_moments_add(struct kv_moments *m, struct kv_stat_cell c);
/* NaN when there is nothing to tell: no cell, or a correlation of fewer than two. */
double kv_moments_value(const struct kv_moments *m, enum kv_stat_total t);
double kv_cell_value(struct kv_stat_cell c);

/* ---- tests of paired differences d [n] (paired.c).  Two-sided; zeros are left out; 1 when nothing is left. */

double kv_sign_test(const double *d, size_t n); /* exact */
/* Wilcoxon's signed ranks, ties with mean ranks: exact (all 2^n signs) up to KV_WILCOXON_EXACT differences, beyond by
 * the normal distribution with the variance corrected for ties, without continuity correction.  NaN without memory. */
#define KV_WILCOXON_EXACT 50
double kv_wilcoxon(const double *d, size_t n);

/* ---- all of it over a stream's sequences (series.c) */

enum kv_stat_of { KV_STAT_OF_A, KV_STAT_OF_B, KV_STAT_OF_BOTH, KV_STAT_OF_DIFFERENCE };

struct kv_stat_row {
	const struct kv_stat *q;
	enum kv_stat_of of;
	long sequence, layer, head; /* -1: over all */
	double mean, sd;            /* over n sequences; sd NaN when n < 2 */
	size_t n;
	double sign, wilcoxon; /* p values of differences; else NaN */
};

struct kv_stat_run;

/* chosen: names separated by commas, NULL: whatever can be measured.  two: there are two streams.
 * Fails: KV_EARG (an unknown name, a quantity of two streams with one, one that is not measured as finely as `per`). */
int kv_stat_run_new(struct kv_stat_run **out, const char *chosen, bool two, enum kv_stat_per per,
    const struct kv_stat_options *o, struct kv_err *e);
void kv_stat_run_free(struct kv_stat_run *r);

/* The next layer of both streams (b NULL: there is one); of a sequence the last view has layer KV_NO_LAYER and closes
 * it.  A chosen quantity that a whole sequence has no value of is a fault that says why. */
int kv_stat_step(struct kv_stat_run *r, struct kv_stat_view *a, struct kv_stat_view *b, struct kv_err *e);

/* What the step just made does not stop for, but whoever reads the result should know; NULL: nothing. */
const char *kv_stat_warning(const struct kv_stat_run *r);

/* Why the i-th of what was tried, if nobody asked for it by name, could not be measured in some sequence; "" if it
 * could; NULL behind the last. */
const char *kv_stat_reason(const struct kv_stat_run *r, size_t i);

/* In the order of the table.  Fails: KV_EFAIL when there is nothing to tell.  The rows live as long as the run. */
int kv_stat_rows(struct kv_stat_run *r, const struct kv_stat_row **rows, size_t *n, struct kv_err *e);

/* ---- as text (report.c) */

/* A line that names the columns, or a row; tab-separated, "-" where there is no number; or as a JSON object. */
int kv_stat_say_names(struct kv_buf *out, enum kv_stat_per per, bool two, struct kv_err *e);
int kv_stat_say_row(struct kv_buf *out, const struct kv_stat_row *r, enum kv_stat_per per, bool two, struct kv_err *e);
int kv_stat_say_json(struct kv_buf *out, const struct kv_stat_row *r, struct kv_err *e);
/* The table of quantities, for people. */
int kv_stat_say_list(struct kv_buf *out, struct kv_err *e);

#endif
