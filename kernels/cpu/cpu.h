/* SPDX-License-Identifier: MIT
 * What the files of the CPU backend share.  Contracts of the operations themselves: kernels/backend.h.
 *
 * Threads: an operation is cut into pieces that do not depend on how many threads there are, and cpu_run() shares them;
 * every output element is computed in one piece, in a fixed order.
 */
#ifndef KVK_CPU_H
#define KVK_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu/team.h"

#define CPU_SPARES 8 /* the matrices of a layer */

struct kvk_dev {
	int threads;
	enum kvk_precision precision; /* never KVK_PRECISION_AUTO */
	struct cpu_team *team;        /* NULL until the first operation of more than one piece */
	struct cpu_turns *turns; /* see cpu_turns_of() */
	void *scratch; /* see cpu_scratch() */
	size_t scratch_bytes;
	struct {
		void *p;
		size_t bytes;
	} spare[CPU_SPARES]; /* of weights that were closed, for those to come; see cpu_weight_open() */
	char text[256]; /* the last error */
};

struct cpu_fixed_right; /* kernels/cpu/fixed.h */

struct kvk_weight {
	enum kvk_type type;
	enum kvk_use use;
	size_t rows, cols;
	size_t row_bytes;
	const uint8_t *bytes; /* [rows][row_bytes] as in the file; borrowed */
	const float *f32;     /* [rows][cols]: the same as floats, in place or in `owned` (with precision bf16 and for
	                         many rows rounded to that); NULL while quantised */
	float *owned;
	void *memory; /* of owned or fixed */
	size_t memory_bytes;
	struct cpu_fixed_right *fixed; /* [rows / 16, rounded up][blocks of a row]: for many rows of precision i16 */
};

/* Record the text and return code. */
int cpu_fail(struct kvk_dev *dev, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* 64-byte aligned memory for one operation: n pieces (usually one per thread) of `bytes` each.  *stride is set to the
 * distance of two pieces in bytes, a multiple of 64.  Valid until the next call; NULL with the error recorded. */
void *cpu_scratch(struct kvk_dev *dev, size_t n, size_t bytes, size_t *stride);

/* Items from .. to-1 of a job; worker: 0 .. dev->threads - 1, for memory of its own (cpu_scratch). */
typedef void cpu_piece_fn(void *ctx, size_t from, size_t to, size_t worker);
/* fn for items 0 .. n-1 in pieces of `step` (the last may be shorter), shared by the device's threads, begun in
 * ascending order, all done on return.  A piece should be worth some microseconds.  Not from within a piece. */
void cpu_run(struct kvk_dev *dev, size_t n, size_t step, cpu_piece_fn *fn, void *ctx);

/* The next n floats (or doubles) of a piece: *at advances to the next multiple of 64 bytes. */
float *cpu_take_f32(char **at, size_t n);
double *cpu_take_f64(char **at, size_t n);
/* The bytes that cpu_take_* uses for n elements of `size` bytes. */
size_t cpu_taken(size_t n, size_t size);

/* Expand n blocks (elements, for plain types) at x, of any alignment, to floats; NULL for I32. */
typedef void cpu_expand_fn(const uint8_t *x, float *y, size_t n);
extern cpu_expand_fn *const cpu_expand[KVK_N_TYPES];

/* n floats as F32, F16 or BF16, rounded to nearest even; y of any alignment.  NULL for other types. */
typedef void cpu_pack_fn(const float *x, uint8_t *y, size_t n);
extern cpu_pack_fn *const cpu_pack[KVK_N_TYPES];

static inline bool
cpu_is_float(enum kvk_type type)
{
	return type == KVK_F32 || type == KVK_F16 || type == KVK_BF16;
}

/* y = x rounded to the nearest bf16, ties to even; y may be x. */
void cpu_round_bf16(const float *x, float *y, size_t n);

/* Sines and cosines for rotary embedding, kept in the device for CPU_TURNS positions.
 * of: for these frequencies; NULL with the error recorded.  at: cos, then sin [dim/2] of a position, until another
 * position of the same remainder by CPU_TURNS is asked for; threads ask for different remainders. */
#define CPU_TURNS 8192
struct cpu_turns;
struct cpu_turns *cpu_turns_of(struct kvk_dev *dev, const struct kvk_rope *rope);
const float *cpu_turns_at(struct cpu_turns *t, size_t pos);
void cpu_turns_free(struct cpu_turns *t); /* NULL is fine */

/* Sum of squares, eight running sums in double precision. */
double cpu_sum_squares(const float *x, size_t n);

/* One row of rms_norm_back(). */
void cpu_norm_back(const float *x, const float *w, float eps, const float *dy, size_t d, bool add, float *dx);

/* c [n][N] = a [n][K] * b [K][N], or += when add: strides lda, ldb, ldc in elements, N a multiple of CPU_PRODUCT_STEP.
 * Every element is summed over ascending k, so that it does not depend on the other rows of the call. */
#define CPU_PRODUCT_STEP 8
void cpu_product(const float *a, size_t lda, const float *b, size_t ldb, size_t n, size_t K, size_t N, float *c,
    size_t ldc, bool add);
/* The same where b is F32, F16 or BF16: narrow ones are widened on their way, which suits few rows. */
void cpu_product_typed(const float *a, size_t lda, const void *b, enum kvk_type type, size_t ldb, size_t n, size_t K,
    size_t N, float *c, size_t ldc, bool add);
void cpu_product_f64(
    const double *a, size_t lda, const double *b, size_t ldb, size_t n, size_t K, size_t N, double *c, size_t ldc);

/* C [M][N] = A [M][K] B^T, B [N][K], all dense f32, by oneDNN, whose library is opened by the first call: programs that
 * never multiply never load it.  On the calling thread alone.  Fails: KVK_EMATH. */
int cpu_sgemm_nt(struct kvk_dev *dev, size_t M, size_t N, size_t K, const float *A, const float *B, float *C);

/* The operations, one file each. */
int cpu_copy_rows(struct kvk_dev *dev, const struct kvk_copy *job);
int cpu_finite(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first);
int cpu_weight_open(struct kvk_dev *dev, struct kvk_weight **w, const void *host, enum kvk_type type, size_t rows,
    size_t cols, enum kvk_use use);
void cpu_weight_close(struct kvk_dev *dev, struct kvk_weight *w);
int cpu_rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y);
int cpu_linear(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y);
int cpu_linear_fixed(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y);
/* Whether the next function takes w: a quantised one, with precision i16. */
bool cpu_has_dots(struct kvk_dev *dev, const struct kvk_weight *w);
int cpu_linear_dots(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y);
int cpu_linear_few(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y);
int cpu_rms_norm(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y);
int cpu_silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y);
int cpu_heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at);
int cpu_attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq,
    const struct kvk_ragged *cache, float scale, float *y);
int cpu_scores(struct kvk_dev *dev, const struct kvk_scores *job, float *s);
int cpu_reduce_heads(
    struct kvk_dev *dev, const float *x, size_t Hq, size_t Hkv, size_t n, enum kvk_reduce how, float *y);
int cpu_row_moments(struct kvk_dev *dev, const float *x, size_t H, size_t n, size_t D, double *mean, double *cov);
int cpu_forms(struct kvk_dev *dev, const struct kvk_forms *job, double *z);
int cpu_pool(struct kvk_dev *dev, const float *x, size_t H, size_t n, enum kvk_pool kind, size_t width, float *y);
int cpu_select(struct kvk_dev *dev, const struct kvk_select *job, int32_t *index);
int cpu_dense_product(struct kvk_dev *dev, const struct kvk_product *job);
int cpu_linear_rows(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y);
int cpu_linear_back(struct kvk_dev *dev, const struct kvk_weight *w, const float *dy, size_t n, int add, float *dx);
int cpu_rms_norm_back(struct kvk_dev *dev, const float *x, const float *w, float eps, const float *dy, size_t n,
    size_t d, int add, float *dx);
int cpu_silu_mul_back(struct kvk_dev *dev, const float *gate, const float *up, const float *dy, size_t n, float *dgate,
    float *dup);
int cpu_heads_back(struct kvk_dev *dev, const struct kvk_heads_back *job, float *dx);
int cpu_behind(struct kvk_dev *dev, const struct kvk_behind *job, float *y, float *s);
int cpu_behind_back(struct kvk_dev *dev, const struct kvk_behind *job, const float *dy, const float *ds, float *dq,
    float *dk, float *dv);

#endif
