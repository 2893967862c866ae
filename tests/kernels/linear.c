/* SPDX-License-Identifier: MIT
 * linear: against a naive double-precision loop, and the promises about rows, chunks and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

struct sizes {
	size_t rows, cols;
	enum kvk_type type;
	enum kvk_use use;
};

/* Bytes of a random matrix: plain types from random floats, block types by packing small scales and random integers. */
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
	for (size_t i = 0; i < bytes; i += t->bytes) { /* begin with a half float, q4_1 with two: 2^-7 .. 2^-5 */
		w[i + 1] = 0x20 | (w[i + 1] & 7);
		if (z->type == KVK_Q4_1)
			w[i + 3] = 0xa0 | (w[i + 3] & 7);
	}
	free(noise);
	return w;
}

/* w [rows][cols] as floats, by the operation `rows`, which has its own test. */
static float *
expanded(struct kvk_dev *dev, const struct kvk_weight *w, const struct sizes *z)
{
	int32_t *ids = test_alloc(z->rows, sizeof *ids);
	float *y = test_alloc(z->rows * z->cols, sizeof *y);

	for (size_t i = 0; i < z->rows; i++)
		ids[i] = (int32_t)i;
	assert_int_equal(kvk_cpu.rows(dev, w, ids, z->rows, y), 0);
	free(ids);
	return y;
}

static void
check(const struct sizes *z, const float *w, const float *x, size_t n, const float *bias, const float *before,
    const float *y)
{
	for (size_t i = 0; i < n; i++)
		for (size_t r = 0; r < z->rows; r++) {
			double sum = 0, size = 0;

			for (size_t j = 0; j < z->cols; j++) {
				sum += (double)x[i * z->cols + j] * (double)w[r * z->cols + j];
				size += fabs((double)x[i * z->cols + j] * (double)w[r * z->cols + j]);
			}
			sum += bias ? (double)bias[r] : 0;
			sum += before ? (double)before[i * z->rows + r] : 0;
			test_near("linear", y + i * z->rows + r, &sum, 1, (double)z->cols * 0x1p-23 * size + 1e-6, 0);
		}
}

/* y of n rows of x, starting from `before` where add is wanted. */
static float *
run(const struct sizes *z, const uint8_t *bytes, int threads, const float *x, size_t n, const float *bias,
    const float *before)
{
	struct kvk_dev *dev = test_dev(threads);
	struct kvk_weight *w;
	float *y = test_alloc(n * z->rows, sizeof *y);

	assert_int_equal(kvk_cpu.weight_open(dev, &w, bytes, z->type, z->rows, z->cols, z->use), 0);
	if (before != NULL && n > 0)
		memcpy(y, before, n * z->rows * sizeof *y);
	assert_int_equal(kvk_cpu.linear(dev, w, x, n, bias, before != NULL, y), 0);
	kvk_cpu.weight_close(dev, w);
	kvk_cpu.close(dev);
	return y;
}

static void
compare(const struct sizes *z, size_t n)
{
	struct kvk_dev *dev = test_dev(1);
	uint8_t *bytes = matrix(z);
	float *x = test_floats(n * z->cols, 1, 7), *bias = test_floats(z->rows, 1, 8);
	float *before = test_floats(n * z->rows, 1, 9), *w, *y;
	struct kvk_weight *weight;

	assert_int_equal(kvk_cpu.weight_open(dev, &weight, bytes, z->type, z->rows, z->cols, z->use), 0);
	w = expanded(dev, weight, z);
	for (int variant = 0; variant < 4; variant++) {
		const float *b = variant & 1 ? bias : NULL, *add = variant & 2 ? before : NULL;

		y = run(z, bytes, 1 + variant % 2, x, n, b, add);
		check(z, w, x, n, b, add, y);
		free(y);
	}
	kvk_cpu.weight_close(dev, weight);
	kvk_cpu.close(dev);
	free(bytes);
	free(x);
	free(bias);
	free(before);
	free(w);
}

static void
sizes_and_types(void **state)
{
	static const struct sizes table[] = {
		{ 1, 1, KVK_F32, KVK_MANY_ROWS },
		{ 5, 33, KVK_F32, KVK_MANY_ROWS },
		{ 33, 65, KVK_F16, KVK_MANY_ROWS },
		{ 130, 64, KVK_Q4_1, KVK_MANY_ROWS },
		{ 515, 32, KVK_Q8_0, KVK_MANY_ROWS },
		{ 31, 31, KVK_BF16, KVK_MANY_ROWS },
		{ 1, 1, KVK_F32, KVK_FEW_ROWS },
		{ 5, 33, KVK_F32, KVK_FEW_ROWS },
		{ 33, 65, KVK_F16, KVK_FEW_ROWS },
		{ 130, 64, KVK_Q4_1, KVK_FEW_ROWS },
		{ 66, 96, KVK_Q8_0, KVK_FEW_ROWS },
		{ 31, 31, KVK_BF16, KVK_FEW_ROWS },
	};
	static const size_t rows[] = { 0, 1, 2, 31, 33, 65 };

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
			compare(&table[i], rows[j]);
}

/* Rows 0 .. n-1 are the same bytes for every n and any number of threads; so are chunks of whole row tiles. */
static void
rows_stand_alone(const struct sizes *z, size_t most)
{
	uint8_t *bytes = matrix(z);
	float *x = test_floats(most * z->cols, 1, 10), *before = test_floats(most * z->rows, 1, 11), *all, *y;

	all = run(z, bytes, 2, x, most, NULL, before);
	for (size_t n = 1; n <= most; n += n < 5 ? 1 : 13) {
		y = run(z, bytes, 1, x, n, NULL, before);
		test_same("fewer rows", y, all, n * z->rows);
		free(y);
	}
	for (size_t i = 0; i < most; i += KVK_ROW_TILE) {
		const size_t n = most - i < KVK_ROW_TILE ? most - i : KVK_ROW_TILE;

		y = run(z, bytes, 1, x + i * z->cols, n, NULL, before + i * z->rows);
		test_same("a chunk", y, all + i * z->rows, n * z->rows);
		free(y);
	}
	free(bytes);
	free(x);
	free(before);
	free(all);
}

static void
independence(void **state)
{
	static const struct sizes table[] = {
		{ 192, 576, KVK_F32, KVK_MANY_ROWS },
		{ 576, 192, KVK_Q4_1, KVK_MANY_ROWS },
		{ 65, 1536, KVK_F16, KVK_MANY_ROWS },
		{ 192, 576, KVK_F32, KVK_FEW_ROWS },
		{ 65, 192, KVK_Q4_1, KVK_FEW_ROWS },
		{ 65, 100, KVK_F16, KVK_FEW_ROWS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		rows_stand_alone(&table[i], 200);
}

static void
unaligned(void **state)
{
	static const struct sizes even = { 7, 33, KVK_F32, KVK_FEW_ROWS };
	uint8_t *bytes = matrix(&even), *odd = test_alloc(7 * 33 * 4 + 1, 1);
	float *x = test_floats(3 * 33, 1, 12), *y, *z;

	(void)state;
	memcpy(odd + 1, bytes, 7 * 33 * 4);
	y = run(&even, bytes, 1, x, 3, NULL, NULL);
	z = run(&even, odd + 1, 1, x, 3, NULL, NULL);
	test_same("a matrix at an odd address", z, y, 3 * 7);
	free(bytes);
	free(odd);
	free(x);
	free(y);
	free(z);
}

static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	struct kvk_weight *w;
	uint8_t bytes[64] = { 0 };

	(void)state;
	assert_int_not_equal(kvk_cpu.weight_open(dev, &w, bytes, KVK_Q4_0, 1, 33, KVK_FEW_ROWS), 0);
	assert_null(w);
	assert_string_equal(kvk_cpu.error(dev), "weight_open: rows of 33 elements are no whole blocks of q4_0 (32 elements)");
	assert_int_not_equal(kvk_cpu.weight_open(dev, &w, bytes, KVK_I32, 1, 4, KVK_FEW_ROWS), 0);
	assert_int_not_equal(kvk_cpu.weight_open(dev, &w, bytes, KVK_F16, SIZE_MAX / 4, 16, KVK_MANY_ROWS), 0);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_types),
		cmocka_unit_test(independence),
		cmocka_unit_test(unaligned),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
