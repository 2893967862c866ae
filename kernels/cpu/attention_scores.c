/* SPDX-License-Identifier: MIT
 * The attention-score family: softmax rows over the visible keys, reduced to one number per key.
 *
 * One query head at a time on each thread, some query rows at a time.  Logits, sums and column totals are in double
 * precision: with keys of a large common part (biases) logits reach hundreds, where single precision alone would use up
 * the bound of the contract. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define BLOCK     64                 /* keys */
#define ROWS      32                 /* query rows that share a block of keys, at most */
#define ROWS_MIN  4                  /* and at least, when MAX_BYTES asks for fewer; the result does not depend on it */
#define MAX_BYTES ((size_t)64 << 20) /* of logits, over all threads */

/* One thread's memory; all = T + n_behind, padded to whole blocks. */
struct work {
	size_t rows;   /* ROWS_MIN .. ROWS */
	double *logit; /* [rows][all] */
	float *p;      /* [all] */
	double *total; /* [n] */
	double *other; /* [n], sums of squares; for the variance only */
	double *q;     /* [rows][D] */
	double *kt;    /* [D][BLOCK] */
	float *raw;    /* [BLOCK][D], keys or queries */
};

static size_t
padded(const struct kvk_scores *j)
{
	return (j->T + j->n_behind + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t
rows_together(const struct kvk_scores *j, size_t threads)
{
	const size_t busy = threads < j->Hq ? threads : j->Hq + 1;
	const size_t rows = MAX_BYTES / busy / ((padded(j) + 1) * sizeof(double));

	return rows < ROWS_MIN ? ROWS_MIN : rows > ROWS ? ROWS : rows;
}

static size_t
work_bytes(const struct kvk_scores *j, size_t rows)
{
	const size_t all = padded(j);

	return cpu_room(rows * all, 8) + cpu_room(all, 4) + 2 * cpu_room(j->n, 8) + cpu_room(rows * j->D, 8) +
	       cpu_room(BLOCK * j->D, 8) + cpu_room(BLOCK * j->D, 4);
}

static struct work
work_at(const struct kvk_scores *j, size_t rows, char *at)
{
	const size_t all = padded(j);
	struct work w = { .rows = rows };

	w.logit = cpu_take_f64(&at, rows * all);
	w.p = cpu_take_f32(&at, all);
	w.total = cpu_take_f64(&at, j->n);
	w.other = cpu_take_f64(&at, j->n);
	w.q = cpu_take_f64(&at, rows * j->D);
	w.kt = cpu_take_f64(&at, BLOCK * j->D);
	w.raw = cpu_take_f32(&at, BLOCK * j->D);
	return w;
}

/* Keys b .. b + BLOCK - 1 of KV head g, transposed; zeros where there are none. */
static void
load_keys(const struct kvk_scores *j, size_t g, size_t b, const struct work *w)
{
	const size_t D = j->D, size = D * kvk_types[j->k_type].bytes, all = j->T + j->n_behind;
	const size_t end = all - b < BLOCK ? all : b + BLOCK, kb = end - b;
	const size_t here = b >= j->T ? 0 : (end < j->T ? end : j->T) - b; /* of the block, in k itself */
	const uint8_t *k = j->k, *behind = j->k_behind;

	if (here > 0)
		cpu_expand[j->k_type](k + (g * j->T + b) * size, w->raw, here * D);
	if (here < kb)
		cpu_expand[j->k_type](
		    behind + (g * j->n_behind + b + here - j->T) * size, w->raw + here * D, (kb - here) * D);
	memset(w->raw + kb * D, 0, (BLOCK - kb) * D * sizeof(float));
	for (size_t d0 = 0; d0 < D; d0 += 8)
		for (size_t i = 0; i < BLOCK; i++)
			for (size_t d = d0; d < d0 + 8 && d < D; d++)
				w->kt[d * BLOCK + i] = (double)w->raw[i * D + d];
}

/* p [vis] = softmax(scale * logit); returns 1 / denominator, by which p is still to be multiplied. */
static double
soften(const double *logit, size_t vis, double scale, float *p)
{
	double max = -INFINITY, sum = 0;

	for (size_t i = 0; i < vis; i++)
		max = logit[i] > max ? logit[i] : max;
	for (size_t i = 0; i < vis; i++)
		p[i] = (float)((logit[i] - max) * scale);
	for (size_t i = vis; i % 8 != 0; i++)
		p[i] = -INFINITY;
	for (size_t i = 0; i < vis; i += 8) {
		f32x8 x = *(f32x8_mem *)(p + i);

		vec_exp(&x);
		*(f32x8_mem *)(p + i) = x;
		sum += (double)vec_sum(&x);
	}
	return 1 / sum;
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

/* p [n], each to be multiplied by weight, joins the columns. */
static void
add_row(const struct kvk_scores *j, const float *p, size_t vis, double weight, const struct work *w)
{
	const size_t n = vis < j->n ? vis : j->n;
	double *total = w->total;

	switch (j->rows) {
	case KVK_MEAN:
	case KVK_SUM:
		for (size_t i = 0; i < n; i++)
			total[i] += (double)p[i] * weight;
		break;
	case KVK_MAX:
		for (size_t i = 0; i < n; i++) {
			const double x = (double)p[i] * weight;

			total[i] = x <= total[i] ? total[i] : x; /* a NaN stays */
		}
		break;
	case KVK_VAR:
		for (size_t i = 0; i < n; i++) {
			const double x = (double)p[i] * weight;

			total[i] += x;
			w->other[i] += x * x;
		}
		break;
	case KVK_ENTROPY:
		for (size_t i = 0; i < n; i++) {
			const double x = (double)p[i] * weight;

			total[i] -= x * log(x + 1e-10);
		}
		break;
	}
}

/* A column's total over n rows as the number that is asked for. */
static double
column(const struct kvk_scores *j, const struct work *w, size_t i)
{
	const double n = (double)j->n_q, total = w->total[i];
	double var;

	if (j->rows == KVK_MEAN)
		return j->n_q > 0 ? total * (1.0 / n) : total;
	if (j->rows != KVK_VAR)
		return total;
	var = j->n_q > 1 ? (w->other[i] - total * total / n) / (n - 1) : 0;
	return var < 0 ? 0 : var;
}

/* Rows i0 .. i0 + rows - 1 of head h, added to w->total. */
static void
add_rows(const struct kvk_scores *j, size_t h, size_t i0, size_t rows, const struct work *w)
{
	const size_t D = j->D, all = padded(j), g = h / (j->Hq / j->Hkv), size = D * kvk_types[j->q_type].bytes;
	size_t end = 0;

	for (size_t i = i0; i < i0 + rows; i++)
		end = visible(j, i) > end ? visible(j, i) : end;
	cpu_expand[j->q_type]((const uint8_t *)j->q + (h * j->n_q + i0) * size, w->raw, rows * D);
	for (size_t i = 0; i < rows * D; i++)
		w->q[i] = (double)w->raw[i];
	for (size_t b = 0; b < end; b += BLOCK) {
		load_keys(j, g, b, w);
		cpu_product_f64(w->q, D, w->kt, BLOCK, rows, D, BLOCK, w->logit + b, all);
	}
	for (size_t i = 0; i < rows; i++) {
		const size_t vis = visible(j, i0 + i);

		if (vis > 0)
			add_row(j, w->p, vis, soften(w->logit + i * all, vis, (double)j->scale, w->p), w);
	}
}

static void
score_head(const struct kvk_scores *j, size_t h, const struct work *w, float *s)
{
	for (size_t i = 0; i < j->n; i++)
		w->total[i] = w->other[i] = 0;
	for (size_t i0 = 0; i0 < j->n_q; i0 += w->rows)
		add_rows(j, h, i0, j->n_q - i0 < w->rows ? j->n_q - i0 : w->rows, w);
	for (size_t i = 0; i < j->n; i++)
		s[i] = (float)column(j, w, i);
	for (size_t i = 0; i < j->n && j->rows == KVK_VAR && j->mean != NULL; i++)
		j->mean[h * j->n + i] = (float)(j->n_q > 0 ? w->total[i] * (1.0 / (double)j->n_q) : 0);
}

struct job {
	const struct kvk_scores *j;
	size_t rows;
	float *s;
	char *scratch;
	size_t stride;
};

static void
heads(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *p = ctx;
	const struct work w = work_at(p->j, p->rows, p->scratch + worker * p->stride);

	for (size_t h = from; h < to; h++)
		score_head(p->j, h, &w, p->s + h * p->j->n);
}

int
cpu_scores(struct kvk_dev *dev, const struct kvk_scores *j, float *s)
{
	const size_t threads = (size_t)dev->threads, rows = rows_together(j, threads);
	struct job p = { j, rows, s, NULL, 0 };

	if (!cpu_is_float(j->q_type) || !cpu_is_float(j->k_type))
		return cpu_fail(dev, CPU_ETYPE, "scores: queries and keys are f32, f16 or bf16");
	if (j->Hkv == 0 || j->Hq % j->Hkv != 0)
		return cpu_fail(dev, CPU_ESHAPE, "scores: %zu query heads cannot share %zu KV heads", j->Hq, j->Hkv);
	if (j->rows > KVK_ENTROPY)
		return cpu_fail(dev, CPU_ESHAPE, "scores: no reduction %d", (int)j->rows);
	if (j->n > j->T)
		return cpu_fail(dev, CPU_ESHAPE, "scores: %zu columns of %zu keys", j->n, j->T);
	if ((p.scratch = cpu_scratch(dev, threads, work_bytes(j, rows), &p.stride)) == NULL)
		return CPU_EMEM;
	cpu_run(dev, j->Hq, 1, heads, &p);
	return 0;
}
