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

/* From the reference implementation, in arbitrary-precision integers. */
static void
hashes(void **state)
{
	static const struct {
		uint64_t seed, layer, head, position, hash;
	} known[] = {
		{ 0, 0, 0, 0, 2391539541053276776u },
		{ 1, 2, 3, 4, 15374388949593934587u },
		{ 1234, 3, 1, 599, 13056733253647683448u },
		{ 9223372036854775808u, 31, 7, 131071, 10525733445519389284u },
	};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		assert_true(
		    kv_hash_slot(known[i].seed, known[i].layer, known[i].head, known[i].position) == known[i].hash);
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
