/* SPDX-License-Identifier: MIT
 * Block layouts: formats/GGUF.md.
 */
#include "tests/lib/quantise.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/tensor.h"

static uint16_t
to_f16(double x)
{
	double a = fabs(x);
	unsigned sign = signbit(x) ? 0x8000 : 0;
	int exponent;

	if (isnan(x))
		return 0x7e00;
	if (a >= 65520)
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x1p-14) /* subnormal: steps of 2^-24 */
		return (uint16_t)(sign | (unsigned)nearbyint(a * 0x1p24));
	a = frexp(a, &exponent); /* 0.5 <= a < 1; rounding up to 1 carries into the exponent */
	return (uint16_t)(sign | (((unsigned)(exponent + 14) << 10) + (unsigned)nearbyint(a * 2048) - 1024));
}

static uint16_t
to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 64);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void
put_f16(uint8_t *p, double x)
{
	uint16_t h = to_f16(x);

	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

static double
get_f16(const uint8_t *p)
{
	return kv_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static unsigned
step(double x, double scale, unsigned top)
{
	double q = scale != 0 ? nearbyint(x / scale) : 0;

	return q <= 0 ? 0 : q >= top ? top : (unsigned)q;
}

static void
range(const float *x, size_t n, double *low, double *high)
{
	*low = *high = x[0];
	for (size_t i = 1; i < n; i++) {
		*low = fmin(*low, x[i]);
		*high = fmax(*high, x[i]);
	}
}

static double
largest(const float *x, size_t n)
{
	double low, high;

	range(x, n, &low, &high);
	return fmax(-low, high);
}

/* ---- blocks of 32: q4_0 q4_1 q5_0 q5_1 q8_0 ----
 * Elements 0..15 in the low nibbles, 16..31 in the high ones; fifth bits in 4 bytes, element i in bit i. */

static void
put_nibbles(uint8_t *p, uint8_t *fifth, const unsigned *q)
{
	for (int i = 0; i < 16; i++)
		p[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
	for (int i = 0; i < 32 && fifth != NULL; i++)
		fifth[i / 8] = (uint8_t)(fifth[i / 8] | (q[i] >> 4) << i % 8);
}

static void
get_nibbles(const uint8_t *p, const uint8_t *fifth, unsigned *q)
{
	for (int i = 0; i < 32; i++) {
		q[i] = i < 16 ? p[i] & 15u : p[i - 16] >> 4;
		if (fifth != NULL)
			q[i] |= (fifth[i / 8] >> i % 8 & 1u) << 4;
	}
}

static void
put_small(const float *x, uint8_t *p, unsigned bits, bool with_min)
{
	unsigned q[32], top = (1u << bits) - 1;
	uint8_t *at = p + (with_min ? 4 : 2), *fifth = bits == 5 ? at : NULL;
	double low, high, d;

	range(x, 32, &low, &high);
	d = with_min ? (high - low) / top : fmax(-low, high) / (top / 2); /* without: symmetric about the middle step */
	put_f16(p, d);
	d = get_f16(p);
	if (with_min) {
		put_f16(p + 2, low);
		low = get_f16(p + 2);
	} else {
		low = -d * (top / 2 + 1);
	}
	for (int i = 0; i < 32; i++)
		q[i] = step(x[i] - low, d, top);
	put_nibbles(at + (fifth ? 4 : 0), fifth, q);
}

static void
get_small(const uint8_t *p, float *y, unsigned bits, bool with_min)
{
	const uint8_t *at = p + (with_min ? 4 : 2), *fifth = bits == 5 ? at : NULL;
	double d = get_f16(p), low = with_min ? get_f16(p + 2) : -d * (1 << (bits - 1));
	unsigned q[32];

	get_nibbles(at + (fifth ? 4 : 0), fifth, q);
	for (int i = 0; i < 32; i++)
		y[i] = (float)(low + d * q[i]);
}

static void
put_q8_0(const float *x, uint8_t *p)
{
	double d;

	put_f16(p, largest(x, 32) / 127);
	d = get_f16(p);
	for (int i = 0; i < 32; i++)
		p[2 + i] = (uint8_t)(int8_t)((int)step(x[i] + 127 * d, d, 254) - 127);
}

static void
get_q8_0(const uint8_t *p, float *y)
{
	for (int i = 0; i < 32; i++)
		y[i] = (float)(get_f16(p) * (int8_t)p[2 + i]);
}

/* ---- blocks of 256 ---- */

/* Where two-bit parts of element i are: byte and shift (q2_k, q3_k). */
static unsigned
two_bit_byte(int i)
{
	return (unsigned)(i / 128 * 32 + i % 32);
}

static unsigned
two_bit_shift(int i)
{
	return (unsigned)(i % 128 / 32 * 2);
}

/* Scale and lift of sub-blocks of `size` elements, x ~ scale * q - lift, both >= 0. */
static void
sub_blocks(const float *x, int n, int size, unsigned top, double *scale, double *lift)
{
	for (int b = 0; b < n; b++) {
		double low, high;

		range(x + b * size, (size_t)size, &low, &high);
		low = fmin(low, 0);
		scale[b] = fmax(high - low, 0) / top;
		lift[b] = -low;
	}
}

/* 84 bytes: scales[16] (scale | lift << 4), two-bit values[64], d, dmin. */
static void
put_q2_k(const float *x, uint8_t *p)
{
	double scale[16], lift[16], d = 0, dmin = 0;

	sub_blocks(x, 16, 16, 3, scale, lift);
	for (int b = 0; b < 16; b++) {
		d = fmax(d, scale[b]);
		dmin = fmax(dmin, lift[b]);
	}
	put_f16(p + 80, d / 15);
	put_f16(p + 82, dmin / 15);
	d = get_f16(p + 80);
	dmin = get_f16(p + 82);
	for (int b = 0; b < 16; b++)
		p[b] = (uint8_t)(step(scale[b], d, 15) | step(lift[b], dmin, 15) << 4);
	for (int i = 0; i < 256; i++)
		p[16 + two_bit_byte(i)] =
		    (uint8_t)(p[16 + two_bit_byte(i)] | step(x[i] + dmin * (p[i / 16] >> 4), d * (p[i / 16] & 15), 3)
							    << two_bit_shift(i));
}

static void
get_q2_k(const uint8_t *p, float *y)
{
	double d = get_f16(p + 80), dmin = get_f16(p + 82);

	for (int i = 0; i < 256; i++) {
		unsigned q = p[16 + two_bit_byte(i)] >> two_bit_shift(i) & 3;

		y[i] = (float)(d * (p[i / 16] & 15) * q - dmin * (p[i / 16] >> 4));
	}
}

/* The 6-bit scales of q3_k, 16 in 12 bytes: four bits of scale b in byte b % 8, two bits in byte 8 + b % 4. */
static unsigned
q3_scale(const uint8_t *s, int b)
{
	return (s[b % 8] >> b / 8 * 4 & 15u) | (s[8 + b % 4] >> b / 4 * 2 & 3u) << 4;
}

static void
set_q3_scale(uint8_t *s, int b, unsigned v)
{
	s[b % 8] = (uint8_t)(s[b % 8] | (v & 15) << b / 8 * 4);
	s[8 + b % 4] = (uint8_t)(s[8 + b % 4] | v >> 4 << b / 4 * 2);
}

/* 110 bytes: third bits[32] (element i in bit i / 32 of byte i % 32), two-bit values[64], scales[12], d.
 * x = d * (scale - 32) * (q - 4). */
static void
put_q3_k(const float *x, uint8_t *p)
{
	double d, sub;

	put_f16(p + 108, largest(x, 256) / 3 / 31);
	d = get_f16(p + 108);
	for (int b = 0; b < 16; b++)
		set_q3_scale(p + 96, b, 32 + step(largest(x + 16 * b, 16) / 3, d, 31));
	for (int i = 0; i < 256; i++) {
		unsigned q;

		sub = d * ((int)q3_scale(p + 96, i / 16) - 32);
		q = sub != 0 ? step(x[i] + 4 * sub, sub, 7) : 4;
		p[32 + two_bit_byte(i)] = (uint8_t)(p[32 + two_bit_byte(i)] | (q & 3) << two_bit_shift(i));
		p[i % 32] = (uint8_t)(p[i % 32] | q >> 2 << i / 32);
	}
}

static void
get_q3_k(const uint8_t *p, float *y)
{
	for (int i = 0; i < 256; i++) {
		unsigned q = (p[32 + two_bit_byte(i)] >> two_bit_shift(i) & 3u) | (p[i % 32] >> i / 32 & 1u) << 2;

		y[i] = (float)(get_f16(p + 108) * ((int)q3_scale(p + 96, i / 16) - 32) * ((int)q - 4));
	}
}

/* The 6-bit scales and lifts of q4_k and q5_k, 8 of each in 12 bytes: the first four of each in the low six bits of
 * bytes 0..3 and 4..7; of the others, low nibbles side by side in bytes 8..11, upper two bits on top of bytes 0..3
 * and 4..7. */
static void
k_scale(const uint8_t *s, int b, unsigned *scale, unsigned *lift)
{
	if (b < 4) {
		*scale = s[b] & 63u;
		*lift = s[b + 4] & 63u;
	} else {
		*scale = (s[b + 4] & 15u) | (s[b - 4] >> 6) << 4;
		*lift = s[b + 4] >> 4 | (s[b] >> 6) << 4;
	}
}

static void
set_k_scale(uint8_t *s, int b, unsigned scale, unsigned lift)
{
	if (b < 4) {
		s[b] = (uint8_t)(s[b] | scale);
		s[b + 4] = (uint8_t)(s[b + 4] | lift);
	} else {
		s[b + 4] = (uint8_t)((scale & 15) | (lift & 15) << 4);
		s[b - 4] = (uint8_t)(s[b - 4] | scale >> 4 << 6);
		s[b] = (uint8_t)(s[b] | lift >> 4 << 6);
	}
}

/* d, dmin, scales[12], for q5_k fifth bits[32] (element i in bit i / 32 of byte i % 32), nibbles[128]: element i in
 * byte i / 64 * 32 + i % 32, in the upper nibble if i / 32 is odd. */
static void
put_k(const float *x, uint8_t *p, unsigned bits)
{
	uint8_t *fifth = p + 16, *nibbles = p + (bits == 5 ? 48 : 16);
	double scale[8], lift[8], d = 0, dmin = 0;
	unsigned sc, m, q, top = (1u << bits) - 1;

	sub_blocks(x, 8, 32, top, scale, lift);
	for (int b = 0; b < 8; b++) {
		d = fmax(d, scale[b]);
		dmin = fmax(dmin, lift[b]);
	}
	put_f16(p, d / 63);
	put_f16(p + 2, dmin / 63);
	d = get_f16(p);
	dmin = get_f16(p + 2);
	for (int b = 0; b < 8; b++)
		set_k_scale(p + 4, b, step(scale[b], d, 63), step(lift[b], dmin, 63));
	for (int i = 0; i < 256; i++) {
		uint8_t *n = &nibbles[i / 64 * 32 + i % 32];

		k_scale(p + 4, i / 32, &sc, &m);
		q = step(x[i] + dmin * m, d * sc, top);
		*n = (uint8_t)(*n | (q & 15) << (i / 32 % 2 ? 4 : 0));
		if (bits == 5)
			fifth[i % 32] = (uint8_t)(fifth[i % 32] | q >> 4 << i / 32);
	}
}

static void
get_k(const uint8_t *p, float *y, unsigned bits)
{
	const uint8_t *fifth = p + 16, *nibbles = p + (bits == 5 ? 48 : 16);
	unsigned sc, m, q;

	for (int i = 0; i < 256; i++) {
		k_scale(p + 4, i / 32, &sc, &m);
		q = nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 ? 4 : 0) & 15u;
		if (bits == 5)
			q |= (fifth[i % 32] >> i / 32 & 1u) << 4;
		y[i] = (float)(get_f16(p) * sc * q - get_f16(p + 2) * m);
	}
}

/* 210 bytes: low nibbles[128] (element i in byte i / 128 * 64 + i % 64, upper nibble if i % 128 >= 64), upper two
 * bits[64] (byte i / 128 * 32 + i % 32, shift i % 128 / 32 * 2), signed scales[16] of 16 elements, d.  x = d * scale *
 * (q - 32). */
static void
put_q6_k(const float *x, uint8_t *p)
{
	double d, sub;

	put_f16(p + 208, largest(x, 256) / 31 / 127);
	d = get_f16(p + 208);
	for (int b = 0; b < 16; b++)
		p[192 + b] = (uint8_t)step(largest(x + 16 * b, 16) / 31, d, 127);
	for (int i = 0; i < 256; i++) {
		uint8_t *low = &p[i / 128 * 64 + i % 64], *high = &p[128 + two_bit_byte(i)];
		unsigned q;

		sub = d * p[192 + i / 16];
		q = sub != 0 ? step(x[i] + 32 * sub, sub, 63) : 32;
		*low = (uint8_t)(*low | (q & 15) << (i % 128 >= 64 ? 4 : 0));
		*high = (uint8_t)(*high | q >> 4 << two_bit_shift(i));
	}
}

static void
get_q6_k(const uint8_t *p, float *y)
{
	for (int i = 0; i < 256; i++) {
		unsigned q = p[i / 128 * 64 + i % 64] >> (i % 128 >= 64 ? 4 : 0) & 15u;

		q |= (p[128 + two_bit_byte(i)] >> two_bit_shift(i) & 3u) << 4;
		y[i] = (float)(get_f16(p + 208) * (int8_t)p[192 + i / 16] * ((int)q - 32));
	}
}

static void
put_block(enum kvk_type type, const float *x, uint8_t *p)
{
	memset(p, 0, kvk_types[type].bytes);
	switch (type) {
	case KVK_F16: put_f16(p, *x); break;
	case KVK_BF16: memcpy(p, &(uint16_t){ to_bf16(*x) }, 2); break;
	case KVK_Q4_0: put_small(x, p, 4, false); break;
	case KVK_Q4_1: put_small(x, p, 4, true); break;
	case KVK_Q5_0: put_small(x, p, 5, false); break;
	case KVK_Q5_1: put_small(x, p, 5, true); break;
	case KVK_Q8_0: put_q8_0(x, p); break;
	case KVK_Q2_K: put_q2_k(x, p); break;
	case KVK_Q3_K: put_q3_k(x, p); break;
	case KVK_Q4_K: put_k(x, p, 4); break;
	case KVK_Q5_K: put_k(x, p, 5); break;
	case KVK_Q6_K: put_q6_k(x, p); break;
	default: memcpy(p, x, sizeof *x); break;
	}
}

static void
get_block(enum kvk_type type, const uint8_t *p, float *y)
{
	uint16_t h;

	switch (type) {
	case KVK_F16: *y = (float)get_f16(p); break;
	case KVK_BF16:
		memcpy(&h, p, sizeof h);
		*y = kv_bf16_to_f32(h);
		break;
	case KVK_Q4_0: get_small(p, y, 4, false); break;
	case KVK_Q4_1: get_small(p, y, 4, true); break;
	case KVK_Q5_0: get_small(p, y, 5, false); break;
	case KVK_Q5_1: get_small(p, y, 5, true); break;
	case KVK_Q8_0: get_q8_0(p, y); break;
	case KVK_Q2_K: get_q2_k(p, y); break;
	case KVK_Q3_K: get_q3_k(p, y); break;
	case KVK_Q4_K: get_k(p, y, 4); break;
	case KVK_Q5_K: get_k(p, y, 5); break;
	case KVK_Q6_K: get_q6_k(p, y); break;
	default: memcpy(y, p, sizeof *y); break;
	}
}

void
quantise(enum kvk_type type, const float *x, size_t n, void *out)
{
	for (size_t b = 0; b < n / kvk_types[type].block; b++)
		put_block(type, x + b * kvk_types[type].block, (uint8_t *)out + b * kvk_types[type].bytes);
}

void
dequantise(enum kvk_type type, const void *in, size_t n, float *y)
{
	for (size_t b = 0; b < n / kvk_types[type].block; b++)
		get_block(type, (const uint8_t *)in + b * kvk_types[type].bytes, y + b * kvk_types[type].block);
}

double
quantise_error(enum kvk_type type, double bound)
{
	/* Half a step of the worst block, as a share of the range, plus what rounding the scales adds. */
	static const double share[KVK_N_TYPES] = {
		[KVK_F32] = 0,
		[KVK_F16] = 0x1p-11,
		[KVK_BF16] = 0x1p-8,
		[KVK_Q4_0] = 0.075,
		[KVK_Q4_1] = 0.07,
		[KVK_Q5_0] = 0.036,
		[KVK_Q5_1] = 0.034,
		[KVK_Q8_0] = 0.0045,
		[KVK_Q2_K] = 0.55,
		[KVK_Q3_K] = 0.25,
		[KVK_Q4_K] = 0.11,
		[KVK_Q5_K] = 0.07,
		[KVK_Q6_K] = 0.025,
	};

	return share[type] * bound;
}
