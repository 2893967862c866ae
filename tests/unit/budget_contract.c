/* SPDX-License-Identifier: MIT
 * What every row of the table keeps, walked over random inputs: the sum is what was granted (less only where METHODS
 * says so), no head has more than there is, protected entries come first; and kv_best() and kv_best_by_head() against
 * sorting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/allot_rig.h"
#include "tests/lib/oracle.h"
#define LAYERS 3

static float
random_score(unsigned kind)
{
	const float x = (float)rand() / (float)RAND_MAX;

	switch (kind % 5) {
	case 0: return x;
	case 1: return x * x * x * x * 0.05f;            /* some heads abnormal */
	case 2: return rand() % 9 == 0 ? NAN : x;
	case 3: return (float)(rand() % 3);              /* plateaus */
	default: return rand() % 7 == 0 ? 1e8f : 0;
	}
}

/* A file of LAYERS rows of H numbers, for the methods that want one. */
static const char *
numbers(size_t H)
{
	char text[1024] = "";

	for (size_t l = 0; l < LAYERS; l++)
		for (size_t h = 0; h < H; h++)
			sprintf(text + strlen(text), "%d%c", 1 + rand() % 9, h + 1 < H ? ' ' : '\n');
	return allot_file(text);
}

static void
params(struct kv_params *p, const struct kv_budget_method *m, size_t H)
{
	const char *const name = m == &kv_budget_headkv ? "importance" : m == &kv_budget_duo ? "gates" : NULL;

	allot_params(p, m, name, name != NULL ? numbers(H) : NULL, NULL);
}

static void
put_scores(struct allot_rig *x, size_t H, size_t T, float *s, unsigned kind, bool mass)
{
	for (size_t l = 0; l < LAYERS; l++) {
		float *at = s + l * H * T;

		for (size_t i = 0; i < H * T; i++)
			at[i] = mass ? 1 / (float)T : random_score(kind);
		allot_put_score(x, l, at, T, (struct kv_protection){ 2, 5, -1 }, NULL);
		json_object_set_new(
		    kv_step_find(&x->step[l], "score")->attrs, "preference", json_real((double)(rand() % 10)));
	}
}

static void
check(const struct kv_budget_method *m, const struct allot_rig *x, size_t H, size_t T, size_t C)
{
	const size_t granted = LAYERS * H * (C < T ? C : T), fixed = T < 7 ? T : 7;
	size_t sum = 0;

	for (size_t l = 0; l < LAYERS; l++)
		for (size_t h = 0; h < H; h++) {
			const size_t B = (size_t)allot_budget(x, l)[h];

			assert_in_range(B, 0, T);
			sum += B;
			if (!m->free_total && C >= fixed && B < fixed)
				fail_msg("%s: %zu of the protected", m->about.name, B);
			if (!m->free_total && C > 0)
				assert_true(B > 0);
		}
	if (m == &kv_budget_champion || m == &kv_budget_headkv) /* limits without anyone to hand on to */
		assert_true(sum <= granted);
	else if (!m->free_total && sum != granted)
		fail_msg("%s: %zu heads, %zu tokens, %zu each: %zu, not %zu", m->about.name, H, T, C, sum, granted);
}

static void
contract(void **state)
{
	static const size_t heads[] = { 1, 2, 5 }, tokens[] = { 1, 2, 5, 7, 8, 31, 60 };
	static float s[LAYERS * 5 * 60];

	(void)state;
	srand(1);
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++)
		for (size_t i = 0; i < 3 * 7; i++)
			for (size_t C = 1; C < 66; C += 1 + C / 6) {
				const size_t H = heads[i / 7], T = tokens[i % 7];
				struct kv_params p;
				struct allot_rig x;

				allot_init(&x, LAYERS, H, T);
				put_scores(&x, H, T, s, (unsigned)C, (*m)->free_total);
				params(&p, *m, H);
				allot_run(&p, &x, (*m)->free_total ? 0 : C);
				check(*m, &x, H, T, C);
				kv_params_close(&p);
				allot_fini(&x);
			}
}

/* ---- kv_best(), kv_best_by_head() */

static const double *sort_s;
static const float *sort_tie;

static int
better(const void *a, const void *b)
{
	const size_t i = *(const size_t *)a, j = *(const size_t *)b;
	const double x = isnan(sort_s[i]) ? -INFINITY : sort_s[i], y = isnan(sort_s[j]) ? -INFINITY : sort_s[j];

	if (x != y)
		return x > y ? -1 : 1;
	if (sort_tie != NULL && sort_tie[i] != sort_tie[j])
		return sort_tie[i] > sort_tie[j] ? -1 : 1;
	return i < j ? -1 : 1;
}

static void
best(void **state)
{
	static const double odd[] = { 0.0, -0.0, NAN, INFINITY, -INFINITY, 5e-324, -5e-324, 1, -1, 1e300 };

	(void)state;
	srand(2);
	for (size_t n = 0; n < 60; n++)
		for (size_t k = 0; k < n + 3; k++) {
			double s[60];
			float tie[60];
			uint8_t taken[60] = { 0 }, want[60] = { 0 };
			size_t order[60], members = 0;
			struct kv_err e = { 0 };

			for (size_t i = 0; i < n; i++) {
				s[i] = k % 2 ? odd[rand() % 10] : (double)(rand() % 5) / 3;
				tie[i] = (float)(rand() % 3);
				taken[i] = want[i] = rand() % 4 == 0;
				if (!taken[i])
					order[members++] = i;
			}
			sort_s = s;
			sort_tie = k % 3 ? tie : NULL;
			qsort(order, members, sizeof *order, better);
			for (size_t i = 0; i < k && i < members; i++)
				want[order[i]] = 1;
			assert_int_equal(kv_best(s, sort_tie, n, k, taken, &e), KV_OK);
			assert_memory_equal(taken, want, n);
		}
}

static void
best_by_head(void **state)
{
	static const float odd[] = { 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e-45f, -1e-45f, 1, -1, 1e38f };

	(void)state;
	srand(3);
	for (size_t H = 1; H < 5; H++)
		for (size_t n = 1; n < 40; n += 3)
			for (size_t k = 0; k < H * n + 2; k += 1 + n / 8) {
				float s[160], tie[160];
				double wide[160];
				size_t order[160], want[4] = { 0 }, cnt[4];
				struct kv_err e = { 0 };

				for (size_t i = 0; i < H * n; i++) {
					s[i] = k % 2 ? odd[rand() % 10] : (float)(rand() % 500) / 3;
					tie[i] = (float)(rand() % 3);
					wide[i] = (double)s[i];
					order[i] = i;
				}
				sort_s = wide;
				sort_tie = k % 3 ? tie : NULL;
				qsort(order, H * n, sizeof *order, better);
				for (size_t i = 0; i < k && i < H * n; i++)
					want[order[i] / n]++;
				assert_int_equal(kv_best_by_head(s, sort_tie, H, n, k, cnt, &e), KV_OK);
				assert_memory_equal(cnt, want, H * sizeof *cnt);
			}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contract),
		cmocka_unit_test(best),
		cmocka_unit_test(best_by_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
