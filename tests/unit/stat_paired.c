/* SPDX-License-Identifier: MIT
 * Tests of paired differences: against scipy (tests/golden/paired.txt), against counting all signs, and at the edges.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/stat/stat.h"

#define MOST 512

static void
assert_p(double p, double expected, const char *test, size_t n)
{
	if (!(fabs(p - expected) <= 1e-9 * expected))
		fail_msg("%s of %zu differences: %.17g, expected %.17g", test, n, p, expected);
}

static void
scipy(void **state)
{
	static char line[64 * MOST];
	double sign, wilcoxon, d[MOST];
	FILE *f = fopen("tests/golden/paired.txt", "r");
	size_t n_lines = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof line, f) != NULL) {
		char *p = line, *end;
		size_t n = 0;

		sign = strtod(p, &p);
		wilcoxon = strtod(p, &p);
		for (double x = strtod(p, &end); end != p && n < MOST; x = strtod(p, &end)) {
			d[n++] = x;
			p = end;
		}
		assert_p(kv_sign_test(d, n), sign, "sign test", n);
		assert_p(kv_wilcoxon(d, n), wilcoxon, "Wilcoxon", n);
		n_lines++;
	}
	fclose(f);
	assert_true(n_lines >= 20);
}

/* Sum of the ranks of the positive ones, the slow way. */
static double
rank_sum(const double *d, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n && d[i] > 0; j++)
			sum += fabs(d[j]) < fabs(d[i]) ? 1 : fabs(d[j]) == fabs(d[i]) ? (j == i ? 1 : 0.5) : 0;
	return sum;
}

/* Exactness with ties: all 2^n ways to give signs. */
static void
all_signs(void **state)
{
	static const double sizes[] = { 1, 1, 2, 2, 2, 3, 5, 5, 5, 5, 7 };
	enum { N = 11 };
	double d[N], given[N], w;
	size_t low, high;

	(void)state;
	for (unsigned observed = 0; observed < 1u << N; observed += 97) {
		for (size_t i = 0; i < N; i++)
			given[i] = observed >> i & 1 ? sizes[i] : -sizes[i];
		w = rank_sum(given, N);
		low = high = 0;
		for (unsigned signs = 0; signs < 1u << N; signs++) {
			double other;

			for (size_t i = 0; i < N; i++)
				d[i] = signs >> i & 1 ? sizes[i] : -sizes[i];
			other = rank_sum(d, N);
			low += other <= w;
			high += other >= w;
		}
		assert_p(
		    kv_wilcoxon(given, N), fmin(1, 2.0 * (double)(low < high ? low : high) / (1u << N)), "Wilcoxon", N);
	}
}

static void
edges(void **state)
{
	double d[2000];

	(void)state;
	assert_p(kv_sign_test(NULL, 0), 1, "sign test", 0);
	assert_p(kv_wilcoxon(NULL, 0), 1, "Wilcoxon", 0);
	for (size_t i = 0; i < 2000; i++)
		d[i] = (double)(i + 1);
	/* many, of one sign: no overflow, and p as small as a double can say */
	assert_true(kv_sign_test(d, 2000) >= 0 && kv_sign_test(d, 2000) < 1e-300);
	assert_true(kv_wilcoxon(d, 2000) >= 0 && kv_wilcoxon(d, 2000) < 1e-100);
	assert_p(kv_sign_test(d, 50), ldexp(1, -49), "sign test", 50);
	assert_p(kv_wilcoxon(d, 50), ldexp(1, -49), "Wilcoxon", 50);
	/* of no direction at all */
	for (size_t i = 0; i < 2000; i++)
		d[i] = i % 2 ? 1 : -1;
	assert_p(kv_sign_test(d, 2000), 1, "sign test", 2000);
	assert_p(kv_wilcoxon(d, 2000), 1, "Wilcoxon", 2000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scipy),
		cmocka_unit_test(all_signs),
		cmocka_unit_test(edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
