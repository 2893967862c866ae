/* SPDX-License-Identifier: MIT
 * finite on the device: the first element that is not, wherever it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

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
first(struct pair *p, const void *x, enum kvk_type type, size_t n)
{
	size_t at = SIZE_MAX;

	pair_ok(p, p->op->finite(p->dev, x, type, n, &at));
	return at;
}

static void
places(struct pair *p, size_t kind, size_t n)
{
	const size_t bytes = kvk_types[t[kind].type].bytes, at[] = { 0, 1, 31, 256, n / 2, n - 1 };
	uint8_t *host = test_alloc(n, bytes), *x;

	for (size_t i = 0; i < n; i++)
		memcpy(host + i * bytes, &t[kind].fine[i % 4], bytes);
	x = pair_put(p, host, n * bytes);
	assert_int_equal(first(p, x, t[kind].type, n), n);
	for (size_t i = 0; n > 0 && i < sizeof at / sizeof *at; i++) {
		if (at[i] >= n)
			continue;
		pair_ok(p, p->op->put(p->dev, x + at[i] * bytes, &t[kind].bad[i % 4], bytes));
		pair_ok(p, p->op->put(p->dev, x + (n - 1) * bytes, &t[kind].bad[(i + 1) % 4], bytes));
		assert_int_equal(first(p, x, t[kind].type, n), at[i]);
		assert_int_equal(first(p, x, t[kind].type, at[i]), at[i]);
		pair_ok(p, p->op->put(p->dev, x + at[i] * bytes, &t[kind].fine[0], bytes));
		pair_ok(p, p->op->put(p->dev, x + (n - 1) * bytes, &t[kind].fine[0], bytes));
	}
	pair_free(p, x);
	free(host);
}

static void
first_ones(void **state)
{
	static const size_t n[] = { 0, 1, 33, 257, 70001 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t k = 0; k < sizeof t / sizeof *t; k++)
		for (size_t i = 0; i < sizeof n / sizeof *n; i++)
			places(&p, k, n[i]);
	pair_close(&p);
}

static void
refused(void **state)
{
	struct pair p;
	size_t at;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->finite(p.dev, NULL, KVK_I32, 1, &at), 0);
	assert_string_equal(p.op->error(p.dev), "finite: types are f32, f16 and bf16");
	pair_close(&p);
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
