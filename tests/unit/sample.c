/* SPDX-License-Identifier: MIT
 * The sampler: which tokens can be drawn, how often, and that a draw depends on nothing but its key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/model/sample.h"

#define DRAWS 20000

static const double p5[] = { 0.1, 0.4, 0.1, 0.05, 0.35 };
static float logits5[5]; /* ln p5 + 3 */

static int
setup(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		logits5[i] = (float)(log(p5[i]) + 3);
	return 0;
}

static int32_t
sample(struct kv_sampler s, uint64_t stream, uint64_t position)
{
	int32_t id = -1;
	struct kv_err e = { 0 };

	assert_int_equal(kv_sample(&s, stream, position, logits5, 5, &id, &e), KV_OK);
	assert_in_range(id, 0, 4);
	return id;
}

/* Frequencies of DRAWS draws against expected probabilities, within 5 standard deviations. */
static void
expect(struct kv_sampler s, const double want[5])
{
	int count[5] = { 0 };

	for (int i = 0; i < DRAWS; i++)
		count[sample(s, 0, (uint64_t)i)]++;
	for (int i = 0; i < 5; i++) {
		double slack = 5 * sqrt(want[i] * (1 - want[i]) / DRAWS);

		if (fabs((double)count[i] / DRAWS - want[i]) > slack)
			fail_msg("token %d: drawn %d of %d times, expected a share of %g", i, count[i], DRAWS, want[i]);
	}
}

static void
greedy_takes_the_lowest_of_the_largest(void **state)
{
	static const float tied[] = { -1, 2, -3, 2, 2 }, zeros[] = { -0.0f, 0.0f };
	struct kv_sampler s = { .top_p = 1 };
	int32_t id;

	(void)state;
	assert_int_equal(kv_sample(&s, 0, 0, tied, 5, &id, NULL), KV_OK);
	assert_int_equal(id, 1);
	assert_int_equal(kv_sample(&s, 0, 0, zeros, 2, &id, NULL), KV_OK);
	assert_int_equal(id, 0);
	assert_int_equal(kv_sample(&s, 0, 0, tied, 1, &id, NULL), KV_OK);
	assert_int_equal(id, 0);
}

static void
draws_follow_the_softmax(void **state)
{
	double hot[5], sum = 0;

	(void)state;
	expect((struct kv_sampler){ .temperature = 1, .top_p = 1, .seed = 7 }, p5);
	for (int i = 0; i < 5; i++)
		sum += hot[i] = sqrt(p5[i]);
	for (int i = 0; i < 5; i++)
		hot[i] /= sum;
	expect((struct kv_sampler){ .temperature = 2, .top_p = 1, .seed = 8 }, hot);
}

static void
cuts_leave_the_likeliest(void **state)
{
	/* Of the two with 0.1, the lower id goes first. */
	static const double top3[] = { 0.1 / 0.85, 0.4 / 0.85, 0, 0, 0.35 / 0.85 };
	static const double top2[] = { 0, 0.4 / 0.75, 0, 0, 0.35 / 0.75 };
	static const double top4[] = { 0.1 / 0.95, 0.4 / 0.95, 0.1 / 0.95, 0, 0.35 / 0.95 };
	static const double first[] = { 0, 1, 0, 0, 0 };

	(void)state;
	expect((struct kv_sampler){ .temperature = 1, .top_k = 3, .top_p = 1 }, top3);
	expect((struct kv_sampler){ .temperature = 1, .top_k = 1, .top_p = 1 }, first);
	expect((struct kv_sampler){ .temperature = 1, .top_p = 0.8 }, top3);
	expect((struct kv_sampler){ .temperature = 1, .top_p = 0.74 }, top2);
	expect((struct kv_sampler){ .temperature = 1, .top_p = 1e-9 }, first);
	expect((struct kv_sampler){ .temperature = 1, .top_p = 1, .min_p = 0.2 }, top4);
	expect((struct kv_sampler){ .temperature = 1, .top_p = 1, .min_p = 1 }, first);
	/* top-p counts shares of what top-k left: 0.4 / 0.75 < 0.6 takes both */
	expect((struct kv_sampler){ .temperature = 1, .top_k = 2, .top_p = 0.6 }, top2);
	expect((struct kv_sampler){ .temperature = 1, .top_k = 2, .top_p = 0.5 }, first);
}

static void
a_draw_depends_on_its_key_alone(void **state)
{
	struct kv_sampler a = { .temperature = 1, .top_p = 1, .seed = 1 }, b = a, everything = a;
	int other_stream = 0, other_seed = 0;
	int32_t first[200];

	(void)state;
	b.seed = 2;
	everything.top_k = 5;
	for (int i = 0; i < 200; i++)
		first[i] = sample(a, 3, (uint64_t)i);
	for (int i = 199; i >= 0; i--) {
		assert_int_equal(sample(a, 3, (uint64_t)i), first[i]);
		assert_int_equal(sample(everything, 3, (uint64_t)i), first[i]);
		other_stream += sample(a, 4, (uint64_t)i) != first[i];
		other_seed += sample(b, 3, (uint64_t)i) != first[i];
	}
	assert_in_range(other_stream, 100, 175); /* two independent draws differ with probability 0.695 */
	assert_in_range(other_seed, 100, 175);
}

/* Against sorting everything: a vocabulary of size, many equal logits. */
static void
large_vocabulary_matches_a_full_sort(void **state)
{
	enum { N = 5000, K = 300 };
	static float logits[N];
	static bool drawn[N], may[N];
	struct kv_sampler s = { .temperature = 5, .top_k = K, .top_p = 1, .seed = 11 };
	int32_t id;
	size_t better, seen = 0;

	(void)state;
	for (size_t i = 0; i < N; i++)
		logits[i] = (float)(i * 2654435761u % 1000) / 250;
	for (size_t i = 0; i < N; i++) {
		better = 0;
		for (size_t j = 0; j < N; j++)
			better += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
		may[i] = better < K;
	}
	for (uint64_t i = 0; i < 6000; i++) {
		assert_int_equal(kv_sample(&s, 0, i, logits, N, &id, NULL), KV_OK);
		assert_true(may[id]);
		seen += !drawn[id];
		drawn[id] = true;
	}
	assert_int_equal(seen, K); /* nearly even odds: a token is missed with probability e^-20 */
}

static void
extreme_temperatures_work(void **state)
{
	static const float far[] = { -1e30f, 3e30f, 2.9e30f };
	struct kv_sampler s = { .temperature = 1e-300, .top_p = 1 };
	int32_t id;

	(void)state;
	for (uint64_t i = 0; i < 50; i++) {
		assert_int_equal(kv_sample(&s, 0, i, far, 3, &id, NULL), KV_OK);
		assert_int_equal(id, 1);
	}
	expect((struct kv_sampler){ .temperature = 1e300, .top_p = 1 }, (double[]){ 0.2, 0.2, 0.2, 0.2, 0.2 });
}

static void
bad_values_are_refused(void **state)
{
	float bad[] = { 1, 2, NAN, 0 };
	struct kv_sampler greedy = { .top_p = 1 }, hot = { .temperature = 1, .top_p = 1 };
	static const struct kv_sampler out_of_range[] = {
		{ .temperature = -1, .top_p = 1 },
		{ .temperature = NAN, .top_p = 1 },
		{ .temperature = 1, .top_p = 0 },
		{ .temperature = 1, .top_p = 1.5 },
		{ .temperature = 1, .top_p = 1, .min_p = -0.1 },
		{ .temperature = 1, .top_p = 1, .min_p = NAN },
	};
	struct kv_err e = { 0 };
	int32_t id;

	(void)state;
	assert_int_equal(kv_sample(&greedy, 0, 0, bad, 4, &id, &e), KV_EFAIL);
	assert_non_null(strstr(e.text, "token 2 is nan"));
	bad[2] = -INFINITY;
	assert_int_equal(kv_sample(&hot, 0, 0, bad, 4, &id, &e), KV_EFAIL);
	assert_non_null(strstr(e.text, "token 2 is -inf"));
	assert_int_equal(kv_sample(&hot, 0, 0, bad, 0, &id, &e), KV_ESHAPE);
	for (size_t i = 0; i < sizeof out_of_range / sizeof *out_of_range; i++)
		assert_int_equal(kv_sample(&out_of_range[i], 0, 0, bad, 2, &id, &e), KV_EARG);
}

static void
log_prob_is_the_logarithm_of_the_softmax(void **state)
{
	static const float large[] = { 1e4f, 1e4f, 0 };

	(void)state;
	for (int32_t i = 0; i < 5; i++)
		assert_true(fabs(kv_log_prob(logits5, 5, i) - log(p5[i])) < 1e-6);
	assert_true(fabs(kv_log_prob(large, 3, 0) + log(2)) < 1e-12);
	assert_true(fabs(kv_log_prob(large, 3, 2) + 1e4 + log(2)) < 1e-8);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
		cmocka_unit_test(draws_follow_the_softmax),
		cmocka_unit_test(cuts_leave_the_likeliest),
		cmocka_unit_test(a_draw_depends_on_its_key_alone),
		cmocka_unit_test(large_vocabulary_matches_a_full_sort),
		cmocka_unit_test(extreme_temperatures_work),
		cmocka_unit_test(bad_values_are_refused),
		cmocka_unit_test(log_prob_is_the_logarithm_of_the_softmax),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
