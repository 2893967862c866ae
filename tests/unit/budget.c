/* SPDX-License-Identifier: MIT
 * Budgets: the reference implementation's uniform ones, the edges, what composes, and what comes of methods of every
 * kind. */
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

#define HEADS_MAX 64
#define LAYERS    5

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

static void
put_score(struct allot_rig *x, size_t l, const float *score, size_t n, struct kv_protection protect)
{
	allot_put_score(x, l, score, n, protect, NULL);
}

/* With the method's defaults. */
static int
try_budget(const struct kv_budget_method *m, struct allot_rig *x, size_t C, struct kv_err *e)
{
	struct kv_params p;

	kv_params_init(&p, &m->about);
	return allot_try(&p, x, C, e);
}

/* One layer of a method; earlier: budgets in the stream, used when C is 0. */
static void
one_layer(const struct kv_budget_method *m, size_t H, size_t T, size_t n_sink, size_t n_recent, size_t C,
    const int32_t *earlier, int32_t *B)
{
	struct kv_err e = { 0 };
	struct allot_rig x;

	allot_init(&x, 1, H, T);
	put_score(&x, 0, NULL, 0, (struct kv_protection){ n_sink, n_recent, -1 });
	if (earlier != NULL)
		allot_put_budget(&x, 0, earlier, n_sink, n_recent);
	must(try_budget(m, &x, C, &e), &e);
	memcpy(B, allot_budget(&x, 0), H * sizeof *B);
	allot_fini(&x);
}

static void
uniform_oracle(void **state)
{
	const size_t fixed = 10;
	const json_t *r;
	struct oracle o;
	size_t i;

	(void)state;
	oracle_open(&o, "budgets");
	json_array_foreach(oracle_results(&o), i, r)
	{
		size_t H = oracle_size(r, "H"), n = oracle_size(r, "n"), base = oracle_size(r, "base");
		int32_t B[HEADS_MAX];

		assert_in_range(H, 1, HEADS_MAX);
		one_layer(&kv_budget_uniform, H, n + fixed, 4, fixed - 4, base + fixed, NULL, B);
		for (size_t h = 0; h < H; h++)
			B[h] -= (int32_t)fixed;
		assert_true(oracle_equals(json_object_get(r, "uniform"), B, H));
		oracle_checked(&o, r, "uniform");
	}
	oracle_fini(&o);
}

static void
compose_oracle(void **state)
{
	size_t i, l, W, n, compared = 0;
	const json_t *r, *row;
	struct oracle o;

	(void)state;
	oracle_open(&o, "compose");
	W = oracle_size(o.meta, "W"), n = oracle_size(o.meta, "n");
	json_array_foreach(oracle_results(&o), i, r) json_array_foreach(json_object_get(r, "budgets"), l, row)
	{
		const size_t H = json_array_size(row);
		int32_t B[HEADS_MAX], again[HEADS_MAX];

		if (strcmp(oracle_text(r, "layer"), "uniform") != 0 || strcmp(oracle_text(r, "head"), "uniform") != 0)
			continue; /* budget_composed.c */
		one_layer(&kv_budget_uniform, H, n + W, 0, W, oracle_size(r, "C"), NULL, B);
		one_layer(&kv_budget_uniform, H, n + W, 0, W, 0, B, again); /* from the stream: nothing changes */
		assert_memory_equal(B, again, H * sizeof *B);
		for (size_t h = 0; h < H; h++)
			B[h] -= (int32_t)W;
		assert_true(oracle_equals(row, B, H));
		compared++;
	}
	assert_int_equal(compared, 6 * 6);
	oracle_fini(&o);
}

static void
edges(void **state)
{
	static const struct {
		size_t T, n_sink, n_recent, C;
		int32_t earlier[3], B[3];
	} row[] = {
		{ 100, 0, 0, 10, { -1 }, { 10, 10, 10 } },
		{ 100, 4, 32, 10, { -1 }, { 10, 10, 10 } },            /* less than the protected */
		{ 100, 4, 32, 36, { -1 }, { 36, 36, 36 } },            /* base 0 */
		{ 100, 0, 32, 100, { -1 }, { 100, 100, 100 } },        /* C = T */
		{ 100, 0, 32, 2147483647, { -1 }, { 100, 100, 100 } }, /* beyond */
		{ 10, 0, 32, 8, { -1 }, { 8, 8, 8 } },                 /* the window is longer than the prompt */
		{ 10, 0, 32, 12, { -1 }, { 10, 10, 10 } },
		{ 1, 0, 0, 1, { -1 }, { 1, 1, 1 } },
		{ 100, 0, 32, 0, { 50, 40, 44 }, { 45, 45, 44 } }, /* 134: the lower heads get what is left over */
		{ 100, 0, 32, 0, { 10, 40, 44 }, { 32, 31, 31 } }, /* 94: fewer than 3 * 32 protected */
		{ 100, 0, 32, 0, { 500, 1, 1 }, { 34, 34, 34 } },  /* 500 is all 100 */
		{ 100, 0, 32, 0, { 0, 0, 200 }, { 34, 33, 33 } },  /* nothing for a head is legal */
		{ 100, 0, 32, 0, { 0, 0, 0 }, { 0, 0, 0 } },
		{ 100, 0, 32, 0, { 100, 99, 100 }, { 100, 100, 99 } },
		{ 100, 0, 32, 60, { 10, 10, 10 }, { 60, 60, 60 } }, /* a grant of one's own wins */
	};

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		int32_t B[3];

		one_layer(&kv_budget_uniform, 3, row[i].T, row[i].n_sink, row[i].n_recent, row[i].C,
		    row[i].earlier[0] >= 0 ? row[i].earlier : NULL, B);
		if (memcmp(B, row[i].B, sizeof B) != 0)
			fail_msg("row %zu: %d %d %d", i, B[0], B[1], B[2]);
	}
}

/* A share of the budget is protected: known once there is a budget, and kept by whoever allots again. */
static void
shares(void **state)
{
	struct kv_err e = { 0 };
	struct allot_rig x;

	(void)state;
	allot_init(&x, 1, 2, 100);
	put_score(&x, 0, NULL, 0, (struct kv_protection){ 4, 0, 0.5 });
	must(try_budget(&kv_budget_uniform, &x, 25, &e), &e);
	assert_true(allot_count(&x, 0, "n_sink") == 4 && allot_count(&x, 0, "n_recent") == 10 && allot_count(&x, 0, "base") == 11);
	assert_int_equal(allot_count(&x, 0, "total"), 50);
	must(try_budget(&kv_budget_uniform, &x, 0, &e), &e);
	assert_true(allot_count(&x, 0, "n_recent") == 10 && allot_count(&x, 0, "capacity") == 25);
	put_score(&x, 0, NULL, 0, (struct kv_protection){ 4, 0, 1 });
	must(try_budget(&kv_budget_uniform, &x, 25, &e), &e);
	assert_true(allot_count(&x, 0, "n_recent") == 21 && allot_count(&x, 0, "base") == 0 && allot_budget(&x, 0)[0] == 25);
	allot_fini(&x);
}

/* ---- what allot.c makes of methods of every kind */

/* Three parts of four to the first layer, the rest to the last. */
static int
first_and_last(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *base_l, struct kv_err *e)
{
	const size_t total = all->L * all->base, first = total * 3 / 4 < all->room ? total * 3 / 4 : all->room;

	(void)p;
	(void)e;
	base_l[0] = first;
	base_l[all->L - 1] += total - first;
	return KV_OK;
}

static const struct kv_budget_method by_layer = { .about = { .name = "by layer", .brief = "" }, .layers = first_and_last };

/* Everything to the head with the best score. */
static int
winner(const struct kv_budget_layer *l, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	size_t best = 0, left = l->H * l->base;

	(void)p;
	(void)e;
	for (size_t i = 0; i < l->H * l->room; i++)
		best = l->raw[i] > l->raw[best] ? i : best;
	b[best / l->room] = left < l->room ? left : l->room;
	left -= b[best / l->room];
	for (size_t h = 0; h < l->H && left > 0; h++)
		if (h != best / l->room) {
			b[h] = left < l->room ? left : l->room;
			left -= b[h];
		}
	return KV_OK;
}

static const struct kv_budget_method by_head = {
	.about = { .name = "by head", .brief = "" }, .needs = "score", .heads = winner
};

static int
too_much(const struct kv_budget_layer *l, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	(void)p;
	(void)e;
	for (size_t h = 0; h < l->H; h++)
		b[h] = l->base + 1;
	return KV_OK;
}

static const struct kv_budget_method greedy = { .about = { .name = "greedy", .brief = "" }, .heads = too_much };

/* Head h of layer l weighs l * H + h. */
static int
rising(const struct kv_budget_prompt *all, const struct kv_params *p, size_t *b, struct kv_err *e)
{
	const size_t n = all->L * all->H;
	uint64_t num[LAYERS * HEADS_MAX];

	(void)p;
	for (size_t i = 0; i < n; i++)
		num[i] = i * n * all->base;
	return kv_apportion(num, n * (n - 1) / 2, n, n * all->base, b, e);
}

static const struct kv_budget_method at_once = { .about = { .name = "at once", .brief = "" }, .global = rising };

/* Every third position, and one entry more where that was asked for. */
static int
thirds(const struct kv_budget_layer *l, const struct kv_params *p, uint8_t *keep, size_t *B, struct kv_err *e)
{
	(void)p;
	(void)e;
	for (size_t h = 0; h < l->H; h++)
		for (size_t t = 0; t < l->at->T; t += 3) {
			keep[h * l->at->T + t] = 1;
			B[h]++;
		}
	return KV_OK;
}

static const struct kv_budget_method by_set = {
	.about = { .name = "by set", .brief = "" }, .sets = thirds, .free_total = true
};

static void
kinds(void **state)
{
	static const float score[2 * 12] = { [3] = 9, [12 + 5] = 5 }; /* head 0's best is protected, head 1's is not */
	struct kv_err e = { 0 };
	struct allot_rig x;

	(void)state;
	allot_init(&x, 3, 2, 12);
	for (size_t l = 0; l < 3; l++)
		put_score(&x, l, score, 12, (struct kv_protection){ 4, 1, -1 });
	must(try_budget(&by_layer, &x, 7, &e), &e); /* 2 history entries each, 6 per head over layers: 4, 0, 2 */
	assert_true(allot_budget(&x, 0)[0] == 9 && allot_budget(&x, 1)[1] == 5 && allot_budget(&x, 2)[1] == 7);
	must(try_budget(&by_head, &x, 0, &e), &e); /* composes: 4 per head are 7 for one and 1 for the other */
	assert_true(allot_budget(&x, 0)[0] == 6 && allot_budget(&x, 0)[1] == 12);
	assert_true(allot_budget(&x, 1)[0] == 5 && allot_budget(&x, 2)[0] == 5 && allot_budget(&x, 2)[1] == 9);
	must(try_budget(&by_layer, &x, 0, &e), &e); /* and back: all layers are looked at */
	assert_true(allot_budget(&x, 0)[0] == 9 && allot_budget(&x, 1)[1] == 5 && allot_budget(&x, 2)[1] == 7);
	must(try_budget(&at_once, &x, 7, &e), &e); /* 12 entries in parts of 15: 0 1 2 | 2 3 4 by remainders */
	assert_true(allot_budget(&x, 0)[0] == 5 && allot_budget(&x, 0)[1] == 6 && allot_budget(&x, 1)[0] == 7);
	assert_true(allot_budget(&x, 1)[1] == 7 && allot_budget(&x, 2)[0] == 8 && allot_budget(&x, 2)[1] == 9);
	assert_int_equal(allot_count(&x, 2, "n_sink"), 4);
	must(try_budget(&by_set, &x, 0, &e), &e);
	assert_true(allot_budget(&x, 0)[0] == 4 && allot_count(&x, 0, "n_sink") == 0 && allot_count(&x, 0, "n_recent") == 0);
	assert_int_equal(((const uint8_t *)kv_step_find(&x.step[1], "protect")->data)[9], 1);
	must(try_budget(&kv_budget_uniform, &x, 7, &e), &e);
	assert_null(kv_step_find(&x.step[1], "protect"));
	assert_int_equal(try_budget(&greedy, &x, 7, &e), KV_EFAIL);
	put_score(&x, 1, score, 12, (struct kv_protection){ 0, 1, -1 }); /* layers that are not alike */
	assert_int_equal(try_budget(&by_layer, &x, 7, &e), KV_ESHAPE);
	must(try_budget(&kv_budget_uniform, &x, 7, &e), &e);
	must(try_budget(&by_layer, &x, 0, &e), &e); /* but at once they are: 42 entries, 22 not protected */
	for (size_t l = 0, sum = 0; l < 3; l++) {
		sum += (size_t)allot_budget(&x, l)[0] + (size_t)allot_budget(&x, l)[1];
		assert_true(l < 2 || sum == 42);
	}
	allot_fini(&x);
}

static void
remainders(void **state)
{
	static const uint64_t num[] = { 5, 7, 1, 7 }; /* quarters of 20 */
	struct kv_err e = { 0 };
	size_t q[4];

	(void)state;
	must(kv_apportion(num, 4, 4, 5, q, &e), &e);
	assert_true(q[0] == 1 && q[1] == 2 && q[2] == 0 && q[3] == 2);
	must(kv_apportion(num, 4, 4, 4, q, &e), &e);
	assert_true(q[0] == 1 && q[1] == 2 && q[2] == 0 && q[3] == 1); /* equal remainders: the lower one */
}

static void
capacity(void **state)
{
	static const struct {
		struct kv_grant g;
		size_t T, C;
	} good[] = {
		{ { 128, 0 }, 10, 128 },
		{ { 0, 0.3 }, 1000, 300 },
		{ { 0, 1 }, 7, 7 },
		{ { 0, 1e-9 }, 7, 1 },
		{ { 0, 0.5 }, 5, 2 },
		{ { 0, 0.5 }, 7, 4 },
		{ { 0, 0.5 }, 1, 1 },
		{ { 2147483647, 0 }, 7, 2147483647 },
	};
	static const struct kv_grant bad[] = { { 0, 0 }, { 5, 0.5 }, { 0, -0.5 }, { 0, 1.5 }, { 0, NAN },
		{ 2147483648, 0 } };
	struct kv_err e = { 0 };
	size_t C;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(kv_grant_capacity(&good[i].g, good[i].T, &C, &e), KV_OK);
		assert_int_equal(C, good[i].C);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_grant_capacity(&bad[i], 100, &C, &e), KV_EARG);
}

static void
refused(struct allot_rig *x, size_t C, int code, const char *text)
{
	struct kv_err e = { 0 };

	assert_int_equal(try_budget(&kv_budget_uniform, x, C, &e), code);
	if (strstr(e.text, text) == NULL)
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void
refusals(void **state)
{
	static const int32_t negative[2] = { 5, -1 };
	const size_t three = 3;
	struct allot_rig x;
	struct kv_err e = { 0 };

	(void)state;
	assert_null(kv_budget_find("unheard of"));
	allot_init(&x, 1, 2, 10);
	refused(&x, 0, KV_EARG, "-b");
	allot_put_budget(&x, 0, negative, 0, 0);
	refused(&x, 0, KV_ESHAPE, "head 1");
	allot_put(&x, 0, "budget", KVK_I32, "kv_head", &three, negative, json_pack("{s:i, s:i}", "n_sink", 0, "n_recent", 0));
	refused(&x, 0, KV_ESHAPE, "3 heads");
	put_score(&x, 0, NULL, 11, (struct kv_protection){ 0, 0, -1 });
	refused(&x, 5, KV_ESHAPE, "11 columns");
	kv_step_remove(&x.step[0], "score");
	assert_int_equal(try_budget(&by_head, &x, 5, &e), KV_ESHAPE);
	assert_non_null(strstr(e.text, "kv-score"));
	x.layer[0].T = 0;
	refused(&x, 5, KV_ESHAPE, "0 tokens");
	allot_fini(&x);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uniform_oracle),
		cmocka_unit_test(compose_oracle),
		cmocka_unit_test(edges),
		cmocka_unit_test(shares),
		cmocka_unit_test(kinds),
		cmocka_unit_test(remainders),
		cmocka_unit_test(capacity),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
