/* SPDX-License-Identifier: MIT
 * Answers on their way out: text in whole characters as it grows, JSON objects, table rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/answer.h"
#include "tests/lib/tiny.h"

static struct kv_model model;
static struct kv_tokenizer *tokenizer;
static struct kv_err err;
static int ends[2]; /* a pipe: what is shown comes out of ends[0] */

static int
open_all(void **state)
{
	const struct tiny_spec spec = { .arch = "llama",
		.L = 1,
		.Hq = 1,
		.Hkv = 1,
		.D = 8,
		.d = 8,
		.ff = 8,
		.vocab = 280,
		.context = 64,
		.seed = 1 };

	(void)state;
	assert_int_equal(tiny_model(&model, &spec, &err), KV_OK);
	assert_int_equal(kv_tokenizer_new(&tokenizer, &model.vocab, &err), KV_OK);
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	return 0;
}

static int
close_all(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	kv_tokenizer_free(tokenizer);
	kv_model_fini(&model);
	return 0;
}

static struct kv_answers *
answers(enum kv_answer_kind kind)
{
	const struct kv_answer_options o = { .kind = kind, .fd = ends[1], .tokenizer = tokenizer, .cfg = &model.cfg };
	struct kv_answers *a;

	assert_int_equal(kv_answers_new(&a, &o, &err), KV_OK);
	return a;
}

/* What has come out since the last call. */
static const char *
shown(void)
{
	static char out[4096];
	ssize_t n = read(ends[0], out, sizeof out - 1);

	out[n > 0 ? n : 0] = '\0';
	return out;
}

static void
begin(struct kv_answers *a, size_t number, json_t *map)
{
	struct kv_sequence seq = { .number = number, .map = map };

	assert_non_null(map);
	assert_int_equal(kv_answer_begin(a, &seq, &err), KV_OK);
	json_decref(map);
}

/* A byte is its own token in the tiny vocabulary. */
static void
say(struct kv_answers *a, const char *bytes)
{
	for (; *bytes != '\0'; bytes++)
		assert_int_equal(kv_answer_token(a, (unsigned char)*bytes, false, NULL, &err), KV_OK);
}

static void
characters_stay_whole(void **state)
{
	static const struct {
		const char *byte, *shown;
	} steps[] = {
		{ "a", "a" },
		{ "\xc3", "" },
		{ "\xa9", "\xc3\xa9" },
		{ "\xe6", "" },
		{ "\x97", "" },
		{ "\xa5", "\xe6\x97\xa5" },
		{ "\xf0", "" },
		{ "\x9f", "" },
		{ "\x98", "" },
		{ "\x80", "\xf0\x9f\x98\x80" },
		{ "\xff", "\xff" }, /* can never become a character: not held back */
		{ "\xc3", "" },
		{ "b", "\xc3"
		       "b" }, /* neither can this any more */
		{ "\xe6", "" },
	};
	struct kv_answers *a = answers(KV_ANSWER_TEXT);
	const struct kv_answer_facts facts = { .stop = "length" };

	(void)state;
	begin(a, 0, json_pack("{s:s}", "id", "0"));
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		say(a, steps[i].byte);
		assert_string_equal(shown(), steps[i].shown);
	}
	assert_int_equal(kv_answer_finish(a, &facts, &err), KV_OK);
	assert_string_equal(shown(), "\xe6\n"); /* nothing is lost */
	kv_answers_free(a);
}

static void
several_texts(void **state)
{
	const struct kv_answer_facts facts = { .stop = "end" };
	struct kv_answers *a = answers(KV_ANSWER_TEXT);

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		static const char *const text[] = { "one", "two\n", "" };

		begin(a, i, json_pack("{s:s}", "id", i == 0 ? "x" : i == 1 ? "y" : "z"));
		say(a, text[i]);
		assert_int_equal(kv_answer_token(a, TINY_IM_END, true, NULL, &err), KV_OK);
		assert_int_equal(kv_answer_finish(a, &facts, &err), KV_OK);
	}
	assert_string_equal(shown(), "one\n--- y\ntwo\n--- z\n\n");
	kv_answers_free(a);
}

static void
objects(void **state)
{
	const struct kv_answer_facts facts = { .stop = "end", .next_position = 9, .kept_entries = 4, .kept_bytes = 64 };
	struct kv_answers *a = answers(KV_ANSWER_JSON);
	json_t *want, *got;

	(void)state;
	begin(a, 0, json_pack("{s:s, s:{s:i, s:s}}", "id", "q", "attributes", "n", 1, "response", "gold"));
	say(a, "h\xff");
	assert_int_equal(kv_answer_token(a, TINY_EOS, true, NULL, &err), KV_OK);
	assert_string_equal(shown(), "");
	assert_int_equal(kv_answer_finish(a, &facts, &err), KV_OK);
	got = json_loads(shown(), 0, NULL);
	want = json_pack("{s:i, s:s, s:s, s:s, s:[iii], s:i, s:s, s:i, s:i, s:i}", "n", 1, "attributes.response",
	    "gold", "id", "q", "response", "h\xef\xbf\xbd", "tokens", 'h', 255, TINY_EOS, "n_tokens", 3, "stop", "end",
	    "next_position", 9, "kept_entries", 4, "kept_bytes", 64);
	assert_true(json_equal(got, want));
	json_decref(got);
	json_decref(want);
	kv_answers_free(a);
}

static void
table_of_nll(void **state)
{
	const struct kv_answer_facts facts = { .measured = true, .nll = 3 };
	struct kv_answers *a = answers(KV_ANSWER_NLL);

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		begin(a, i, json_pack("{s:s}", "id", i == 0 ? "x" : "y"));
		say(a, "ab");
		assert_int_equal(kv_answer_finish(a, &facts, &err), KV_OK);
	}
	assert_string_equal(shown(), "id\tn_tokens\tnll\tnll_per_token\nx\t2\t3\t1.5\ny\t2\t3\t1.5\n");
	kv_answers_free(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_stay_whole),
		cmocka_unit_test(several_texts),
		cmocka_unit_test(objects),
		cmocka_unit_test(table_of_nll),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
