/* SPDX-License-Identifier: MIT
 * Quantities: cases for paper, and the reference implementation's values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/oracle.h"
#include "tests/lib/stat_layer.h"

static const struct kv_stat_options plain = { .k = 512 };
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

/* Why a quantity has no value here. */
static struct kv_err
refused(const char *name, struct stat_layer *a, struct stat_layer *b, int status)
{
	struct kv_stat_cells c = { 0 };
	struct kv_err e = { 0 };

	assert_int_equal(
	    kv_stat_find(name, strlen(name))->measure(&a->view, b ? &b->view : NULL, &plain, &c, &e), status);
	free(c.cell);
	return e;
}

/* ---- one layer */

/* Two heads of 6 tokens; the last is not scored.  Head 0 keeps {1, 5}, head 1 {0, 2, 4, 5}. */
static const float score[] = { 1, 4, 2, 1, 2, /**/ 0, 1, 1, 6, 2 };
static const int32_t kept[] = { 1, 5, 0, 2, 4, 5 }, bound[] = { 0, 2, 6 };

static void
entries(void **state)
{
	static const int32_t budget[] = { 3, 9 };
	struct kv_stat_cells c;
	struct stat_layer x;
	struct kv_err e;

	(void)state;
	stat_layer_init(&x, &device, 3, 6);
	e = refused("budget", &x, NULL, KV_END);
	assert_non_null(strstr(e.text, "kv-budget METHOD"));
	stat_layer_cache(&x, 2, 8);
	assert_near(stat_value("entries", &x, NULL, &plain), 12, "a whole cache keeps everything");
	assert_near(stat_value("compression", &x, NULL, &plain), 1, "of all");
	stat_layer_budget(&x, 2, budget);
	assert_near(stat_value("entries", &x, NULL, &plain), 3 + 6, "what a budget will keep, no more than there is");
	stat_layer_kept(&x, 2, kept, bound);
	c = stat_measure("budget", &x, NULL, &plain);
	assert_int_equal(c.n, 2);
	assert_near(kv_cell_value(c.cell[0]), 2, "head 0");
	assert_near(kv_cell_value(c.cell[1]), 4, "head 1");
	free(c.cell);
	assert_near(stat_value("budget", &x, NULL, &plain), 3, "mean of the heads");
	assert_near(stat_value("compression", &x, NULL, &plain), 0.5, "6 of 12");
	x.view.Hkv = 1; /* the two are query heads of one KV head, whose cache would have 6 entries */
	assert_near(stat_value("compression", &x, NULL, &plain), 1, "6 of 6");
	assert_near(stat_value("bytes", &x, NULL, &plain), 6 * 2 * 8 * 2, "6 entries of k and v, 8 f16");
	stat_layer_fini(&x);
}

static void
retained(void **state)
{
	struct kv_stat_cells c;
	struct stat_layer x;

	(void)state;
	stat_layer_init(&x, &device, 0, 6);
	stat_layer_score(&x, 2, 5, score, 1, 1);
	stat_layer_kept(&x, 2, kept, bound);
	c = stat_measure("retained", &x, NULL, &plain);
	assert_near(kv_cell_value(c.cell[0]), 4.0 / 10, "head 0");
	assert_near(kv_cell_value(c.cell[1]), 3.0 / 10, "head 1");
	free(c.cell);
	assert_near(stat_value("retained", &x, NULL, &plain), 7.0 / 20, "layer");
	/* four scored entries: 6, 4 and two of 2, 2, 2 */
	assert_near(stat_value("retained-bound", &x, NULL, &plain), 14.0 / 20, "bound");
	stat_layer_fini(&x);
}

/* Without an index, what kv-evict would keep: pooling and ties as asked. */
static void
selection(void **state)
{
	static const float plateau[] = { 0, 0, 5, 0, 0, 3, 0, 0 };
	static const int32_t budget[] = { 2 };
	struct stat_layer x;

	(void)state;
	for (int position = 0; position <= 1; position++) {
		stat_layer_init(&x, &device, 0, 9);
		stat_layer_score(&x, 1, 8, plateau, 3, 1);
		stat_layer_budget(&x, 1, budget);
		x.view.tie = position ? KV_TIE_POSITION : KV_TIE_RAW;
		assert_near(stat_value("retained", &x, NULL, &plain), position ? 0 : 5.0 / 8, "pooled, 1 of 8");
		assert_near(stat_value("retained-bound", &x, NULL, &plain), 5.0 / 8, "the bound knows no pooling");
		stat_layer_fini(&x);
	}
	stat_layer_init(&x, &device, 0, 9);
	stat_layer_budget(&x, 1, budget);
	assert_non_null(strstr(refused("overlap", &x, &x, KV_END).text, "kv-score METHOD"));
	stat_layer_fini(&x);
}

static void
no_history(void **state)
{
	static const int32_t budget[] = { 2, 2 };
	struct stat_layer x;

	(void)state;
	stat_layer_init(&x, &device, 0, 4);
	stat_layer_score(&x, 2, 0, score, 7, 4);
	stat_layer_budget(&x, 2, budget);
	assert_near(stat_value("retained", &x, NULL, &plain), 1, "nothing to retain");
	assert_near(stat_value("retained-bound", &x, NULL, &plain), 1, "nothing to retain");
	assert_near(stat_value("recall", &x, &x, &plain), 1, "nothing to find");
	assert_near(stat_value("kendall", &x, &x, &plain), 0, "nothing to rank");
	assert_near(stat_value("overlap", &x, &x, &plain), 1, "the last two on both sides");
	assert_non_null(strstr(refused("score-max", &x, NULL, KV_END).text, "no position is scored"));
	stat_layer_fini(&x);
}

/* Scores that are no shares of attention have no mass; NaN has none either, but the others keep theirs. */
static void
not_masses(void **state)
{
	static const float negative[] = { -1, 2, 3 }, infinite[] = { 1, INFINITY, 3 }, nan_too[] = { 1, NAN, 3 };
	static const int32_t index[] = { 1, 2 }, offset[] = { 0, 2 };
	struct stat_layer x;

	(void)state;
	stat_layer_init(&x, &device, 0, 3);
	stat_layer_score(&x, 1, 3, negative, 1, 0);
	stat_layer_kept(&x, 1, index, offset);
	assert_non_null(strstr(refused("retained", &x, NULL, KV_END).text, "no shares of attention (one is -1)"));
	refused("kl-scores", &x, &x, KV_END);
	assert_near(stat_value("kendall", &x, &x, &plain), 1, "but they have an order");
	stat_layer_fini(&x);
	stat_layer_init(&x, &device, 0, 3);
	stat_layer_score(&x, 1, 3, infinite, 1, 0);
	stat_layer_kept(&x, 1, index, offset);
	refused("retained", &x, NULL, KV_END);
	refused("score-std", &x, NULL, KV_END);
	refused("pearson", &x, &x, KV_END);
	stat_layer_fini(&x);
	stat_layer_init(&x, &device, 0, 3);
	stat_layer_score(&x, 1, 3, nan_too, 1, 0);
	stat_layer_kept(&x, 1, index, offset);
	assert_near(stat_value("retained", &x, NULL, &plain), 3.0 / 4, "NaN weighs nothing");
	assert_near(stat_value("kl-scores", &x, &x, &plain), 0, "NaN weighs nothing");
	stat_layer_fini(&x);
}

/* ---- two streams */

static void
compared(void **state)
{
	static const int32_t index[] = { 1, 2, 5, 0, 4, 5 }, offset[] = { 0, 3, 6 };
	static const float other[] = { 9, 8, 0, 1 /**/, 1, 2, 3, 4 };
	struct stat_layer a, b;
	struct kv_stat_cells c;

	(void)state;
	stat_layer_init(&a, &device, 0, 6);
	stat_layer_score(&a, 2, 5, score, 1, 1);
	stat_layer_kept(&a, 2, kept, bound);
	stat_layer_init(&b, &device, 0, 6);
	stat_layer_score(&b, 2, 4, other, 1, 2);
	stat_layer_kept(&b, 2, index, offset);
	c = stat_measure("overlap", &a, &b, &plain);
	assert_near(kv_cell_value(c.cell[0]), 2 * 2.0 / (2 + 3), "{1 5} and {1 2 5}");
	assert_near(kv_cell_value(c.cell[1]), 2 * 3.0 / (4 + 3), "{0 2 4 5} and {0 4 5}");
	free(c.cell);
	assert_near(stat_value("overlap", &a, &b, &plain), 10.0 / 12, "layer");
	assert_near(stat_value("budget-diff", &a, &b, &plain), 1, "2 4 and 3 3");
	assert_near(stat_value("retained-by", &a, &b, &plain), (4 + 2 + 0 + 2) / 20.0, "a's scores, b's choice");
	/* over the four columns that both have: 1 4 2 1 | 0 1 1 6 against 9 8 0 1 | 1 2 3 4 */
	assert_near(stat_value("recall", &a, &b, &(struct kv_stat_options){ .k = 2 }), (0.5 + 0.5) / 2, "recall@2");
	assert_near(stat_value("recall", &a, &b, &(struct kv_stat_options){ .k = 0 }), 1, "recall@0");
	assert_near(stat_value("recall", &a, &b, &plain), 1, "recall@4");
	c = stat_measure("kendall", &a, &b, &plain);
	assert_near(kv_cell_value(c.cell[0]), (2 - 3) / sqrt(5 * 6), "one tie on one side");
	assert_near(kv_cell_value(c.cell[1]), (5 - 0) / sqrt(5 * 6), "the same, in order");
	free(c.cell);
	stat_layer_fini(&a);
	stat_layer_fini(&b);
}

static void
pooled(void **state)
{
	static const float x[] = { 0, 0, 5, 0, 0 }, y[] = { 0, 5, 0, 0, 0 };
	const struct kv_stat_options as_ranked = { .k = 3, .pooled = true }, as_is = { .k = 1 };
	struct stat_layer a, b;

	(void)state;
	stat_layer_init(&a, &device, 0, 5);
	stat_layer_score(&a, 1, 5, x, 3, 0);
	stat_layer_init(&b, &device, 0, 5);
	stat_layer_score(&b, 1, 5, y, 3, 0);
	assert_near(stat_value("recall", &a, &b, &as_is), 0, "peaks apart");
	assert_near(stat_value("recall", &a, &b, &as_ranked), 2.0 / 3, "{1 2 3} and {0 1 2}");
	stat_layer_fini(&a);
	stat_layer_fini(&b);
}

static void
other_sizes(void **state)
{
	struct stat_layer a, b;

	(void)state;
	stat_layer_init(&a, &device, 0, 6);
	stat_layer_score(&a, 2, 5, score, 1, 1);
	stat_layer_cache(&a, 2, 8);
	stat_layer_init(&b, &device, 0, 6);
	stat_layer_score(&b, 1, 5, score, 1, 1);
	stat_layer_cache(&b, 1, 8);
	assert_non_null(strstr(refused("kendall", &a, &b, KV_END).text, "2 heads have scores in A, 1 in B"));
	refused("recall", &a, &b, KV_END);
	refused("kl-scores", &a, &b, KV_END);
	refused("overlap", &a, &b, KV_END);
	refused("budget-diff", &a, &b, KV_END);
	refused("retained-by", &a, &b, KV_END);
	stat_layer_fini(&b);
	stat_layer_init(&b, &device, 0, 7);
	stat_layer_score(&b, 1, 5, score, 1, 1);
	b.view.T = 6; /* of another prompt than the scores */
	refused("score-max", &b, NULL, KV_ESHAPE);
	stat_layer_fini(&b);
	stat_layer_fini(&a);
}

static void
broken(void **state)
{
	static const int32_t backwards[] = { 4, 1 }, none[] = { 0, 2 }, less[] = { 0, 2, 1 }, minus[] = { -1 };
	struct stat_layer x;

	(void)state;
	stat_layer_init(&x, &device, 0, 6);
	stat_layer_kept(&x, 1, backwards, none);
	refused("overlap", &x, &x, KV_EFORMAT);
	x.view.offset = NULL;
	assert_non_null(strstr(refused("budget", &x, NULL, KV_EFORMAT).text, "offset is missing beside index"));
	stat_layer_fini(&x);
	stat_layer_init(&x, &device, 0, 6);
	stat_layer_kept(&x, 2, backwards, less);
	refused("budget", &x, NULL, KV_EFORMAT);
	stat_layer_fini(&x);
	stat_layer_init(&x, &device, 0, 6);
	stat_layer_budget(&x, 1, minus);
	refused("budget", &x, NULL, KV_EARG);
	stat_layer_fini(&x);
}

/* ---- predictions */

/* Row 0 differs wildly, and must not count.  Rows 1 and 2: p = (1/2 1/4 1/4), q = (1/4 1/4 1/2), then both (1/8 7/8 0).
 */
static void
predictions(void **state)
{
	static const float ln2 = 0.69314718f, ln7 = 1.94591015f;
	const float p[] = { 9, 0, 0, 2 * ln2, ln2, ln2, 0, ln7, -INFINITY };
	const float q[] = { 0, 0, 9, ln2, ln2, 2 * ln2, 5, 5 + ln7, -INFINITY };
	const int32_t response[] = { 0, 1, 1 }, others[] = { 0, 2, 1 };
	struct stat_layer a, b;

	(void)state;
	stat_layer_init(&a, &device, KV_NO_LAYER, 4);
	stat_layer_logits(&a, 3, 3, p, response);
	stat_layer_init(&b, &device, KV_NO_LAYER, 4);
	stat_layer_logits(&b, 3, 3, q, response);
	assert_true(fabs(stat_value("kl-logits", &a, &b, &plain) - 0.25 * log(2) / 2) < 1e-7);
	assert_near(stat_value("top1", &a, &b, &plain), 0.5, "one of two");
	assert_true(fabs(stat_value("nll-diff", &a, &b, &plain)) < 1e-7);
	assert_true(
	    fabs(stat_value("nll", &a, NULL, &plain) - (log1p(2 * exp(-9)) + log(4) + log(8.0 / 7)) / 3) < 1e-7);
	/* a response that begins with the other is compared as far as that goes */
	stat_layer_fini(&b);
	stat_layer_init(&b, &device, KV_NO_LAYER, 4);
	stat_layer_logits(&b, 2, 3, q, response);
	assert_near(stat_value("top1", &a, &b, &plain), 0, "none of one");
	b.view.response = others;
	assert_non_null(strstr(refused("top1", &a, &b, KV_ESHAPE).text, "token 1 is 1 in A, 2 in B"));
	b.view.n_response = 1;
	refused("top1", &a, &b, KV_ESHAPE); /* not as many as rows */
	stat_layer_fini(&b);
	stat_layer_init(&b, &device, KV_NO_LAYER, 4);
	stat_layer_logits(&b, 1, 3, q, response);
	refused("kl-logits", &a, &b, KV_END); /* only the prefill's */
	stat_layer_fini(&b);
	stat_layer_fini(&a);
}

static void
checked(const struct oracle *o, const json_t *record, const char *const *keys)
{
	for (; *keys != NULL; keys++)
		oracle_checked(o, record, *keys);
}

/* ---- the reference */

/* Compares recall, tau, Pearson and KL of one pair. */
static void
oracle_pair(const struct oracle *o, const json_t *r)
{
	const struct oracle_array *truth = oracle_array(o, "truth"), *pred = oracle_array(o, oracle_text(r, "pred")),
				  *positive = oracle_array(o, oracle_text(r, "kl_arg"));
	const size_t n = truth->shape[0];
	struct stat_layer a, b;
	const char *k;
	json_t *value;

	stat_layer_init(&a, &device, 0, n);
	stat_layer_score(&a, 1, n, truth->data, 1, 0);
	stat_layer_init(&b, &device, 0, n);
	stat_layer_score(&b, 1, n, pred->data, 1, 0);
	json_object_foreach (json_object_get(r, "recall"), k, value) {
		const struct kv_stat_options at = { .k = strtoul(k, NULL, 10) };

		assert_near(stat_value("recall", &a, &b, &at), json_number_value(value), k);
	}
	assert_near(
	    stat_value("kendall", &a, &b, &plain), json_number_value(json_object_get(r, "kendall_tau_b")), "tau");
	assert_near(stat_value("pearson", &a, &b, &plain), json_number_value(json_object_get(r, "pearson")), "Pearson");
	stat_layer_fini(&b);
	stat_layer_init(&b, &device, 0, n);
	stat_layer_score(&b, 1, n, positive->data, 1, 0);
	assert_near(stat_value("kl-scores", &a, &b, &plain), json_number_value(json_object_get(r, "kl")), "KL");
	checked(o, r, (const char *const[]){ "recall", "kendall_tau_b", "pearson", "kl", NULL });
	stat_layer_fini(&b);
	stat_layer_fini(&a);
}

static void
oracle_heads(const struct oracle *o, const json_t *r)
{
	const struct oracle_array *x = oracle_array(o, oracle_text(r, "heads"));
	const json_t *m = json_object_get(r, "m"), *sd = json_object_get(r, "std"),
		     *pearson = json_object_get(r, "pearson");
	struct kv_stat_cells c;
	struct stat_layer a;

	stat_layer_init(&a, &device, 0, x->shape[1]);
	stat_layer_score(&a, x->shape[0], x->shape[1], x->data, 1, 0);
	c = stat_measure("max-std-r", &a, NULL, &plain);
	assert_int_equal(c.n, json_array_size(m));
	for (size_t h = 0; h < c.n; h++) {
		assert_near(c.cell[h].x, json_number_value(json_array_get(m, h)), "max");
		assert_near(c.cell[h].y, json_number_value(json_array_get(sd, h)), "std");
	}
	free(c.cell);
	assert_near(
	    stat_value("max-std-slope", &a, NULL, &plain), json_number_value(json_object_get(r, "slope")), "slope");
	if (json_is_null(pearson))
		assert_true(isnan(stat_value("max-std-r", &a, NULL, &plain)));
	else
		assert_near(stat_value("max-std-r", &a, NULL, &plain), json_number_value(pearson), "r");
	checked(o, r, (const char *const[]){ "m", "std", "slope", "pearson", NULL });
	stat_layer_fini(&a);
}

static void
oracle_quantities(void **state)
{
	struct oracle o;
	const json_t *r;
	size_t i;

	(void)state;
	oracle_open(&o, "quantities");
	assert_true(json_array_size(oracle_results(&o)) >= 8);
	json_array_foreach (oracle_results(&o), i, r) {
		if (json_object_get(r, "pred") != NULL)
			oracle_pair(&o, r);
		else
			oracle_heads(&o, r);
	}
	oracle_fini(&o);
}

/* Every `coverage` record: C entries of each head, selected from raw snapkv scores, W of them protected. */
static size_t
coverage_of(const struct oracle *o, const json_t *record)
{
	const struct oracle_array *raw = oracle_array(o, oracle_text(record, "raw"));
	const size_t H = raw->shape[0], n = raw->shape[1], T = oracle_size(o->meta, "S");
	int32_t *budget = malloc(H * sizeof *budget);
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(record, "rows"), i, row) {
		struct kv_stat_cells c;
		struct stat_layer x;

		for (size_t h = 0; h < H; h++)
			budget[h] = (int32_t)oracle_size(row, "C");
		stat_layer_init(&x, &device, 0, T);
		stat_layer_score(&x, H, n, raw->data, 1, oracle_size(o->meta, "W"));
		stat_layer_budget(&x, H, budget);
		c = stat_measure("retained", &x, NULL, &plain);
		for (size_t h = 0; h < H; h++)
			assert_near(kv_cell_value(c.cell[h]),
			    json_number_value(json_array_get(json_object_get(row, "per_head"), h)),
			    "coverage of a head");
		free(c.cell);
		assert_near(stat_value("retained", &x, NULL, &plain), json_number_value(json_object_get(row, "layer")),
		    "coverage of a layer");
		assert_near(stat_value("retained-bound", &x, NULL, &plain),
		    json_number_value(json_object_get(row, "bound")), "bound of a layer");
		stat_layer_fini(&x);
	}
	free(budget);
	oracle_checked(o, record, NULL);
	return json_array_size(json_object_get(record, "rows"));
}

static void
oracle_coverage(void **state)
{
	size_t n = 0, i;
	struct oracle o;
	const json_t *r;

	(void)state;
	for (const char *const *name = oracle_scores; *name != NULL; name++) {
		oracle_open(&o, *name);
		json_array_foreach (oracle_results(&o), i, r)
			if (strcmp(oracle_text(r, "method"), "coverage") == 0)
				n += coverage_of(&o, r);
		oracle_fini(&o);
	}
	assert_true(n > 30);
}

static void
check_mass(struct stat_layer *x, const json_t *record, size_t l)
{
	assert_near(stat_value("retained", x, NULL, &plain),
	    json_number_value(json_array_get(json_object_get(record, "coverage"), l)), "coverage");
	assert_near(stat_value("retained-bound", x, NULL, &plain),
	    json_number_value(json_array_get(json_object_get(record, "bound"), l)), "bound");
}

/* The positions that a layer keeps, as they would stand in a stream. */
static void
check_mass_of_kept(struct stat_layer *x, const json_t *record, size_t l, size_t H, size_t T)
{
	int32_t *index = malloc(H * T * sizeof *index), *offset = calloc(H + 1, sizeof *offset);
	const json_t *heads = json_array_get(json_object_get(record, "kept"), l), *position;
	size_t j;

	for (size_t h = 0; h < H; h++) {
		offset[h + 1] = offset[h] + (int32_t)json_array_size(json_array_get(heads, h));
		json_array_foreach (json_array_get(heads, h), j, position)
			index[(size_t)offset[h] + j] = (int32_t)json_integer_value(position);
	}
	stat_layer_kept(x, H, index, offset);
	check_mass(x, record, l);
	free(offset);
	free(index);
}

/* Six layers, by the budgets and by the kept sets that they lead to. */
static void
oracle_compose(void **state)
{
	const struct oracle_array *raw;
	struct oracle o;
	const json_t *r;
	size_t i, H, n, T, W;

	(void)state;
	oracle_open(&o, "compose");
	raw = oracle_array(&o, "raw");
	H = raw->shape[1], n = raw->shape[2], T = oracle_size(o.meta, "S"), W = oracle_size(o.meta, "W");
	json_array_foreach (oracle_results(&o), i, r) {
		for (size_t l = 0; l < raw->shape[0]; l++) {
			const json_t *list = json_array_get(json_object_get(r, "budgets"), l);
			int32_t budget[16];
			struct stat_layer x;

			assert_in_range(H, 1, 16);
			for (size_t h = 0; h < H; h++)
				budget[h] = (int32_t)W + (int32_t)json_integer_value(json_array_get(list, h));
			stat_layer_init(&x, &device, (int)l, T);
			stat_layer_score(&x, H, n, raw->data + l * H * n, 7, W);
			stat_layer_budget(&x, H, budget);
			x.view.tie = KV_TIE_POSITION; /* as the reference selects */
			check_mass(&x, r, l);
			stat_layer_fini(&x);
			if (json_object_get(r, "kept") == NULL)
				continue;
			stat_layer_init(&x, &device, (int)l, T);
			stat_layer_score(&x, H, n, raw->data + l * H * n, 7, W);
			check_mass_of_kept(&x, r, l, H, T);
			stat_layer_fini(&x);
		}
		checked(&o, r, (const char *const[]){ "coverage", "bound", NULL });
	}
	assert_int_equal(i, 36);
	oracle_fini(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries),
		cmocka_unit_test(retained),
		cmocka_unit_test(selection),
		cmocka_unit_test(no_history),
		cmocka_unit_test(not_masses),
		cmocka_unit_test(compared),
		cmocka_unit_test(pooled),
		cmocka_unit_test(other_sizes),
		cmocka_unit_test(broken),
		cmocka_unit_test(predictions),
		cmocka_unit_test(oracle_quantities),
		cmocka_unit_test(oracle_coverage),
		cmocka_unit_test(oracle_compose),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
