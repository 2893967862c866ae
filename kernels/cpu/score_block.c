/* SPDX-License-Identifier: MIT
 * Logits of a block of keys and their exponentials.
 *
 * An error d of a logit moves a probability by a share d (1 - p) of itself, so that d may be some 1e-5 at most.  Sums
 * of products in single precision, CHAIN at a time, err by less than 1.2e-7 |q||k|: they serve wherever |q||k| scale is
 * below LIMIT.  Beyond it (keys with a large common part, as biases make) rows are done again in double precision;
 * which they are depends on the row and the block alone. */
#include "kernels/cpu/score_block.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/exp2.h"

#define KEYS  CPU_BLOCK_KEYS
#define STRIP CPU_STRIP_ROWS /* with two vectors each: 12 of 16 registers hold sums */
#define CHAIN 32             /* products added up in one chain */
#define LIMIT 96.0f
#define LOG2E 1.44269504088896340736

size_t
cpu_block_bytes(size_t D)
{
	return 2 * cpu_taken(KEYS * D, 4) + cpu_taken(STRIP * KEYS, 4) + cpu_taken(KEYS * D, 8) +
	    cpu_taken(STRIP * D, 8) + cpu_taken(STRIP * KEYS, 8);
}

struct cpu_block_work
cpu_block_work_at(char *at, size_t D)
{
	struct cpu_block_work w;

	w.raw = cpu_take_f32(&at, KEYS * D);
	w.kt = cpu_take_f32(&at, KEYS * D);
	w.y = cpu_take_f32(&at, STRIP * KEYS);
	w.wide = cpu_take_f64(&at, KEYS * D);
	w.q = cpu_take_f64(&at, STRIP * D);
	w.logit = cpu_take_f64(&at, STRIP * KEYS);
	return w;
}

void
cpu_strips_fill(const float *x, size_t n, size_t D, size_t at, float *strips)
{
	for (size_t i = 0; i < n; i++, at++)
		for (size_t d = 0; d < D; d++)
			strips[(at / STRIP * D + d) * STRIP + at % STRIP] = x[i * D + d];
}

/* y [8][ldy] = the transposed of x [8][ldx]: rows are interleaved, then pairs, then halves are exchanged. */
static inline void
turn_8x8(const float *x, size_t ldx, float *y, size_t ldy)
{
	f32x8 a[8], b[8];

	for (size_t i = 0; i < 8; i++)
		a[i] = *(const f32x8_mem *)(x + i * ldx);
	for (size_t i = 0; i < 8; i += 2) {
		b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	for (size_t i = 0; i < 8; i += 4)
		for (size_t j = 0; j < 2; j++) {
			a[i + 2 * j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
			a[i + 2 * j + 1] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
		}
	for (size_t i = 0; i < 4; i++) {
		*(f32x8_mem *)(y + i * ldy) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		*(f32x8_mem *)(y + (i + 4) * ldy) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
}

static void
turn(const float *raw, size_t D, float *kt)
{
	size_t d = 0;

	for (; d + 8 <= D; d += 8)
		for (size_t i = 0; i < KEYS; i += 8)
			turn_8x8(raw + i * D + d, D, kt + d * KEYS + i, KEYS);
	for (; d < D; d++)
		for (size_t i = 0; i < KEYS; i++)
			kt[d * KEYS + i] = raw[i * D + d];
}

/* The length of the longest key. */
static float
longest(const float *kt, size_t D)
{
	f32x8 square[KEYS / 8] = { 0 }, top;

	for (size_t d = 0; d < D; d++)
		for (size_t v = 0; v < KEYS / 8; v++) {
			const f32x8 x = *(const f32x8_mem *)(kt + d * KEYS + 8 * v);

			vec_madd(&square[v], &x, &x);
		}
	top = square[0];
	for (size_t v = 1; v < KEYS / 8; v++) {
		const i32x8 less = square[v] <= top; /* a NaN stays */

		top = (f32x8)(((i32x8)top & less) | ((i32x8)square[v] & ~less));
	}
	for (int i = 0; i < 8; i++)
		if (top[i] != top[i])
			return NAN;
	return sqrtf(vec_top(&top));
}

/* Logits of a strip, q [D][STRIP], y [STRIP][KEYS]. */
static void
multiply(const float *q, size_t D, const float *kt, float *y)
{
	for (size_t j = 0; j < KEYS; j += 16)
		for (size_t from = 0; from < D; from += CHAIN) {
			const size_t end = D - from < CHAIN ? D : from + CHAIN;
			f32x8 sum[STRIP][2] = { 0 };

			for (size_t d = from; d < end; d++) {
				const f32x8 left = *(const f32x8 *)(const void *)(kt + d * KEYS + j);
				const f32x8 right = *(const f32x8 *)(const void *)(kt + d * KEYS + j + 8);

				for (size_t r = 0; r < STRIP; r++) {
					const f32x8 x = VEC_ALL(q[d * STRIP + r]);

					vec_madd(&sum[r][0], &x, &left);
					vec_madd(&sum[r][1], &x, &right);
				}
			}
			for (size_t r = 0; r < STRIP; r++)
				for (size_t v = 0; v < 2; v++) {
					f32x8 *to = (f32x8 *)(void *)(y + r * KEYS + j + 8 * v);

					*to = from == 0 ? sum[r][v] : *to + sum[r][v];
				}
		}
}

/* Row r of w->logit [KEYS] as powers of two, relative to the ref that is returned. */
static float
narrow(double *l, size_t sees, double c, float *y)
{
	double top = -(double)FLT_MAX;
	float ref;

	for (size_t i = 0; i < sees; i++) {
		l[i] *= c;
		top = l[i] > top ? l[i] : top;
	}
	ref = (float)top;
	for (size_t i = 0; i < sees; i++)
		y[i] = (float)(l[i] - (double)ref);
	return ref;
}

/* w->logit, in double precision. */
static void
multiply_wide(const float *q, size_t D, const struct cpu_block_work *w)
{
	for (size_t i = 0; i < STRIP * D; i++)
		w->q[i] = (double)q[i];
	for (size_t j = 0; j < KEYS; j += 8) {
		f64x4 sum[STRIP][2] = { 0 };

		for (size_t d = 0; d < D; d++) {
			const f64x4 left = *(const f64x4 *)(const void *)(w->wide + d * KEYS + j);
			const f64x4 right = *(const f64x4 *)(const void *)(w->wide + d * KEYS + j + 4);

			for (size_t r = 0; r < STRIP; r++) {
				const double x = w->q[d * STRIP + r];
				const f64x4 all = { x, x, x, x };

				vec_madd_f64(&sum[r][0], &all, &left);
				vec_madd_f64(&sum[r][1], &all, &right);
			}
		}
		for (size_t r = 0; r < STRIP; r++)
			for (size_t v = 0; v < 2; v++)
				*(f64x4 *)(void *)(w->logit + r * KEYS + j + 4 * v) = sum[r][v];
	}
}

/* p [KEYS] = 2^(y * c - ref) for what is seen, 0 behind it.  Returns the sum. */
static float
raise(float *y, size_t sees, float c, float ref, float *p)
{
	const f32x8 factor = VEC_ALL(c);
	f32x8 sum = { 0 };

	for (size_t i = sees; i < KEYS; i++)
		y[i] = -INFINITY;
	for (size_t i = 0; i < KEYS; i += 8) {
		f32x8 x = VEC_ALL(-ref);

		vec_madd(&x, (const f32x8 *)(const void *)(y + i), &factor);
		vec_exp2(&x);
		*(f32x8_mem *)(p + i) = x;
		sum += x;
	}
	sum += __builtin_shufflevector(sum, sum, 4, 5, 6, 7, 0, 1, 2, 3);
	sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5);
	return sum[0] + sum[1];
}

static float
highest(const float *l, size_t sees)
{
	f32x8 top = VEC_ALL(-FLT_MAX), x;
	float m;
	size_t i = 0;

	for (; i + 8 <= sees; i += 8)
		vec_max(&top, (const f32x8 *)(const void *)(l + i));
	x = __builtin_shufflevector(top, top, 4, 5, 6, 7, 0, 1, 2, 3);
	vec_max(&top, &x);
	x = __builtin_shufflevector(top, top, 2, 3, 0, 1, 6, 7, 4, 5);
	vec_max(&top, &x);
	m = top[0] > top[1] ? top[0] : top[1];
	for (; i < sees; i++)
		m = l[i] > m ? l[i] : m;
	return m;
}

/* What a strip's rows are to the block. */
struct strip {
	size_t sees[STRIP]; /* keys of this block */
	bool wide[STRIP];   /* too long for single precision */
	bool any_wide, all_wide;
};

static struct strip
look(const struct cpu_block_queries *x, size_t row, size_t n, size_t first, float reach)
{
	struct strip s = { .all_wide = true };

	for (size_t r = 0; r < n; r++) {
		const size_t sees = x->sees[row + r];

		s.sees[r] = sees < first ? 0 : sees - first < KEYS ? sees - first : KEYS;
		s.wide[r] = s.sees[r] > 0 && !(x->scale > 0 && x->norm[row + r] * reach <= LIMIT);
		s.any_wide = s.any_wide || s.wide[r];
		s.all_wide = s.all_wide && s.wide[r];
	}
	return s;
}

void
cpu_block_soften(const struct cpu_block_queries *x, size_t first, const struct cpu_block_work *w, float *p,
    const size_t *place, float *ref, float *sum)
{
	const double c = (double)x->scale * LOG2E;
	float reach;
	bool widened = false;

	turn(w->raw, x->D, w->kt);
	reach = longest(w->kt, x->D) * x->scale;
	for (size_t row = 0; row < x->n; row += STRIP) {
		const size_t rows = x->n - row < STRIP ? x->n - row : STRIP;
		const struct strip s = look(x, row, rows, first, reach);
		const float *q = x->q + row * x->D;

		if (!s.all_wide)
			multiply(q, x->D, w->kt, w->y);
		for (size_t i = 0; s.any_wide && !widened && i < KEYS * x->D; i++)
			w->wide[i] = (double)w->kt[i];
		widened = widened || s.any_wide;
		if (s.any_wide)
			multiply_wide(q, x->D, w);
		for (size_t r = 0; r < rows; r++, p += KEYS) {
			const size_t at = place[row + r];
			float *y = w->y + r * KEYS, zero = s.wide[r] ? narrow(w->logit + r * KEYS, s.sees[r], c, y) : 0;

			if (s.sees[r] == 0) {
				memset(p, 0, KEYS * sizeof *p);
				ref[at] = -FLT_MAX;
				sum[at] = 0;
				continue;
			}
			ref[at] = s.wide[r] ? zero : highest(y, s.sees[r]) * (float)c;
			sum[at] = s.wide[r] ? raise(y, s.sees[r], 1, 0, p) : raise(y, s.sees[r], (float)c, ref[at], p);
		}
	}
}
