/* SPDX-License-Identifier: MIT
 * finite: the first element that is not, wherever it stands, of every type and by any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

static const struct {
	enum kvk_type type;
	uint32_t fine[4], bad[4];
} t[] = {
	{ KVK_F32, { 0x7f7fffff, 0xff7fffff, 0x00000001, 0x80000000 },
	    { 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001 } },
	{ KVK_F16, { 0x7bff, 0xfbff, 0x0001, 0x8000 }, { 0x7c00, 0xfc00, 0x7e00, 0xfc01 } },
	{ KVK_BF16, { 0x7f7f, 0xff7f, 0x0001, 0x8000 }, { 0x7f80, 0xff80, 0x7fc0, 0xff81 } },
};

static size_t
first(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n)
{
	size_t at = SIZE_MAX;

	assert_int_equal(kvk_cpu.finite(dev, x, type, n, &at), 0);
	return at;
}

static void
places(struct kvk_dev *dev, size_t kind, size_t n)
{
	const size_t bytes = kvk_types[t[kind].type].bytes;
	uint8_t *x = test_alloc(n, bytes);
	const size_t at[] = { 0, 1, 31, 511, 512, 65535, 65536, n / 2, n - 1 };

	for (size_t i = 0; i < n; i++)
		memcpy(x + i * bytes, &t[kind].fine[i % 4], bytes);
	assert_int_equal(first(dev, x, t[kind].type, n), n);
	for (size_t i = 0; n > 0 && i < sizeof at / sizeof *at; i++) {
		if (at[i] >= n)
			continue;
		memcpy(x + at[i] * bytes, &t[kind].bad[i % 4], bytes);
		memcpy(x + (n - 1) * bytes, &t[kind].bad[(i + 1) % 4], bytes);
		assert_int_equal(first(dev, x, t[kind].type, n), at[i]);
		assert_int_equal(first(dev, x, t[kind].type, at[i]), at[i]);
		memcpy(x + at[i] * bytes, &t[kind].fine[0], bytes);
		memcpy(x + (n - 1) * bytes, &t[kind].fine[0], bytes);
	}
	free(x);
}

static void
first_ones(void **state)
{
	static const size_t n[] = { 0, 1, 33, 513, 65537, 200001 };

	(void)state;
	for (int threads = 1; threads <= 3; threads += 2) {
		struct kvk_dev *dev = test_dev(threads);

		for (size_t k = 0; k < sizeof t / sizeof *t; k++)
			for (size_t i = 0; i < sizeof n / sizeof *n; i++)
				places(dev, k, n[i]);
		kvk_cpu.close(dev);
	}
}

static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	const int32_t x = 0;
	size_t at;

	(void)state;
	assert_int_not_equal(kvk_cpu.finite(dev, &x, KVK_I32, 1, &at), 0);
	assert_string_equal(kvk_cpu.error(dev), "finite: types are f32, f16 and bf16");
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_ones),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
