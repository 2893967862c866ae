/* SPDX-License-Identifier: MIT
 * Attention in fixed point in plain C: the definition, and what runs where nothing faster does. */
#include "kernels/cpu/attention_i16.h"

#include <string.h>

#include "kernels/cpu/vec.h"

#define BAND  I16_BAND
#define BLOCK I16_BLOCK
#define LANES 8

typedef int16_t i16x8 __attribute__((vector_size(16), aligned(2), may_alias));

static inline void
measure_eight(const f32x8 *x, i32x8 *top, f32x8 *sum)
{
	const i32x8 u = (i32x8)*x & 0x7fffffff, more = u > *top;

	*top = (u & more) | (*top & ~more);
	*sum += *x * *x;
}

/* The largest magnitude as the bits of a float: NaN and infinity are above all others.  *squares: their sum. */
static uint32_t
measure(const float *x, size_t D, float *squares)
{
	f32x8 sum = { 0 }, rest = { 0 };
	i32x8 top = { 0 };
	int32_t most = 0;

	for (; D >= LANES; D -= LANES, x += LANES) {
		const f32x8 v = *(const f32x8_mem *)x;

		measure_eight(&v, &top, &sum);
	}
	memcpy(&rest, x, D * sizeof *x);
	measure_eight(&rest, &top, &sum);
	for (int i = 0; i < LANES; i++)
		most = top[i] > most ? top[i] : most;
	*squares = vec_sum(&sum);
	return (uint32_t)most;
}

/* Rounded by adding 1.5 * 2^23, which leaves the integer in the low bits. */
static inline void
round_eight(const f32x8 *x, float f, int16_t *q)
{
	const i32x8 bits = (i32x8)(*x * f + 12582912.0f);

	*(i16x8 *)q = __builtin_convertvector(bits & 0xffff, i16x8);
}

/* q = x / scale, zeros behind. */
static void
round_row(const float *x, size_t D, size_t Dv, float scale, int16_t *q)
{
	const float f = 1 / scale;
	f32x8 rest = { 0 };

	for (; D >= LANES; D -= LANES, Dv -= LANES, x += LANES, q += LANES) {
		const f32x8 v = *(const f32x8_mem *)x;

		round_eight(&v, f, q);
	}
	memcpy(&rest, x, D * sizeof *x);
	for (; Dv > 0; Dv -= LANES, q += LANES) {
		round_eight(&rest, f, q);
		rest = (f32x8){ 0 };
	}
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
	f32x8 l = { 0 }, sum = { 0 };
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
	b->l[i] += vec_sum(&l);
	heaviest = fmaxf(heaviest, vec_sum(&sum) / I16_SUM_TOPS);
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
