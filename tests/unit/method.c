/* SPDX-License-Identifier: MIT
 * Parameters of methods: defaults, the command line's words, what is refused, attributes; the tables of methods; which
 * queries and which layers, as text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/budget/budget.h"
#include "lib/score/score.h"

static const struct kv_param tau = { .name = "tau", .kind = KV_PARAM_NUMBER, .max = 1 };
static const struct kv_param file = { .name = "file-name", .kind = KV_PARAM_TEXT };
static const struct kv_param exact = { .name = "exact", .kind = KV_PARAM_FLAG };
static const struct kv_param most = {
	.name = "most", .kind = KV_PARAM_COUNT, .min = 1, .max = 9, .choices = "all|none"
};

static int
tau_below_half(const struct kv_params *p, struct kv_err *e)
{
	return kv_number(p, &tau) < 0.5 ? KV_OK : kv_fail(e, KV_EARG, "--tau is half or more");
}

static const struct kv_takes takes[] = {
	{ &tau, "0.25" },
	{ &file, NULL },
	{ &exact, NULL },
	{ &most, "none" },
	{ &kv_param_rows, "sum" },
	{ &kv_param_seed, "7" },
	{ &kv_param_pool, "max" },
	{ &kv_param_pool_width, "5" },
	{ &kv_param_sink, NULL },
	{ 0 },
};
static const struct kv_method method = { .name = "test", .takes = takes, .check = tau_below_half };

static void
defaults(void **state)
{
	struct kv_params p;

	(void)state;
	kv_params_init(&p, &method);
	assert_true(kv_number(&p, &tau) == 0.25 && kv_text(&p, &file) == NULL && !kv_flag(&p, &exact));
	assert_true(kv_count(&p, &most) == SIZE_MAX - 1 && kv_reduce(&p, &kv_param_rows) == KVK_SUM);
	assert_true(kv_seed(&p, &kv_param_seed) == 7 && kv_pool(&p) == KVK_POOL_MAX);
	assert_true(kv_count(&p, &kv_param_sink) == KV_UNSET && !kv_given(&p, &kv_param_sink));
	assert_true(kv_takes(&p, &tau) && !kv_takes(&p, &kv_param_window) && !kv_given(&p, &kv_param_window));
	assert_true(KV_UNSET != KV_ALL && KV_ALL != KV_WINDOW && KV_WINDOW != KV_UNSET);
}

static void
values(void **state)
{
	static const struct {
		const char *name, *text;
		int rc;
	} row[] = {
		{ "tau", "0.125", KV_OK },
		{ "tau", "1.5", KV_EARG },
		{ "tau", "x", KV_EARG },
		{ "file-name", "a b", KV_OK },
		{ "exact", NULL, KV_OK },
		{ "most", "9", KV_OK },
		{ "most", "10", KV_EARG },
		{ "most", "all", KV_OK },
		{ "most", "al", KV_EARG },
		{ "rows", "max", KV_EARG },
		{ "rows", "mean", KV_OK },
		{ "nothing", "1", KV_EARG },
		{ "seed", "18446744073709551615", KV_OK },
		{ "sink", "3", KV_OK },
	};
	struct kv_params p;
	struct kv_err e = { 0 };
	json_t *o = json_pack("{s:s}", "rows", "mine");

	(void)state;
	kv_params_init(&p, &method);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (kv_params_set(&p, row[i].name, row[i].text, &e) != row[i].rc)
			fail_msg("%s %s", row[i].name, row[i].text);
	assert_true(kv_number(&p, &tau) == 0.125 && strcmp(kv_text(&p, &file), "a b") == 0 && kv_flag(&p, &exact));
	assert_true(kv_count(&p, &most) == KV_ALL && kv_is(&p, &kv_param_rows, "mean") && kv_given(&p, &kv_param_sink));
	assert_int_equal(kv_params_describe(&p, o, &e), KV_OK);
	assert_string_equal(json_string_value(json_object_get(o, "rows")), "mine"); /* what is there stays */
	assert_string_equal(json_string_value(json_object_get(o, "most")), "all");
	assert_string_equal(json_string_value(json_object_get(o, "file_name")), "a b");
	assert_true(json_is_true(json_object_get(o, "exact")));
	assert_int_equal(json_integer_value(json_object_get(o, "pool_width")), 5);
	assert_null(json_object_get(o, "sink")); /* hidden: it is n_sink there */
	json_decref(o);
}

static void
checks(void **state)
{
	struct kv_params p;
	struct kv_err e = { 0 };

	(void)state;
	kv_params_init(&p, &method);
	assert_int_equal(kv_params_check(&p, &e), KV_OK);
	assert_int_equal(kv_params_set(&p, "pool-width", "4", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	assert_non_null(strstr(e.text, "odd"));
	assert_int_equal(kv_params_set(&p, "pool-width", "3", &e), KV_OK);
	assert_int_equal(kv_params_set(&p, "pool", "none", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	assert_int_equal(kv_params_set(&p, "pool", "avg", &e), KV_OK);
	assert_int_equal(kv_params_set(&p, "tau", "0.75", &e), KV_OK);
	assert_int_equal(kv_params_check(&p, &e), KV_EARG);
	assert_non_null(strstr(e.text, "half"));
}

static void
check_row(const struct kv_method *m)
{
	struct kv_params p;
	struct kv_opt table[KV_PARAMS_MAX + 1];
	struct kv_err e = { 0 };

	assert_true(m->name[0] != '\0' && m->brief[0] != '\0' && m->brief[strlen(m->brief) - 1] != '.');
	kv_params_init(&p, m); /* a default that its row refuses would end here */
	if (kv_params_check(&p, &e) < 0 && strstr(e.text, "needs --") == NULL)
		fail_msg("%s: %s", m->name, e.text);
	kv_params_options(&p, table);
	for (size_t i = 0; i < p.n; i++) {
		assert_true(table[i].help != NULL && table[i].help[0] != '\0');
		assert_true(p.v[i].param->kind == KV_PARAM_FLAG || table[i].arg != NULL);
		assert_true(p.v[i].param->kind != KV_PARAM_NUMBER || table[i].max > table[i].min);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(table[i].name, table[j].name);
	}
}

/* Options of one name are of one kind in all methods: METHOD is found by walking over them. */
static void
check_kinds(const struct kv_method *a, const struct kv_method *b)
{
	for (const struct kv_takes *x = a->takes; x != NULL && x->param != NULL; x++)
		for (const struct kv_takes *y = b->takes; y != NULL && y->param != NULL; y++)
			if (strcmp(x->param->name, y->param->name) == 0)
				assert_int_equal(x->param->kind == KV_PARAM_FLAG, y->param->kind == KV_PARAM_FLAG);
}

static void
tables(void **state)
{
	(void)state;
	for (const struct kv_score_method *const *m = kv_score_list; *m != NULL; m++) {
		check_row(&(*m)->about);
		assert_true((*m)->run != NULL && kv_score_find((*m)->about.name) == *m);
		for (const struct kv_score_method *const *n = kv_score_list; n != m; n++)
			check_kinds(&(*m)->about, &(*n)->about);
	}
	for (const struct kv_budget_method *const *m = kv_budget_list; *m != NULL; m++) {
		check_row(&(*m)->about);
		assert_true(kv_budget_find((*m)->about.name) == *m);
		for (const struct kv_budget_method *const *n = kv_budget_list; n != m; n++)
			check_kinds(&(*m)->about, &(*n)->about);
	}
}

static void
queries(void **state)
{
	static const char *const good[] = { "none", "last", "window:1", "window:2147483647", "all" };
	static const char *const bad[] = { "", "window", "window:", "window:0", "window:2147483648", "window:1x",
		"al" };
	static const size_t rows[] = { 0, 1, 1, 10, 10 };
	struct kv_queries q;
	struct kv_err e = { 0 };
	char text[32];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(kv_queries_parse(&q, good[i], &e), KV_OK);
		assert_string_equal(kv_queries_print(q, text), good[i]);
		assert_int_equal(kv_queries_rows(q, 10), rows[i]);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_queries_parse(&q, bad[i], &e), KV_EARG);
	assert_string_equal(kv_queries_print(kv_queries_of(0), text), "none");
	assert_string_equal(kv_queries_print(kv_queries_of(1), text), "last");
	assert_string_equal(kv_queries_print(kv_queries_of(32), text), "window:32");
	assert_string_equal(kv_queries_print(kv_queries_of(KV_ALL), text), "all");
}

static void
layers(void **state)
{
	static const struct {
		const char *text;
		size_t first, last;
	} good[] = { { "0-3", 0, 3 }, { "4-", 4, SIZE_MAX }, { "-7", 0, 7 }, { "5", 5, 5 }, { "2-2", 2, 2 } };
	static const char *const bad[] = { "", "-", "3-1", "a", "1-2-3", "1,2", " 1", "+1" };
	struct kv_layers r;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(kv_layers_parse(&r, good[i].text, &e), KV_OK);
		assert_true(r.first == good[i].first && r.last == good[i].last);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_layers_parse(&r, bad[i], &e), KV_EARG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(values),
		cmocka_unit_test(checks),
		cmocka_unit_test(tables),
		cmocka_unit_test(queries),
		cmocka_unit_test(layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
