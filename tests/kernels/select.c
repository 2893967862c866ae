/* SPDX-License-Identifier: MIT
 * select: exact, against a sort by the ordering of the contract. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

struct entry {
	bool protect;
	double rank, tie;
	size_t pos;
};

/* Protected first; falling rank, falling tie (not among the protected), rising position. */
static int
by_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->protect != y->protect)
		return x->protect ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (x->tie != y->tie && !x->protect)
		return x->tie > y->tie ? -1 : 1;
	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static double
canonical(float x)
{
	return isnan(x) ? (double)-INFINITY : (double)x;
}

/* kept [T]: which entries of head g stay. */
static void
naive(const struct kvk_select *j, size_t g, bool *kept)
{
	const size_t keep = j->offset[g + 1] - j->offset[g], T = j->T;
	size_t r = j->n_recent, s = j->n_sink, n = 0;
	struct entry *e = test_alloc(T, sizeof *e);

	r = r > keep ? keep : r;
	r = r > T ? T : r;
	s = s > keep - r ? keep - r : s;
	s = s > T - r ? T - r : s;
	for (size_t i = 0; i < T; i++) {
		kept[i] = i < s || i >= T - r;
		if (!kept[i]) {
			const bool ranked = i < j->n;

			e[n].protect = j->protect != NULL && j->protect[g * T + i] != 0;
			e[n].rank = ranked ? canonical(j->rank[g * j->n + i]) : (double)-INFINITY;
			e[n].tie = ranked && j->tie != NULL ? canonical(j->tie[g * j->n + i]) : (double)-INFINITY;
			e[n++].pos = i;
		}
	}
	qsort(e, n, sizeof *e, by_order);
	for (size_t i = 0; i < keep - r - s; i++)
		kept[e[i].pos] = true;
	free(e);
}

static void
check(const struct kvk_select *j, int threads)
{
	struct kvk_dev *dev = test_dev(threads);
	int32_t *index = test_alloc(j->offset[j->H], sizeof *index);
	bool *kept = test_alloc(j->T, sizeof *kept);

	assert_int_equal(kvk_cpu.select(dev, j, index), 0);
	for (size_t g = 0; g < j->H; g++) {
		size_t at = j->offset[g];

		naive(j, g, kept);
		for (size_t i = 0; i < j->T; i++)
			if (kept[i])
				assert_int_equal(index[at++], i);
		assert_int_equal(at, j->offset[g + 1]);
	}
	kvk_cpu.close(dev);
	free(index);
	free(kept);
}

/* Few different values, so that ties are everywhere; NaN, infinities and both zeros among them. */
static void
coarse(float *x, size_t n)
{
	static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f };

	for (size_t i = 0; i < n; i++) {
		const int step = (int)(x[i] * 6);

		x[i] = step == 5 ? odd[i % 6] : (float)step * 0.125f;
	}
}

static void
one_size(size_t T, size_t n, size_t sink, size_t recent, bool ties, uint64_t seed)
{
	enum { H = 3 };
	float *rank = test_floats(H * n, 1, seed), *tie = test_floats(H * n, 1, seed + 1);
	const size_t shares[] = { 0, 1, T / 3, T > 0 ? T - 1 : 0, T, T / 2, recent < T ? recent : T };

	uint8_t *protect = test_alloc(H * T, 1);

	for (size_t i = 0; i < H * T; i++)
		protect[i] = i * 2654435761u % 7 == 0;
	if (ties) {
		coarse(rank, H * n);
		coarse(tie, H * n);
	}
	for (size_t v = 0; v < 7; v++) {
		const size_t keep[H] = { shares[v] < T ? shares[v] : T, shares[(v + 1) % 7], shares[(v + 3) % 7] };
		const size_t offset[H + 1] = { 0, keep[0], keep[0] + keep[1], keep[0] + keep[1] + keep[2] };
		struct kvk_select j = { rank, NULL, NULL, H, n, T, sink, recent, offset };

		check(&j, 1);
		j.tie = tie;
		check(&j, 2);
		j.protect = protect;
		check(&j, 2);
	}
	free(protect);
	free(rank);
	free(tie);
}

static void
sizes(void **state)
{
	static const size_t tokens[] = { 1, 2, 31, 33, 64, 65, 130, 1500 };

	(void)state;
	for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
		for (int ties = 0; ties < 2; ties++) {
			const size_t T = tokens[i], w = T < 32 ? T : 32;

			one_size(T, T, 0, 0, ties, i);
			one_size(T, T - w, 0, 32, ties, i + 100);
			one_size(T, T, 4, 7, ties, i + 200);
			one_size(T, 0, 4, 8, ties, i + 300);
			one_size(T, T / 2, 200, 200, ties, i + 400);
		}
}

/* Equal ranks: the tie value decides, then the lower position. */
static void
on_paper(void **state)
{
	const float rank[] = { 1, 3, 3, 3, 2, 3, 0 }, tie[] = { 0, 1, 5, 1, 9, -0.0f, 0 };
	const size_t offset[] = { 0, 3 };
	struct kvk_select j = { .rank = rank, .H = 1, .n = 7, .T = 7, .offset = offset };
	struct kvk_dev *dev = test_dev(1);
	int32_t index[3];

	(void)state;
	assert_int_equal(kvk_cpu.select(dev, &j, index), 0);
	assert_true(index[0] == 1 && index[1] == 2 && index[2] == 3);
	j.tie = tie;
	j.n_recent = 1;
	assert_int_equal(kvk_cpu.select(dev, &j, index), 0);
	assert_true(index[0] == 1 && index[1] == 2 && index[2] == 6);
	kvk_cpu.close(dev);
}

static void
refused(void **state)
{
	const float rank[] = { 1, 2 };
	const size_t offset[] = { 0, 3 }, falling[] = { 1, 0 };
	struct kvk_select j = { .rank = rank, .H = 1, .n = 2, .T = 2, .offset = offset };
	struct kvk_dev *dev = test_dev(1);
	int32_t index[3] = { 0, -1, 0 };

	(void)state;
	assert_int_not_equal(kvk_cpu.select(dev, &j, index), 0);
	assert_string_equal(kvk_cpu.error(dev), "select: head 0 has places 0 to 3 for entries of 2");
	j.offset = falling;
	assert_int_not_equal(kvk_cpu.select(dev, &j, index), 0);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_paper),
		cmocka_unit_test(sizes),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
