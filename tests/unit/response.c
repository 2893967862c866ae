/* SPDX-License-Identifier: MIT
 * Which response stands behind a prompt: the words of the command line, and the ids they become.
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

#include "lib/text/response.h"
#include "tests/lib/tiny.h"

enum { VOCAB = 280 };

static struct kv_model model;
static struct kv_tokenizer *tokenizer;
static struct kv_err err;

static int
open_all(void **state)
{
	const struct tiny_spec spec = { .arch = "llama", .L = 1, .Hq = 1, .Hkv = 1, .D = 8, .d = 8, .ff = 8, .vocab = VOCAB,
		.context = 64, .seed = 1 };

	(void)state;
	assert_int_equal(tiny_model(&model, &spec, &err), KV_OK);
	assert_int_equal(kv_tokenizer_new(&tokenizer, &model.vocab, &err), KV_OK);
	return 0;
}

static int
close_all(void **state)
{
	(void)state;
	kv_tokenizer_free(tokenizer);
	kv_model_fini(&model);
	return 0;
}

static void
words(void **state)
{
	static const struct {
		const char *spec;
		enum kv_response_kind kind;
		const char *rest;
	} good[] = {
		{ "file:generate:3", KV_RESPONSE_FILE, "generate:3" },
		{ "file:-", KV_RESPONSE_FILE, "-" },
		{ "field:response", KV_RESPONSE_FIELD, "response" },
		{ "field:file:x", KV_RESPONSE_FIELD, "file:x" },
		{ "tokens:1 2", KV_RESPONSE_TOKENS, "1 2" },
		{ "generate:2147483647", KV_RESPONSE_GENERATE, "2147483647" },
	};
	static const char *const bad[] = { "", "answer.txt", "generate", "generate:", "generate:0", "generate:-1",
		"generate:1x", "generate:2147483648", "generate:99999999999999999999", "File:x", "response" };
	struct kv_response r;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(kv_response_parse(&r, good[i].spec, &err), KV_OK);
		assert_int_equal(r.kind, good[i].kind);
		assert_string_equal(r.rest, good[i].rest);
	}
	assert_int_equal(r.most, 2147483647);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kv_response_parse(&r, bad[i], &err), KV_EARG);
	assert_int_equal(kv_response_parse(&r, "answer.txt", &err), KV_EARG);
	assert_string_equal(
	    err.text, "expected file:FILE, field:NAME, tokens:IDS or generate:N, got 'answer.txt'");
}

/* The ids of a response behind the token 7. */
static int
encode(const char *spec, const struct kv_tokenizer *t, const char *record, struct kv_ids *ids)
{
	static const int32_t before[] = { 7 };
	const struct kv_behind b = { .tokenizer = t, .vocab = VOCAB, .before = before, .n_before = 1 };
	json_t *o = record != NULL ? json_loads(record, 0, NULL) : NULL;
	struct kv_response r;
	int rc;

	ids->n = 0;
	assert_int_equal(kv_response_parse(&r, spec, &err), KV_OK);
	if ((rc = kv_response_read(&r, &err)) == KV_OK)
		rc = kv_response_encode(&r, &b, o, model.vocab.stops, model.vocab.n_stops, ids, &err);
	kv_response_fini(&r);
	json_decref(o);
	return rc;
}

static void
expect(const char *spec, const char *record, size_t n, ...)
{
	struct kv_ids ids = { 0 };
	va_list ap;

	assert_int_equal(encode(spec, tokenizer, record, &ids), KV_OK);
	assert_int_equal(ids.n, n);
	va_start(ap, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(ids.v[i], va_arg(ap, int));
	va_end(ap);
	kv_ids_fini(&ids);
}

static void
refused(const char *spec, const struct kv_tokenizer *t, const char *record, int code, const char *says)
{
	struct kv_ids ids = { 0 };

	assert_int_equal(encode(spec, t, record, &ids), code);
	if (strstr(err.text, says) == NULL)
		fail_msg("'%s' does not say '%s'", err.text, says);
	kv_ids_fini(&ids);
}

/* A byte is its own token in the tiny vocabulary. */
static void
ids(void **state)
{
	const char *record = "{\"a\": \"xyz\", \"ids\": [9, 10, 265], \"none\": [], \"odd\": 3, \"high\": [1, 280]}";

	(void)state;
	expect("tokens:1, 2 3", NULL, 3, 1, 2, 3);
	expect("tokens:", NULL, 0);
	expect("field:a", record, 3, 'x', 'y', 'z');
	expect("field:none", record, 0);
	expect("generate:5", record, 0);
	refused("tokens:1 x", tokenizer, NULL, KV_EARG, "'x' is not a token id");
	refused("tokens:1 280", tokenizer, NULL, KV_EARG, "token id 280 at position 2 is outside the vocabulary of 280");
	refused("field:high", tokenizer, record, KV_EARG, "field 'high': token id 280 at position 2");
	refused("field:odd", tokenizer, record, KV_EARG, "field 'odd' is neither text nor a list of token ids");
	refused("field:b", tokenizer, record, KV_EARG, "field 'b' is missing");
	refused("field:b", tokenizer, NULL, KV_EARG, "field 'b' is missing");
	refused("field:a", NULL, record, KV_EMODEL, "no vocabulary");
	refused("file:/nowhere/at/all", tokenizer, NULL, KV_EIO, "/nowhere/at/all");
}

/* One end token at the end goes, one anywhere else stays. */
static void
the_end_token_is_left_out(void **state)
{
	(void)state;
	assert_true(model.vocab.n_stops > 0);
	expect("tokens:1 265", NULL, 1, 1);
	expect("tokens:265 1", NULL, 2, 265, 1);
	expect("tokens:1 265 265", NULL, 2, 1, 265);
	expect("tokens:265", NULL, 0);
	expect("field:ids", "{\"ids\": [9, 10, 265]}", 2, 9, 10);
}

static void
a_file_is_not_trimmed(void **state)
{
	char spec[64] = "file:/tmp/kv-response-XXXXXX", *path = spec + 5;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "\0a\n", 3), 3);
	close(fd);
	expect(spec, NULL, 3, 0, 'a', '\n');
	unlink(path);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words),
		cmocka_unit_test(ids),
		cmocka_unit_test(the_end_token_is_left_out),
		cmocka_unit_test(a_file_is_not_trimmed),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
