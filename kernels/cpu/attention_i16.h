/* SPDX-License-Identifier: MIT
 * Attention in fixed point, precision i16.
 *
 * Queries and keys: each row is integers times one scale, such that their norm stays below NORM_TOP: by Cauchy and
 * Schwarz the product of any two rows fits an int32_t, at any head size, and is exact.
 * Values: each row is integers up to VALUE_TOP times one scale, which joins the row's weight.  The weights of a query
 * row in a block, p[j] = e^(score - m) * scale[j], become integers times a scale such that neither their largest
 * exceeds an int16_t, nor their sum times VALUE_TOP an int32_t.
 * So that the scales of an entry are its own, whatever stands beside it, and those of a query row and a block depend on
 * the entries that the row sees alone.
 *
 * Every instruction set has its own form of the operations; all give the same bits: integer sums are exact, and the
 * floats follow one order with the same fused multiply-adds. */
#ifndef KVK_CPU_ATTENTION_I16_H
#define KVK_CPU_ATTENTION_I16_H

#include <math.h>

#include "kernels/cpu/ragged.h"

#define I16_BAND  6               /* query rows that meet a block together */
#define I16_BLOCK ATTENTION_BLOCK /* entries */

#define I16_WIDTH(D) (((D) + 15) / 16 * 16) /* elements of a row, zeros behind */

#define I16_NORM_TOP   46300.0f /* rounding adds sqrt(D) / 2; 2^15.5 is 46340.9 */
#define I16_MOST_DIMS  4096
#define I16_VALUE_TOP  8191.0f
#define I16_WEIGHT_TOP 32700.0f /* of one weight; of the sum: SUM_TOPS times as much */
#define I16_SUM_TOPS   8.0f
#define I16_LEAST      0x1p-100f /* what has no larger value is 0 */

/* A block of entries.  Entries that are not there are zero. */
struct i16_block {
	int16_t *k;     /* [Dv/2][BLOCK][2] elements 2i, 2i+1 of a key side by side */
	float *k_scale; /* [BLOCK] */
	int16_t *v;     /* [BLOCK/2][Dv][2] entries 2j, 2j+1 side by side */
	float *v_scale; /* [BLOCK] */
	size_t *bad;    /* the first entry with a NaN or an infinity, which is then zero; BLOCK: none */
};

/* Rows that meet a block. */
struct i16_band {
	size_t n, Dv;       /* 1 .. BAND rows; I16_WIDTH(D) */
	const size_t *sees; /* [n] of the block's entries, ascending, the last > 0 */
	const int16_t *q;   /* [Dv/2][BAND][2] */
	const float *c;     /* [n] scale of the row and of the softmax, times log2 e */
	float *m, *l, *o;   /* [n], [n], [n][Dv] as in struct attention_sums; m in powers of two */
	float *s;           /* [BAND][BLOCK] scores, then weights */
	int16_t *p;         /* [BAND][BLOCK] weights */
	float *unit;        /* [BAND] their scales */
};

struct i16_ops {
	const char *name;
	bool (*works)(void); /* on this processor */
	/* n (1 .. BLOCK) keys and values [n][D] f32.  work: [8][Dv] */
	void (*pack)(const float *k, const float *v, size_t n, size_t D, int16_t *work, const struct i16_block *to);
	void (*meet)(const struct i16_band *band, const struct i16_block *block);
};
extern const struct i16_ops cpu_attention_portable, cpu_attention_avx2;

/* x [D] to q [Dv], zeros behind; false: there is a NaN or an infinity, and all are zero. */
bool cpu_i16_row(const float *x, size_t D, size_t Dv, int16_t *q, float *scale);
bool cpu_i16_value(const float *x, size_t D, size_t Dv, int16_t *q, float *scale);

/* m and l of a row, and its output so far, at the new maximum. */
static inline void
i16_raise(const struct i16_band *b, size_t i, float m)
{
	const float keep = exp2f(b->m[i] - m);

	for (size_t d = 0; d < b->Dv; d++)
		b->o[i * b->Dv + d] *= keep;
	b->l[i] *= keep;
	b->m[i] = m;
}

/* 2^f for |f| <= 1/2 by the polynomial of least relative error, 7.5e-8. */
#define I16_POWER_TERMS { 0.0013276472f, 0.00967554133f, 0.0555071327f, 0.240221197f, 0.693146967f, 1.00000007f }

#endif
