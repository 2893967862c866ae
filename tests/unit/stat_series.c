/* SPDX-License-Identifier: MIT
 * From layers to rows: means over layers and sequences, differences, what is missing.  Two heads of budgets each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/stat_layer.h"
#include "tests/lib/streams.h"

static const struct kv_stat_options plain = { .k = 512 };

enum { LAYERS = 2, SEQUENCES = 3, T = 10 };

/* [sequence][layer][head] */
static const int32_t of_a[SEQUENCES][LAYERS][2] = { { { 1, 3 }, { 2, 6 } }, { { 4, 4 }, { 2, 2 } },
	{ { 1, 1 }, { 9, 9 } } };
static const int32_t of_b[SEQUENCES][LAYERS][2] = { { { 2, 4 }, { 2, 6 } }, { { 4, 5 }, { 2, 4 } },
	{ { 1, 1 }, { 9, 7 } } };

static struct kv_stat_run *
new_run(const char *chosen, bool two, enum kv_stat_per per)
{
	struct kv_stat_run *r = NULL;
	struct kv_err e = { 0 };

	must(kv_stat_run_new(&r, chosen, two, per, &plain, &e), &e);
	return r;
}

static void
step(struct kv_stat_run *r, int layer, const int32_t *a, const int32_t *b)
{
	struct stat_layer x, y;
	struct kv_err e = { 0 };

	stat_layer_init(&x, NULL, layer, T);
	stat_layer_init(&y, NULL, layer, T);
	if (a != NULL)
		stat_layer_budget(&x, 2, a);
	if (b != NULL)
		stat_layer_budget(&y, 2, b);
	must(kv_stat_step(r, &x.view, b != NULL ? &y.view : NULL, &e), &e);
	stat_layer_fini(&y);
	stat_layer_fini(&x);
}

/* All of of_a and, with two, of of_b. */
static struct kv_stat_run *
run_all(const char *chosen, bool two, enum kv_stat_per per)
{
	struct kv_stat_run *r = new_run(chosen, two, per);

	for (int s = 0; s < SEQUENCES; s++) {
		struct stat_layer x, y;
		struct kv_err e = { 0 };

		for (int l = 0; l < LAYERS; l++)
			step(r, l, of_a[s][l], two ? of_b[s][l] : NULL);
		stat_layer_init(&x, NULL, KV_NO_LAYER, T);
		stat_layer_init(&y, NULL, KV_NO_LAYER, T);
		must(kv_stat_step(r, &x.view, two ? &y.view : NULL, &e), &e);
		assert_null(kv_stat_warning(r));
	}
	return r;
}

static const struct kv_stat_row *
rows_of(struct kv_stat_run *r, size_t n_expected)
{
	const struct kv_stat_row *rows;
	struct kv_err e = { 0 };
	size_t n;

	must(kv_stat_rows(r, &rows, &n, &e), &e);
	assert_int_equal(n, n_expected);
	return rows;
}

static void
one_stream(void **state)
{
	/* means of a sequence: 3, 3, 5; sums: 12, 12, 20; of 40 */
	struct kv_stat_run *r = run_all("budget,entries,compression,budget", false, KV_STAT_OVERALL);
	const struct kv_stat_row *row = rows_of(r, 3);

	(void)state;
	assert_string_equal(row[0].q->name, "budget");
	assert_near(row[0].mean, 11 / 3.0, "mean");
	assert_near(row[0].sd, sqrt((4 / 9.0 + 4 / 9.0 + 16 / 9.0) / 2), "sd");
	assert_near(row[1].mean, 44 / 3.0, "entries");
	assert_near(row[2].mean, 44 / 120.0, "compression");
	assert_int_equal(row[0].n, 3);
	assert_true(row[0].layer == -1 && row[0].head == -1 && row[0].sequence == -1 && isnan(row[0].sign));
	kv_stat_run_free(r);
	/* whatever can be measured of one stream with budgets: the three */
	r = run_all(NULL, false, KV_STAT_OVERALL);
	rows_of(r, 3);
	kv_stat_run_free(r);
}

static void
finer(void **state)
{
	struct kv_stat_run *r = run_all("budget", false, KV_STAT_LAYER);
	const struct kv_stat_row *row = rows_of(r, LAYERS);

	(void)state;
	assert_near(row[0].mean, (2 + 4 + 1) / 3.0, "layer 0");
	assert_near(row[1].mean, (4 + 2 + 9) / 3.0, "layer 1");
	assert_true(row[1].layer == 1 && row[1].head == -1 && row[1].n == 3);
	kv_stat_run_free(r);
	r = run_all("budget", false, KV_STAT_HEAD);
	row = rows_of(r, LAYERS * 2);
	assert_near(row[1].mean, (3 + 4 + 1) / 3.0, "layer 0, head 1");
	assert_true(row[1].layer == 0 && row[1].head == 1 && row[1].n == 3);
	kv_stat_run_free(r);
	r = run_all("budget", false, KV_STAT_SEQUENCE);
	row = rows_of(r, SEQUENCES);
	assert_true(row[2].mean == 5 && row[2].sequence == 2 && row[2].n == 1 && isnan(row[2].sd));
	kv_stat_run_free(r);
}

static void
two_streams(void **state)
{
	/* B - A of the sequences: (3.5, 3.75, 4.5) - (3, 3, 5) = 0.5, 0.75, -0.5 */
	struct kv_stat_run *r = run_all("budget,budget-diff", true, KV_STAT_OVERALL);
	const struct kv_stat_row *row = rows_of(r, 4);

	(void)state;
	assert_true(row[0].of == KV_STAT_OF_A && row[1].of == KV_STAT_OF_B && row[2].of == KV_STAT_OF_DIFFERENCE);
	assert_near(row[1].mean, 11.75 / 3, "B");
	assert_near(row[2].mean, 0.25, "B - A");
	assert_near(row[2].sign, 1, "2 of 3");
	assert_near(row[2].wilcoxon, 0.75, "ranks 1.5, 3 and -1.5: 3 of the 8 signs have a sum of up to 1.5");
	assert_true(row[3].of == KV_STAT_OF_BOTH);
	assert_near(row[3].mean, (0.5 + 0.75 + 0.5) / 3, "without sign");
	kv_stat_run_free(r);
	r = run_all("budget", true, KV_STAT_HEAD);
	row = rows_of(r, 3 * LAYERS * 2) + 2 * LAYERS * 2;
	assert_true(row[3].of == KV_STAT_OF_DIFFERENCE && row[3].layer == 1 && row[3].head == 1);
	assert_near(row[3].mean, (0 + 2 - 2) / 3.0, "layer 1, head 1");
	assert_near(row[3].sign, 1, "one of each");
	kv_stat_run_free(r);
}

static void
missing(void **state)
{
	struct kv_stat_run *r = new_run("budget", false, KV_STAT_OVERALL);
	struct stat_layer x;
	struct kv_err e = { 0 };

	(void)state;
	stat_layer_init(&x, NULL, KV_NO_LAYER, T);
	step(r, 0, NULL, NULL);
	assert_true(kv_stat_step(r, &x.view, NULL, &e) < 0);
	expect_text(&e, "test: sequence 0: budget: no tensor budget, index or k in test: kv-budget METHOD");
	kv_stat_run_free(r);
	/* a layer of two: measured, but not silently */
	r = new_run("budget", false, KV_STAT_OVERALL);
	step(r, 0, of_a[0][1], NULL);
	step(r, 1, NULL, NULL);
	must(kv_stat_step(r, &x.view, NULL, &e), &e);
	assert_non_null(kv_stat_warning(r));
	assert_non_null(strstr(kv_stat_warning(r), "1 layer without"));
	assert_near(rows_of(r, 1)->mean, 4, "of the layer that has it");
	kv_stat_run_free(r);
	/* nothing at all is no fault of a sequence when nobody asked, but there must be something to say */
	r = new_run(NULL, false, KV_STAT_OVERALL);
	step(r, 0, NULL, NULL);
	must(kv_stat_step(r, &x.view, NULL, &e), &e);
	assert_int_equal(kv_stat_rows(r, &(const struct kv_stat_row *){ NULL }, &(size_t){ 0 }, &e), KV_EFAIL);
	expect_text(&e, "kv-score METHOD");
	kv_stat_run_free(r);
	r = new_run("budget", false, KV_STAT_OVERALL);
	assert_int_equal(kv_stat_rows(r, &(const struct kv_stat_row *){ NULL }, &(size_t){ 0 }, &e), KV_EFAIL);
	expect_text(&e, "no sequence");
	kv_stat_run_free(r);
}

static void
choices(void **state)
{
	struct kv_stat_run *r = (void *)1;
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_stat_run_new(&r, "budget,budgets", true, KV_STAT_OVERALL, &plain, &e), KV_EARG);
	expect_text(&e, "there is no quantity 'budgets'");
	assert_null(r);
	assert_int_equal(kv_stat_run_new(&r, "", true, KV_STAT_OVERALL, &plain, &e), KV_EARG);
	assert_int_equal(kv_stat_run_new(&r, "budget,", true, KV_STAT_OVERALL, &plain, &e), KV_EARG);
	assert_int_equal(kv_stat_run_new(&r, "recall", false, KV_STAT_OVERALL, &plain, &e), KV_EARG);
	expect_text(&e, "give two FILEs");
	assert_int_equal(kv_stat_run_new(&r, "nll", false, KV_STAT_LAYER, &plain, &e), KV_EARG);
	expect_text(&e, "per sequence at the finest");
	assert_int_equal(kv_stat_run_new(&r, "max-std-r", false, KV_STAT_HEAD, &plain, &e), KV_EARG);
	expect_text(&e, "per layer at the finest");
}

/* Every row of the table: a name of its own that an option can carry, and all the rest. */
static void
table(void **state)
{
	size_t n = 0;

	(void)state;
	for (const struct kv_stat *q = kv_stat_list; q->name != NULL; q++, n++) {
		assert_ptr_equal(kv_stat_find(q->name, strlen(q->name)), q);
		assert_int_equal(strspn(q->name, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(q->name));
		assert_true(q->unit != NULL && q->brief != NULL && q->measure != NULL);
		assert_true(q->finest >= KV_STAT_SEQUENCE && q->finest <= KV_STAT_HEAD);
	}
	assert_true(n >= 21);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_stream),
		cmocka_unit_test(finer),
		cmocka_unit_test(two_streams),
		cmocka_unit_test(missing),
		cmocka_unit_test(choices),
		cmocka_unit_test(table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
