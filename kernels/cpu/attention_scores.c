/* SPDX-License-Identifier: MIT
 * The attention-score family: softmax rows over the visible keys, reduced to one number per key.
 *
 * A tile of query rows of some KV heads at a time, in two steps.  First every block of keys is softened by itself for
 * all rows of the heads that share it; then, head by head, blocks are weighted by their share of a row's whole sum, and
 * rows join their columns.  Columns are added up over GROUP rows in single, beyond that in double precision. */
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/exp2.h"
#include "kernels/cpu/score_block.h"

#define KEYS      CPU_BLOCK_KEYS
#define GROUP     8                  /* query rows, a vector of them; no tile cuts one: results know nothing of tiles */
#define ROWS      32                 /* query rows of a head in a tile, at most, and GROUP at least */
#define MAX_BYTES ((size_t)16 << 20) /* of a tile's probabilities: rows, then KV heads, give way */

/* rows: of the tile.  stride: rows of a head in ref and sum, a multiple of eight. */
struct tile {
	const struct kvk_scores *j;
	size_t blocks;      /* of all keys */
	size_t g, kv_heads; /* KV heads g .. g + kv_heads - 1 */
	size_t i, rows;
	size_t end;         /* blocks that some row sees */
	size_t room, stride; /* rows of a whole tile, and the same in ref and sum: a multiple of eight */
	float *row;         /* [rows][D], of one head */
	float *q;           /* [kv_heads] times struct cpu_block_queries.q */
	size_t q_stride;    /* of one KV head */
	float *norm;        /* [kv_heads * G][rows] */
	size_t *sees;       /* [G][rows] keys */
	size_t *place;      /* [G][rows]: rows of a KV head in ref and sum */
	float *p;           /* [kv_heads][blocks][G * room][KEYS] */
	float *ref, *sum;   /* [kv_heads][blocks][G * stride]; then the blocks' weights */
	size_t columns;     /* n in whole blocks */
	double *total;      /* [Hq][columns] */
	double *other;      /* [Hq][columns], sums of squares; for the variance only */
	float *s;
	char *work;
	size_t work_stride;
};

static size_t
group_size(const struct kvk_scores *j)
{
	return j->Hq / j->Hkv;
}

/* Probabilities of one KV head. */
static size_t
p_bytes(const struct kvk_scores *j, size_t blocks, size_t rows)
{
	return group_size(j) * rows * blocks * KEYS * sizeof(float);
}

static void
plan(struct tile *t)
{
	const struct kvk_scores *j = t->j;
	size_t one;

	t->blocks = (j->T + j->n_behind + KEYS - 1) / KEYS;
	t->columns = (j->n + KEYS - 1) / KEYS * KEYS;
	t->room = j->n_q < ROWS ? j->n_q : ROWS;
	while (t->room > GROUP && p_bytes(j, t->blocks, t->room) > MAX_BYTES)
		t->room = (t->room - 1) / GROUP * GROUP;
	t->q_stride = cpu_strips(group_size(j) * t->room) * CPU_STRIP_ROWS * j->D;
	t->stride = (t->room + 7) / 8 * 8;
	one = p_bytes(j, t->blocks, t->room);
	t->kv_heads = one > 0 && MAX_BYTES / one < j->Hkv ? MAX_BYTES / one : j->Hkv;
	if (t->kv_heads == 0)
		t->kv_heads = 1;
}

/* All of the memory in one piece: what the tile shares, then one part for every thread. */
static int
take_memory(struct tile *t, struct kvk_dev *dev)
{
	const struct kvk_scores *j = t->j;
	const size_t heads = t->kv_heads * group_size(j), meta = heads * t->blocks * t->stride;
	const size_t threads = (size_t)dev->threads, columns = j->Hq * t->columns;
	const size_t row = t->room * j->D, q = t->kv_heads * t->q_stride, p = heads * t->blocks * t->room * KEYS;
	size_t bytes, unused;
	char *at;

	t->work_stride = cpu_block_bytes(j->D);
	bytes = cpu_taken(row, 4) + cpu_taken(q, 4) + cpu_taken(heads * t->room, 4) +
	    2 * cpu_taken(group_size(j) * t->room, sizeof(size_t)) + cpu_taken(p, 4) + 2 * cpu_taken(meta, 4) +
	    2 * cpu_taken(columns, 8) + threads * t->work_stride;
	if ((at = cpu_scratch(dev, 1, bytes, &unused)) == NULL)
		return KVK_EMEM;
	t->row = cpu_take_f32(&at, row);
	t->q = cpu_take_f32(&at, q);
	t->norm = cpu_take_f32(&at, heads * t->room);
	t->sees = (size_t *)(void *)at;
	at += cpu_taken(group_size(j) * t->room, sizeof(size_t));
	t->place = (size_t *)(void *)at;
	at += cpu_taken(group_size(j) * t->room, sizeof(size_t));
	t->p = cpu_take_f32(&at, p);
	t->ref = cpu_take_f32(&at, meta);
	t->sum = cpu_take_f32(&at, meta);
	t->total = cpu_take_f64(&at, columns);
	t->other = cpu_take_f64(&at, columns);
	t->work = at;
	return 0;
}

/* Keys that query row i sees. */
static size_t
visible(const struct kvk_scores *j, size_t i)
{
	const size_t all = j->T + j->n_behind;

	if (j->q_pos[i] < 0)
		return 0;
	return (size_t)j->q_pos[i] + 1 < all ? (size_t)j->q_pos[i] + 1 : all;
}

static void
load_queries(struct tile *t)
{
	const struct kvk_scores *j = t->j;
	const size_t D = j->D, G = group_size(j), size = D * kvk_types[j->q_type].bytes;
	size_t last = 0;

	memset(t->q, 0, t->kv_heads * t->q_stride * sizeof *t->q);
	for (size_t h = 0; h < t->kv_heads * G; h++) {
		const uint8_t *from = (const uint8_t *)j->q + ((t->g * G + h) * j->n_q + t->i) * size;

		cpu_expand[j->q_type](from, t->row, t->rows * D);
		cpu_strips_fill(t->row, t->rows, D, h % G * t->rows, t->q + h / G * t->q_stride);
		for (size_t i = 0; i < t->rows; i++)
			t->norm[h * t->rows + i] = (float)sqrt(cpu_sum_squares(t->row + i * D, D));
	}
	for (size_t i = 0; i < G * t->rows; i++) {
		t->place[i] = i / t->rows * t->stride + i % t->rows;
		t->sees[i] = visible(j, t->i + i % t->rows);
		last = t->sees[i] > last ? t->sees[i] : last;
	}
	t->end = (last + KEYS - 1) / KEYS;
}

/* Keys b .. b + KEYS - 1 of KV head g; zeros where there are none. */
static void
load_keys(const struct kvk_scores *j, size_t g, size_t b, float *raw)
{
	const size_t D = j->D, size = D * kvk_types[j->k_type].bytes, all = j->T + j->n_behind;
	const size_t end = all - b < KEYS ? all : b + KEYS, kb = end - b;
	const size_t here = b >= j->T ? 0 : (end < j->T ? end : j->T) - b; /* of the block, in k itself */
	const uint8_t *k = j->k, *behind = j->k_behind;

	if (here > 0)
		cpu_expand[j->k_type](k + (g * j->T + b) * size, raw, here * D);
	if (here < kb)
		cpu_expand[j->k_type](
		    behind + (g * j->n_behind + b + here - j->T) * size, raw + here * D, (kb - here) * D);
	memset(raw + kb * D, 0, (KEYS - kb) * D * sizeof(float));
}

/* Items: the blocks that are seen, KV head after KV head. */
static void
soften_blocks(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct tile *t = ctx;
	const struct kvk_scores *j = t->j;
	const size_t G = group_size(j);
	const struct cpu_block_work w = cpu_block_work_at(t->work + worker * t->work_stride, j->D);

	for (size_t u = from; u < to; u++) {
		const size_t g = u / t->end, b = u % t->end, block = g * t->blocks + b;
		const struct cpu_block_queries x = { .q = t->q + g * t->q_stride,
			.norm = t->norm + g * G * t->rows,
			.sees = t->sees,
			.n = G * t->rows,
			.D = j->D,
			.scale = j->scale };

		load_keys(j, t->g + g, b * KEYS, w.raw);
		cpu_block_soften(&x, b * KEYS, &w, t->p + block * G * t->room * KEYS, t->place,
		    t->ref + block * G * t->stride, t->sum + block * G * t->stride);
	}
}

/* Eight rows: ref [b] becomes the block's share against the highest block, sum [b] what its probabilities are to be
 * multiplied by.  step: from block to block. */
static void
weigh_eight(float *ref, float *sum, size_t blocks, size_t step)
{
	f32x8 top = VEC_ALL(-FLT_MAX), factor;
	double all[GROUP] = { 0 };

	for (size_t b = 0; b < blocks; b++) {
		const f32x8 x = *(f32x8_mem *)(ref + b * step);

		vec_max(&top, &x);
	}
	for (size_t b = 0; b < blocks; b++) {
		f32x8 x = *(f32x8_mem *)(ref + b * step) - top, y;

		vec_exp2(&x);
		*(f32x8_mem *)(ref + b * step) = x;
		y = x * *(f32x8_mem *)(sum + b * step);
		for (int i = 0; i < GROUP; i++)
			all[i] += (double)y[i];
	}
	for (int i = 0; i < GROUP; i++)
		factor[i] = all[i] != 0 ? (float)(1 / all[i]) : 0;
	for (size_t b = 0; b < blocks; b++)
		*(f32x8_mem *)(sum + b * step) = *(f32x8_mem *)(ref + b * step) * factor;
}

/* The columns of a block, n rows of at most GROUP, weighted. */
static inline void
add_group(const float *p, const float *weight, size_t n, double *total)
{
	for (size_t i = 0; i < KEYS; i += 32) {
		f32x8 y[4] = { 0 };

		for (size_t r = 0; r < n; r++) {
			const f32x8 w = VEC_ALL(weight[r]);

			for (size_t v = 0; v < 4; v++)
				vec_madd(&y[v], (const f32x8 *)(const void *)(p + r * KEYS + i + 8 * v), &w);
		}
		for (size_t v = 0; v < 4; v++)
			for (size_t l = 0; l < 8; l++)
				total[i + 8 * v + l] += (double)y[v][l];
	}
}

/* 1 / the sum of a whole row, from its probabilities, in double precision: -x ln x is small where x is nearly 1, and so
 * is the variance of like numbers.  p, share: of the first block. */
static double
exact_factor(const float *p, size_t p_step, const float *share, size_t step, size_t blocks)
{
	double all = 0;

	for (size_t b = 0; b < blocks; b++) {
		double sum = 0;

		for (size_t i = 0; i < KEYS; i++)
			sum += (double)p[b * p_step + i];
		all += sum * (double)share[b * step];
	}
	return all != 0 ? 1 / all : 0;
}

/* One row and block by one of the other reductions. */
static void
add_row(enum kvk_reduce how, const float *p, double weight, double *total, double *other)
{
	for (size_t i = 0; i < KEYS; i++) {
		const double x = (double)p[i] * weight;

		if (how == KVK_MAX)
			total[i] = x <= total[i] || total[i] != total[i] ? total[i] : x; /* a NaN stays */
		else if (how == KVK_ENTROPY)
			total[i] -= x * log(x + 1e-10);
		else {
			total[i] += x;
			other[i] += x * x;
		}
	}
}

/* A column's total over n_q rows as the number that is asked for. */
static double
column(const struct kvk_scores *j, double total, double squares)
{
	const double n = (double)j->n_q;
	double var;

	if (j->rows == KVK_MEAN)
		return j->n_q > 0 ? total * (1.0 / n) : total;
	if (j->rows != KVK_VAR)
		return total;
	var = j->n_q > 1 ? (squares - total * total / n) / (n - 1) : 0;
	return var < 0 ? 0 : var;
}

/* Means and sums. */
static void
sum_columns(const struct tile *t, const float *p, float *share, float *sum, double *total)
{
	const size_t G = group_size(t->j), step = G * t->stride, p_step = G * t->room * KEYS;

	for (size_t r = 0; r < t->rows; r += GROUP)
		weigh_eight(share + r, sum + r, t->end, step);
	for (size_t b = 0; b < t->end && b * KEYS < t->columns; b++)
		for (size_t r = 0; r < t->rows; r += GROUP)
			add_group(p + b * p_step + r * KEYS, sum + b * step + r,
			    t->rows - r < GROUP ? t->rows - r : GROUP, total + b * KEYS);
}

static void
reduce_columns(const struct tile *t, const float *p, float *share, float *sum, double *total, double *other)
{
	const size_t G = group_size(t->j), step = G * t->stride, p_step = G * t->room * KEYS;

	for (size_t r = 0; r < t->rows; r += GROUP)
		weigh_eight(share + r, sum + r, t->end, step);
	for (size_t r = 0; r < t->rows; r++) {
		const double factor = exact_factor(p + r * KEYS, p_step, share + r, step, t->end);

		for (size_t b = 0; b < t->end && b * KEYS < t->columns; b++)
			add_row(t->j->rows, p + b * p_step + r * KEYS, (double)share[b * step + r] * factor,
			    total + b * KEYS, other + b * KEYS);
	}
}

/* Items: query heads of the tile. */
static void
add_columns(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct tile *t = ctx;
	const struct kvk_scores *j = t->j;
	const size_t G = group_size(j);

	(void)worker;
	for (size_t h = from; h < to; h++) {
		const size_t first = h / G * t->blocks * G, at = first * t->stride + h % G * t->stride;
		const size_t column = (t->g * G + h) * t->columns;
		const float *p = t->p + (first * t->room + h % G * t->rows) * KEYS;

		if (j->rows == KVK_MEAN || j->rows == KVK_SUM)
			sum_columns(t, p, t->ref + at, t->sum + at, t->total + column);
		else
			reduce_columns(t, p, t->ref + at, t->sum + at, t->total + column, t->other + column);
	}
}

/* Items: query heads. */
static void
finish(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct tile *t = ctx;
	const struct kvk_scores *j = t->j;

	(void)worker;
	for (size_t h = from; h < to; h++) {
		const double *total = t->total + h * t->columns, *other = t->other + h * t->columns;

		for (size_t i = 0; i < j->n; i++)
			t->s[h * j->n + i] = (float)column(j, total[i], other[i]);
		for (size_t i = 0; i < j->n && j->rows == KVK_VAR && j->mean != NULL; i++)
			j->mean[h * j->n + i] = (float)(j->n_q > 0 ? total[i] * (1.0 / (double)j->n_q) : 0);
	}
}

static int
check(struct kvk_dev *dev, const struct kvk_scores *j)
{
	if (!cpu_is_float(j->q_type) || !cpu_is_float(j->k_type))
		return cpu_fail(dev, KVK_ETYPE, "scores: queries and keys are f32, f16 or bf16");
	if (j->Hkv == 0 || j->Hq % j->Hkv != 0)
		return cpu_fail(dev, KVK_ESHAPE, "scores: %zu query heads cannot share %zu KV heads", j->Hq, j->Hkv);
	if (j->rows > KVK_ENTROPY)
		return cpu_fail(dev, KVK_ESHAPE, "scores: no reduction %d", (int)j->rows);
	if (j->n > j->T)
		return cpu_fail(dev, KVK_ESHAPE, "scores: %zu columns of %zu keys", j->n, j->T);
	return 0;
}

int
cpu_scores(struct kvk_dev *dev, const struct kvk_scores *j, float *s)
{
	struct tile t = { .j = j, .s = s };
	size_t together;
	int rc;

	if ((rc = check(dev, j)) != 0)
		return rc;
	plan(&t);
	if ((rc = take_memory(&t, dev)) != 0)
		return rc;
	memset(t.total, 0, j->Hq * t.columns * sizeof *t.total);
	if (j->rows == KVK_VAR)
		memset(t.other, 0, j->Hq * t.columns * sizeof *t.other);
	together = t.kv_heads;
	for (t.g = 0; t.g < j->Hkv; t.g += together) {
		t.kv_heads = j->Hkv - t.g < together ? j->Hkv - t.g : together;
		for (t.i = 0; t.i < j->n_q; t.i += t.rows) {
			t.rows = j->n_q - t.i < t.room ? j->n_q - t.i : t.room;
			load_queries(&t);
			cpu_run(dev, t.kv_heads * t.end, 4, soften_blocks, &t);
			cpu_run(dev, t.kv_heads * group_size(j), 1, add_columns, &t);
		}
	}
	cpu_run(dev, j->Hq, 4, finish, &t);
	return 0;
}
