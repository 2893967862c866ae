/* SPDX-License-Identifier: MIT
 * Budgets: the reference implementation's uniform ones, the edges, what composes, and the contract that every row of
 * the table keeps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/budget/budget.h"
#include "tests/lib/oracle.h"

#define HEADS_MAX 64

/* B [Hkv] of one layer of a method; earlier: budgets in the stream, used when C is 0. */
static void
layer(const struct kv_budget *m, struct kv_budget_input in, size_t C, const int32_t *earlier, int32_t *B)
{
	const size_t shape[] = { in.Hkv };
	struct kv_budget_source from = { .C = C };
	struct kv_tensor before, budget;
	struct kv_err e = { 0 };

	assert_int_equal(kv_tensor_init(&before, "budget", 0, KVK_I32, "kv_head", shape, &e), KV_OK);
	before.data = earlier;
	if (earlier != NULL)
		from.earlier = &before;
	if (kv_budget_layer(m, &in, &from, &budget, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(budget.name, "budget");
	memcpy(B, budget.data, budget.bytes);
	kv_tensor_fini(&budget);
}

static void
uniform_oracle(void **state)
{
	const struct kv_budget *uniform = kv_budget_find("uniform");
	const size_t fixed = 10;
	const json_t *r;
	struct oracle o;
	size_t i;

	(void)state;
	oracle_open(&o, "budgets");
	json_array_foreach(oracle_results(&o), i, r)
	{
		size_t H = oracle_size(r, "H"), n = oracle_size(r, "n"), base = oracle_size(r, "base");
		struct kv_budget_input in = {
			.L = 1, .Hkv = H, .T = n + fixed, .n = n, .n_sink = 4, .n_recent = fixed - 4
		};
		int32_t B[HEADS_MAX];

		assert_in_range(H, 1, HEADS_MAX);
		layer(uniform, in, base + fixed, NULL, B);
		for (size_t h = 0; h < H; h++)
			B[h] -= (int32_t)fixed;
		assert_true(oracle_equals(json_object_get(r, "uniform"), B, H));
	}
	oracle_fini(&o);
}

static void
compose_oracle(void **state)
{
	const struct kv_budget *uniform = kv_budget_find("uniform");
	const json_t *r, *row;
	struct oracle o;
	size_t i, l, W, n;

	(void)state;
	oracle_open(&o, "compose");
	W = oracle_size(o.meta, "W"), n = oracle_size(o.meta, "n");
	json_array_foreach(oracle_results(&o), i, r) json_array_foreach(json_object_get(r, "budgets"), l, row)
	{
		struct kv_budget_input in = { .layer = l,
			.L = oracle_size(o.meta, "L"),
			.Hkv = json_array_size(row),
			.T = n + W,
			.n = n,
			.n_recent = W };
		int32_t B[HEADS_MAX], again[HEADS_MAX];

		layer(uniform, in, oracle_size(r, "C"), NULL, B);
		layer(uniform, in, 0, B, again); /* from the stream: nothing changes */
		assert_memory_equal(B, again, in.Hkv * sizeof *B);
		for (size_t h = 0; h < in.Hkv; h++)
			B[h] -= (int32_t)W;
		assert_true(oracle_equals(row, B, in.Hkv));
	}
	oracle_fini(&o);
}

static void
edges(void **state)
{
	static const struct {
		size_t T, n_sink, n_recent, C;
		int32_t earlier[3], B[3];
	} row[] = {
		{ 100, 0, 0, 10, { 0 }, { 10, 10, 10 } },
		{ 100, 4, 32, 10, { 0 }, { 10, 10, 10 } },            /* less than the protected */
		{ 100, 4, 32, 36, { 0 }, { 36, 36, 36 } },            /* base 0 */
		{ 100, 0, 32, 100, { 0 }, { 100, 100, 100 } },        /* C = T */
		{ 100, 0, 32, 2147483647, { 0 }, { 100, 100, 100 } }, /* beyond */
		{ 10, 0, 32, 8, { 0 }, { 8, 8, 8 } },                 /* the window is longer than the prompt */
		{ 10, 0, 32, 12, { 0 }, { 10, 10, 10 } }, { 1, 0, 0, 1, { 0 }, { 1, 1, 1 } },
		{ 100, 0, 32, 0, { 50, 40, 44 },
		    { 45, 45, 44 } }, /* 134 entries, spread: the lower heads get what is left over */
		{ 100, 0, 32, 0, { 10, 40, 44 }, { 32, 31, 31 } }, /* 94: fewer than 3 * 32 protected */
		{ 100, 0, 32, 0, { 500, 1, 1 }, { 34, 34, 34 } },  /* 500 is all 100 */
		{ 100, 0, 32, 0, { 100, 99, 100 }, { 100, 100, 99 } },
		{ 100, 0, 32, 60, { 10, 10, 10 }, { 60, 60, 60 } }, /* a grant of one's own wins */
	};

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kv_budget_input in = {
			.L = 1, .Hkv = 3, .T = row[i].T, .n_sink = row[i].n_sink, .n_recent = row[i].n_recent
		};
		int32_t B[3];

		layer(kv_budget_find("uniform"), in, row[i].C, row[i].earlier[0] ? row[i].earlier : NULL, B);
		if (memcmp(B, row[i].B, sizeof B) != 0)
			fail_msg("row %zu: %d %d %d", i, B[0], B[1], B[2]);
	}
}

/* What holds for every method that needs nothing but the sizes: the sum is exact, 1 <= B <= T. */
static void
contract(void **state)
{
	(void)state;
	for (const struct kv_budget *const *m = kv_budget_list; *m != NULL; m++)
		for (size_t H = 1; H <= 9; H += 4)
			for (size_t T = 1; T < 90; T += 11)
				for (size_t C = 1; C < 100; C += 7) {
					struct kv_budget_input in = {
						.L = 1, .Hkv = H, .T = T, .n = T, .n_sink = 2, .n_recent = 5
					};
					int32_t B[HEADS_MAX];
					size_t sum = 0;

					if ((*m)->needs_scores)
						continue;
					layer(*m, in, C, NULL, B);
					for (size_t h = 0; h < H; h++) {
						assert_in_range(B[h], 1, T);
						sum += (size_t)B[h];
					}
					assert_int_equal(sum, H * (C < T ? C : T));
				}
}

static void
capacity(void **state)
{
	static const struct {
		struct kv_grant g;
		size_t T, C;
	} good[] = {
		{ { 128, 0 }, 10, 128 },
		{ { 0, 0.3 }, 1000, 300 },
		{ { 0, 1 }, 7, 7 },
		{ { 0, 1e-9 }, 7, 1 },
		{ { 0, 0.5 }, 5, 2 },
		{ { 0, 0.5 }, 7, 4 },
		{ { 0, 0.5 }, 1, 1 },
		{ { 2147483647, 0 }, 7, 2147483647 },
	};
	static const struct kv_grant bad[] = { { 0, 0 }, { 5, 0.5 }, { 0, -0.5 }, { 0, 1.5 }, { 0, NAN },
		{ 2147483648, 0 } };
	struct kv_err e = { 0 };
	size_t C;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(kv_grant_capacity(&good[i].g, good[i].T, &C, &e), KV_OK);
		assert_int_equal(C, good[i].C);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_grant_capacity(&bad[i], 100, &C, &e), KV_EARG);
}

static void
refusals(void **state)
{
	const struct kv_budget *uniform = kv_budget_find("uniform");
	static const int32_t none[2] = { 5, 0 };
	const size_t two[] = { 2 }, three[] = { 3 };
	struct kv_budget_input in = { .L = 1, .Hkv = 2, .T = 10 };
	struct kv_budget_source from = { 0 };
	struct kv_tensor before, budget;
	struct kv_err e = { 0 };

	(void)state;
	assert_null(kv_budget_find("unheard of"));
	assert_int_equal(kv_budget_layer(uniform, &in, &from, &budget, &e), KV_EARG);
	assert_non_null(strstr(e.text, "-b"));
	assert_int_equal(kv_tensor_init(&before, "budget", 0, KVK_I32, "kv_head", two, &e), KV_OK);
	before.data = none;
	from.earlier = &before;
	assert_int_equal(kv_budget_layer(uniform, &in, &from, &budget, &e), KV_ESHAPE);
	assert_int_equal(kv_tensor_init(&before, "budget", 0, KVK_I32, "kv_head", three, &e), KV_OK);
	assert_int_equal(kv_budget_layer(uniform, &in, &from, &budget, &e), KV_ESHAPE);
	from.C = 5, in.T = 0;
	assert_int_equal(kv_budget_layer(uniform, &in, &from, &budget, &e), KV_ESHAPE);
	in.T = 10, in.n = 11;
	assert_int_equal(kv_budget_layer(uniform, &in, &from, &budget, &e), KV_ESHAPE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uniform_oracle),
		cmocka_unit_test(compose_oracle),
		cmocka_unit_test(edges),
		cmocka_unit_test(contract),
		cmocka_unit_test(capacity),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
