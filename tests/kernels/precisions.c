/* SPDX-License-Identifier: MIT
 * linear at precisions i16 and bf16: every type of weight against double precision within the bound of
 * kernels/backend.h, rows that stand alone, rows that are not finite, and the same bits from every instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/dots.h"
#include "kernels/cpu/fixed.h"
#include "tests/lib/kernels.h"

struct sizes {
	size_t rows, cols;
	enum kvk_type type;
	enum kvk_use use;
	enum kvk_precision precision;
};

/* Where a block of each type has its half floats: scales get 2^-7 .. 2^-5, minima either sign. */
static const struct {
	int scale, min; /* -1: none */
} halves[KVK_N_TYPES] = {
	[KVK_Q4_0] = { 0, -1 },
	[KVK_Q4_1] = { 0, 2 },
	[KVK_Q5_0] = { 0, -1 },
	[KVK_Q5_1] = { 0, 2 },
	[KVK_Q8_0] = { 0, -1 },
	[KVK_Q2_K] = { 80, 82 },
	[KVK_Q3_K] = { 108, -1 },
	[KVK_Q4_K] = { 0, 2 },
	[KVK_Q5_K] = { 0, 2 },
	[KVK_Q6_K] = { 208, -1 },
};

static uint8_t *
matrix(const struct sizes *z)
{
	const struct kvk_type_info *t = &kvk_types[z->type];
	const size_t n = z->rows * z->cols, bytes = n / t->block * t->bytes;
	double *values;
	uint8_t *w;
	float *noise;

	if (t->block == 1) {
		w = test_typed(n, 1, 5, z->type, &values);
		free(values);
		return w;
	}
	w = test_alloc(bytes, 1);
	noise = test_floats(bytes, 128, 6);
	for (size_t i = 0; i < bytes; i++)
		w[i] = (uint8_t)(int)(noise[i] + 128);
	for (size_t i = 0; i < bytes; i += t->bytes) {
		uint8_t *high = w + i + halves[z->type].scale + 1;

		*high = 0x20 | (*high & 7);
		if (halves[z->type].min >= 0) {
			high = w + i + halves[z->type].min + 1;
			*high = 0x20 | (*high & 0x87);
		}
	}
	free(noise);
	return w;
}

struct open {
	struct kvk_dev *dev;
	struct kvk_weight *w;
};

static struct open
open_weight(const struct sizes *z, const uint8_t *bytes, int threads)
{
	struct open o = { test_dev_of(threads, z->precision), NULL };

	assert_int_equal(kvk_cpu.weight_open(o.dev, &o.w, bytes, z->type, z->rows, z->cols, z->use), 0);
	return o;
}

static void
close_weight(struct open *o)
{
	kvk_cpu.weight_close(o->dev, o->w);
	kvk_cpu.close(o->dev);
}

/* y of n rows of x, starting from `before` where that is given. */
static float *
run(const struct sizes *z, const uint8_t *bytes, int threads, const float *x, size_t n, const float *bias,
    const float *before)
{
	struct open o = open_weight(z, bytes, threads);
	float *y = test_alloc(n * z->rows, sizeof *y);

	if (before != NULL)
		memcpy(y, before, n * z->rows * sizeof *y);
	assert_int_equal(kvk_cpu.linear(o.dev, o.w, x, n, bias, before != NULL, y), 0);
	close_weight(&o);
	return y;
}

static float *
expanded(const struct sizes *z, const uint8_t *bytes)
{
	struct open o = open_weight(z, bytes, 1);
	int32_t *ids = test_alloc(z->rows, sizeof *ids);
	float *w = test_alloc(z->rows * z->cols, sizeof *w);

	for (size_t i = 0; i < z->rows; i++)
		ids[i] = (int32_t)i;
	assert_int_equal(kvk_cpu.rows(o.dev, o.w, ids, z->rows, w), 0);
	free(ids);
	close_weight(&o);
	return w;
}

/* sum_l |x||w|, and the same with the largest of 32 neighbours in every factor's place. */
static void
sizes_of(const float *x, const float *w, size_t n, double *plain, double *coarse)
{
	*plain = *coarse = 0;
	for (size_t b = 0; b < n; b += 32) {
		const size_t m = n - b < 32 ? n - b : 32;
		double top_x = 0, top_w = 0;

		for (size_t l = b; l < b + m; l++) {
			*plain += fabs((double)x[l] * (double)w[l]);
			top_x = fmax(top_x, fabs((double)x[l]));
			top_w = fmax(top_w, fabs((double)w[l]));
		}
		*coarse += (double)m * top_x * top_w;
	}
}

static void
check(const struct sizes *z, const float *w, const float *x, size_t n, const float *bias, const float *before,
    const float *y)
{
	for (size_t i = 0; i < n; i++)
		for (size_t r = 0; r < z->rows; r++) {
			double sum = bias ? (double)bias[r] : 0, plain, coarse;

			sum += before ? (double)before[i * z->rows + r] : 0;
			for (size_t l = 0; l < z->cols; l++)
				sum += (double)x[i * z->cols + l] * (double)w[r * z->cols + l];
			sizes_of(x + i * z->cols, w + r * z->cols, z->cols, &plain, &coarse);
			test_near(kvk_types[z->type].name, y + i * z->rows + r, &sum, 1,
			    (double)z->cols * 0x1p-23 * plain +
				(z->precision == KVK_PRECISION_I16 ? 0x1.01p-13 * coarse : 0x1p-7 * plain) + 1e-6,
			    0);
		}
}

static void
compare(const struct sizes *z, size_t n, int variant)
{
	uint8_t *bytes = matrix(z);
	float *x = test_floats(n * z->cols, 1, 7), *bias = test_floats(z->rows, 1, 8);
	float *before = test_floats(n * z->rows, 1, 9), *w = expanded(z, bytes), *y;
	const float *b = variant & 1 ? bias : NULL, *add = variant & 2 ? before : NULL;

	y = run(z, bytes, 1 + variant % 2, x, n, b, add);
	check(z, w, x, n, b, add, y);
	free(y);
	free(bytes);
	free(x);
	free(bias);
	free(before);
	free(w);
}

static void
odd_sizes(void **state)
{
	static const size_t lengths[] = { 1, 31, 32, 33, 63, 64, 65, 172, 576 };
	static const size_t rows[] = { 1, 15, 16, 17, 33, 130 };

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
			for (int use = 0; use < 2; use++) {
				const struct sizes z = { rows[j], lengths[i],
					(enum kvk_type[]){ KVK_F32, KVK_F16, KVK_BF16 }[j % 3],
					use ? KVK_FEW_ROWS : KVK_MANY_ROWS, KVK_PRECISION_I16 };

				compare(&z, 1 + (i * 5 + j * 7) % 70, (int)(i + j) % 4);
			}
}

static void
every_type(void **state)
{
	static const size_t n[] = { 1, 2, 3, 4, 5, 6, 7, 8, 33, 70 };

	(void)state;
	for (size_t t = 0; t < KVK_N_TYPES; t++) {
		if (kvk_types[t].integer)
			continue;
		for (size_t i = 0; i < sizeof n / sizeof *n; i++)
			for (int use = 0; use < 2; use++) {
				const struct sizes z = { 21, 512, (enum kvk_type)t, use ? KVK_FEW_ROWS : KVK_MANY_ROWS,
					i % 5 == 4 ? KVK_PRECISION_BF16 : KVK_PRECISION_I16 };

				compare(&z, n[i], (int)(i + t) % 4);
			}
	}
}

/* The nearest bf16: eight bits, ties to even. */
static float
rounded(float x)
{
	int e;
	const double m = frexp((double)x, &e);

	return (float)ldexp(nearbyint(ldexp(m, 8)), e - 8);
}

/* Both factors are rounded to bf16, and nothing else is: the same bits as f32 products of factors rounded before. */
static void
bf16_is_exact(void **state)
{
	(void)state;
	for (int use = 0; use < 2; use++) {
		const struct sizes f16 = { 37, 100, KVK_F16, use ? KVK_FEW_ROWS : KVK_MANY_ROWS, KVK_PRECISION_BF16 };
		const struct sizes f32 = { 37, 100, KVK_F32, use ? KVK_FEW_ROWS : KVK_MANY_ROWS, KVK_PRECISION_F32 };
		uint8_t *bytes = matrix(&f16);
		float *w = expanded(&f16, bytes), *x = test_floats(70 * 100, 1, 17),
		      *y = run(&f16, bytes, 2, x, 70, NULL, NULL);
		float *z;

		for (size_t i = 0; i < 37 * 100; i++)
			w[i] = rounded(w[i]);
		for (size_t i = 0; i < 70 * 100; i++)
			x[i] = rounded(x[i]);
		z = run(&f32, (const uint8_t *)w, 1, x, 70, NULL, NULL);
		test_same("bf16", y, z, 70 * 37);
		free(bytes);
		free(w);
		free(x);
		free(y);
		free(z);
	}
}

/* Row i is the same for every number of rows, place and number of threads. */
static void
rows_stand_alone(void **state)
{
	static const struct sizes table[] = {
		{ 200, 576, KVK_Q4_1, KVK_MANY_ROWS, KVK_PRECISION_I16 },
		{ 65, 192, KVK_F32, KVK_MANY_ROWS, KVK_PRECISION_I16 },
		{ 300, 576, KVK_Q4_1, KVK_FEW_ROWS, KVK_PRECISION_I16 },
		{ 65, 512, KVK_Q2_K, KVK_FEW_ROWS, KVK_PRECISION_I16 },
		{ 65, 64, KVK_F16, KVK_FEW_ROWS, KVK_PRECISION_I16 },
		{ 65, 64, KVK_F16, KVK_FEW_ROWS, KVK_PRECISION_BF16 },
		{ 65, 64, KVK_Q8_0, KVK_MANY_ROWS, KVK_PRECISION_BF16 },
	};

	(void)state;
	for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
		const struct sizes *z = &table[t];
		const size_t most = 140, step = z->precision == KVK_PRECISION_BF16 ? KVK_ROW_TILE : 1;
		uint8_t *bytes = matrix(z);
		float *x = test_floats(most * z->cols, 1, 10), *before = test_floats(most * z->rows, 1, 11), *y;
		float *all = run(z, bytes, 2, x, most, NULL, before);

		for (size_t n = 1; n <= most; n += n < 8 ? 1 : 33) {
			const size_t i = (most - n) / 2 / step * step;

			y = run(z, bytes, 1 + (int)n % 2, x + i * z->cols, n, NULL, before + i * z->rows);
			test_same("some rows", y, all + i * z->rows, n * z->rows);
			free(y);
		}
		free(bytes);
		free(x);
		free(before);
		free(all);
	}
}

/* A row with a NaN or an infinity comes out as nothing finite, the others as without it. */
static void
not_finite(void **state)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY };
	const size_t n = 9;

	(void)state;
	for (int k = 0; k < 3; k++)
		for (int use = 0; use < 2; use++) {
			const struct sizes z = { 33, 96, KVK_Q4_1, use ? KVK_FEW_ROWS : KVK_MANY_ROWS,
				KVK_PRECISION_I16 };
			uint8_t *bytes = matrix(&z);
			float *x = test_floats(n * z.cols, 1, 12), *good = run(&z, bytes, 1, x, n, NULL, NULL), *y;

			x[4 * z.cols + 50] = odd[k];
			y = run(&z, bytes, 1, x, n, NULL, NULL);
			test_same("rows before", y, good, 4 * z.rows);
			test_same("rows behind", y + 5 * z.rows, good + 5 * z.rows, 4 * z.rows);
			for (size_t r = 0; r < z.rows; r++)
				assert_false(isfinite(y[4 * z.rows + r]));
			free(bytes);
			free(x);
			free(good);
			free(y);
		}
}

/* Quantised weights times fixed-point rows: portable C and the instruction sets of this processor. */
static void
same_dots(void **state)
{
	enum { N = 7, BLOCKS = 16, ROWS = 5 };
	float *noise = test_floats(N * BLOCKS * 32, 8191, 13), *scale = test_floats(N * BLOCKS, 1, 14);
	float *sum = test_floats(N * BLOCKS, 1, 15), *half = test_floats(2 * N * BLOCKS, 1, 16);
	int16_t q[N * BLOCKS * 32];
	const struct cpu_dots_x x = { N, BLOCKS, q, scale, sum, (float(*)[2])half };

	(void)state;
	for (size_t i = 0; i < N * BLOCKS * 32; i++)
		q[i] = (int16_t)noise[i];
	for (size_t t = 0; t < KVK_N_TYPES; t++) {
		const struct sizes z = { ROWS, BLOCKS * 32, (enum kvk_type)t, KVK_FEW_ROWS, KVK_PRECISION_I16 };
		const size_t row_bytes = z.cols / kvk_types[t].block * kvk_types[t].bytes;
		float want[N * ROWS], got[N * ROWS];
		uint8_t *bytes;

		if (cpu_dots_portable[t] == NULL)
			continue;
		bytes = matrix(&z);
		for (size_t r = 0; r < ROWS; r++) {
			cpu_dots_portable[t](bytes + r * row_bytes, &x, NULL, 0, want + r, ROWS);
			cpu_dots_best()[t](bytes + r * row_bytes, &x, NULL, 0, got + r, ROWS);
		}
		test_same(kvk_types[t].name, got, want, N * ROWS);
		free(bytes);
	}
	free(noise);
	free(scale);
	free(sum);
	free(half);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(odd_sizes),
		cmocka_unit_test(every_type),
		cmocka_unit_test(bf16_is_exact),
		cmocka_unit_test(rows_stand_alone),
		cmocka_unit_test(not_finite),
		cmocka_unit_test(same_dots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
