/* SPDX-License-Identifier: MIT
 * What holds for every allocator in the table and every way to select: totals are kept, protected positions survive, a
 * score that is not a number never wins, and the edges of METHODS 1.9. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/evict/evict.h"
#include "tests/lib/allot_rig.h"

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

enum { H = 3, L_MAX = 3, T_MAX = 64 };

static const float no_numbers[H * T_MAX]; /* keys and values of 1 dimension */

/* A method with what it cannot do without: a file for those that read one. */
static void
params_of(struct kv_params *p, const struct kv_budget_method *m, size_t L)
{
	char text[L_MAX * 16] = "";

	for (size_t l = 0; l < L; l++)
		strcat(text, "0.9 0.1 0.6\n");
	if (strcmp(m->about.name, "headkv") == 0)
		allot_params(p, m, "importance", allot_file(text), NULL);
	else if (strcmp(m->about.name, "duo") == 0)
		allot_params(p, m, "gates", allot_file(text), "sink", "1", "recent", "2", NULL);
	else
		allot_params(p, m, NULL);
}

/* headkv and cake, as their public code, do not hand on what a head or layer has no room for (METHODS 3.6, 3.7). */
static bool
may_leave_some(const struct kv_budget_method *m)
{
	return strcmp(m->about.name, "headkv") == 0 || strcmp(m->about.name, "cake") == 0;
}

/* fastgen takes attention that sums to 1, and nothing else. */
static bool
wants_shares(const struct kv_budget_method *m)
{
	return strcmp(m->about.name, "fastgen") == 0;
}

/* Layers of T tokens with scores [H][n] and, for cake, a preference. */
static void
rig_init(struct allot_rig *x, size_t L, size_t T, const float *score, size_t n, struct kv_protection protect,
    const struct kv_score_attrs *pool)
{
	const size_t shape[] = { H, T, 1 };

	allot_init(x, L, H, T);
	x->cfg.D = 1;
	for (size_t l = 0; l < L; l++) {
		x->layer[l].device = &device;
		allot_put_score(x, l, score, n, protect, pool);
		json_object_set_new(kv_step_find(&x->step[l], "score")->attrs, "preference", json_real((double)(l + 1)));
		allot_put(x, l, "k", KVK_F32, "kv_head token dim", shape, no_numbers, NULL);
		allot_put(x, l, "v", KVK_F32, "kv_head token dim", shape, no_numbers, NULL);
	}
}

static size_t
total(const struct allot_rig *x)
{
	size_t sum = 0;

	for (size_t l = 0; l < x->cfg.L; l++) {
		size_t layer = 0;

		for (size_t h = 0; h < H; h++)
			layer += (size_t)allot_budget(x, l)[h];
		assert_int_equal(allot_count(x, l, "total"), layer);
		sum += layer;
	}
	return sum;
}

/* ---- totals */

/* Every allocator spends the sum it was granted, but for those that may leave some or decide the sum themselves.  What
 * heads keep is their budget, so that none is empty but by a budget of 0. */
static void
conserves(const struct kv_budget_method *m, size_t L, size_t T, size_t C, struct kv_protection protect)
{
	const bool unspent = may_leave_some(m) || m->free_total;
	float score[H * T_MAX];
	struct allot_rig x;
	struct kv_params p;
	size_t sum;

	for (size_t i = 0; i < H * T; i++)
		score[i] = wants_shares(m) ? 1.0f / (float)T : (float)((i * 7 + i / T * 3) % 11) / 100;
	params_of(&p, m, L);
	rig_init(&x, L, T, score, T, protect, NULL);
	allot_run(&p, &x, m->free_total ? 0 : C);
	sum = total(&x);
	C = C < T ? C : T;
	if (unspent ? sum > L * H * T || (!m->free_total && sum > L * H * C) : sum != L * H * C)
		fail_msg("%s: L %zu, T %zu, C %zu, protects %zu and %zu: %zu entries", m->about.name, L, T, C, protect.n_sink,
		    protect.n_recent, sum);
	for (size_t l = 0; l < L; l++) {
		const struct kv_evicting how = { .tie = KV_TIE_RAW };
		const int32_t *B = allot_budget(&x, l), *offset;
		struct kv_err e = { 0 };
		size_t n_nan;

		if (kv_evict_layer(&x.layer[l], &how, &n_nan, &e) < 0)
			fail_msg("%s: T %zu, C %zu: %s", m->about.name, T, C, e.text);
		offset = kv_step_find(&x.step[l], "offset")->data;
		for (size_t h = 0; h < H; h++) {
			assert_int_equal(offset[h + 1] - offset[h], B[h]); /* what is not there was not granted */
			assert_in_range(B[h], 0, T);
			if (C <= protect.n_sink + protect.n_recent && !m->free_total)
				assert_int_equal(B[h], C);
			if (C == T && !m->free_total)
				assert_int_equal(B[h], T);
		}
	}
	allot_fini(&x);
	kv_params_close(&p);
}

static void
short_prompts(void **state)
{
	static const struct kv_protection protect[] = { { 0, 0, -1 }, { 0, 1, -1 }, { 1, 2, -1 }, { 0, 32, -1 } };

	(void)state;
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++)
		for (size_t T = 1, done = 0; T <= 5; T++, done = 0)
			for (int percent = 1; percent <= 99; percent++) {
				const struct kv_grant g = { 0, percent / 100.0 };
				struct kv_err e = { 0 };
				size_t C;

				assert_int_equal(kv_grant_capacity(&g, T, &C, &e), KV_OK);
				assert_in_range(C, 1, T);
				if (C == done)
					continue; /* the same entries as one percent ago */
				done = C;
				for (size_t i = 0; i < sizeof protect / sizeof *protect; i++)
					for (size_t L = 1; L <= L_MAX; L += 2)
						conserves(*m, L, T, C, protect[i]);
			}
}

static void
longer_prompts(void **state)
{
	(void)state;
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++)
		for (size_t C = 1; C <= T_MAX; C += C < 40 ? 1 : 8)
			for (size_t L = 1; L <= L_MAX; L += 2) {
				conserves(*m, L, T_MAX, C, (struct kv_protection){ 0, 0, -1 });
				conserves(*m, L, T_MAX, C, (struct kv_protection){ 4, 7, -1 });
				conserves(*m, L, T_MAX, C, (struct kv_protection){ 4, 0, 0.5 });
			}
}

/* ---- protected positions, and what is not a number */

enum pattern { ZERO, LARGE, EQUAL, NAN_ONLY, NAN_AMONG, INF_AMONG, N_PATTERNS };

static float
value(enum pattern what, size_t h, size_t j)
{
	const bool odd = (h + j) % 4 == 1;
	static const float same[] = { [ZERO] = 0, [LARGE] = 1e8f, [EQUAL] = 0.25f, [NAN_ONLY] = NAN };

	if (what < NAN_AMONG)
		return same[what];
	return odd ? what == NAN_AMONG ? NAN : INFINITY : 0.01f * (float)(j % 5);
}

static const struct kv_rules rules[] = {
	{ 0 },
	{ .uniform_heads = true },
	{ .chunk = 5, .unit = KVK_MEAN },
	{ .chunk = 5, .unit = KVK_MAX, .uniform_heads = true },
	{ .by_score = true, .least = 0.02 },
};

static bool
kept(const int32_t *from, const int32_t *to, size_t position)
{
	for (; from < to; from++)
		if ((size_t)*from == position)
			return true;
	return false;
}

/* Whether a head kept what it protects, and no score without a number while one with a number was left. */
static void
check_head(const struct allot_rig *x, size_t l, size_t h, enum pattern what, bool single, size_t n, const char *where)
{
	const int32_t *offset = kv_step_find(&x->step[l], "offset")->data, *index = kv_step_find(&x->step[l], "index")->data;
	const int32_t *from = index + offset[h], *to = index + offset[h + 1];
	const size_t T = x->seq.T, size = (size_t)(to - from), sink = (size_t)allot_count(x, l, "n_sink"),
		     recent = (size_t)allot_count(x, l, "n_recent"), r = recent < size ? recent : size,
		     s = sink < size - r ? sink : size - r;
	const uint8_t *protect = allot_protect(x, l);
	bool nan = false, number_left = false;

	for (size_t j = 0; j < T; j++) {
		const bool in = kept(from, to, j), fixed = j < s || j >= T - r;

		if (fixed && !in)
			fail_msg("%s: layer %zu, head %zu, %zu entries: %zu is protected and gone", where, l, h, size, j);
		if (fixed || j >= n || (protect != NULL && protect[h * T + j] != 0))
			continue;
		nan = nan || (in && isnan(value(what, h, j)));
		number_left = number_left || (!in && !isnan(value(what, h, j)));
	}
	if (single && nan && number_left)
		fail_msg("%s: layer %zu, head %zu: not a number, and kept before one that is", where, l, h);
}

static void
survive(const struct kv_budget_method *m, enum pattern what, const struct kv_rules *rule, enum kv_tie tie, size_t C)
{
	const size_t sink = 3, recent = 8, n = T_MAX - recent; /* as after a window method */
	const bool plain = rule->chunk == 0 && !rule->uniform_heads && !rule->by_score;
	const struct kv_evicting how = { .tie = tie, .rules = *rule };
	float score[H * T_MAX];
	struct allot_rig x;
	struct kv_params p;
	char where[128];

	for (size_t i = 0; i < H * n; i++)
		score[i] = value(what, i / n, i % n);
	snprintf(where, sizeof where, "%s, pattern %d, rule %td, tie %d, C %zu", m->about.name, what, rule - rules, tie, C);
	params_of(&p, m, L_MAX);
	rig_init(&x, L_MAX, T_MAX, score, n, (struct kv_protection){ sink, recent, -1 }, NULL);
	allot_run(&p, &x, m->free_total ? 0 : C);
	for (size_t l = 0; l < L_MAX; l++) {
		struct kv_err e = { 0 };
		size_t n_nan;

		if (kv_evict_layer(&x.layer[l], &how, &n_nan, &e) < 0)
			fail_msg("%s: %s", where, e.text);
		for (size_t h = 0; h < H; h++)
			check_head(&x, l, h, what, plain, n, where);
	}
	allot_fini(&x);
	kv_params_close(&p);
}

static void
protected_positions(void **state)
{
	static const size_t C[] = { 2, 9, 11, 12, 20, 50, 63 };

	(void)state;
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++)
		for (int what = wants_shares(*m) ? N_PATTERNS : 0; what < N_PATTERNS; what++)
			for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
				for (size_t c = 0; c < sizeof C / sizeof *C; c++) {
					survive(*m, (enum pattern)what, &rules[r], KV_TIE_RAW, C[c]);
					survive(*m, (enum pattern)what, &rules[r], KV_TIE_POSITION, C[c]);
				}
}

/* ---- METHODS 1.9 with a window of 32 */

/* The set of one head for C entries and a window W, naively: scores fall with the position but for a peak. */
static void
expected(size_t T, size_t C, size_t W, size_t peak, bool *keep)
{
	const size_t history = T > W ? T - W : 0, left = C > W ? C - W : 0;

	for (size_t j = 0; j < T; j++)
		keep[j] = C >= T || j + (C < W ? C : W) >= T;
	for (size_t i = 0; i < left && C < T && i < history; i++) { /* the peak, then from the first on */
		size_t j = 0;

		if (peak < history && !keep[peak])
			j = peak;
		else
			while (keep[j])
				j++;
		keep[j] = true;
	}
}

static void
window_edges(void **state)
{
	static const size_t tokens[] = { 1, 31, 32, 33, 34, 40 }, budget[] = { 1, 16, 31, 32, 33, 34 };
	const size_t W = 32, peak = 5;
	const struct kv_evicting how = { .tie = KV_TIE_RAW };

	(void)state;
	for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
		for (size_t c = 0; c < sizeof budget / sizeof *budget; c++) {
			const size_t T = tokens[t], C = budget[c], n = T > W ? T - W : 0;
			float score[H * T_MAX] = { 0 };
			bool keep[T_MAX];
			struct allot_rig x;
			struct kv_params p;
			struct kv_err e = { 0 };
			size_t n_nan;

			for (size_t i = 0; i < H * n; i++)
				score[i] = i % n == peak ? 9 : 1 - 0.01f * (float)(i % n);
			expected(T, C, W, peak, keep);
			allot_params(&p, &kv_budget_uniform, NULL);
			rig_init(&x, 1, T, score, n, (struct kv_protection){ 0, W, -1 }, NULL);
			allot_run(&p, &x, C);
			if (kv_evict_layer(&x.layer[0], &how, &n_nan, &e) < 0)
				fail_msg("T %zu, C %zu: %s", T, C, e.text);
			for (size_t h = 0; h < H; h++) {
				const int32_t *offset = kv_step_find(&x.step[0], "offset")->data;
				const int32_t *index = kv_step_find(&x.step[0], "index")->data;

				assert_int_equal(offset[h + 1] - offset[h], C < T ? C : T);
				for (size_t j = 0; j < T; j++)
					if (kept(index + offset[h], index + offset[h + 1], j) != keep[j])
						fail_msg("T %zu, C %zu: position %zu", T, C, j);
			}
			allot_fini(&x);
			kv_params_close(&p);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_prompts),
		cmocka_unit_test(longer_prompts),
		cmocka_unit_test(protected_positions),
		cmocka_unit_test(window_edges),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
