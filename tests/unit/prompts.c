/* SPDX-License-Identifier: MIT
 * Prompts from the command line's sources; JSON strings from any bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/text/json_text.h"
#include "lib/text/prompts.h"

static struct kv_err err;

static void
token_lists(void **state)
{
	static const char *const bad[] = { "-1", "1 x", "1.5", "2147483648", "99999999999999999999", "1-2", "0x10",
		"+3" };
	static const int32_t want[] = { 1, 2, 2147483647, 0 };
	struct kv_prompts p = { 0 };

	(void)state;
	assert_int_equal(kv_prompts_add_tokens(&p, " 1,2 \n2147483647,\t0 ", &err), KV_OK);
	assert_int_equal(p.v[0].ids.n, 4);
	assert_memory_equal(p.v[0].ids.v, want, sizeof want);
	assert_null(p.v[0].text);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_prompts_add_tokens(&p, bad[i], &err), KV_EARG);
	kv_prompts_fini(&p);
}

static void
texts_are_not_trimmed(void **state)
{
	struct kv_prompts p = { 0 };

	(void)state;
	assert_int_equal(kv_prompts_add_text(&p, " a\0\xff\n", 5, &err), KV_OK);
	assert_int_equal(p.v[0].bytes, 5);
	assert_memory_equal(p.v[0].text, " a\0\xff\n", 5);
	assert_string_equal(p.v[0].id, "0");
	kv_prompts_fini(&p);
}

static const char *
file_with(const char *text)
{
	static char path[] = "/tmp/kv-prompts-XXXXXX";
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	return path;
}

static int
jsonl(struct kv_prompts *p, const char *text, const char *id_field)
{
	const char *path = file_with(text);
	int rc = kv_prompts_add_jsonl(p, path, "prompt", id_field, &err);

	unlink(path);
	return rc;
}

static void
json_lines(void **state)
{
	struct kv_prompts p = { 0 };

	(void)state;
	assert_int_equal(
	    jsonl(&p, "{\"prompt\":\"a\\u0000\\n\",\"n\":7,\"x\":[1]}\n\n  \r\n{\"prompt\":[3,4],\"n\":\"k\"}", "n"),
	    KV_OK);
	assert_int_equal(p.n, 2);
	assert_string_equal(p.v[0].id, "7");
	assert_int_equal(p.v[0].bytes, 3);
	assert_memory_equal(p.v[0].text, "a\0\n", 3);
	assert_int_equal(json_object_size(p.v[0].attributes), 3);
	assert_string_equal(p.v[1].id, "k");
	assert_int_equal(p.v[1].ids.n, 2);
	assert_int_equal(p.v[1].ids.v[1], 4);
	assert_int_equal(jsonl(&p, "{\"prompt\":\"b\"}\n", NULL), KV_OK);
	assert_string_equal(p.v[2].id, "2");
	kv_prompts_fini(&p);
}

static void
broken_json_lines(void **state)
{
	static const struct {
		const char *text, *says;
	} t[] = {
		{ "", "no prompt" },
		{ "\n\n", "no prompt" },
		{ "{\"prompt\":\"a\"}\n{\n", ":2: not JSON" },
		{ "{\"prompt\":\"a\"} x\n", ":1: not JSON" },
		{ "[1]\n", ":1: expected a JSON object" },
		{ "{\"text\":\"a\"}\n", "no field 'prompt'" },
		{ "{\"prompt\":1}\n", "neither text nor a list" },
		{ "{\"prompt\":[1,-1]}\n", "element 1 is not a token id" },
		{ "{\"prompt\":[\"a\"]}\n", "element 0 is not a token id" },
		{ "{\"prompt\":\"\\ud800\"}\n", ":1: not JSON" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct kv_prompts p = { 0 };

		assert_int_equal(jsonl(&p, t[i].text, NULL), KV_EFORMAT);
		if (strstr(err.text, t[i].says) == NULL)
			fail_msg("'%s' does not say '%s'", err.text, t[i].says);
		kv_prompts_fini(&p);
	}
}

static void
json_text(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *want;
	} t[] = {
		{ "", 0, "\"\"" }, { "a\0b", 3, "\"a\\u0000b\"" }, { "\xc3\xa9", 2, "\"\xc3\xa9\"" },
		{ "x\xc3", 2, "\"x\xef\xbf\xbd\"" }, { "\xff\xf0\x9f\x98\x80", 5, "\"\xef\xbf\xbd\xf0\x9f\x98\x80\"" },
		{ "\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" }, /* a surrogate */
	};

	(void)state;
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		json_t *s = kv_json_text(t[i].bytes, t[i].n);
		char *dump = json_dumps(s, JSON_ENCODE_ANY);

		assert_string_equal(dump, t[i].want);
		free(dump);
		json_decref(s);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(token_lists),
		cmocka_unit_test(texts_are_not_trimmed),
		cmocka_unit_test(json_lines),
		cmocka_unit_test(broken_json_lines),
		cmocka_unit_test(json_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
