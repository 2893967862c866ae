/* SPDX-License-Identifier: MIT
 * pyramid: the reference's schedules, public code's, and one layer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"

/* b [L], what each layer's only head has beyond W. */
static void
schedule(const char *option, const char *value, size_t L, size_t S, size_t W, size_t C, int32_t *b)
{
	struct kv_params p;
	struct allot_rig x;

	allot_init(&x, L, 1, S);
	for (size_t l = 0; l < L && W > 0; l++)
		allot_put_score(&x, l, NULL, 0, (struct kv_protection){ 0, W, -1 }, NULL);
	allot_params(&p, &kv_budget_pyramid, option, value, NULL);
	allot_run(&p, &x, C);
	for (size_t l = 0; l < L; l++)
		b[l] = allot_budget(&x, l)[0] - (int32_t)W;
	allot_fini(&x);
}

/* The reference's null: every head of every layer keeps all that it has. */
static bool
untouched(const json_t *r, const int32_t *b)
{
	for (size_t l = 0; l < oracle_size(r, "L"); l++)
		if ((size_t)b[l] != oracle_size(r, "S") - oracle_size(r, "W"))
			return false;
	return true;
}

static void
oracle(void **state)
{
	static const struct {
		const char *key, *option, *value;
	} row[] = {
		{ "pyramid.beta1", "beta", "1" },
		{ "pyramid.beta2", "beta", "2" },
		{ "pyramid.beta20", NULL, NULL },
		{ "kvcf", "variant", "kvcf" },
	};
	size_t i, compared[4] = { 0 };
	const json_t *r, *want;
	struct oracle o;

	(void)state;
	oracle_open(&o, "layers");
	json_array_foreach(oracle_results(&o), i, r) for (size_t m = 0; m < 4; m++)
	{
		int32_t b[ALLOT_LAYERS_MAX];

		want = json_object_get(r, row[m].key);
		if (want == NULL)
			continue;
		schedule(row[m].option, row[m].value, oracle_size(r, "L"), oracle_size(r, "S"), oracle_size(r, "W"),
		    oracle_size(r, "C"), b);
		if (!json_is_null(json_array_get(want, 0)) ? !oracle_equals(want, b, oracle_size(r, "L")) :
							     !untouched(r, b))
			fail_msg("record %zu, %s", i, row[m].key);
		oracle_checked(&o, r, row[m].key);
		compared[m]++;
	}
	for (size_t m = 0; m < 4; m++)
		assert_in_range(compared[m], 100, 300);
	oracle_fini(&o);
}

/* From the reference's adakv_pyramid() and kvpress_pyramid(), the latter without its W. */
static void
variants(void **state)
{
	static const struct {
		const char *variant;
		size_t S, W, C;
		int32_t b[4];
	} row[] = {
		{ "adakv", 1000, 8, 64, { 110, 74, 38, 2 } },
		{ "adakv", 1000, 32, 128, { 188, 127, 66, 5 } },
		{ "adakv", 200, 32, 128, { 168, 120, 72, 24 } },
		{ "adakv", 200, 8, 150, { 192, 159, 126, 93 } },
		{ "adakv", 500, 16, 100, { 164, 111, 58, 5 } },
		{ "kvpress", 1000, 8, 250, { 480, 321, 163, 4 } },
		{ "kvpress", 1000, 8, 500, { 967, 650, 334, 17 } },
		{ "kvpress", 1000, 64, 250, { 186, 186, 186, 186 } },
		{ "kvpress", 1000, 4, 125, { 240, 161, 81, 2 } },
		{ "kvpress", 512, 4, 384, { 504, 421, 339, 256 } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		int32_t b[4];

		schedule("variant", row[i].variant, 4, row[i].S, row[i].W, row[i].C, b);
		if (memcmp(b, row[i].b, sizeof b) != 0)
			fail_msg("row %zu: %d %d %d %d", i, b[0], b[1], b[2], b[3]);
	}
}

/* Products that need 64 bits; no scores. */
static void
large(void **state)
{
	int32_t b[ALLOT_LAYERS_MAX];
	int64_t sum = 0;

	(void)state;
	schedule("beta", "1000000", ALLOT_LAYERS_MAX, 2000000000, 0, 900000001, b);
	for (size_t l = 0; l < ALLOT_LAYERS_MAX; l++) {
		assert_true(l == 0 || b[l] <= b[l - 1]);
		sum += b[l];
	}
	assert_true(sum == 900000001LL * ALLOT_LAYERS_MAX);
	schedule("variant", "kvcf", 1, 100, 8, 50, b);
	assert_int_equal(b[0], 42);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
		cmocka_unit_test(variants),
		cmocka_unit_test(large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
