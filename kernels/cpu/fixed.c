/* SPDX-License-Identifier: MIT
 * Block fixed point in plain C: the definition, and what runs where nothing faster does. */
#include "kernels/cpu/fixed.h"

#include <math.h>
#include <string.h>

#define BLOCK CPU_FIXED_BLOCK
#define ROWS  CPU_FIXED_ROWS
#define COLS  CPU_FIXED_COLS

/* The largest magnitude of a block, as the bits of a float: NaN and infinity are above all others. */
static uint32_t
largest(const float *x)
{
	uint32_t top = 0;

	for (int i = 0; i < BLOCK; i++) {
		uint32_t u;

		memcpy(&u, x + i, sizeof u);
		u &= 0x7fffffff;
		top = u > top ? u : top;
	}
	return top;
}

static void
pack_block(const float *x, int16_t *q, float *scale)
{
	const float to_int = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, to nearest even */
	const uint32_t bits = largest(x);
	float top, f;

	memcpy(&top, &bits, sizeof top);
	if (bits >= 0x7f800000 || top < CPU_FIXED_LEAST) {
		*scale = bits >= 0x7f800000 ? NAN : 0;
		memset(q, 0, BLOCK * sizeof *q);
		return;
	}
	*scale = top / CPU_FIXED_TOP;
	f = CPU_FIXED_TOP / top;
	for (int i = 0; i < BLOCK; i++)
		q[i] = (int16_t)((x[i] * f + to_int) - to_int);
}

static void
pack(const float *x, size_t n, int16_t *q, float *scale)
{
	float rest[BLOCK] = { 0 };

	for (; n >= BLOCK; n -= BLOCK, x += BLOCK, q += BLOCK)
		pack_block(x, q, scale++);
	if (n == 0)
		return;
	memcpy(rest, x, n * sizeof *x);
	pack_block(rest, q, scale);
}

static void
pack_left(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_left *y)
{
	const size_t blocks = cpu_fixed_blocks(n);

	for (size_t b = 0; b < blocks; b++) {
		memset(&y[b], 0, sizeof y[b]);
		for (size_t i = 0; i < rows; i++)
			pack(x + i * ldx + b * BLOCK, n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK, y[b].q[i],
			    &y[b].scale[i]);
	}
}

static void
pack_right(const float *x, size_t ldx, size_t rows, size_t n, struct cpu_fixed_right *y)
{
	const size_t blocks = cpu_fixed_blocks(n);

	for (size_t b = 0; b < blocks; b++) {
		memset(&y[b], 0, sizeof y[b]);
		for (size_t j = 0; j < rows; j++) {
			int16_t q[BLOCK] = { 0 };

			pack(x + j * ldx + b * BLOCK, n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK, q, &y[b].scale[j]);
			for (size_t p = 0; p < BLOCK / 2; p++)
				memcpy(y[b].q[p][j], q + 2 * p, 2 * sizeof *q);
		}
	}
}

static void
multiply(const struct cpu_fixed_left *a, const struct cpu_fixed_right *b, size_t n, size_t rows, float *c)
{
	for (; n > 0; n--, a++, b++)
		for (size_t i = 0; i < rows; i++) {
			int32_t sum[COLS] = { 0 };

			for (int p = 0; p < BLOCK / 2; p++)
				for (int j = 0; j < COLS; j++)
					sum[j] += a->q[i][2 * p] * b->q[p][j][0] + a->q[i][2 * p + 1] * b->q[p][j][1];
			for (int j = 0; j < COLS; j++)
				c[i * COLS + (size_t)j] += (float)sum[j] * (a->scale[i] * b->scale[j]);
		}
}

static bool
works(void)
{
	return true;
}

const struct cpu_fixed_ops cpu_fixed_portable = {
	.name = "portable",
	.works = works,
	.pack = pack,
	.pack_left = pack_left,
	.pack_right = pack_right,
	.multiply = multiply,
};

const struct cpu_fixed_ops *const cpu_fixed_all[] = {
#ifdef __x86_64__
	&cpu_fixed_avx512,
	&cpu_fixed_avx2,
#endif
	&cpu_fixed_portable,
	NULL,
};

const struct cpu_fixed_ops *
cpu_fixed_best(void)
{
	const struct cpu_fixed_ops *const *o = cpu_fixed_all;

	while (!(*o)->works())
		o++;
	return *o;
}
