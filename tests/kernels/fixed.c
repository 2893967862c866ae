/* SPDX-License-Identifier: MIT
 * Block fixed point: what packing loses, products against double precision, and the same bits from every instruction
 * set that this processor has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/fixed.h"
#include "tests/lib/kernels.h"

#define MOST 600

static const size_t lengths[] = { 1, 2, 31, 32, 33, 63, 64, 65, 172, 576 };
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

static void *
blocks_of(size_t n, size_t size)
{
	void *p = aligned_alloc(64, (cpu_fixed_blocks(n) * size + 63) / 64 * 64);

	assert_non_null(p);
	memset(p, 0xff, cpu_fixed_blocks(n) * size);
	return p;
}

/* Every element within half a scale, which is 2^-14 of the block's largest; the end is zero. */
static void
packing(void **state)
{
	int16_t q[MOST + 32];
	float scale[MOST / 32 + 1];

	(void)state;
	for (const struct cpu_fixed_ops *const *o = cpu_fixed_all; *o != NULL; o++)
		for (size_t l = 0; (*o)->works() && l < N_LENGTHS; l++) {
			const size_t n = lengths[l];
			float *x = test_floats(n, 3, 20 + l);

			memset(q, 0xff, sizeof q);
			(*o)->pack(x, n, q, scale);
			for (size_t i = 0; i < n; i++) {
				double top = 0;

				for (size_t j = i / 32 * 32; j < n && j < i / 32 * 32 + 32; j++)
					top = fmax(top, fabs((double)x[j]));
				assert_true(abs(q[i]) <= CPU_FIXED_TOP);
				assert_true(fabs(q[i] * (double)scale[i / 32] - (double)x[i]) <= top * 0x1.001p-14);
			}
			for (size_t i = n; i < cpu_fixed_blocks(n) * 32; i++)
				assert_int_equal(q[i], 0);
			free(x);
		}
}

static void
strange_values(void **state)
{
	static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY };
	float x[64], scale[2];
	int16_t q[64];

	(void)state;
	for (const struct cpu_fixed_ops *const *o = cpu_fixed_all; *o != NULL; o++) {
		if (!(*o)->works())
			continue;
		for (size_t k = 0; k < 4; k++) {
			memset(x, 0, sizeof x);
			x[5] = odd[k];
			x[40] = -2;
			(*o)->pack(x, 64, q, scale);
			assert_true(isnan(scale[0]));
			assert_true(scale[1] == 2.0f / CPU_FIXED_TOP && q[40] == -CPU_FIXED_TOP && q[41] == 0);
		}
		for (int i = 0; i < 64; i++)
			x[i] = i < 32 ? 0x1p-140f : i % 2 ? 3.4e38f : -3.4e38f;
		(*o)->pack(x, 64, q, scale);
		assert_true(scale[0] == 0 && q[0] == 0);
		assert_true(isfinite(scale[1]) && q[32] == -CPU_FIXED_TOP && q[33] == CPU_FIXED_TOP);
	}
}

/* The largest sums that there are do not overflow. */
static void
extremes(void **state)
{
	struct cpu_fixed_left *a = blocks_of(32, sizeof *a);
	struct cpu_fixed_right *b = blocks_of(32, sizeof *b);
	float x[32], c[CPU_FIXED_ROWS * CPU_FIXED_COLS] = { 0 };

	(void)state;
	for (int i = 0; i < 32; i++)
		x[i] = i % 2 ? -8191 : 8191;
	for (const struct cpu_fixed_ops *const *o = cpu_fixed_all; *o != NULL; o++) {
		if (!(*o)->works())
			continue;
		(*o)->pack_left(x, 0, CPU_FIXED_ROWS, 32, a);
		(*o)->pack_right(x, 0, CPU_FIXED_COLS, 32, b);
		memset(c, 0, sizeof c);
		(*o)->multiply(a, b, 1, CPU_FIXED_ROWS, c);
		for (int i = 0; i < CPU_FIXED_ROWS * CPU_FIXED_COLS; i++)
			assert_true(c[i] == 32.0f * 8191 * 8191);
	}
	free(a);
	free(b);
}

struct job {
	size_t rows, cols, n;
	const float *x, *w;
};

/* c [rows][16]; what is not wanted stays 1, what is starts from 1. */
static void
product(const struct cpu_fixed_ops *o, const struct job *j, float *c)
{
	struct cpu_fixed_left *a = blocks_of(j->n, sizeof *a);
	struct cpu_fixed_right *b = blocks_of(j->n, sizeof *b);

	o->pack_left(j->x, j->n, j->rows, j->n, a);
	o->pack_right(j->w, j->n, j->cols, j->n, b);
	for (size_t i = 0; i < CPU_FIXED_ROWS * CPU_FIXED_COLS; i++)
		c[i] = 1;
	o->multiply(a, b, cpu_fixed_blocks(j->n), j->rows, c);
	free(a);
	free(b);
}

/* 2^-13 of the largest factors of a block in the place of every one of its factors. */
static double
bound(const struct job *j, size_t i, size_t k)
{
	double sum = 0;

	for (size_t b = 0; b < j->n; b += 32) {
		const size_t m = j->n - b < 32 ? j->n - b : 32;
		double top_x = 0, top_w = 0;

		for (size_t l = b; l < b + m; l++) {
			top_x = fmax(top_x, fabs((double)j->x[i * j->n + l]));
			top_w = fmax(top_w, fabs((double)j->w[k * j->n + l]));
		}
		sum += (double)m * top_x * top_w;
	}
	return sum * (0x1p-13 + (double)j->n * 0x1p-24) + 1e-6;
}

static void
check_product(const struct job *j, const float *c)
{
	for (size_t i = 0; i < CPU_FIXED_ROWS; i++)
		for (size_t k = 0; k < CPU_FIXED_COLS; k++) {
			double want = 1;

			for (size_t l = 0; i < j->rows && k < j->cols && l < j->n; l++)
				want += (double)j->x[i * j->n + l] * (double)j->w[k * j->n + l];
			test_near("product", c + i * CPU_FIXED_COLS + k, &want, 1,
			    i < j->rows && k < j->cols ? bound(j, i, k) : 0, 0);
		}
}

static void
products(void **state)
{
	float *x = test_floats(CPU_FIXED_ROWS * MOST, 2, 30), *w = test_floats(CPU_FIXED_COLS * MOST, 1, 31);
	float want[CPU_FIXED_ROWS * CPU_FIXED_COLS], got[CPU_FIXED_ROWS * CPU_FIXED_COLS];

	(void)state;
	for (size_t l = 0; l < N_LENGTHS; l++)
		for (size_t rows = 1; rows <= CPU_FIXED_ROWS; rows++) {
			const struct job j = { rows, (rows * 7 + l) % CPU_FIXED_COLS + 1, lengths[l], x, w };

			product(&cpu_fixed_portable, &j, want);
			check_product(&j, want);
			for (const struct cpu_fixed_ops *const *o = cpu_fixed_all; *o != NULL; o++)
				if ((*o)->works()) {
					product(*o, &j, got);
					test_same((*o)->name, got, want, CPU_FIXED_ROWS * CPU_FIXED_COLS);
				}
		}
	free(x);
	free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packing),
		cmocka_unit_test(strange_values),
		cmocka_unit_test(extremes),
		cmocka_unit_test(products),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
