/* SPDX-License-Identifier: MIT
 * get_as: every half float out and back, and rounding to nearest even against arithmetic on the neighbours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

static void
convert(void *to, enum kvk_type to_type, const void *from, enum kvk_type type, size_t n)
{
	struct kvk_dev *dev = test_dev(2);

	assert_int_equal(kvk_cpu.get_as(dev, to, to_type, from, type, n), 0);
	kvk_cpu.close(dev);
}

/* All 65,536 patterns: the value is right, and goes back to the same pattern. */
static void
all_patterns(enum kvk_type type, double (*value)(uint16_t))
{
	const size_t n = 65536;
	uint16_t *h = test_alloc(n, sizeof *h), *back = test_alloc(n, sizeof *back);
	float *x = test_alloc(n, sizeof *x);

	for (size_t i = 0; i < n; i++)
		h[i] = (uint16_t)i;
	convert(x, KVK_F32, h, type, n);
	convert(back, type, x, KVK_F32, n);
	for (size_t i = 0; i < n; i++) {
		const double want = value(h[i]);

		if (isnan(want)) {
			assert_true(isnan(x[i]));
			assert_true(isnan(value(back[i])));
			continue;
		}
		if ((double)x[i] != want || back[i] != h[i])
			fail_msg(
			    "%s %04zx: %a, want %a, back %04x", kvk_types[type].name, i, (double)x[i], want, back[i]);
	}
	free(h);
	free(back);
	free(x);
}

static void
patterns(void **state)
{
	(void)state;
	all_patterns(KVK_F16, test_f16);
	all_patterns(KVK_BF16, test_bf16);
}

/* x lies at `part` of the way from pattern h to h + 1. */
static void
rounds(enum kvk_type type, double (*value)(uint16_t), uint16_t h, double part, uint16_t want)
{
	const float x = (float)(value(h) + part * (value((uint16_t)(h + 1)) - value(h)));
	const float many[9] = { x, x, x, x, x, x, x, x, x };
	uint16_t got[9]; /* eight by vector code, where there is any, one by one the rest */

	convert(got, type, many, KVK_F32, 9);
	for (int i = 0; i < 9; i++)
		if (got[i] != want)
			fail_msg("%s: %a became %04x, want %04x", kvk_types[type].name, (double)x, got[i], want);
}

static void
rounding(void **state)
{
	static const uint16_t starts[] = { 0, 1, 2, 0x3fe, 0x3ff, 0x400, 0x3bff, 0x3c00, 0x3c01, 0x7bfe };

	(void)state;
	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		const uint16_t h = starts[i], even = h + (h & 1);

		rounds(KVK_F16, test_f16, h, 0.5, even);
		rounds(KVK_F16, test_f16, h, 0.499, h);
		rounds(KVK_F16, test_f16, h, 0.501, h + 1);
		rounds(KVK_BF16, test_bf16, h, 0.5, even);
		rounds(KVK_BF16, test_bf16, h, 0.499, h);
		rounds(KVK_BF16, test_bf16, h, 0.501, h + 1);
	}
}

static void
large(void **state)
{
	static const float x[] = { 65519, 65520, -65520, 1e9f, INFINITY, -INFINITY, 1e-9f, -0.0f };
	static const uint16_t want[] = { 0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7c00, 0xfc00, 0, 0x8000 };
	const float most = 3.4028235e38f;
	uint16_t got[8];

	(void)state;
	convert(got, KVK_F16, x, KVK_F32, 8);
	assert_memory_equal(got, want, sizeof want);
	for (size_t i = 0; i < 8; i++) {
		convert(got, KVK_F16, x + i, KVK_F32, 1);
		assert_int_equal(got[0], want[i]);
	}
	convert(got, KVK_BF16, &most, KVK_F32, 1);
	assert_int_equal(got[0], 0x7f80);
}

/* Long arrays are cut into pieces; narrow to narrow goes by way of floats. */
static void
lengths(void **state)
{
	static const size_t sizes[] = { 0, 1, 31, 33, 4097, 100001 };

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const size_t n = sizes[i];
		double *values;
		uint16_t *h = test_typed(n, 3, i, KVK_F16, &values), *b = test_alloc(n, sizeof *b);
		float *x = test_alloc(n, sizeof *x);

		convert(x, KVK_F32, h, KVK_F16, n);
		test_near("f16 to f32", x, values, n, 0, 0);
		convert(b, KVK_BF16, h, KVK_F16, n);
		for (size_t j = 0; j < n; j++)
			assert_true(fabs(test_bf16(b[j]) - values[j]) <= 0x1p-8 * fabs(values[j]));
		free(h);
		free(b);
		free(x);
		free(values);
	}
}

static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	int32_t x = 0;

	(void)state;
	assert_int_not_equal(kvk_cpu.get_as(dev, &x, KVK_F32, &x, KVK_I32, 1), 0);
	assert_int_not_equal(kvk_cpu.get_as(dev, &x, KVK_Q8_0, &x, KVK_F32, 1), 0);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns),
		cmocka_unit_test(rounding),
		cmocka_unit_test(large),
		cmocka_unit_test(lengths),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
