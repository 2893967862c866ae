/* SPDX-License-Identifier: MIT
 * Kendall's tau, Pearson's r, divergences and moments against naive loops in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/stat_layer.h"

static uint64_t seed = 7;

/* 0 .. n-1 */
static unsigned
roll(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

static int
sign_of(float x, float y)
{
	const double a = isnan(x) ? -INFINITY : (double)x, b = isnan(y) ? -INFINITY : (double)y;

	return (a > b) - (a < b);
}

/* The definition, pair by pair. */
static double
naive_tau(const float *x, const float *y, size_t n)
{
	double sum = 0, of_x = 0, of_y = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++) {
			const int a = sign_of(x[i], x[j]), b = sign_of(y[i], y[j]);

			sum += a * b;
			of_x += a != 0;
			of_y += b != 0;
		}
	return of_x > 0 && of_y > 0 ? sum / sqrt(of_x * of_y) : 0;
}

static void
kendall(void **state)
{
	/* how many values there are: many ties, some, hardly any */
	static const unsigned values[] = { 1, 2, 5, 100, 1000000 };
	static const size_t sizes[] = { 0, 1, 2, 3, 31, 33, 200 };
	static const float odd[] = { NAN, -0.0f, 0.0f, INFINITY, -INFINITY };
	float x[200], y[200];
	struct kv_err e = { 0 };
	double tau;

	(void)state;
	for (size_t v = 0; v < 5; v++)
		for (size_t s = 0; s < 7; s++) {
			for (size_t i = 0; i < sizes[s]; i++) {
				x[i] = (float)roll(values[v]) * 0.1f - 1;
				y[i] = x[i] + (float)roll(values[v]) * 0.1f;
				if (values[v] > 1 && roll(9) == 0)
					x[i] = odd[roll(5)];
				if (values[v] > 1 && roll(9) == 0)
					y[i] = odd[roll(5)];
			}
			assert_int_equal(kv_kendall(x, y, sizes[s], &tau, &e), KV_OK);
			assert_near(tau, naive_tau(x, y, sizes[s]), "tau");
		}
}

/* More pairs than 32 bits count, and not quadratic: x ascends, y is x with neighbours exchanged. */
static void
kendall_long(void **state)
{
	const size_t n = 1 << 17;
	float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
	struct kv_err e = { 0 };
	double tau;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		x[i] = (float)i;
		y[i] = (float)(i ^ 1);
	}
	assert_int_equal(kv_kendall(x, y, n, &tau, &e), KV_OK);
	assert_near(tau, 1 - 2.0 / (double)(n - 1), "tau"); /* n/2 of n(n-1)/2 pairs discord */
	free(y);
	free(x);
}

static void
pearson(void **state)
{
	float x[50], y[50], constant[50];
	double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;

	(void)state;
	for (size_t i = 0; i < 50; i++) {
		x[i] = (float)roll(1000) * 1e-9f;
		y[i] = 3 - x[i] * 1e6f + (float)roll(1000) * 1e-4f;
		constant[i] = 0.1f;
		mx += x[i] / 50.0;
		my += y[i] / 50.0;
	}
	for (size_t i = 0; i < 50; i++) {
		xx += (x[i] - mx) * (x[i] - mx);
		yy += (y[i] - my) * (y[i] - my);
		xy += (x[i] - mx) * (y[i] - my);
	}
	assert_near(kv_pearson(x, y, 50), xy / sqrt(xx) / sqrt(yy), "r");
	assert_near(kv_pearson(x, x, 50), 1, "of itself");
	assert_true(kv_pearson(x, constant, 50) == 0 && kv_pearson(constant, x, 50) == 0);
	assert_true(kv_pearson(x, y, 1) == 0 && kv_pearson(x, y, 0) == 0);
}

static void
divergences(void **state)
{
	static const float g[] = { 2, 1, 1, 0 }, p[] = { 4, 4, 0, 8 }, zero[] = { 0, 0, 0, 0 };
	float a[300], b[300];
	long double sum_a = 0, sum_b = 0, kl = 0;

	(void)state;
	/* 1/2 ln(1/2 : 1/4) + 1/4 ln(1/4 : 1/4) + 1/4 ln(1/4 : 1e-12) */
	assert_near(kv_kl_scores(g, p, 4), 0.5 * log(2) + 0.25 * log(0.25e12), "KL of scores");
	assert_near(kv_kl_scores(g, zero, 4), -0.5 * log(2) - 0.5 * log(4) - log(1e-12), "against nothing");
	assert_near(kv_kl_scores(zero, p, 4), 0, "of nothing");
	for (size_t i = 0; i < 300; i++) {
		a[i] = (float)roll(4000) / 100 - 900; /* exp() of these alone would be 0 */
		b[i] = (float)roll(4000) / 100 + 900; /* .. and infinite */
		sum_a += expl(a[i]);
		sum_b += expl(b[i]);
	}
	for (size_t i = 0; i < 300; i++)
		kl += expl(a[i]) / sum_a * (logl(expl(a[i]) / sum_a) - logl(expl(b[i]) / sum_b));
	assert_near(kv_kl_logits(a, b, 300), (double)kl, "KL of logits");
	assert_true(kv_kl_logits(a, a, 300) == 0);
	assert_near(kv_log_softmax(b, 300, 17), (double)logl(expl(b[17]) / sum_b), "ln p");
	assert_int_equal(kv_argmax((float[]){ 1, 3, 2, 3 }, 4), 1);
}

static void
moments(void **state)
{
	static const struct kv_stat_cell cells[] = { { 1, 2 }, { 3, 4 }, { 0, 0 }, { 5, 3 } };
	struct kv_moments m = { 0 };

	(void)state;
	assert_true(isnan(kv_moments_value(&m, KV_STAT_MEAN)));
	for (size_t i = 0; i < 4; i++)
		kv_moments_add(&m, cells[i]);
	assert_near(kv_moments_value(&m, KV_STAT_MEAN), (0.5 + 0.75 + 1 + 5 / 3.0) / 4, "mean");
	assert_near(kv_moments_value(&m, KV_STAT_SUM), 0.5 + 0.75 + 1 + 5 / 3.0, "sum");
	assert_near(kv_moments_value(&m, KV_STAT_RATIO), 1, "9 of 9");
	assert_near(kv_moments_value(&m, KV_STAT_SLOPE), (2 + 12 + 0 + 15) / (1.0 + 9 + 0 + 25), "slope");
	/* means 9/4 and 9/4: centred products by hand */
	assert_near(
	    kv_moments_value(&m, KV_STAT_PEARSON), (29 - 4 * 81 / 16.0) / sqrt((35 - 20.25) * (29 - 20.25)), "r");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kendall),
		cmocka_unit_test(kendall_long),
		cmocka_unit_test(pearson),
		cmocka_unit_test(divergences),
		cmocka_unit_test(moments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
