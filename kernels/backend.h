/* SPDX-License-Identifier: MIT
 * What a compute device can do: one table of functions, two implementations (kernels/cpu, kernels/cuda).
 *
 * Nothing above this file knows which device it has.  kernels/ includes nothing of ours but this file.
 *
 * Conventions
 * - A function that returns an int returns 0, or one of enum kvk_error, whose text error() gives; describe(), open()
 *   and card() give theirs themselves.  A pointer that is NULL: no memory, if its contract says nothing else.
 * - `float *`, `void *` parameters point to device memory (alloc, view); `const size_t *`, `const int32_t *` arrays and
 *   structs are host memory, read before the call returns.  Arrays are row-major, slowest axis first, and never overlap
 *   unless a contract says so.
 * - Work is queued in order; get() and wait() are the points where the host sees results.
 * - Same input, same bytes, for any number of threads.  A row's result does not depend on how many rows the call has,
 *   as long as the row keeps its place modulo KVK_ROW_TILE (so a prompt's rows are bit-identical with and without rows
 *   behind them, and a prompt may be cut into chunks of a multiple of KVK_ROW_TILE rows).
 *   Not so for products on CUDA: cuBLAS chooses its kernel by the number of rows, so that a row's last bits may depend
 *   on it.  Whoever wants a prompt's rows to be the same bytes with and without rows behind them never makes the two
 *   rows of one product.
 * - Two devices agree within the bound that an operation states; comparisons and integers agree exactly.
 *
 * Axes: Hq query heads, Hkv KV heads (Hq a multiple of Hkv; query head h reads KV head h / (Hq/Hkv)), T tokens, D head
 * size, n rows or columns of one call.
 */
#ifndef KVK_BACKEND_H
#define KVK_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#define KVK_ABI      13 /* raised with every change of the table */
#define KVK_ROW_TILE 64 /* rows; see Conventions */

/* Element types: of tensors in a stream (the first ones) and of weights in a model file (all but I32). */
enum kvk_type {
	KVK_F32,
	KVK_F16,
	KVK_BF16,
	KVK_I32,
	KVK_U8,   /* masks: 0 or 1 */
	KVK_Q4_0, /* GGUF block types: kvk_types[t].block elements share a block of kvk_types[t].bytes bytes */
	KVK_Q4_1,
	KVK_Q5_0,
	KVK_Q5_1,
	KVK_Q8_0,
	KVK_Q2_K,
	KVK_Q3_K,
	KVK_Q4_K,
	KVK_Q5_K,
	KVK_Q6_K,
	KVK_N_TYPES
};

struct kvk_type_info {
	const char *name; /* as streams and kv-show spell it: "f16", "q4_1" */
	size_t block;     /* elements per block; 1 for plain types */
	size_t bytes;     /* bytes per block */
	int integer;      /* counts, positions or masks: never a weight, never a cache */
};
extern const struct kvk_type_info kvk_types[KVK_N_TYPES]; /* kernels/types.c */

struct kvk_dev;    /* an open device with its queue and scratch memory */
struct kvk_weight; /* a matrix of the model, made ready for products */

/* The arithmetic of products and of attention: what the factors are rounded to.  Sums are f32 or wider; scores,
 * softmax, norms and everything else are f32 or better always. */
enum kvk_precision {
	KVK_PRECISION_F32,  /* the reference */
	KVK_PRECISION_BF16, /* factors rounded to bf16; on the CPU by f32 products, at their speed */
	KVK_PRECISION_I16,  /* block fixed point: 32 neighbouring factors of a sum share an f32 scale, each is an
	                       integer of 14 bits; integer sums within a block.  10 to 30 times finer than bf16 */
	KVK_PRECISION_AUTO, /* the fastest that the device does well */
	KVK_N_PRECISIONS
};
extern const char *const kvk_precisions[KVK_N_PRECISIONS]; /* kernels/types.c: "f32", "bf16", "i16", "auto" */

/* How often a weight will be used before it is released. */
enum kvk_use {
	KVK_MANY_ROWS, /* prefill: one product with many rows; may be expanded to the compute type */
	KVK_FEW_ROWS,  /* decoding: many products with few rows; stays as it is, quantised if it was */
};

/* Rotary embedding: row with position p turns pair i by the angle p * inv_freq[i].
 * The two halves of a pair are x[i], x[i + dim/2] (half) or x[2i], x[2i+1] (interleaved: GGUF's llama).  The result is
 * always stored in half order, whatever the input, so that keys of one model look the same from every file format. */
struct kvk_rope {
	const float *inv_freq; /* device, [dim/2] */
	size_t dim;            /* rotated leading part of a head, even, <= D */
	int interleaved;
};

/* A cache whose heads hold different numbers of entries.  Head g's entries are rows start[g] .. start[g] + len[g] - 1
 * of k and v [*][D].  It has H heads, of which Hq is a multiple: query head h reads head h / (Hq/H).  H is Hkv, or more
 * when query heads have entries of their own. */
struct kvk_ragged {
	void *k, *v;
	enum kvk_type type; /* F32, F16 or BF16, of both */
	size_t H, D;
	const size_t *start, *len; /* [H] */
};

enum kvk_reduce {
	KVK_MEAN,
	KVK_SUM,
	KVK_MAX,
	KVK_VAR,     /* of rows only: unbiased variance, 0 for fewer than two rows */
	KVK_ENTROPY, /* of rows only: sum of -x ln(x + 1e-10) */
};
enum kvk_pool { KVK_POOL_NONE, KVK_POOL_MAX, KVK_POOL_AVG };

/* One member of the attention-score family (METHODS: softmax over visible keys, then a reduction over the query rows).
 * Row i stands at position q_pos[i] and sees every key at a position <= q_pos[i]; a row that sees no key is zero. */
struct kvk_scores {
	const void *q;        /* [Hq][n_q][D] */
	enum kvk_type q_type; /* F32, F16 or BF16 */
	const int32_t *q_pos; /* [n_q] host */
	size_t n_q, Hq, Hkv, D;
	const void *k; /* [Hkv][T][D], key j at position j */
	enum kvk_type k_type;
	size_t T;
	const void *k_behind; /* [Hkv][n_behind][D] of k_type, key j at position T + j; NULL when n_behind is 0 */
	size_t n_behind;
	float scale;
	enum kvk_reduce rows; /* how the rows become one number */
	size_t n;             /* columns 0 .. n-1 are wanted, n <= T; the softmax still runs over all visible keys */
	float *mean;          /* out, [Hq][n] with KVK_VAR: the mean as well; NULL: not wanted */
};

/* Which entries each head keeps.  Ordering: rank descending, then tie descending (if given), then position ascending;
 * NaN ranks as -inf, -0 as +0; positions >= n rank as -inf.  Entries with a non-zero byte in protect come before all
 * others, among themselves by rank, then position.  The first min(n_sink, ...) and last n_recent positions are kept
 * before anything else: with keep entries for a head, r = min(n_recent, keep, T), s = min(n_sink, keep - r, T - r). */
struct kvk_select {
	const float *rank;      /* device, [H][n] */
	const float *tie;       /* device, [H][n] or NULL */
	const uint8_t *protect; /* device, [H][T] or NULL */
	size_t H, n, T;
	size_t n_sink, n_recent;
	const size_t *offset; /* host, [H + 1]: head h keeps offset[h+1] - offset[h] entries, 0 .. T, from
	                         index[offset[h]] on */
};

/* A linear and a quadratic form of every key, in double precision: z[h][j] = b[h].k + k^T a[h] k, where k is key j of
 * the KV head that query head h reads. */
struct kvk_forms {
	const void *k; /* [Hkv][T][D] */
	enum kvk_type k_type;
	size_t Hq, Hkv, T, D;
	const double *b; /* device, [Hq][D] */
	const double *a; /* device, [Hq][D][D], symmetric: the upper triangle counts */
};

/* c [m][n] = factor * a [m][k] b [k][n] (+ c, when add is not 0).  Element (i, j) of a matrix x stands at x[i * x_row +
 * j * x_col], so that a and b may lie turned; rows of c are dense. */
struct kvk_product {
	const float *a;
	size_t a_row, a_col;
	const float *b;
	size_t b_row, b_col;
	float *c;
	size_t c_row;
	size_t m, n, k;
	float factor;
	int add;
};

/* n rows that stand behind a prompt at positions T, T+1, ...: each sees the whole prompt, itself and those before
 * it. */
struct kvk_behind {
	const float *q;      /* [Hq][n][D] */
	const void *k, *v;   /* [Hkv][T][D], the prompt's */
	enum kvk_type type;  /* F32, F16 or BF16, of both */
	const float *k_behind, *v_behind; /* [Hkv][n][D] */
	size_t n, T, Hq, Hkv, D;
	float scale;
};

/* Device memory as other processes of the machine open it. */
struct kvk_handle {
	unsigned char bytes[64];
};

/* Rows of D elements on their way, n of each of H heads: row i of head h is row h * x_stride + i of x or, where there
 * is a list, row rows[h * n + i]; it becomes row h * y_stride + i of y.  F32, F16 and BF16 become each other, rounded
 * to nearest even; other plain types stay what they are. */
struct kvk_copy {
	const void *x;
	enum kvk_type x_type;
	size_t x_stride;    /* rows */
	const size_t *rows; /* host, [H][n], or NULL; x_stride does not count then */
	void *y;
	enum kvk_type y_type;
	size_t y_stride; /* rows, at least n where there are several heads */
	size_t H, n, D;
};

/* What heads() did, for the way back: its input, and the gradient of its output. */
struct kvk_heads_back {
	const float *x;    /* [n][H][D]; read only where there is a norm */
	const float *dy;   /* [H][n][D] */
	size_t n, H, D;
	const float *norm; /* as for heads() */
	float eps;
	const struct kvk_rope *rope;
	size_t pos;
};

/* What a function returns that fails; error() has the text. */
enum kvk_error {
	KVK_EMEM = 1, /* out of memory, the device's or the host's */
	KVK_ETYPE,    /* an element type that this operation does not take */
	KVK_ESHAPE,   /* sizes that do not fit each other, or arguments that the device does not take */
	KVK_ERUN,     /* the device, its driver or its run-time library refused */
	KVK_EMATH,    /* the library for products is missing, or refused */
	/* From open(): the machine has no such device at all, or one that is not for the precision.  Nothing is wrong
	 * then, and `auto` takes another without a word.  From describe() and card(): no device of this number or a
	 * higher one can be used. */
	KVK_ENODEV,
};

struct kvk_backend {
	int abi;          /* KVK_ABI */
	const char *name; /* "cpu", "cuda" */
	/* 1 where it pays to open a layer's weights before their turn, since they are copied while another layer is
	 * computed; 0 where weights are used where they lie. */
	int layers_ahead;
	size_t chunk_rows; /* rows worth a call while memory for what is wide should stay small; whole tiles */

	/* ---- functions alone from here on; each has its row in kvk_ops */

	/* Whoever is going to multiply asks first: opens the library for it, so that its lack is told before the work.
	 * NULL: none is needed. */
	int (*products)(struct kvk_dev *dev);

	/* What device number `ordinal` is, in one line, without opening it: name, memory, precisions.  Not 0: text says
	 * why it cannot be used; KVK_ENODEV: nor can one of a higher number. */
	int (*describe)(int ordinal, char *text, size_t bytes);

	/* Open device number `ordinal` (0 first).  threads 0: as many as the machine has.  On failure *dev is NULL and
	 * why, a buffer of why_bytes, says why. */
	int (*open)(struct kvk_dev **dev, int ordinal, int threads, enum kvk_precision precision, char *why,
	    size_t why_bytes);
	void (*close)(struct kvk_dev *dev);
	/* Text for the last error of this device; lives until the next call.  It begins with the operation, as the
	 * table names it, "pool: width 2 is not odd", where that is what is wrong; not so where memory, a library or
	 * the device itself is: "out of device memory (...)", "cuBLAS: ...", "the card: ...". */
	const char *(*error)(struct kvk_dev *dev);

	/* The precision in use: never auto. */
	enum kvk_precision (*precision)(struct kvk_dev *dev);

	/* Device memory, 64-byte aligned, contents undefined; NULL when there is no more. */
	void *(*alloc)(struct kvk_dev *dev, size_t bytes);
	void (*free)(struct kvk_dev *dev, void *p);
	/* Host bytes as device memory: the bytes themselves where host and device share memory, else a copy.  The host
	 * bytes must stay unchanged until unview(), and be aligned to the elements that an operation reads there.  NULL
	 * when there is no memory. */
	const void *(*view)(struct kvk_dev *dev, const void *host, size_t bytes);
	void (*unview)(struct kvk_dev *dev, const void *p);
	int (*put)(struct kvk_dev *dev, void *dst, const void *host, size_t bytes);
	/* Waits for the queue, then copies to the host.  */
	int (*get)(struct kvk_dev *dev, void *host, const void *src, size_t bytes);
	/* As get(), converting n elements on the way: src F32, F16 or BF16 to host of those; round to nearest even. */
	int (*get_as)(
	    struct kvk_dev *dev, void *host, enum kvk_type host_type, const void *src, enum kvk_type type, size_t n);
	int (*wait)(struct kvk_dev *dev);
	/* See struct kvk_copy. */
	int (*copy_rows)(struct kvk_dev *dev, const struct kvk_copy *job);
	/* Bytes of device memory that are free for weights to stay in; 0 where keeping them gains nothing. */
	size_t (*room)(struct kvk_dev *dev);

	/* A matrix [rows][cols] of any weight type in host memory (usually a mapped file), cols a multiple of the
	 * block.  The host bytes must outlive the weight.  May return before the copy or expansion is done. */
	int (*weight_open)(struct kvk_dev *dev, struct kvk_weight **w, const void *host, enum kvk_type type,
	    size_t rows, size_t cols, enum kvk_use use);
	void (*weight_close)(struct kvk_dev *dev, struct kvk_weight *w);

	/* y [n][cols] f32: the rows `ids` of w (the embedding table).  Ids are checked by the caller. */
	int (*rows)(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y);

	/* y [n][rows] = x [n][cols] * w^T (+ bias [rows]) (+ y, when add is not 0).  f32 accumulation.
	 * Bound: cols * 2^-23 * sum |x||w| in f32; with factors rounded to bf16 2^-7, to i16 2^-12 of the largest
	 * factors of a block in their place, in addition.  For few rows a quantised matrix is multiplied as it is, and
	 * one of floats as in f32 (with bf16 and f16 or bf16 elements: as in bf16). */
	int (*linear)(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias,
	    int add, float *y);

	/* y[i][j] = x[i][j] / sqrt(mean_j x[i][j]^2 + eps) * w[j].  x, y [n][d]; y may be x. */
	int (*rms_norm)(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y);

	/* y[i] = silu(gate[i]) * up[i], n elements; y may be gate or up. */
	int (*silu_mul)(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y);

	/* Split rows into heads and store them head by head: x [n][H][D] f32; row i of head h goes to row at[h] + i of
	 * y [*][D], converted to y_type.  Before that, optionally: RMS norm of each head with weight norm [D] and eps
	 * (norm NULL: none; the weight's order is that of x), and rotation to positions pos, pos + 1, ... (rope NULL:
	 * none). */
	int (*heads)(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
	    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at);

	/* Causal attention of n new rows over a ragged cache that already contains them: the last n entries of every
	 * head are the rows' own, so row i sees the first len[g] - n + i + 1 entries of head g (len[g] >= n).
	 * Row i of head h is row q_at[h] + i of q [*][D] f32.  y [n][Hq * D] f32.  No memory that grows with n * len.
	 * The device's precision rounds the factors of an f32 cache (in i16 a query, key or value row shares one scale,
	 * and so do a row's weights of 128 entries); narrower caches are taken as they are, with f32 arithmetic. */
	int (*attention)(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
	    const struct kvk_ragged *cache, float scale, float *y);

	/* s [Hq][n] f32 per query head, see struct kvk_scores.  |x-y| <= 1e-7 + 2e-5 max(|x|,|y|) against real
	 * arithmetic.  Memory beside k: O(Hq * T). */
	int (*scores)(struct kvk_dev *dev, const struct kvk_scores *job, float *s);

	/* y [Hkv][n]: x [Hq][n] reduced over the Hq/Hkv heads of each group: mean, sum or max. */
	int (*reduce_heads)(
	    struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y);

	/* Of the n rows of each head, x [H][n][D] f32: mean [H][D] and covariance cov [H][D][D] (both triangles),
	 * divided by n; zeros when n is 0.  Both passes in double precision: relative error of about n * 2^-53. */
	int (*row_moments)(
	    struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *mean, double *cov);

	/* z [Hq][T], see struct kvk_forms.  Bound: D^2 * 2^-52 * the sum of the terms' magnitudes. */
	int (*forms)(struct kvk_dev *dev, const struct kvk_forms *job, double *z);

	/* Stride-1 pooling along each row of x [H][n], odd width, r = width / 2.  MAX ignores what lies outside; AVG
	 * counts it as 0 and always divides by width.  NaN counts as -inf for MAX. */
	int (*pool)(
	    struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y);

	/* index [offset[H]] i32: the kept positions of every head, ascending.  Exact. */
	int (*select)(struct kvk_dev *dev, const struct kvk_select *job, int32_t *index);

	/* *first: which of the n elements of x (F32, F16 or BF16) is the first that is infinite or no number; n:
	 * none.  Waits as get() does. */
	int (*finite)(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first);

	/* ---- absent, all of these, where device memory is the host's: nothing is on its way anywhere.

	 * Host memory for fetch(); NULL when there is no more. */
	void *(*host_alloc)(struct kvk_dev *dev, size_t bytes);
	void (*host_free)(struct kvk_dev *dev, void *p);
	/* As get(), but it does not wait: what is queued afterwards is computed meanwhile.  Both sides stay as they are
	 * until arrive(), which waits for all that was fetched. */
	int (*fetch)(struct kvk_dev *dev, void *host, const void *src, size_t bytes);
	int (*arrive)(struct kvk_dev *dev);

	/* What device number `ordinal` is called by all processes, whatever numbers they know it by: "cuda:GPU-...".
	 * Not 0: it cannot be used, and text says why; KVK_ENODEV: nor can one of a higher number. */
	int (*card)(int ordinal, char *text, size_t bytes);
	/* This thread's calls are for this device from now on: where a process has several open, before the first call
	 * and whenever it changes. */
	int (*use)(struct kvk_dev *dev);
	/* How others open p, which alloc() gave.  It must not be freed before all of them have closed it again.  What
	 * is queued is not waited for. */
	int (*lend)(struct kvk_dev *dev, const void *p, struct kvk_handle *handle);
	/* The memory behind another process's handle, of the same card; NULL, and error() says why. */
	const void *(*borrow)(struct kvk_dev *dev, const struct kvk_handle *handle);
	/* Waits for the queue, then closes it. */
	void (*unborrow)(struct kvk_dev *dev, const void *p);

	/* ---- training: products of any layout, and the ways back, f32.  dx is the gradient of what x is here. */

	/* See struct kvk_product.  Bound: k * 2^-23 * factor * sum |a||b|. */
	int (*product)(struct kvk_dev *dev, const struct kvk_product *job);

	/* linear() for a few rows through a weight opened for many, at precision f32, without its promise that a row's
	 * bits do not depend on the others. */
	int (*linear_rows)(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias,
	    int add, float *y);

	/* dx [n][cols] = dy [n][rows] * w (+ dx, when add is not 0), of a weight opened for many rows at precision
	 * f32. */
	int (*linear_back)(
	    struct kvk_dev *dev, const struct kvk_weight *w, const float *dy, size_t n, int add, float *dx);

	/* Of rms_norm(): x and dy [n][d] give dx (added to it, when add is not 0). */
	int (*rms_norm_back)(struct kvk_dev *dev, const float *x, const float *w, float eps, const float *dy, size_t n,
	    size_t d, int add, float *dx);

	/* Of silu_mul(): n elements; dgate may be gate, dup may be up. */
	int (*silu_mul_back)(struct kvk_dev *dev, const float *gate, const float *up, const float *dy, size_t n,
	    float *dgate, float *dup);

	/* Of heads(): dx [n][H][D]. */
	int (*heads_back)(struct kvk_dev *dev, const struct kvk_heads_back *job, float *dx);

	/* y [n][Hq * D]: what the rows behind attend to (NULL: not wanted); s [Hq][T]: the weight that they give to
	 * each token of the prompt, mean over the rows (NULL: not wanted).  Memory: O(n * (T + n)) per thread. */
	int (*behind)(struct kvk_dev *dev, const struct kvk_behind *job, float *y, float *s);

	/* Of behind(), from dy (NULL: zero) and ds: dq [Hq][n][D], dk and dv [Hkv][n][D] of the rows behind; the
	 * prompt's keys and values are constants.  dv is not written when dy is NULL. */
	int (*behind_back)(struct kvk_dev *dev, const struct kvk_behind *job, const float *dy, const float *ds,
	    float *dq, float *dk, float *dv);
};

/* The functions of the table by their names in it, by which programs ask for them. */
struct kvk_op {
	const char *name;
	size_t offset; /* in struct kvk_backend */
	int basic;     /* nothing works without it */
	int product;   /* of many rows: whoever asks for it has products() called first */
};
#define KVK_N_OPS                                                                                                      \
	((sizeof(struct kvk_backend) - offsetof(struct kvk_backend, chunk_rows) - sizeof(size_t)) /                    \
	    sizeof(void (*)(void)))
extern const struct kvk_op kvk_ops[]; /* [KVK_N_OPS], kernels/types.c */

/* The CPU backend.  libkvcuda.so exports the same kind of table as `kvk_cuda`. */
extern const struct kvk_backend kvk_cpu;

#endif
