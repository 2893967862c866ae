/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lib/names.h"

static void
names_of_a_list(void **state)
{
	static const struct {
		const char *list, *name;
		bool is_in;
	} rows[] = {
		{ NULL, "k", false },
		{ "k", "k", true },
		{ "k", "kk", false },
		{ "kk", "k", false },
		{ "k,v", "v", true },
		{ "k,v", "k,v", false },
		{ "k,score.a,v", "score.a", true },
		{ "k,score.a,v", "score", false },
		{ "k,score.a,v", "score.a,v", false },
		{ "score.*,v", "score.b", true },
		{ "score.*,v", "score.", true },
		{ "score.*,v", "score", false },
		{ "k,*", "anything", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_int_equal(kv_names_have(rows[i].list, rows[i].name), rows[i].is_in);
}

static void
lists_that_are_none(void **state)
{
	static const char *const good[] = { "k", "k,v", "k.*", "*", "a,b.*,c" };
	static const char *const bad[] = { "", ",", "k,", ",k", "k,,v", "*k", "a,b*c,d", "a**", "k, v", "k\n" };
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_names_check(NULL, &e), KV_OK);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_int_equal(kv_names_check(good[i], &e), KV_OK);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		e = (struct kv_err){ 0 };
		assert_int_equal(kv_names_check(bad[i], &e), KV_EARG);
		assert_non_null(strstr(e.text, bad[i]));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_a_list),
		cmocka_unit_test(lists_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
