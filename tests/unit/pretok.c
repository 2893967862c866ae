/* SPDX-License-Identifier: MIT
 * Pre-tokenising patterns, and the memory and end tokens of a vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/buf.h"
#include "lib/text/split.h"
#include "tests/lib/small_vocab.h"

static const char text[] =
    "I'M 12345 don't\r\n\n  camelCase HTTPServer2: a+=b; \xe6\xbc\xa2\xe5\xad\x97 e\xcc\x81\xe3\x80\x80x.../\n"
    "\xe1\xa0\x8e end  ";

/* What Hugging Face's tokenizers 0.23.3 makes of it with the same patterns, Split(Regex(...), "isolated") one after the
 * other; U+180E is no space there. */
static const struct {
	const char *pre, *pieces;
} rows[] = {
	{ "gpt-2", "I|'|M| 12345| don|'t|\r\n\n |"
		   " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		   "e|\xcc\x81|\xe3\x80\x80|x|.../|\n|\xe1\xa0\x8e| end|  " },
	{ "smollm", "I|'|M| |1|2|3|4|5| don|'t|\r\n\n |"
		    " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		    "e|\xcc\x81|\xe3\x80\x80|x|.../|\n|\xe1\xa0\x8e| end|  " },
	{ "llama-bpe", "I|'M| |123|45| don|'t|\r\n\n| |"
		       " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		       "e|\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "qwen2", "I|'M| |1|2|3|4|5| don|'t|\r\n\n| |"
		   " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		   "e|\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "qwen35", "I|'M| |1|2|3|4|5| don|'t|\r\n\n| |"
		    " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		    "e\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "tekken", "I|'M| |1|2|3|4|5| don|'t|\r\n\n| |"
		    " camel|Case| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		    "e\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "gpt-4o", "I'M| |123|45| don't|\r\n\n| |"
		    " camel|Case| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		    "e\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "falcon", "I|'|M| |123|45| don|'|t|\r\n\n |"
		    " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		    "e|\xcc\x81|\xe3\x80\x80|x|.../|\n|\xe1\xa0\x8e| end|  " },
	{ "deepseek-v3", "I|'M| |123|45| don|'t|\r\n\n| |"
			 " camelCase| HTTPServer|2|:| a|+=|b|;| |\xe6\xbc\xa2\xe5\xad\x97| "
			 "e\xcc\x81|\xe3\x80\x80x|.../\n|\xe1\xa0\x8e| end|  " },
	{ "deepseek-coder", "I|'|M| |1|2|3|4|5| don|'|t|\r|\n|\n| |"
			    " camelCase| HTTPServer|2|:| a|+=|b|;| |\xe6\xbc\xa2\xe5\xad\x97| "
			    "e|\xcc\x81|\xe3\x80\x80|x|.../|\n|\xe1\xa0\x8e| end|  " },
	{ "default", "I|'|M| |123|45| don|'|t|\r\n\n |"
		     " camelCase| HTTPServer|2|:| a|+=|b|;| \xe6\xbc\xa2\xe5\xad\x97| "
		     "e|\xcc\x81|\xe3\x80\x80|x|.../|\n|\xe1\xa0\x8e| end|  " },
};

/* Pieces with '|' between them. */
static int
join(void *ctx, const char *piece, size_t n, struct kv_err *e)
{
	struct kv_buf *b = ctx;
	int rc = b->n > 0 ? kv_buf_add(b, "|", 1, e) : KV_OK;

	return rc < 0 ? rc : kv_buf_add(b, piece, n, e);
}

static void
expect_pieces(const struct kv_vocab *v, const char *s, size_t n, const char *wanted)
{
	struct kv_split *split;
	struct kv_buf b = { 0 };
	struct kv_err e;

	assert_int_equal(kv_split_new(&split, v->patterns, v->n_patterns, &e), KV_OK);
	assert_int_equal(kv_split_text(split, s, n, v->nfc, join, &b, &e), KV_OK);
	assert_string_equal(b.data, wanted);
	kv_buf_fini(&b);
	kv_split_free(split);
}

static void
patterns_cut_as_the_originals(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct kv_vocab v = { 0 };
		struct kv_err e = { 0 };

		if (kv_vocab_set_pre(&v, rows[i].pre, &e) < 0)
			fail_msg("%s", e.text);
		v.nfc = false;
		expect_pieces(&v, text, sizeof text - 1, rows[i].pieces);
		kv_vocab_fini(&v);
	}
}

static void
invalid_bytes_stand_alone_and_end_what_patterns_see(void **state)
{
	struct kv_vocab v = { 0 };
	struct kv_err e;

	(void)state;
	assert_int_equal(kv_vocab_set_pre(&v, "gpt-2", &e), KV_OK);
	/* spaces before an invalid byte are a run at the end of text, not a run before a word */
	expect_pieces(&v, "ab  \xff\xfe" "cd \xe2\x82", 11, "ab|  |\xff\xfe|cd| |\xe2\x82");
	kv_vocab_fini(&v);
}

static void
unknown_names_list_the_known_ones(void **state)
{
	struct kv_vocab v = { 0 };
	struct kv_err e;

	(void)state;
	assert_int_equal(kv_vocab_set_pre(&v, "llama", &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "'llama'"));
	assert_non_null(strstr(e.text, "llama-bpe"));
	assert_non_null(strstr(e.text, "tekken"));
	assert_int_equal(kv_vocab_set_pre(&v, "", &e), KV_EMODEL);
	assert_int_equal(kv_vocab_set_pre(&v, "llama-bpe", &e), KV_OK);
	assert_true(v.ignore_merges && !v.nfc);
	assert_int_equal(kv_vocab_set_pre(&v, "qwen2", &e), KV_OK);
	assert_true(v.nfc && !v.ignore_merges);
	kv_vocab_fini(&v);
}

static void
stops_are_collected_once(void **state)
{
	static const char *const none[] = { NULL };
	static const char *const special[] = { "<|im_end|>", "<|im_start|>", "<|endoftext|>", NULL };
	static const char *const added[] = { "</s>", NULL }; /* not a special token here */
	const int32_t extra[] = { 7, 256, 7 }, beyond[] = { 1000 };
	struct kv_vocab v;
	struct kv_err e;

	(void)state;
	assert_int_equal(small_bpe(&v, none, special, added, &e), KV_OK);
	v.eos = 256;
	assert_int_equal(kv_vocab_set_stops(&v, extra, 3, &e), KV_OK);
	assert_int_equal(v.n_stops, 3);
	assert_int_equal(v.stops[0], 256);
	assert_int_equal(v.stops[1], 7);
	assert_int_equal(v.stops[2], 258);
	assert_int_equal(kv_vocab_set_stops(&v, beyond, 1, &e), KV_EMODEL);
	kv_vocab_fini(&v);
}

static void
memory_is_aligned_zeroed_and_apart(void **state)
{
	struct kv_vocab v = { 0 };
	struct kv_err e;
	char *strings[1000];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		size_t n = (size_t)(i % 7 == 0 ? i * 61 : i % 13);
		uint64_t *p = kv_vocab_alloc(&v, n, sizeof *p, &e);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(p[k], 0);
		memset(p, 0xff, n * sizeof *p);
		assert_non_null(strings[i] = kv_vocab_strdup(&v, "kv\0tools", (size_t)(i % 9), &e));
	}
	for (int i = 0; i < 1000; i++) {
		assert_memory_equal(strings[i], "kv\0tools", (size_t)(i % 9));
		assert_int_equal(strings[i][i % 9], '\0');
	}
	assert_null(kv_vocab_alloc(&v, SIZE_MAX / 2, 8, &e));
	assert_int_equal(e.code, KV_EMEM);
	kv_vocab_fini(&v);
	kv_vocab_fini(&v);
	kv_vocab_fini(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_cut_as_the_originals),
		cmocka_unit_test(invalid_bytes_stand_alone_and_end_what_patterns_see),
		cmocka_unit_test(unknown_names_list_the_known_ones),
		cmocka_unit_test(stops_are_collected_once),
		cmocka_unit_test(memory_is_aligned_zeroed_and_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
