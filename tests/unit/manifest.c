/* SPDX-License-Identifier: MIT
 * What an archive says about its files: made from bytes, read back, compared, refused when it makes no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/manifest.h"
#include "tests/lib/streams.h"

static int
pull_source(void *source, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	return kv_source_read(source, dst, n, got, e);
}

static int
look(const char *name, const char *path, json_t **file, struct kv_err *e)
{
	struct kv_source s;
	int rc;

	must(kv_source_open_raw(&s, path, e), e);
	rc = kv_manifest_look(name, pull_source, &s, file, e);
	kv_source_close(&s);
	return rc;
}

static const char *
text_of(const json_t *file, const char *key)
{
	const char *text = json_string_value(json_object_get(file, key));

	return text != NULL ? text : "";
}

static void
files_are_described(void **state)
{
	static const struct sample two = { .sequences = 2, .layers = 2, .tokens = 5 };
	struct kv_err e = { 0 };
	json_t *file;

	(void)state;
	sample_write(scratch("s.kv.zst"), &two);
	must(look("any", scratch("s.kv.zst"), &file, &e), &e);
	assert_string_equal(text_of(file, "kind"), "stream");
	assert_string_equal(text_of(file, "model"), "tiny");
	assert_string_equal(text_of(file, "fingerprint"), "f00d");
	assert_int_equal(json_integer_value(json_object_get(file, "sequences")), 2);
	assert_int_equal(json_array_size(json_object_get(file, "history")), 1);
	json_decref(file);

	/* XXH3-128 of "abc" as Python's xxhash 4.1.0 (xxHash 0.8.4) gives it */
	scratch_write(scratch("abc"), "abc", 3);
	must(look("abc", scratch("abc"), &file, &e), &e);
	assert_string_equal(text_of(file, "kind"), "other");
	assert_string_equal(text_of(file, "xxh3_128"), "06b05ab6733a618578af5f94892f3950");
	assert_int_equal(json_integer_value(json_object_get(file, "bytes")), 3);
	json_decref(file);
	assert_int_equal(look("abc.kv", scratch("abc"), &file, &e), KV_EFORMAT);
	expect_text(&e, "abc.kv: not a kvtools stream");
	assert_int_equal(look("abc.kv.gz", scratch("abc"), &file, &e), KV_EFORMAT);
}

/* Through text and back; a history that is no UTF-8 does not stand in the way. */
static void
text_comes_back(void **state)
{
	static const struct sample one = { .sequences = 1, .layers = 1, .tokens = 5 };
	json_t *manifest = kv_manifest_new(), *file, *back;
	struct kv_buf text = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	sample_write(scratch("s.kv"), &one);
	must(look("a/\"b\".kv", scratch("s.kv"), &file, &e), &e);
	must(kv_manifest_add(manifest, json_incref(file), &e), &e);
	must(kv_manifest_text(manifest, &text, &e), &e);
	must(kv_manifest_parse(&back, text.data, text.n, &e), &e);
	assert_non_null(kv_manifest_find(back, "a/\"b\".kv"));
	assert_null(kv_manifest_find(back, "a"));
	must(kv_manifest_compare(kv_manifest_find(back, "a/\"b\".kv"), file, &e), &e);
	json_object_set_new(file, "sequences", json_integer(7));
	assert_int_equal(kv_manifest_compare(kv_manifest_find(back, "a/\"b\".kv"), file, &e), KV_EFORMAT);
	expect_text(&e, "'sequences'");
	json_object_set_new(file, "xxh3_128", json_string("0123"));
	assert_int_equal(kv_manifest_compare(kv_manifest_find(back, "a/\"b\".kv"), file, &e), KV_EFORMAT);
	expect_text(&e, "was damaged or replaced");
	kv_buf_fini(&text);
	json_decref(back);
	json_decref(file);
	json_decref(manifest);
}

#define SUM "'bytes':1,'xxh3_128':'00000000000000000000000000000000','kind':'other'"

static void
nonsense_is_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "{", "not JSON" },
		{ "{}", "not a manifest of kv-pack" },
		{ "[]", "not a manifest of kv-pack" },
		{ "{'kvpack':2,'files':[]}", "version 1" },
		{ "{'kvpack':1,'files':{}}", "not a manifest" },
		{ "{'kvpack':1,'kvpack':1,'files':[]}", "not JSON" },
		{ "{'kvpack':1,'files':[7]}", "name '' is missing" },
		{ "{'kvpack':1,'files':[{'name':'../a'," SUM "}]}", "leads out" },
		{ "{'kvpack':1,'files':[{'name':'/a'," SUM "}]}", "absolute" },
		{ "{'kvpack':1,'files':[{'name':'a'," SUM "},{'name':'a'," SUM "}]}", "a is there twice" },
		{ "{'kvpack':1,'files':[{'name':'a','bytes':-1,'xxh3_128':'','kind':'other'}]}", "expected bytes" },
		{ "{'kvpack':1,'files':[{'name':'a','bytes':1,'xxh3_128':'00','kind':'other'}]}", "expected bytes" },
	};
	json_t *manifest;
	char text[400];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct kv_err e = { 0 };

		strcpy(text, rows[i].text);
		for (char *p = text; *p != '\0'; p++)
			if (*p == '\'')
				*p = '"';
		assert_int_equal(kv_manifest_parse(&manifest, text, strlen(text), &e), KV_EFORMAT);
		expect_text(&e, rows[i].why);
		assert_null(manifest);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_described),
		cmocka_unit_test(text_comes_back),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
