/* SPDX-License-Identifier: MIT
 * The form of kernels/cpu/dots.h that dots.c and dots_avx2.c are made of.  Before they include it they define
 *	DOTS         the table's name
 *	DOTS_TARGET  the attribute of functions for the instruction set
 *	halves_at    two half floats at x, as floats
 *	widen        sixteen signed bytes as 16-bit integers
 *	multiply32   the eight sums of a block
 * Vectors are the compilers' own, so that what is known of the file's types stands here once.  Formats of the types:
 * kernels/cpu/expand.c. */
#include "kernels/cpu/dots.h"

#define FORM static inline __attribute__((always_inline)) DOTS_TARGET

#define AT_ONCE 4 /* rows of x that share the unpacking of a block */

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));

/* 32 elements: q[i] * d - with minima, + m of their half. */
struct block {
	i16x16 q[2];
	float d, m[2];
};

enum minima { NONE, ONE, TWO /* one for each half */ };

typedef void unpack_fn(const uint8_t *w, size_t b, struct block *u); /* block b (of 32) of a row at w */

/* 16 bytes x >> shift & mask; the mask drops what 16-bit shifts move across bytes. */
FORM void
take(const uint8_t *x, int shift, uint8_t mask, i8x16 *q)
{
	u16x8 v;

	memcpy(&v, x, sizeof v);
	*q = (i8x16)((u8x16)(v >> shift) & mask);
}

/* 16 where bit j of two bytes is set. */
FORM void
take_fifth(const uint8_t *x, i8x16 *q)
{
	const u8x16 bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
	u8x16 v = { x[0], x[1] };

	v = __builtin_shufflevector(v, v, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
	*q = (i8x16)((v & bit) != 0) & 16;
}

/* A half float by itself. */
FORM float
lone_half(const uint8_t *x)
{
	uint16_t alone[2] = { 0 };
	float v[2];

	memcpy(alone, x, sizeof *alone);
	halves_at((const uint8_t *)alone, v);
	return v[0];
}

/* d and m of q4_1 and q5_1 */
FORM void
scale_and_offset(const uint8_t *x, struct block *u)
{
	float v[2];

	halves_at(x, v);
	u->d = v[0];
	u->m[0] = v[1];
}

FORM void
unpack_q4_0(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b * 18;

	for (int h = 0; h < 2; h++) {
		i8x16 q;

		take(x + 2, 4 * h, 15, &q);
		q -= 8;
		widen(&q, &u->q[h]);
	}
	u->d = lone_half(x);
}

FORM void
unpack_q4_1(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b * 20;

	for (int h = 0; h < 2; h++) {
		i8x16 q;

		take(x + 4, 4 * h, 15, &q);
		widen(&q, &u->q[h]);
	}
	scale_and_offset(x, u);
}

FORM void
unpack_q5_0(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b * 22;

	for (int h = 0; h < 2; h++) {
		i8x16 q, fifth;

		take(x + 6, 4 * h, 15, &q);
		take_fifth(x + 2 + 2 * h, &fifth);
		q = (q | fifth) - 16;
		widen(&q, &u->q[h]);
	}
	u->d = lone_half(x);
}

FORM void
unpack_q5_1(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b * 24;

	for (int h = 0; h < 2; h++) {
		i8x16 q, fifth;

		take(x + 8, 4 * h, 15, &q);
		take_fifth(x + 4 + 2 * h, &fifth);
		q |= fifth;
		widen(&q, &u->q[h]);
	}
	scale_and_offset(x, u);
}

FORM void
unpack_q8_0(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b * 34;

	for (int h = 0; h < 2; h++) {
		i8x16 q;

		memcpy(&q, x + 2 + 16 * h, sizeof q);
		widen(&q, &u->q[h]);
	}
	u->d = lone_half(x);
}

FORM void
unpack_q2_k(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b / 8 * 84;
	const size_t g = b % 8;
	float v[2];

	halves_at(x + 80, v);
	u->d = v[0];
	for (size_t h = 0; h < 2; h++) {
		i8x16 q;

		take(x + 16 + 32 * (g / 4) + 16 * h, (int)(g % 4 * 2), 3, &q);
		widen(&q, &u->q[h]);
		u->q[h] *= (int16_t)(x[2 * g + h] & 15);
		u->m[h] = -(v[1] * (float)(x[2 * g + h] >> 4));
	}
}

FORM void
unpack_q3_k(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b / 8 * 110, *sc = x + 96;
	const size_t g = b % 8;

	for (size_t h = 0; h < 2; h++) {
		const size_t s = 2 * g + h;
		i8x16 q, high;

		take(x + 32 + 32 * (g / 4) + 16 * h, (int)(g % 4 * 2), 3, &q);
		take(x + 16 * h, (int)g, 1, &high);
		q += high * 4 - 4;
		widen(&q, &u->q[h]);
		u->q[h] *= (int16_t)(((sc[s % 8] >> 4 * (s / 8) & 15) | (sc[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32);
	}
	u->d = lone_half(x + 108);
}

/* Scale and minimum of group g of q4_k and q5_k. */
FORM void
scale_and_min(const uint8_t *x, size_t g, int *scale, int *min)
{
	if (g < 4) {
		*scale = x[g] & 63;
		*min = x[g + 4] & 63;
	} else {
		*scale = (x[g + 4] & 15) | x[g - 4] >> 6 << 4;
		*min = x[g + 4] >> 4 | x[g] >> 6 << 4;
	}
}

FORM void
unpack_q4_k(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b / 8 * 144;
	const size_t g = b % 8;
	float v[2];
	int s, m;

	scale_and_min(x + 4, g, &s, &m);
	for (size_t h = 0; h < 2; h++) {
		i8x16 q;

		take(x + 16 + 32 * (g / 2) + 16 * h, (int)(g % 2 * 4), 15, &q);
		widen(&q, &u->q[h]);
		u->q[h] *= (int16_t)s;
	}
	halves_at(x, v);
	u->d = v[0];
	u->m[0] = -(v[1] * (float)m);
}

FORM void
unpack_q5_k(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b / 8 * 176;
	const size_t g = b % 8;
	float v[2];
	int s, m;

	scale_and_min(x + 4, g, &s, &m);
	for (size_t h = 0; h < 2; h++) {
		i8x16 q, fifth;

		take(x + 48 + 32 * (g / 2) + 16 * h, (int)(g % 2 * 4), 15, &q);
		take(x + 16 + 16 * h, (int)g, 1, &fifth);
		q += fifth * 16;
		widen(&q, &u->q[h]);
		u->q[h] *= (int16_t)s;
	}
	halves_at(x, v);
	u->d = v[0];
	u->m[0] = -(v[1] * (float)m);
}

/* The largest integers of all types, 32 * 128: a sum of 32 products fits 32 bits with much to spare. */
FORM void
unpack_q6_k(const uint8_t *w, size_t b, struct block *u)
{
	const uint8_t *x = w + b / 8 * 210;
	const size_t g = b % 8;

	for (size_t h = 0; h < 2; h++) {
		i8x16 low, high;

		take(x + 64 * (g / 4) + 32 * (g % 2) + 16 * h, (int)(g % 4 / 2 * 4), 15, &low);
		take(x + 128 + 32 * (g / 4) + 16 * h, (int)(g % 4 * 2), 3, &high);
		low = low + high * 16 - 32;
		widen(&low, &u->q[h]);
		u->q[h] *= (int16_t)(int8_t)x[192 + 2 * g + h];
	}
	u->d = lone_half(x + 208);
}

struct output {
	const float *bias; /* of the weight's row, or NULL */
	int add;
	float *y;
	size_t ldy;
};

/* Rows i0 .. i0 + n - 1 of x, n constant where this is expanded. */
FORM void
dots_of(unpack_fn *unpack, const enum minima minima, const uint8_t *w, const struct cpu_dots_x *x, size_t i0,
    const int n, const struct output *o)
{
	f32x8 lanes[AT_ONCE] = { 0 };
	float low[AT_ONCE] = { 0 };

	for (size_t b = 0; b < x->blocks; b++) {
		struct block u;

		unpack(w, b, &u);
		for (int i = 0; i < n; i++) {
			const size_t at = (i0 + (size_t)i) * x->blocks + b;
			i32x8 sum;

			multiply32(u.q, x->q + at * 32, &sum);
			lanes[i] += __builtin_convertvector(sum, f32x8) * (u.d * x->scale[at]);
			if (minima == ONE)
				low[i] += u.m[0] * x->sum[at];
			else if (minima == TWO)
				low[i] += u.m[0] * x->half[at][0] + u.m[1] * x->half[at][1];
		}
	}
	for (int i = 0; i < n; i++) {
		float *y = o->y + (i0 + (size_t)i) * o->ldy;
		const float dot = minima == NONE ? vec_sum(&lanes[i]) : vec_sum(&lanes[i]) + low[i];
		const float v = o->add ? *y + dot : dot;

		*y = o->bias != NULL ? v + *o->bias : v;
	}
}

FORM void
dots(unpack_fn *unpack, const enum minima minima, const uint8_t *w, const struct cpu_dots_x *x, const struct output *o)
{
	size_t i = 0;

	for (; i + AT_ONCE <= x->n; i += AT_ONCE)
		dots_of(unpack, minima, w, x, i, AT_ONCE, o);
	for (; i < x->n; i++)
		dots_of(unpack, minima, w, x, i, 1, o);
}

#define DOTS_OF(type, minima)                                                                                          \
	DOTS_TARGET static void type(                                                                                  \
	    const uint8_t *w, const struct cpu_dots_x *x, const float *bias, int add, float *y, size_t ldy)            \
	{                                                                                                              \
		dots(unpack_##type, minima, w, x, &(struct output){ bias, add, y, ldy });                              \
	}
DOTS_OF(q4_0, NONE)
DOTS_OF(q4_1, ONE)
DOTS_OF(q5_0, NONE)
DOTS_OF(q5_1, ONE)
DOTS_OF(q8_0, NONE)
DOTS_OF(q2_k, TWO)
DOTS_OF(q3_k, NONE)
DOTS_OF(q4_k, ONE)
DOTS_OF(q5_k, ONE)
DOTS_OF(q6_k, NONE)

cpu_dots_fn *const DOTS[KVK_N_TYPES] = {
	[KVK_Q4_0] = q4_0,
	[KVK_Q4_1] = q4_1,
	[KVK_Q5_0] = q5_0,
	[KVK_Q5_1] = q5_1,
	[KVK_Q8_0] = q8_0,
	[KVK_Q2_K] = q2_k,
	[KVK_Q3_K] = q3_k,
	[KVK_Q4_K] = q4_k,
	[KVK_Q5_K] = q5_k,
	[KVK_Q6_K] = q6_k,
};
