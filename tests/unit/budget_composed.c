/* SPDX-License-Identifier: MIT
 * Budgets that compose, layers first and heads then: the reference's budgets, and the sets that they lead to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/evict/evict.h"
#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"

#define HEADS 4

static const struct kv_score_attrs pool = { .method = "test", .pool = KVK_POOL_MAX, .pool_width = 7 };

static const struct kv_budget_method *
method(const json_t *r, const char *key)
{
	const struct kv_budget_method *m = kv_budget_find(oracle_text(r, key));

	assert_non_null(m);
	return m;
}

static void
compare_kept(const struct allot_rig *x, size_t l, const float *raw, size_t n, size_t W, const json_t *kept)
{
	size_t offset[HEADS + 1] = { 0 };
	int32_t index[HEADS * 256];
	struct kv_selection s = {
		.H = HEADS, .n = n, .T = x->seq.T, .raw = raw, .score = &pool, .n_recent = W, .tie = KV_TIE_POSITION,
		.offset = offset,
	};
	struct kv_err e = { 0 };

	for (size_t h = 0; h < HEADS; h++)
		offset[h + 1] = offset[h] + (size_t)allot_budget(x, l)[h];
	assert_int_equal(kv_evict_select((struct kv_device *)&x->device, &s, index, &e), KV_OK);
	for (size_t h = 0; h < HEADS; h++)
		assert_true(oracle_equals(json_array_get(kept, h), index + offset[h], offset[h + 1] - offset[h]));
}

static void
oracle(void **state)
{
	const struct oracle_array *raw;
	size_t i, l, L, n, W, sets = 0;
	struct oracle o;
	const json_t *r, *row;

	(void)state;
	oracle_open(&o, "compose");
	raw = oracle_array(&o, "raw");
	L = oracle_size(o.meta, "L"), n = oracle_size(o.meta, "n"), W = oracle_size(o.meta, "W");
	json_array_foreach(oracle_results(&o), i, r)
	{
		struct kv_params first, second;
		struct allot_rig x;

		allot_init(&x, L, HEADS, n + W);
		for (l = 0; l < L; l++)
			allot_put_score(&x, l, raw->data + l * HEADS * n, n, (struct kv_protection){ 0, W, -1 }, &pool);
		allot_params(&first, method(r, "layer"), NULL);
		allot_run(&first, &x, oracle_size(r, "C"));
		json_array_foreach(json_object_get(r, "bases"), l, row) for (size_t h = 0; h < HEADS; h++)
		    assert_int_equal(allot_budget(&x, l)[h], json_integer_value(row) + (json_int_t)W);
		allot_params(&second, method(r, "head"), NULL);
		if (strcmp(oracle_text(r, "head"), "adakv") == 0)
			allot_params(&second, &kv_budget_adakv, "tie", "position", NULL);
		allot_run(&second, &x, 0);
		json_array_foreach(json_object_get(r, "budgets"), l, row) assert_allotted(row, &x, l, W, oracle_text(r, "head"));
		json_array_foreach(json_object_get(r, "kept"), l, row)
		{
			compare_kept(&x, l, raw->data + l * HEADS * n, n, W, row);
			sets += HEADS;
		}
		oracle_checked(&o, r, "bases");
		oracle_checked(&o, r, "budgets");
		if (json_object_get(r, "kept") != NULL)
			oracle_checked(&o, r, "kept");
		allot_fini(&x);
	}
	assert_int_equal(i, 36);
	assert_true(sets >= 16 * 6 * HEADS);
	oracle_fini(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
