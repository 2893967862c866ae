/* SPDX-License-Identifier: MIT
 * Attention of rows that stand behind a prompt, what they see of it on average, and the way back to these rows.
 *
 * One query head at a time on each thread.  Weights are kept turned, [key][row]: keys come as rows of a product that
 * needs no transposition, and softmax runs over many query rows at once.  The way back makes them anew, so that nothing
 * of the size of the prompt is kept between the two. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vec.h"

#define BLOCK 96 /* keys that are expanded together; a multiple of the rows of cpu_product()'s blocks */

struct job {
	const struct kvk_behind *x;
	size_t R;   /* rows, up to whole vectors; those too many are zero everywhere */
	size_t Dv;  /* elements of a head, up to whole vectors */
	size_t all; /* keys: T + n */
	const float *dy, *ds;
	float *y, *s, *dq;
	float *dk, *dv; /* [Hq][n][Dv] */
	char *scratch;
	size_t stride;
};

/* One thread's memory. */
struct work {
	float *p, *dp;   /* [all][R] weights, and the way back through them */
	float *block;    /* [BLOCK][Dv] keys or values */
	float *q, *qt;   /* [R][Dv], [Dv][R] times scale */
	float *dy, *dyt; /* the same of dy, not scaled */
	float *o;        /* [R][Dv] */
	float *row[2];   /* [R] */
};

static size_t
work_bytes(const struct job *j)
{
	return 2 * cpu_taken(j->all * j->R, 4) + cpu_taken(BLOCK * j->Dv, 4) + 5 * cpu_taken(j->R * j->Dv, 4) +
	       2 * cpu_taken(j->R, 4);
}

static struct work
work_at(const struct job *j, size_t worker)
{
	char *at = j->scratch + worker * j->stride;
	struct work w;

	w.p = cpu_take_f32(&at, j->all * j->R);
	w.dp = cpu_take_f32(&at, j->all * j->R);
	w.block = cpu_take_f32(&at, BLOCK * j->Dv);
	w.q = cpu_take_f32(&at, j->R * j->Dv);
	w.qt = cpu_take_f32(&at, j->R * j->Dv);
	w.dy = cpu_take_f32(&at, j->R * j->Dv);
	w.dyt = cpu_take_f32(&at, j->R * j->Dv);
	w.o = cpu_take_f32(&at, j->R * j->Dv);
	w.row[0] = cpu_take_f32(&at, j->R);
	w.row[1] = cpu_take_f32(&at, j->R);
	return w;
}

/* Rows b .. b + n - 1 of the keys (or values) of KV head g, the prompt's and those behind, to [n][Dv]. */
static void
load(const struct job *j, const void *prompt, const float *behind, size_t g, size_t b, size_t n, float *to)
{
	const struct kvk_behind *x = j->x;
	const size_t D = x->D, size = D * kvk_types[x->type].bytes;
	const uint8_t *from = prompt;

	for (size_t i = 0; i < n; i++, to += j->Dv) {
		if (b + i < x->T)
			cpu_expand[x->type](from + (g * x->T + b + i) * size, to, D);
		else
			memcpy(to, behind + (g * x->n + b + i - x->T) * D, D * sizeof *to);
		memset(to + D, 0, (j->Dv - D) * sizeof *to);
	}
}

/* The rows of a head, at distance `step`, as [R][Dv] and turned, times factor. */
static void
load_rows(const struct job *j, const float *from, size_t step, float factor, float *to, float *turned)
{
	memset(to, 0, j->R * j->Dv * sizeof *to);
	memset(turned, 0, j->R * j->Dv * sizeof *to);
	for (size_t i = 0; i < j->x->n; i++)
		for (size_t d = 0; d < j->x->D; d++) {
			to[i * j->Dv + d] = from[i * step + d];
			turned[d * j->R + i] = from[i * step + d] * factor;
		}
}

/* p [all][R] = k q^T, blocks of keys at a time; the same for values and dy. */
static void
times_keys(
    const struct job *j, const void *prompt, const float *behind, size_t g, const float *turned, float *block, float *p)
{
	for (size_t b = 0; b < j->all; b += BLOCK) {
		const size_t n = j->all - b < BLOCK ? j->all - b : BLOCK;

		load(j, prompt, behind, g, b, n, block);
		cpu_product(block, j->Dv, turned, j->R, n, j->Dv, j->R, p + b * j->R, j->R, false);
	}
}

/* R rows by 16 columns, or 8: o += p^T block.  R and V are constants where this is expanded. */
static inline __attribute__((always_inline)) void
gather_block(const int R, const int V, const float *p, size_t ldp, const float *x, size_t ldx, size_t n, float *o)
{
	f32x8 sum[6][2] = { 0 };

	for (size_t k = 0; k < n; k++) {
		f32x8 col[2];

		for (int v = 0; v < V; v++)
			col[v] = *(const f32x8_mem *)(x + k * ldx + 8 * (size_t)v);
		for (int r = 0; r < R; r++) {
			const f32x8 w = VEC_ALL(p[k * ldp + (size_t)r]);

			for (int v = 0; v < V; v++)
				vec_madd(&sum[r][v], &w, &col[v]);
		}
	}
	for (int r = 0; r < R; r++)
		for (int v = 0; v < V; v++)
			*(f32x8_mem *)(o + (size_t)r * ldx + 8 * (size_t)v) += sum[r][v];
}

static void
gather(const struct job *j, const float *p, const float *x, size_t n, float *o)
{
	const size_t R = j->R, Dv = j->Dv;
	size_t d = 0, r;

	for (; d + 16 <= Dv; d += 16) {
		for (r = 0; r + 6 <= R && r + 8 != R; r += 6)
			gather_block(6, 2, p + r, R, x + d, Dv, n, o + r * Dv + d);
		for (; r + 4 <= R; r += 4)
			gather_block(4, 2, p + r, R, x + d, Dv, n, o + r * Dv + d);
		for (; r < R; r += 2)
			gather_block(2, 2, p + r, R, x + d, Dv, n, o + r * Dv + d);
	}
	for (; d < Dv; d += 8)
		for (r = 0; r < R; r += 2)
			gather_block(2, 1, p + r, R, x + d, Dv, n, o + r * Dv + d);
}

/* o [R][Dv] = p^T times all keys, or values. */
static void
sum_keys(const struct job *j, const void *prompt, const float *behind, size_t g, const float *p, float *block, float *o)
{
	memset(o, 0, j->R * j->Dv * sizeof *o);
	for (size_t b = 0; b < j->all; b += BLOCK) {
		const size_t n = j->all - b < BLOCK ? j->all - b : BLOCK;

		load(j, prompt, behind, g, b, n, block);
		gather(j, p + b * j->R, block, n, o);
	}
}

/* Softmax down each of eight columns of p [all][R], times keep. */
static void
soften(float *p, size_t all, size_t R, const f32x8 *keep)
{
	f32x8 top = VEC_ALL(-INFINITY), sum = { 0 };

	for (size_t k = 0; k < all; k++) {
		const f32x8 x = *(f32x8_mem *)(p + k * R);

		vec_max(&top, &x);
	}
	for (size_t k = 0; k < all; k++) {
		f32x8 x = *(f32x8_mem *)(p + k * R) - top;

		vec_exp(&x);
		*(f32x8_mem *)(p + k * R) = x;
		sum += x;
	}
	sum = *keep / sum;
	for (size_t k = 0; k < all; k++)
		*(f32x8_mem *)(p + k * R) *= sum;
}

/* The weights of head h, w->q and w->qt with them. */
static void
weigh(const struct job *j, size_t h, const struct work *w)
{
	const struct kvk_behind *x = j->x;
	const size_t g = h / (x->Hq / x->Hkv), R = j->R;

	load_rows(j, x->q + h * x->n * x->D, x->D, x->scale, w->q, w->qt);
	times_keys(j, x->k, x->k_behind, g, w->qt, w->block, w->p);
	for (size_t i = 0; i < x->n; i++) /* the rows behind see each other as they follow */
		for (size_t r = 0; r < i; r++)
			w->p[(x->T + i) * R + r] = -INFINITY;
	for (size_t r = 0; r < R; r += 8) {
		f32x8 keep = { 0 };

		for (size_t i = 0; i < 8 && r + i < x->n; i++)
			keep[i] = 1;
		soften(w->p + r, j->all, R, &keep);
	}
}

static void
forward_head(const struct job *j, size_t h, const struct work *w)
{
	const struct kvk_behind *x = j->x;
	const size_t g = h / (x->Hq / x->Hkv), D = x->D;

	weigh(j, h, w);
	for (size_t k = 0; k < x->T && j->s != NULL; k++) {
		f32x8 sum = { 0 };

		for (size_t r = 0; r < j->R; r += 8)
			sum += *(f32x8_mem *)(w->p + k * j->R + r);
		j->s[h * x->T + k] = vec_sum(&sum) / (float)x->n;
	}
	if (j->y == NULL)
		return;
	sum_keys(j, x->v, x->v_behind, g, w->p, w->block, w->o);
	for (size_t i = 0; i < x->n; i++)
		memcpy(j->y + (i * x->Hq + h) * D, w->o + i * j->Dv, D * sizeof(float));
}

/* dp becomes the gradient of the logits: p (dp - sum of p dp over the keys). */
static void
soften_back(const struct job *j, const struct work *w)
{
	const size_t R = j->R;

	for (size_t r = 0; r < R; r += 8) {
		f32x8 all = { 0 };

		for (size_t b = 0; b < j->all; b += BLOCK) {
			f32x8 part = { 0 };

			for (size_t k = b; k < b + BLOCK && k < j->all; k++)
				part += *(f32x8_mem *)(w->p + k * R + r) * *(f32x8_mem *)(w->dp + k * R + r);
			all += part;
		}
		for (size_t k = 0; k < j->all; k++) {
			f32x8_mem *x = (f32x8_mem *)(w->dp + k * R + r);

			*x = *(f32x8_mem *)(w->p + k * R + r) * (*x - all);
		}
	}
}

static void
back_head(const struct job *j, size_t h, const struct work *w)
{
	const struct kvk_behind *x = j->x;
	const size_t g = h / (x->Hq / x->Hkv), D = x->D, R = j->R, Dv = j->Dv;
	const float *behind = w->dp + x->T * R;

	weigh(j, h, w);
	if (j->dy != NULL) {
		load_rows(j, j->dy + h * D, x->Hq * D, 1, w->dy, w->dyt);
		times_keys(j, x->v, x->v_behind, g, w->dyt, w->block, w->dp);
	} else {
		memset(w->dp, 0, j->all * R * sizeof(float));
	}
	for (size_t k = 0; k < x->T; k++)
		for (size_t r = 0; r < R; r++)
			w->dp[k * R + r] += j->ds[h * x->T + k] / (float)x->n;
	soften_back(j, w);
	sum_keys(j, x->k, x->k_behind, g, w->dp, w->block, w->o);
	for (size_t i = 0; i < x->n; i++)
		for (size_t d = 0; d < D; d++)
			j->dq[(h * x->n + i) * D + d] = x->scale * w->o[i * Dv + d];
	cpu_product(behind, R, w->q, Dv, x->n, R, Dv, j->dk + h * x->n * Dv, Dv, false);
	if (j->dy != NULL)
		cpu_product(w->p + x->T * R, R, w->dy, Dv, x->n, R, Dv, j->dv + h * x->n * Dv, Dv, false);
}

static void
heads(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct work w = work_at(j, worker);

	for (size_t h = from; h < to; h++) {
		if (j->dq != NULL)
			back_head(j, h, &w);
		else
			forward_head(j, h, &w);
	}
}

/* y [Hkv][n][D]: the heads of each group added up, times factor. */
static void
add_heads(const struct job *j, const float *from, float factor, float *y)
{
	const struct kvk_behind *x = j->x;
	const size_t G = x->Hq / x->Hkv, rows = x->n;

	for (size_t g = 0; g < x->Hkv; g++)
		for (size_t i = 0; i < rows; i++)
			for (size_t d = 0; d < x->D; d++) {
				float sum = 0;

				for (size_t h = g * G; h < (g + 1) * G; h++)
					sum += from[(h * rows + i) * j->Dv + d];
				y[(g * rows + i) * x->D + d] = factor * sum;
			}
}

/* Sizes and scratch; `room`: floats in front of the threads' memory. */
static int
prepare(struct kvk_dev *dev, struct job *j, size_t room, char **front)
{
	const struct kvk_behind *x = j->x;

	if (!cpu_is_float(x->type))
		return cpu_fail(dev, KVK_ETYPE, "behind: keys and values are f32, f16 or bf16");
	if (x->Hkv == 0 || x->Hq % x->Hkv != 0)
		return cpu_fail(dev, KVK_ESHAPE, "behind: %zu query heads cannot share %zu KV heads", x->Hq, x->Hkv);
	j->R = (x->n + 7) / 8 * 8;
	j->Dv = (x->D + 7) / 8 * 8;
	j->all = x->T + x->n;
	j->stride = (work_bytes(j) + 63) / 64 * 64;
	*front = cpu_scratch(dev, 1, (size_t)dev->threads * j->stride + cpu_taken(room, sizeof(float)), &room);
	if (*front == NULL)
		return KVK_EMEM;
	j->scratch = *front;
	return 0;
}

int
cpu_behind(struct kvk_dev *dev, const struct kvk_behind *x, float *y, float *s)
{
	struct job j = { .x = x, .y = y, .s = s };
	char *front;
	int rc;

	if (x->n == 0 || x->Hq == 0)
		return 0;
	if ((rc = prepare(dev, &j, 0, &front)) == 0)
		cpu_run(dev, x->Hq, 1, heads, &j);
	return rc;
}

int
cpu_behind_back(
    struct kvk_dev *dev, const struct kvk_behind *x, const float *dy, const float *ds, float *dq, float *dk, float *dv)
{
	struct job j = { .x = x, .dy = dy, .ds = ds, .dq = dq };
	const size_t room = x->Hq * x->n * ((x->D + 7) / 8 * 8) + 16; /* and to whole lines */
	char *at;
	int rc;

	if (x->n == 0 || x->Hq == 0)
		return 0;
	if ((rc = prepare(dev, &j, 2 * room, &at)) != 0)
		return rc;
	j.dk = cpu_take_f32(&at, room);
	j.dv = cpu_take_f32(&at, room);
	j.scratch = at;
	cpu_run(dev, x->Hq, 1, heads, &j);
	add_heads(&j, j.dk, x->scale, dk);
	if (dy != NULL)
		add_heads(&j, j.dv, 1, dv);
	return 0;
}
