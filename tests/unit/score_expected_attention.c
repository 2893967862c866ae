/* SPDX-License-Identifier: MIT
 * expected-attention: cases for paper, the definition at length, and the reference implementation's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/score_input.h"

static struct kv_err e;

/* Queries of one head at positions 0 .. T-1, keys and values; D is 2, so that there is one angle per position. */
static void
layer(struct score_layer *x, size_t T, const float *q, const float *k, const float *v, double frequency)
{
	const size_t shape[] = { 1, T, 2 };

	score_layer_init(x, &score_device, 1, 1, T, 2, 1.0f, q, T, k);
	score_layer_put(x, "v", KVK_F32, "kv_head token dim", shape, v, NULL);
	score_rotary(x, 10000);
	x->cfg.inv_freq[0] = (float)frequency;
}

/* No rotation.  Queries (1,0) and (3,0): mean 2, variance 1.  z = 2 k + k^2 / 2 along x. */
static void
paper(void **state)
{
	static const float q[] = { 1, 0, 3, 0 }, k[] = { 0, 5, 1, -5 }, v[] = { 3, 4, 0, 2 };
	const double p1 = exp(2.5) / (1 + exp(2.5)), m1 = exp(2) / (1 + exp(2));
	const float both[] = { (float)(5 * (1 - p1)), (float)(2 * p1) };
	const float mean[] = { (float)(1 - m1), (float)m1 };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	layer(&x, 2, q, k, v, 0);
	score_params(&p, "expected-attention", "sink", "0", NULL);
	assert_scores_near(score_run(&x, &p)->data, both, 2, "mean and covariance");
	score_params(&p, "expected-attention", "sink", "0", "covariance", "off", "value-norm", "off", NULL);
	assert_scores_near(score_run(&x, &p)->data, mean, 2, "mean");
	score_layer_fini(&x);
}

/* A quarter turn per position: the queries, turned back, are all (1, 0); one coming position, 4, turns them to itself.
 */
static void
turns(void **state)
{
	static const float q[] = { 1, 0, 0, 1, -1, 0, 0, -1 }, k[] = { 0, 0, 1, 0, 0, 1, -1, 0 },
			   v[] = { 1, 0, 1, 0, 1, 0, 1, 0 };
	const double a = exp(1), sum = 1 + a + 1 + 1 / a;
	const float want[] = { (float)(1 / sum), (float)(a / sum), (float)(1 / sum), (float)(1 / a / sum) };
	static const float zeros[3] = { 0 };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	layer(&x, 4, q, k, v, acos(0));
	score_params(&p, "expected-attention", "sink", "0", "future", "1", NULL);
	assert_scores_near(score_run(&x, &p)->data, want, 4, "one position");
	/* over four positions it points nowhere: all keys are alike */
	score_params(&p, "expected-attention", "sink", "0", "future", "4", NULL);
	for (size_t j = 0; j < 4; j++)
		assert_float_equal(((const float *)score_run(&x, &p)->data)[j], 0.25f, 1e-6);
	/* sinks have no share; the only candidate has all */
	score_params(&p, "expected-attention", "sink", "3", "future", "1", NULL);
	assert_float_equal(((const float *)score_run(&x, &p)->data)[3], 1, 1e-6);
	assert_memory_equal(score_layer_tensor(&x, "score")->data, zeros, sizeof zeros);
	score_params(&p, "expected-attention", "sink", "9", NULL); /* nothing but sinks */
	assert_float_equal(((const float *)score_run(&x, &p)->data)[3], 0, 0);
	score_layer_fini(&x);
}

static void
refusals(void **state)
{
	static const float q[8] = { 0 };
	struct score_layer x;
	struct kv_params p;

	(void)state;
	score_params(&p, "expected-attention", NULL);
	layer(&x, 4, q, q, q, 1);
	free(x.cfg.inv_freq);
	x.cfg.inv_freq = NULL;
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "rotary frequencies"));
	kv_step_remove(&x.step, "q");
	assert_int_equal(kv_score_layer(&x.in, &p, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "--queries all"));
	score_layer_fini(&x);
}

static void
oracle(void **state)
{
	(void)state;
	assert_true(score_oracle(&score_device, "expected-attention") > 50);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paper),
		cmocka_unit_test(turns),
		cmocka_unit_test(refusals),
		cmocka_unit_test(oracle),
	};

	return cmocka_run_group_tests(tests, score_set_up, score_tear_down);
}
