/* SPDX-License-Identifier: MIT
 * linear, linear_rows, linear_back and product on a device, against naive double-precision loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"
#include "tests/lib/quantise.h"

struct sizes {
	size_t rows, cols;
	enum kvk_type type;
	enum kvk_use use;
};

/* A random matrix as in a file, and its values. */
static uint8_t *
matrix(const struct sizes *z, float **values)
{
	const size_t n = z->rows * z->cols;
	uint8_t *w = test_alloc(n / kvk_types[z->type].block * kvk_types[z->type].bytes + 1, 1);

	*values = test_floats(n, 1, 5);
	quantise(z->type, *values, n, w);
	dequantise(z->type, w, n, *values);
	return w;
}

/* Every element within its bound: the f32 one, and what rounding both factors to bf16 adds. */
static void
check(const struct sizes *z, bool bf16, const float *w, const float *x, size_t n, const float *bias,
    const float *before, const float *y)
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
			test_near("linear", y + i * z->rows + r, &sum, 1,
			    ((double)z->cols * 0x1p-23 + (bf16 ? 0x1p-7 : 0)) * size + 1e-6, 0);
		}
}

static float *
run(struct pair *p, const struct sizes *z, const struct kvk_weight *w, const float *x, size_t n, const float *bias,
    const float *before)
{
	float *d_x = pair_put(p, x, n * z->cols * sizeof *x),
	      *d_y = pair_put(p, before, n * z->rows * sizeof *before), *d_bias = NULL, *y;

	if (bias != NULL)
		d_bias = pair_put(p, bias, z->rows * sizeof *bias);
	pair_ok(p, p->op->linear(p->dev, w, d_x, n, d_bias, before != NULL, d_y));
	y = pair_get(p, d_y, n * z->rows * sizeof *y);
	pair_free(p, d_x);
	pair_free(p, d_y);
	pair_free(p, d_bias);
	return y;
}

static void
compare(struct pair *p, const struct sizes *z, size_t n)
{
	const bool bf16 = p->op->precision(p->dev) == KVK_PRECISION_BF16;
	float *w, *y, *x = test_floats(n * z->cols, 1, 7), *bias = test_floats(z->rows, 1, 8);
	float *before = test_floats(n * z->rows, 1, 9);
	uint8_t *bytes = matrix(z, &w);
	struct kvk_weight *weight;

	pair_ok(p, p->op->weight_open(p->dev, &weight, bytes, z->type, z->rows, z->cols, z->use));
	for (int variant = 0; variant < 4; variant++) {
		const float *b = variant & 1 ? bias : NULL, *add = variant & 2 ? before : NULL;

		y = run(p, z, weight, x, n, b, add);
		check(z, bf16, w, x, n, b, add, y);
		free(y);
	}
	p->op->weight_close(p->dev, weight);
	free(bytes);
	free(x);
	free(bias);
	free(before);
	free(w);
}

static void
many_rows(struct pair *p)
{
	static const struct sizes table[] = {
		{ 1, 1, KVK_F32, KVK_MANY_ROWS },
		{ 5, 33, KVK_F32, KVK_MANY_ROWS },
		{ 33, 65, KVK_F16, KVK_MANY_ROWS },
		{ 130, 64, KVK_Q4_1, KVK_MANY_ROWS },
		{ 31, 31, KVK_BF16, KVK_MANY_ROWS },
		{ 7, 0, KVK_F32, KVK_MANY_ROWS },
	};
	static const size_t rows[] = { 0, 1, 2, 31, 65 };

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
			compare(p, &table[i], rows[j]);
}

/* All types one by one and by fours, and with so many rows that the matrix is expanded. */
static void
few_rows(struct pair *p)
{
	static const size_t rows[] = { 0, 1, 2, 3, 4, 7, 16, 17, 33 };

	for (int t = 0; t < KVK_N_TYPES; t++) {
		const struct sizes z = { 9, 768, (enum kvk_type)t, KVK_FEW_ROWS };
		const struct sizes odd = { 13, 555, (enum kvk_type)t, KVK_FEW_ROWS };

		if (kvk_types[t].integer)
			continue;
		compare(p, &z, 5);
		compare(p, &z, 18);
		for (size_t j = 0; j < sizeof rows / sizeof *rows && kvk_types[t].block == 1; j++)
			compare(p, &odd, rows[j]);
	}
}

static void
sizes_and_types(void **state)
{
	struct pair p;

	(void)state;
	for (int precision = 0; precision < 2; precision++) {
		pair_open(&p, precision ? KVK_PRECISION_BF16 : KVK_PRECISION_F32);
		many_rows(&p);
		few_rows(&p);
		pair_close(&p);
	}
}

/* Rows, columns and rows of x, each of any length. */
static void
lengths(void **state)
{
	static const size_t length[] = { 1, 26, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 256, 257 };
	static const size_t n[] = { 1, 4, 7, 17, 33 };
	enum { N = sizeof length / sizeof *length };

	(void)state;
	for (int precision = 0; precision < 2; precision++) {
		struct pair p;

		pair_open(&p, precision ? KVK_PRECISION_BF16 : KVK_PRECISION_F32);
		for (size_t i = 0; i < N; i++) {
			const size_t cols = length[i], rows = length[(i * 7 + 3) % N];
			const enum kvk_type type = i % 3 == 0 ? KVK_F32 : i % 3 == 1 ? KVK_F16 : KVK_BF16;
			const struct sizes few = { rows, cols, type, KVK_FEW_ROWS },
					   many = { rows, cols, type, KVK_MANY_ROWS };

			compare(&p, &few, n[i % 5]);
			compare(&p, &many, n[(i + 1) % 5]);
		}
		pair_close(&p);
	}
}

/* A row's bits do not depend on the rows beside it, while they are few; the same call gives the same bytes. */
static void
independence(void **state)
{
	static const struct sizes z[] = { { 70, 512, KVK_Q4_K, KVK_FEW_ROWS }, { 33, 100, KVK_F16, KVK_FEW_ROWS },
		{ 40, 64, KVK_Q4_1, KVK_MANY_ROWS } };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		float *w, *one, *all, *x = test_floats(9 * z[i].cols, 1, 7);
		uint8_t *bytes = matrix(&z[i], &w);
		struct kvk_weight *weight;
		struct pair p;

		pair_open(&p, KVK_PRECISION_F32);
		pair_ok(&p, p.op->weight_open(p.dev, &weight, bytes, z[i].type, z[i].rows, z[i].cols, z[i].use));
		all = run(&p, &z[i], weight, x, 9, NULL, NULL);
		for (size_t n = 1; n <= 9; n += z[i].use == KVK_FEW_ROWS ? 1 : 8) {
			one = run(&p, &z[i], weight, x, n, NULL, NULL);
			if (n == 9 || z[i].use == KVK_FEW_ROWS)
				test_same("linear", one, all, n * z[i].rows);
			free(one);
		}
		p.op->weight_close(p.dev, weight);
		pair_close(&p);
		free(all);
		free(x);
		free(w);
		free(bytes);
	}
}

/* ---- training */

static void
there_and_back(void **state)
{
	static const struct sizes z = { 37, 70, KVK_F16, KVK_MANY_ROWS };
	const size_t n = 9;
	float *w, *x = test_floats(n * z.cols, 1, 5), *dy = test_floats(n * z.rows, 1, 6), *y;
	double *want = test_alloc(n * z.cols, sizeof *want);
	uint8_t *bytes = matrix(&z, &w);
	struct kvk_weight *weight;
	float *d_x, *d_y;
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	pair_ok(&p, p.op->weight_open(p.dev, &weight, bytes, z.type, z.rows, z.cols, z.use));
	d_x = pair_put(&p, x, n * z.cols * sizeof *x);
	d_y = pair_put(&p, dy, n * z.rows * sizeof *dy);
	for (int add = 0; add < 2; add++) {
		for (size_t i = 0; i < n * z.cols; i++) {
			double sum = 0;

			for (size_t r = 0; r < z.rows; r++)
				sum += (double)dy[i / z.cols * z.rows + r] * (double)w[r * z.cols + i % z.cols];
			want[i] = add ? want[i] + sum : sum;
		}
		pair_ok(&p, p.op->linear_back(p.dev, weight, d_y, n, add, d_x));
		pair_near(&p, "linear_back", d_x, want, n * z.cols, 4e-5, 1e-6);
	}
	pair_ok(&p, p.op->put(p.dev, d_x, x, n * z.cols * sizeof *x));
	pair_ok(&p, p.op->linear_rows(p.dev, weight, d_x, n, NULL, 0, d_y));
	y = pair_get(&p, d_y, n * z.rows * sizeof *y);
	check(&z, false, w, x, n, NULL, NULL, y);
	p.op->weight_close(p.dev, weight);
	pair_ok(&p, p.op->weight_open(p.dev, &weight, bytes, z.type, z.rows, z.cols, KVK_FEW_ROWS));
	assert_int_not_equal(p.op->linear_back(p.dev, weight, d_y, n, 0, d_x), 0);
	assert_string_equal(
	    p.op->error(p.dev), "linear_back: the way back needs a weight opened for many rows in f32");
	assert_int_not_equal(p.op->linear_rows(p.dev, weight, d_x, n, NULL, 0, d_y), 0);
	assert_non_null(strstr(p.op->error(p.dev), "many rows in f32"));
	p.op->weight_close(p.dev, weight);
	pair_free(&p, d_x);
	pair_free(&p, d_y);
	pair_close(&p);
	free(y);
	free(want);
	free(bytes);
	free(dy);
	free(x);
	free(w);
}

/* layout: bit 0, a turned; bit 1, b turned; bit 2, add; bit 3: with gaps that no library takes. */
static void
try_product(struct pair *p, size_t m, size_t n, size_t k, unsigned layout)
{
	const size_t gap = layout & 8 ? 2 : 1, c_n = m * (n + 3);
	float *a = test_floats(m * k * gap, 1, 1), *b = test_floats(k * n * gap, 1, 2), *c = test_floats(c_n, 1, 3);
	double *want = test_alloc(c_n, sizeof *want);
	struct kvk_product j = { .a_row = gap * (layout & 1 ? 1 : k),
		.a_col = gap * (layout & 1 ? m : 1),
		.b_row = gap * (layout & 2 ? 1 : n),
		.b_col = gap * (layout & 2 ? k : 1),
		.c_row = n + 3,
		.m = m,
		.n = n,
		.k = k,
		.factor = 0.5f,
		.add = (layout & 4) != 0 };

	for (size_t i = 0; i < c_n; i++) {
		const size_t row = i / (n + 3), col = i % (n + 3);
		double sum = 0;

		for (size_t x = 0; x < k && col < n; x++)
			sum += (double)a[row * j.a_row + x * j.a_col] * (double)b[x * j.b_row + col * j.b_col];
		want[i] = 0.5 * sum + (j.add || col >= n ? (double)c[i] : 0);
	}
	j.a = pair_put(p, a, m * k * gap * sizeof *a);
	j.b = pair_put(p, b, k * n * gap * sizeof *b);
	j.c = pair_put(p, c, c_n * sizeof *c);
	pair_ok(p, p->op->product(p->dev, &j));
	pair_near(p, "product", j.c, want, c_n, 1e-6 * (double)(k + 1), 1e-6);
	pair_free(p, (void *)(uintptr_t)j.a);
	pair_free(p, (void *)(uintptr_t)j.b);
	pair_free(p, j.c);
	free(want);
	free(c);
	free(b);
	free(a);
}

static void
products(void **state)
{
	static const size_t sizes[][3] = { { 0, 3, 3 }, { 3, 0, 3 }, { 3, 3, 0 }, { 1, 1, 1 }, { 5, 8, 7 },
		{ 6, 16, 31 }, { 12, 7, 33 }, { 13, 17, 257 }, { 32, 65, 100 }, { 70, 8, 32 }, { 130, 100, 3 },
		{ 1, 1000, 1 }, { 1, 3, 64 }, { 3, 1, 64 }, { 63, 64, 65 }, { 26, 33, 129 }, { 97, 31, 95 },
		{ 27, 127, 16 }, { 33, 96, 17 }, { 29, 255, 1 }, { 2, 256, 128 } };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_BF16); /* products are f32 all the same */
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned layout = 0; layout < 16; layout++)
			try_product(&p, sizes[i][0], sizes[i][1], sizes[i][2], layout);
	pair_close(&p);
}

/* Without cuBLAS there is a sentence that says what to do. */
static void
no_library(void **state)
{
	static const struct sizes z = { 4, 4, KVK_F32, KVK_MANY_ROWS };
	const char *before = getenv("KV_CUBLAS_LIBRARY");
	char *path = before != NULL ? strdup(before) : NULL;
	struct kvk_weight *weight;
	float *w, *x;
	uint8_t *bytes = matrix(&z, &w);
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	setenv("KV_CUBLAS_LIBRARY", "/nowhere/libcublas.so", 1);
	x = pair_put(&p, NULL, 64);
	pair_ok(&p, p.op->weight_open(p.dev, &weight, bytes, z.type, z.rows, z.cols, z.use));
	assert_int_not_equal(p.op->linear(p.dev, weight, x, 2, NULL, 0, x + 8), 0);
	assert_non_null(strstr(p.op->error(p.dev), "cuBLAS: /nowhere/libcublas.so"));
	assert_non_null(strstr(p.op->error(p.dev), "KV_CUBLAS_LIBRARY"));
	p.op->weight_close(p.dev, weight);
	pair_free(&p, x);
	pair_close(&p);
	if (path != NULL)
		setenv("KV_CUBLAS_LIBRARY", path, 1);
	else
		unsetenv("KV_CUBLAS_LIBRARY");
	free(path);
	free(bytes);
	free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_types),
		cmocka_unit_test(lengths),
		cmocka_unit_test(independence),
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(products),
		cmocka_unit_test(no_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
