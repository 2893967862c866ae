/* SPDX-License-Identifier: MIT
 * Attention in fixed point in plain C: the definition, and what runs where nothing faster does. */
#include "kernels/cpu/attention_i16.h"

#include <string.h>

#define BAND  I16_BAND
#define BLOCK I16_BLOCK
#define LANES 8

static float
lanes_sum(const float *x)
{
	return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* The largest magnitude as the bits of a float: NaN and infinity are above all others.  *squares: their sum. */
static uint32_t
measure(const float *x, size_t D, float *squares)
{
	uint32_t top = 0;
	float lane[LANES] = { 0 };

	for (size_t d = 0; d < D; d++) {
		uint32_t u;

		memcpy(&u, x + d, sizeof u);
		u &= 0x7fffffff;
		top = u > top ? u : top;
		lane[d % LANES] += x[d] * x[d];
	}
	*squares = lanes_sum(lane);
	return top;
}

/* q = x / scale, zeros behind. */
static void
round_row(const float *x, size_t D, size_t Dv, float scale, int16_t *q)
{
	const float to_int = 12582912.0f, f = scale > 0 ? 1 / scale : 0; /* 1.5 * 2^23 */

	for (size_t d = 0; d < D; d++)
		q[d] = (int16_t)((x[d] * f + to_int) - to_int);
	memset(q + D, 0, (Dv - D) * sizeof *q);
}

/* False, with q and scale zero, if there is a NaN or an infinity or nothing but zeros; *finite tells which. */
static bool
ordinary(uint32_t bits, float *top, size_t Dv, int16_t *q, float *scale, bool *finite)
{
	memcpy(top, &bits, sizeof *top);
	*finite = bits < 0x7f800000;
	*scale = 0;
	if (*finite && *top >= I16_LEAST)
		return true;
	memset(q, 0, Dv * sizeof *q);
	return false;
}

bool
cpu_i16_row(const float *x, size_t D, size_t Dv, int16_t *q, float *scale)
{
	float squares, top;
	bool finite;

	if (!ordinary(measure(x, D, &squares), &top, Dv, q, scale, &finite))
		return finite;
	squares = squares > 1e-30f && squares < 1e37f ? sqrtf(squares) : top * sqrtf((float)D);
	*scale = fmaxf(squares / I16_NORM_TOP, top / 32767);
	round_row(x, D, Dv, *scale, q);
	return true;
}

bool
cpu_i16_value(const float *x, size_t D, size_t Dv, int16_t *q, float *scale)
{
	float squares, top;
	bool finite;

	if (!ordinary(measure(x, D, &squares), &top, Dv, q, scale, &finite))
		return finite;
	*scale = top / I16_VALUE_TOP;
	round_row(x, D, Dv, *scale, q);
	return true;
}

static void
pack(const float *k, const float *v, size_t n, size_t D, int16_t *work, const struct i16_block *to)
{
	const size_t Dv = I16_WIDTH(D);

	*to->bad = BLOCK;
	memset(to->k, 0, Dv * BLOCK * sizeof *to->k);
	memset(to->v, 0, Dv * BLOCK * sizeof *to->v);
	memset(to->k_scale, 0, BLOCK * sizeof *to->k_scale);
	memset(to->v_scale, 0, BLOCK * sizeof *to->v_scale);
	for (size_t j = 0; j < n; j++) {
		bool good = cpu_i16_row(k + j * D, D, Dv, work, to->k_scale + j);

		for (size_t d = 0; d < Dv; d++)
			to->k[(d / 2 * BLOCK + j) * 2 + d % 2] = work[d];
		good &= cpu_i16_value(v + j * D, D, Dv, work, to->v_scale + j);
		for (size_t d = 0; d < Dv; d++)
			to->v[(j / 2 * Dv + d) * 2 + j % 2] = work[d];
		if (!good && *to->bad > j)
			*to->bad = j;
	}
}

/* 2^t, t <= 0 or little above; not below 2^-120. */
static float
power(float t)
{
	static const float term[] = I16_POWER_TERMS;
	const float to_int = 12582912.0f;
	float whole, f, p = term[0];
	uint32_t bits, u;

	t = t < -120 ? -120 : t;
	whole = t + to_int;
	memcpy(&bits, &whole, sizeof bits);
	f = t - (whole - to_int);
	for (int i = 1; i < 6; i++)
		p = fmaf(p, f, term[i]);
	memcpy(&u, &p, sizeof u);
	u += bits << 23;
	memcpy(&p, &u, sizeof p);
	return p;
}

static void
weigh(const struct i16_band *b, size_t i, const struct i16_block *block)
{
	float *s = b->s + i * BLOCK, top = -INFINITY, heaviest = 0, f;
	float l[LANES] = { 0 }, sum[LANES] = { 0 };
	int16_t *p = b->p + i * BLOCK;

	memset(p, 0, BLOCK * sizeof *p);
	b->unit[i] = 0;
	if (b->sees[i] == 0)
		return;
	for (size_t j = 0; j < b->sees[i]; j++)
		top = s[j] > top ? s[j] : top;
	if (!(top * b->c[i] <= b->m[i]))
		i16_raise(b, i, top * b->c[i]);
	for (size_t j = 0; j < b->sees[i]; j++) {
		const float e = power(fmaf(s[j], b->c[i], -b->m[i]));

		l[j % LANES] += e;
		s[j] = e * block->v_scale[j];
		sum[j % LANES] += s[j];
		heaviest = s[j] > heaviest ? s[j] : heaviest;
	}
	b->l[i] += lanes_sum(l);
	heaviest = fmaxf(heaviest, lanes_sum(sum) / I16_SUM_TOPS);
	if (!(heaviest >= I16_LEAST))
		return;
	f = I16_WEIGHT_TOP / heaviest;
	b->unit[i] = heaviest / I16_WEIGHT_TOP;
	for (size_t j = 0; j < b->sees[i]; j++)
		p[j] = (int16_t)((s[j] * f + 12582912.0f) - 12582912.0f);
}

static void
meet(const struct i16_band *b, const struct i16_block *block)
{
	const size_t Dv = b->Dv, most = b->sees[b->n - 1];

	for (size_t i = 0; i < b->n; i++)
		for (size_t j = 0; j < most; j++) {
			int32_t sum = 0;

			for (size_t d = 0; d < Dv; d++)
				sum += b->q[(d / 2 * BAND + i) * 2 + d % 2] * block->k[(d / 2 * BLOCK + j) * 2 + d % 2];
			b->s[i * BLOCK + j] = (float)sum * block->k_scale[j];
		}
	for (size_t i = 0; i < b->n; i++) {
		weigh(b, i, block);
		for (size_t d = 0; d < Dv; d++) {
			int32_t sum = 0;

			for (size_t j = 0; j < most; j++)
				sum += b->p[i * BLOCK + j] * block->v[(j / 2 * Dv + d) * 2 + j % 2];
			b->o[i * Dv + d] = fmaf((float)sum, b->unit[i], b->o[i * Dv + d]);
		}
	}
}

static bool
works(void)
{
	return true;
}

const struct i16_ops cpu_attention_portable = {
	.name = "portable",
	.works = works,
	.pack = pack,
	.meet = meet,
};
