/* SPDX-License-Identifier: MIT
 * rows: every weight type against tests/golden/dequant.txt (or the file named by the first argument), bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

#define LINE 8192

static const char *golden = "tests/golden/dequant.txt";

static enum kvk_type
type_of(const char *name)
{
	for (int t = 0; t < KVK_N_TYPES; t++)
		if (strcmp(kvk_types[t].name, name) == 0)
			return (enum kvk_type)t;
	fail_msg("unknown type '%s'", name);
	return KVK_N_TYPES;
}

/* Hexadecimal bytes; returns how many. */
static size_t
bytes_of(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;
	unsigned byte;

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		out[i] = (uint8_t)byte;
	}
	return n;
}

/* Three rows, the golden one in the middle, at an odd address; expanded when opened, or when read. */
static void
check(enum kvk_type type, const uint8_t *block, size_t n, const float *want, size_t n_want, enum kvk_use use)
{
	static const int32_t ids[] = { 1, 1 };
	struct kvk_dev *dev = test_dev(1);
	uint8_t *rows = test_alloc(3 * n + 1, 1);
	float *y = test_alloc(2 * n_want, sizeof *y);
	struct kvk_weight *w;

	memcpy(rows + 1 + n, block, n);
	assert_int_equal(kvk_cpu.weight_open(dev, &w, rows + 1, type, 3, n_want, use), 0);
	assert_int_equal(kvk_cpu.rows(dev, w, ids, 2, y), 0);
	test_same(kvk_types[type].name, y, want, n_want);
	test_same(kvk_types[type].name, y + n_want, want, n_want);
	kvk_cpu.weight_close(dev, w);
	kvk_cpu.close(dev);
	free(y);
	free(rows);
}

static void
golden_blocks(void **state)
{
	static char name[16], block[LINE], floats[LINE], line[2 * LINE];
	static uint8_t bytes[LINE], values[LINE];
	bool seen[KVK_N_TYPES] = { false };
	FILE *f = fopen(golden, "r");

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof line, f) != NULL) {
		float want[LINE / 4];
		enum kvk_type type;
		size_t n, n_want;

		if (line[0] == '#')
			continue;
		assert_int_equal(sscanf(line, "%15s %8191s %8191s", name, block, floats), 3);
		type = type_of(name);
		seen[type] = true;
		n = bytes_of(block, bytes);
		n_want = bytes_of(floats, values) / 4;
		assert_int_equal(n, n_want / kvk_types[type].block * kvk_types[type].bytes);
		memcpy(want, values, n_want * 4);
		check(type, bytes, n, want, n_want, KVK_FEW_ROWS);
		check(type, bytes, n, want, n_want, KVK_MANY_ROWS);
	}
	fclose(f);
	for (int t = 0; t < KVK_N_TYPES; t++)
		if (!seen[t] && t != KVK_F32 && !kvk_types[t].integer)
			fail_msg("no golden block of type %s", kvk_types[t].name);
}

static void
out_of_range(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	const float w[4] = { 1, 2, 3, 4 };
	const int32_t ids[] = { 0, 2 };
	struct kvk_weight *weight;
	float y[4];

	(void)state;
	assert_int_equal(kvk_cpu.weight_open(dev, &weight, w, KVK_F32, 2, 2, KVK_FEW_ROWS), 0);
	assert_int_not_equal(kvk_cpu.rows(dev, weight, ids, 2, y), 0);
	assert_string_equal(kvk_cpu.error(dev), "rows: row 2 of a matrix of 2 rows");
	kvk_cpu.weight_close(dev, weight);
	kvk_cpu.close(dev);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_blocks),
		cmocka_unit_test(out_of_range),
	};

	if (argc > 1)
		golden = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
