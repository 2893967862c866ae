/* SPDX-License-Identifier: MIT
 * What else decides about a set than scores and budgets: one set for all heads, units, thresholds, shares, and masks
 * with all of these, on paper and against a plain sort.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/evict/evict.h"
#include "tests/lib/kernels.h"

static struct kv_device device;

static int
set_up(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	return kv_device_open(&device, "cpu", 2, &e);
}

static int
tear_down(void **state)
{
	(void)state;
	kv_device_close(&device);
	return 0;
}

/* ---- on paper: one head or two of 8 positions */

enum { T8 = 8 };

/* `want` lists what stays, head after head, each ended by -1. */
static void
expect(struct kv_selection s, size_t keep, const int *want)
{
	size_t offset[3] = { 0, keep, 2 * keep }, kept[3];
	int32_t index[2 * T8];
	struct kv_err e = { 0 };

	s.n = s.n > 0 ? s.n : T8;
	s.T = T8;
	s.offset = offset;
	s.kept = kept;
	if (kv_evict_select(&device, &s, index, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t h = 0; h < s.H; h++, want++) {
		size_t i = kept[h];

		for (; *want >= 0; want++, i++)
			assert_true(i < kept[h + 1] && index[i] == *want);
		assert_int_equal(i, kept[h + 1]);
	}
}

#define LIST(...) ((const int[]){ __VA_ARGS__ })

static void
units_on_paper(void **state)
{
	/*                            0  1  2    3  4  5    6  7 */
	static const float x[T8] = { 9, 0, 0, 2, 4, 6, 5, 0 };
	struct kv_selection s = { .H = 1, .raw = x, .rules = { .chunk = 3, .unit = KVK_MEAN } };
	uint8_t mask[T8] = { 0 };

	(void)state;
	expect(s, 3, LIST(3, 4, 5, -1));    /* means 3, 4, 2.5 */
	expect(s, 4, LIST(0, 3, 4, 5, -1)); /* the second unit is cut: its first position */
	expect(s, 7, LIST(0, 1, 2, 3, 4, 5, 6, -1));
	s.rules.unit = KVK_MAX;
	expect(s, 3, LIST(0, 1, 2, -1));
	s.rules.unit = KVK_SUM; /* 9, 12, 5 */
	expect(s, 5, LIST(0, 1, 3, 4, 5, -1));
	s.rules.unit = KVK_MEAN;
	s.n_recent = 1; /* the last unit is 6 alone: 5 */
	expect(s, 3, LIST(3, 6, 7, -1));
	s.n_sink = 1; /* 1 and 2: 0 */
	expect(s, 6, LIST(0, 3, 4, 5, 6, 7, -1));
	s.n_sink = s.n_recent = 0;
	s.protect = mask;
	mask[1] = mask[7] = 1; /* single positions, before any unit */
	expect(s, 1, LIST(1, -1));
	expect(s, 5, LIST(1, 3, 4, 5, 7, -1));
	s.protect = NULL;
	s.n = 4; /* 4 and later were not scored: units 3 and, of 3 alone, 2 */
	expect(s, 4, LIST(0, 1, 2, 3, -1));
	expect(s, 5, LIST(0, 1, 2, 3, 4, -1));
	s.rules.chunk = 1;
	expect(s, 2, LIST(0, 3, -1));
}

/* Equal units: the raw scores decide, and never take units apart. */
static void
equal_units(void **state)
{
	static const float x[T8] = { 0, 0, 5, 0, 0, 1, 5, 0 };
	const struct kv_score_attrs a = { .pool = KVK_POOL_MAX, .pool_width = 7 };
	struct kv_selection s = {
		.H = 1, .raw = x, .score = &a, .tie = KV_TIE_RAW, .rules = { .chunk = 4, .unit = KVK_MAX }
	};

	(void)state;
	s.rules.unit = KVK_MEAN; /* pooled: 5 everywhere; raw means 1.25 and 1.5 */
	expect(s, 4, LIST(4, 5, 6, 7, -1));
	expect(s, 5, LIST(0, 4, 5, 6, 7, -1));
	s.tie = KV_TIE_POSITION;
	expect(s, 4, LIST(0, 1, 2, 3, -1));
}

static void
uniform_on_paper(void **state)
{
	static const float x[2][T8] = { { 4, 0, 3, 0, 0, 0, 1, 0 }, { 0, 0, 3, 5, 0, 0, 0, 0 } };
	uint8_t mask[2][T8] = { { 0 } };
	struct kv_selection s = { .H = 2, .raw = x[0], .rules = { .uniform_heads = true } };

	(void)state;
	expect(s, 2, LIST(2, 3, -1, 2, 3, -1)); /* means 2 0 3 2.5 0 0 .5 0 */
	expect(s, 3, LIST(0, 2, 3, -1, 0, 2, 3, -1));
	expect(s, 0, LIST(-1, -1));
	s.protect = mask[0];
	mask[0][5] = mask[1][7] = 1; /* of any head */
	expect(s, 3, LIST(2, 5, 7, -1, 2, 5, 7, -1));
	s.rules.by_score = true;
	s.rules.least = 2.5;
	expect(s, 8, LIST(2, 3, 5, 7, -1, 2, 3, 5, 7, -1));
}

/* Heads with different budgets get those of the average head, rounded down. */
static void
uniform_budgets(void **state)
{
	static const float x[3][2] = { { 2, 1 }, { 2, 1 }, { 2, 1 } };
	const size_t offset[] = { 0, 2, 3, 5 };
	size_t kept[4];
	struct kv_selection s = {
		.H = 3, .n = 2, .T = 2, .raw = x[0], .offset = offset, .kept = kept, .rules = { .uniform_heads = true }
	};
	struct kv_err e = { 0 };
	int32_t index[5];

	(void)state;
	assert_int_equal(kv_evict_select(&device, &s, index, &e), KV_OK);
	for (size_t h = 0; h < 3; h++)
		assert_true(kept[h] == h && kept[h + 1] == h + 1 && index[h] == 0);
}

static void
limits_on_paper(void **state)
{
	static const float x[T8] = { 1, 3, 2, NAN, 0, 0, 4, 0 };
	static const float negative[T8] = { -3, -1, -INFINITY, -2, -9, NAN, -2, 7 };
	struct kv_selection s = { .H = 1, .raw = x, .rules = { .by_score = true, .least = 2 } };
	struct kv_err e = { 0 };
	const size_t offset[] = { 0, 3 };
	size_t kept[2];
	int32_t index[3];

	(void)state;
	expect(s, 8, LIST(1, 2, 6, -1));
	expect(s, 2, LIST(1, 6, -1)); /* the budget is the cap */
	s.n_recent = 2;
	expect(s, 8, LIST(1, 2, 6, 7, -1));
	s.n_sink = 1;
	expect(s, 8, LIST(0, 1, 2, 6, 7, -1));
	expect(s, 2, LIST(6, 7, -1));
	s = (struct kv_selection){ .H = 1, .raw = negative, .rules = { .by_score = true, .least = -2 } };
	expect(s, 8, LIST(1, 3, 6, 7, -1));
	s = (struct kv_selection){ .H = 1, .raw = x, .rules = { .share = 0.4 } }; /* of 10 */
	expect(s, 8, LIST(6, -1));
	s.rules.share = 0.41;
	expect(s, 8, LIST(1, 6, -1));
	s.rules.share = 1;
	expect(s, 8, LIST(0, 1, 2, 6, -1));
	expect(s, 3, LIST(1, 2, 6, -1));
	s.n_sink = 1, s.n_recent = 2, s.rules.share = 0.6; /* 1 + 4 are there: one more */
	expect(s, 8, LIST(0, 1, 6, 7, -1));
	s.rules.share = 0.5;
	expect(s, 8, LIST(0, 6, 7, -1));
	s.rules.by_score = true, s.rules.least = 2.5, s.rules.share = 1;
	expect(s, 8, LIST(0, 1, 6, 7, -1)); /* both hold */
	s = (struct kv_selection){
		.H = 1, .n = T8, .T = T8, .raw = negative, .rules = { .share = 0.5 }, .offset = offset, .kept = kept
	};
	assert_int_equal(kv_evict_select(&device, &s, index, &e), KV_EARG);
	assert_non_null(strstr(e.text, "share"));
}

/* ---- at random, against a sort of everything */

struct place {
	int group; /* 0 protected by position, 1 by the mask, 2 by nothing */
	double rank, tie, mass;
	size_t position;
};

static int
by_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->group != y->group)
		return x->group - y->group;
	if (x->group > 0 && x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (x->group > 1 && x->tie != y->tie)
		return x->tie > y->tie ? -1 : 1;
	return x->position < y->position ? -1 : 1;
}

static double
number(float x)
{
	return isnan(x) ? (double)-INFINITY : (double)x;
}

/* The maximum, or the mean in single precision, around position i. */
static float
pooled_at(const struct kv_selection *s, const float *x, size_t i)
{
	const long r = s->score != NULL ? (long)s->score->pool_width / 2 : 0;
	double most = -INFINITY;

	for (long j = (long)i - r; j <= (long)i + r; j++)
		if (j >= 0 && j < (long)s->n && number(x[j]) > most)
			most = number(x[j]);
	return (float)most;
}

/* Position i of head h before units: pooled or not, of one head or of all. */
static float
value(const struct kv_selection *s, size_t h, size_t i, bool pooled)
{
	double sum = 0;

	if (!s->rules.uniform_heads)
		return pooled ? pooled_at(s, s->raw + h * s->n, i) : s->raw[h * s->n + i];
	for (size_t g = 0; g < s->H; g++)
		sum += pooled ? (double)pooled_at(s, s->raw + g * s->n, i) : number(s->raw[g * s->n + i]);
	return (float)(sum / (double)s->H);
}

static double
of_unit(const struct kv_selection *s, size_t h, size_t i, bool pooled)
{
	double sum = 0, most = -INFINITY;
	size_t n = 0;

	if (s->rules.chunk < 2)
		return number(value(s, h, i, pooled));
	for (size_t j = s->n_sink; j < s->n && j + s->n_recent < s->T; j++)
		if (j / s->rules.chunk == i / s->rules.chunk) {
			const double x = number(value(s, h, j, pooled));

			sum += x;
			most = x > most ? x : most;
			n++;
		}
	return number((float)(s->rules.unit == KVK_MAX ? most : s->rules.unit == KVK_SUM ? sum : sum / (double)n));
}

static bool
is_masked(const struct kv_selection *s, size_t h, size_t i)
{
	bool any = false;

	if (s->protect == NULL)
		return false;
	for (size_t g = 0; g < s->H; g++)
		any |= (s->rules.uniform_heads || g == h) && s->protect[g * s->T + i] != 0;
	return any;
}

/* stays [T] of one head.  Returns how many. */
static size_t
naive(const struct kv_selection *s, size_t h, bool *stays)
{
	size_t keep = s->rules.uniform_heads ? s->offset[s->H] / s->H : s->offset[h + 1] - s->offset[h], n = 0;
	const size_t r = s->n_recent < keep ? s->n_recent : keep, sink = s->n_sink < keep - r ? s->n_sink : keep - r;
	struct place *p = test_alloc(s->T, sizeof *p);
	double total = 0, have = 0;

	for (size_t i = 0; i < s->T; i++) {
		const bool ranked = i < s->n, pools = s->score != NULL && s->score->pool != KVK_POOL_NONE;

		p[i] = (struct place){ i < sink || i + r >= s->T ? 0
				       : is_masked(s, h, i)      ? 1
								 : 2,
			ranked ? of_unit(s, h, i, true) : (double)-INFINITY, 0, 0, i };
		if (ranked && pools && s->tie == KV_TIE_RAW)
			p[i].tie = of_unit(s, h, i, false);
		else if (!ranked)
			p[i].tie = -INFINITY;
		p[i].mass = ranked && !isnan(value(s, h, i, false)) ? (double)value(s, h, i, false) : 0;
	}
	qsort(p, s->T, sizeof *p, by_order);
	for (size_t i = 0; i < s->T; i++) {
		total += p[i].mass;
		stays[i] = false;
	}
	for (size_t i = 0; i < s->T && n < keep; i++) {
		/* a margin: the share is asked for where sums in another order cannot change the answer */
		if (p[i].group == 2 && ((s->rules.by_score && !(p[i].rank >= s->rules.least)) ||
					   (s->rules.share > 0 && have >= s->rules.share * total * (1 - 1e-12))))
			break;
		have += p[i].mass;
		stays[p[i].position] = true;
		n++;
	}
	free(p);
	return n;
}

static void
compare(const struct kv_selection *s)
{
	int32_t *index = test_alloc(s->offset[s->H] + 1, sizeof *index);
	bool *stays = test_alloc(s->T, sizeof *stays);
	struct kv_err e = { 0 };

	if (kv_evict_select(&device, s, index, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(s->kept[0], 0);
	for (size_t h = 0; h < s->H; h++) {
		const size_t want = naive(s, h, stays);
		size_t at = s->kept[h];

		assert_int_equal(s->kept[h + 1] - at, want);
		for (size_t i = 0; i < s->T; i++)
			if (stays[i])
				assert_int_equal(index[at++], i);
	}
	free(stays);
	free(index);
}

/* Whole multiples of 1/64, whose sums are exact in any order; some not a number. */
static void
scores(float *x, size_t n, bool nan, uint64_t seed)
{
	float *y = test_floats(n, 1, seed);

	for (size_t i = 0; i < n; i++) {
		x[i] = floorf(fabsf(y[i]) * 12) / 64;
		if (nan && i % 11 == 5)
			x[i] = NAN;
	}
	free(y);
}

static void
one_shape(size_t H, size_t n, size_t T, size_t sink, size_t recent, uint64_t seed)
{
	const struct kv_score_attrs pool = { .pool = KVK_POOL_MAX, .pool_width = 5, .n_tokens = T };
	const double leasts[] = { -INFINITY, 3.0 / 64, 7.0 / 64 }, shares[] = { 0, 0.3, 0.77, 1 };
	const size_t chunks[] = { 0, 1, 2, 5, 64 };
	float *raw = test_alloc(H * n, sizeof *raw);
	uint8_t *mask = test_alloc(H * T, 1);
	size_t *offset = test_alloc(2 * (H + 1), sizeof *offset);

	scores(raw, H * n, seed % 2, seed);
	for (size_t i = 0; i < H * T; i++)
		mask[i] = i * 2654435761u % 9 == seed % 9;
	for (size_t h = 0; h < H; h++)
		offset[h + 1] = offset[h] + (T * (h + 1) / 2 + seed) % (T + 1);
	for (size_t v = 0; v < 5 * 3 * 4 * 2 * 2 * 2; v++) {
		size_t w = v;
		struct kv_selection s = { .H = H,
			.n = n,
			.T = T,
			.raw = raw,
			.n_sink = sink,
			.n_recent = recent,
			.offset = offset,
			.kept = offset + H + 1 };

		s.rules.chunk = chunks[w % 5], w /= 5;
		s.rules.least = leasts[w % 3], s.rules.by_score = w % 3 > 0, w /= 3;
		s.rules.share = shares[w % 4], w /= 4;
		s.rules.uniform_heads = w % 2, w /= 2;
		s.protect = w % 2 ? mask : NULL, w /= 2;
		s.score = w % 2 ? &pool : NULL;
		s.rules.unit = v % 3 == 0 ? KVK_MEAN : v % 3 == 1 ? KVK_SUM : KVK_MAX;
		s.tie = v % 7 < 4 ? KV_TIE_RAW : KV_TIE_POSITION;
		if (seed % 2 && s.rules.uniform_heads && s.rules.share > 0)
			continue; /* NaN in a mean is -inf, and no share */
		compare(&s);
	}
	free(offset);
	free(mask);
	free(raw);
}

static void
at_random(void **state)
{
	(void)state;
	one_shape(1, 40, 40, 0, 0, 2);
	one_shape(4, 33, 41, 0, 8, 3);
	one_shape(4, 37, 37, 3, 6, 4);
	one_shape(3, 20, 29, 2, 0, 5);
	one_shape(2, 1, 1, 0, 0, 6);
	one_shape(2, 0, 7, 2, 3, 8);
	one_shape(2, 30, 30, 20, 20, 10);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_on_paper),
		cmocka_unit_test(equal_units),
		cmocka_unit_test(uniform_on_paper),
		cmocka_unit_test(uniform_budgets),
		cmocka_unit_test(limits_on_paper),
		cmocka_unit_test(at_random),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
