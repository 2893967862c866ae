/* SPDX-License-Identifier: MIT
 * The block layouts that tests write and check with, against an independent implementation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/lib/quantise.h"

/* Block with byte i = (37 i + 11) mod 256, its f16 fields set to 0.5 (d) and 0.25 (m, dmin); values from the Python
 * package gguf 0.19.0 (gguf.quants.dequantize): six elements (0 1 7 16 17 31, or 0 17 63 100 150 255) and sum_i (i + 1)
 * y[i]. */
static const struct {
	enum kvk_type type;
	int d, dmin; /* byte offsets; -1: none */
	float y[6];
	double sum;
} golden[] = {
	{ KVK_Q4_0, 0, -1, { -1.5, 1, 0, -1.5, -0.5, 0 }, -259 },
	{ KVK_Q4_1, 0, 2, { 7.75, 2.25, 1.25, 4.75, 6.25, 6.25 }, 2123.5 },
	{ KVK_Q5_0, 0, -1, { 4.5, -1, -2, 7, 0, 0.5 }, 56 },
	{ KVK_Q5_1, 0, 2, { 9.75, 12.25, 11.25, 9.75, 2.75, 2.75 }, 4082.5 },
	{ KVK_Q8_0, 0, -1, { 42.5, 61, 44, -45.5, -27, -24 }, -4040 },
	{ KVK_Q2_K, 80, 82, { 16.5, -0.75, 3.25, 10, 2.75, 2.25 }, 121565 },
	{ KVK_Q3_K, 108, -1, { 40.5, 64, 5, 0, 8.5, 21 }, 88572.5 },
	{ KVK_Q4_K, 0, 2, { 157.75, -12.75, 20, 47.5, 172.5, 24.25 }, 3786420 },
	{ KVK_Q5_K, 0, 2, { 405.75, -12.75, 40, 117.5, 172.5, 54.25 }, 8013724 },
	{ KVK_Q6_K, 208, -1, { -715.5, 256, -290, 1261.5, -84, -30 }, 392210 },
};

static void
blocks_are_laid_out_as_published(void **state)
{
	static const int small[] = { 0, 1, 7, 16, 17, 31 }, large[] = { 0, 17, 63, 100, 150, 255 };
	uint8_t block[256];
	float y[256];
	double sum;

	(void)state;
	for (size_t t = 0; t < sizeof golden / sizeof *golden; t++) {
		size_t n = kvk_types[golden[t].type].block;

		for (int i = 0; i < 256; i++)
			block[i] = (uint8_t)(37 * i + 11);
		memcpy(block + golden[t].d, &(uint16_t){ 0x3800 }, 2);
		if (golden[t].dmin >= 0)
			memcpy(block + golden[t].dmin, &(uint16_t){ 0x3400 }, 2);
		dequantise(golden[t].type, block, n, y);
		for (int i = 0; i < 6; i++)
			assert_true(y[n == 32 ? small[i] : large[i]] == golden[t].y[i]);
		sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += (double)(i + 1) * y[i];
		assert_true(sum == golden[t].sum);
	}
}

static void
values_survive_within_a_step(void **state)
{
	uint8_t blocks[4096];
	float x[1024], y[1024];

	(void)state;
	for (int i = 0; i < 1024; i++)
		x[i] = (float)sin(i * 12.9898) * (i % 7 == 0 ? 1 : 0.3f);
	for (enum kvk_type t = 0; t < KVK_N_TYPES; t++) {
		if (kvk_types[t].integer)
			continue;
		quantise(t, x, 1024, blocks);
		dequantise(t, blocks, 1024, y);
		for (int i = 0; i < 1024; i++)
			assert_true(fabs((double)x[i] - y[i]) <= quantise_error(t, 1));
	}
}

static void
half_precision_rounds_to_even(void **state)
{
	/* 65504 is the largest; 65520 rounds away; 2^-24 the smallest; 1 + 2^-11 is a tie. */
	static const float x[] = { 65504, 65519, 65520, 0x1p-24f, 0x1p-26f, 1 + 0x1p-11f, 1 + 3 * 0x1p-11f, -2 };
	static const uint16_t h[] = { 0x7bff, 0x7bff, 0x7c00, 1, 0, 0x3c00, 0x3c02, 0xc000 };
	uint16_t out[8];

	(void)state;
	quantise(KVK_F16, x, 8, out);
	assert_memory_equal(out, h, sizeof h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_laid_out_as_published),
		cmocka_unit_test(values_survive_within_a_step),
		cmocka_unit_test(half_precision_rounds_to_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
