/* SPDX-License-Identifier: MIT
 * random: the hash of METHODS 2.11 by values computed elsewhere. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/hash.h"
#include "tests/lib/score_input.h"

/* Rows of seed, layer, head, position and their hash, which the reference made in arbitrary-precision integers. */
static void
hashes(void **state)
{
	size_t i, j, compared = 0;
	const json_t *r, *row;
	struct oracle o;

	(void)state;
	oracle_open(&o, "nacl_random");
	json_array_foreach (oracle_results(&o), i, r) {
		json_array_foreach (json_object_get(r, "hash"), j, row) {
			uint64_t x[5];

			for (size_t n = 0; n < 5; n++)
				x[n] = oracle_u64(json_array_get(row, n));
			assert_true(kv_hash_slot(x[0], x[1], x[2], x[3]) == x[4]);
			compared++;
		}
		if (j > 0)
			oracle_checked(&o, r, "hash");
	}
	assert_int_equal(compared, 4);
	oracle_fini(&o);
	assert_true(kv_hash_slot(9223372036854775808u, 31, 7, 131071) == 10525733445519389284u); /* as numbers in C */
}

/* The top 24 bits times 2^-24, exactly; a head and a seed of their own. */
static void
scores(void **state)
{
	const float k[2 * 3] = { 0 };
	const struct kv_tensor *s;
	struct kv_params p;
	struct score_layer x;

	(void)state;
	score_params(&p, "random", "seed", "42", NULL);
	score_layer_init(&x, &score_device, 2, 2, 3, 1, 1.0f, NULL, 0, k);
	s = score_run(&x, &p);
	assert_int_equal(s->shape[1], 3);
	for (size_t h = 0; h < 2; h++)
		for (size_t j = 0; j < 3; j++) {
			const float v = ((const float *)s->data)[h * 3 + j];

			assert_true(v >= 0 && v < 1);
			assert_true(ldexp(v, 24) == (double)(kv_hash_slot(42, 0, h, j) >> 40));
		}
	assert_int_equal(json_integer_value(json_object_get(s->attrs, "seed")), 42);
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "random") > 200);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes),
		cmocka_unit_test(scores),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
