/* SPDX-License-Identifier: MIT
 * Text to ids and back: both kinds of BPE on small vocabularies, and golden lists where the model is at hand. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/format.h"
#include "tests/lib/golden_tokens.h"
#include "tests/lib/small_vocab.h"

static const char *const none[] = { NULL };

/* A tokenizer on its own vocabulary. */
struct rig {
	struct kv_vocab v;
	struct kv_tokenizer *t;
	struct kv_ids ids;
	struct kv_buf back;
	struct kv_err e;
};

static void
rig_start(struct rig *r)
{
	if (kv_tokenizer_new(&r->t, &r->v, &r->e) < 0)
		fail_msg("%s", r->e.text);
}

static void
rig_bpe(struct rig *r, const char *const *merges, const char *const *special, const char *const *added, const char *pre)
{
	*r = (struct rig){ 0 };
	assert_int_equal(small_bpe(&r->v, merges, special, added, &r->e), KV_OK);
	if (pre != NULL)
		assert_int_equal(kv_vocab_set_pre(&r->v, pre, &r->e), KV_OK);
	rig_start(r);
}

static void
rig_spm(struct rig *r, const char *const *pieces, const char *const *special, const char *const *added)
{
	*r = (struct rig){ 0 };
	assert_int_equal(small_spm(&r->v, pieces, special, added, &r->e), KV_OK);
	rig_start(r);
}

static void
rig_end(struct rig *r)
{
	kv_buf_fini(&r->back);
	kv_ids_fini(&r->ids);
	kv_tokenizer_free(r->t);
	kv_vocab_fini(&r->v);
}

/* The ids of text as tokens' texts, separated by '|'; NULs within the text are fine. */
static const char *
tokens(struct rig *r, const char *text, size_t n, unsigned flags)
{
	r->ids.n = r->back.n = 0;
	if (kv_encode(r->t, text, n, flags, &r->ids, &r->e) < 0)
		fail_msg("'%s': %s", text, r->e.text);
	assert_int_equal(kv_buf_add(&r->back, "", 0, &r->e), KV_OK);
	for (size_t i = 0; i < r->ids.n; i++) {
		if (i > 0)
			assert_int_equal(kv_buf_add(&r->back, "|", 1, &r->e), KV_OK);
		assert_int_equal(kv_decode_token(r->t, r->ids.v[i], true, &r->back, &r->e), KV_OK);
	}
	return r->back.data;
}

static void
expect(struct rig *r, const char *text, unsigned flags, const char *wanted)
{
	const char *found = tokens(r, text, strlen(text), flags);

	if (strcmp(found, wanted) != 0)
		fail_msg("'%s': expected %s, found %s", text, wanted, found);
}

static void
expect_round_trip(struct rig *r, const char *text, size_t n)
{
	r->ids.n = r->back.n = 0;
	if (kv_encode(r->t, text, n, 0, &r->ids, &r->e) < 0)
		fail_msg("%s", r->e.text);
	assert_int_equal(kv_decode(r->t, r->ids.v, r->ids.n, false, &r->back, &r->e), KV_OK);
	assert_int_equal(r->back.n, n);
	if (n > 0)
		assert_memory_equal(r->back.data, text, n);
}

static uint64_t
random_next(uint64_t *s)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return *s >> 33;
}

static const char *const hello[] = { "h e", "l l", "he ll", "hell o", "\xc4\xa0 hello", "a a", "aa aa", "b c", "a bc",
	"a b", NULL };

static void
merges_go_by_rank_then_from_the_left(void **state)
{
	struct rig r;

	(void)state;
	rig_bpe(&r, hello, none, none, "gpt-2");
	expect(&r, "", 0, "");
	expect(&r, "hello", 0, "hello");
	expect(&r, "hello hello", 0, "hello| hello");
	expect(&r, "hell", 0, "hell");
	expect(&r, "ohell", 0, "o|hell");
	expect(&r, "aaa", 0, "aa|a");
	expect(&r, "aaaaaaa", 0, "aaaa|aa|a");
	expect(&r, "abc", 0, "abc"); /* "b c" before "a b" */
	expect(&r, "aabc", 0, "aa|bc");
	expect(&r, "aaabc", 0, "aa|abc");
	assert_int_equal(kv_token_find(r.t, "hello"), SMALL_BPE_FIRST + 3);
	assert_int_equal(kv_token_find(r.t, "nothing"), -1);
	rig_end(&r);
}

/* The definition: join the pair of lowest rank, the leftmost of several, until none is left. */
static size_t
naive_bpe(const struct kv_vocab *v, const char *text, size_t n, int32_t *ids)
{
	for (size_t i = 0; i < n; i++)
		ids[i] = (unsigned char)text[i];
	for (;;) {
		size_t best = v->n_merges, at = 0;

		for (size_t i = 0; i + 1 < n; i++)
			for (size_t m = 0; m < best; m++) {
				const struct kv_token *a = &v->tokens[ids[i]], *b = &v->tokens[ids[i + 1]];
				char pair[64];

				snprintf(pair, sizeof pair, "%.*s %.*s", (int)a->n, a->text, (int)b->n, b->text);
				if (strcmp(pair, v->merges[m]) == 0) {
					best = m;
					at = i;
				}
			}
		if (best == v->n_merges)
			return n;
		ids[at] = SMALL_BPE_FIRST + (int32_t)best;
		memmove(ids + at + 1, ids + at + 2, (--n - at - 1) * sizeof *ids);
	}
}

static void
bpe_equals_the_naive_loop(void **state)
{
	static const char *const merges[] = { "a b", "b a", "ab a", "a a", "c ab", "aa ba", "b b", "aba ab", "bb a",
		"c c", NULL };
	struct rig r;
	uint64_t s = 1;

	(void)state;
	rig_bpe(&r, merges, none, none, NULL);
	for (int round = 0; round < 300; round++) {
		char text[40];
		int32_t wanted[40];
		size_t n = random_next(&s) % 40, m;

		for (size_t i = 0; i < n; i++)
			text[i] = "aaabbc"[random_next(&s) % 6];
		m = naive_bpe(&r.v, text, n, wanted);
		r.ids.n = 0;
		assert_int_equal(kv_encode(r.t, text, n, 0, &r.ids, &r.e), KV_OK);
		assert_int_equal(r.ids.n, m);
		if (m > 0)
			assert_memory_equal(r.ids.v, wanted, m * sizeof *wanted);
	}
	rig_end(&r);
}

static void
a_whole_piece_counts_before_merges(void **state)
{
	static const char *const merges[] = { "b c", "a b", "ab c",
		NULL }; /* "b c" comes first, so "abc" is never reached */
	struct rig r = { 0 };

	(void)state;
	rig_bpe(&r, merges, none, none, "gpt-2");
	expect(&r, "abc abc", 0, "a|bc| |a|bc");
	rig_end(&r);
	r = (struct rig){ 0 };
	assert_int_equal(small_bpe(&r.v, merges, none, none, &r.e), KV_OK);
	assert_int_equal(kv_vocab_set_pre(&r.v, "gpt-2", &r.e), KV_OK);
	r.v.ignore_merges = true;
	rig_start(&r);
	expect(&r, "abc abc", 0, "abc| |a|bc"); /* " abc" is no token */
	rig_end(&r);
}

static void
added_tokens_always_special_ones_on_request(void **state)
{
	static const char *const special[] = { "<s>", "<s>x", "<|end|>", NULL };
	static const char *const added[] = { "  ", "   ", "<tool>", "\n\n", NULL };
	struct rig r;

	(void)state;
	rig_bpe(&r, hello, special, added, "gpt-2");
	expect(&r, "a<tool>hello", 0, "a|<tool>|hello");
	expect(&r, "a<too", 0, "a|<|t|o|o");
	expect(&r, "    hello", 0, "   | hello"); /* the longest first, then what is left */
	expect(&r, "     hello", 0, "   |  |hello");
	expect(&r, "\n\n\na", 0, "\n\n|\n|a");
	expect(&r, "<s>", 0, "<|s|>");
	expect(&r, "<s>", KV_ENCODE_SPECIAL, "<s>");
	assert_int_equal(r.ids.n, 1);
	expect(&r, "a<s>xhello<|end|><|end|", KV_ENCODE_SPECIAL, "a|<s>x|hello|<|end|>|<|||e|n|d||");
	assert_int_equal(r.ids.n, 10);
	r.back.n = 0;
	assert_int_equal(kv_decode(r.t, r.ids.v, 3, false, &r.back, &r.e), KV_OK);
	assert_string_equal(r.back.data, "ahello"); /* special tokens print nothing */
	rig_end(&r);
}

static void
any_bytes_come_back(void **state)
{
	static const char *const pieces[] = { "_", "a", "b", "_a", "ab", "__", "_ab", "\xc3\xa9", NULL };
	static const char *const pres[] = { "gpt-2", "smollm", "llama-bpe", "qwen35", "tekken", "deepseek-v3",
		"deepseek-llm", "default" };
	struct rig r[9];
	uint64_t s = 7;

	(void)state;
	for (int k = 0; k < 8; k++)
		rig_bpe(&r[k], hello, none, none, pres[k]);
	r[3].v.nfc = false; /* NFC is the one thing that changes text */
	rig_spm(&r[8], pieces, none, none);
	for (int round = 0; round < 200; round++) {
		char text[64];
		size_t n = random_next(&s) % sizeof text;

		for (size_t i = 0; i < n; i++) /* half printable, half anything */
			text[i] = random_next(&s) % 2 ? "ab he \xc3\xa9\xe2\x96\x81\n\r"[random_next(&s) % 13]
						      : (char)random_next(&s);
		for (int k = 0; k < 9; k++)
			expect_round_trip(&r[k], text, n);
	}
	for (int k = 0; k < 9; k++) {
		expect_round_trip(&r[k], "\0a\0\0b", 5);
		expect_round_trip(&r[k], "  \xe2\x96\x81 a\xe2\x96 \xff\xfe\xed\xa0\x80", 16);
		rig_end(&r[k]);
	}
}

static void
bytes_that_are_not_utf8_are_a_piece(void **state)
{
	static const char *const merges[] = { "h e", "\xc3\xbf \xc3\xbf", "e \xc3\xbf",
		NULL }; /* \xff is spelled U+00FF */
	struct rig r;

	(void)state;
	rig_bpe(&r, merges, none, none, "gpt-2");
	expect(&r, "he\xff\xffhe", 0, "he|\xff\xff|he");
	rig_end(&r);
}

static void
nfc_touches_valid_text_alone(void **state)
{
	struct rig r;

	(void)state;
	rig_bpe(&r, hello, none, none, "qwen2");
	/* e + U+0301 composes; the cut U+0301 does not */
	expect(&r, "e\xcc\x81\xff\x65\xcc", 0, "\xc3|\xa9|\xff|e|\xcc");
	rig_end(&r);
}

static void
a_byte_without_a_token_is_named(void **state)
{
	struct rig r = { 0 };

	(void)state;
	assert_int_equal(small_bpe(&r.v, hello, none, none, &r.e), KV_OK);
	r.v.tokens[0x1b].text = "?"; /* nothing is spelled so any more */
	rig_start(&r);
	assert_int_equal(kv_encode(r.t, "a\x1b", 2, 0, &r.ids, &r.e), KV_EMODEL);
	assert_non_null(strstr(r.e.text, "0x1b"));
	rig_end(&r);
}

static void
broken_vocabularies_are_refused(void **state)
{
	static const char *const bad_merge[] = { "a b", "ab cd", NULL };
	static const char *bad_pattern[] = { "a(b" };
	struct rig r = { 0 };

	(void)state;
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_EMODEL);
	assert_int_equal(small_bpe(&r.v, bad_merge, none, none, &r.e), KV_OK);
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_EMODEL);
	assert_non_null(strstr(r.e.text, "ab cd"));
	kv_vocab_fini(&r.v);
	assert_int_equal(small_bpe(&r.v, hello, none, none, &r.e), KV_OK);
	r.v.patterns = bad_pattern;
	r.v.n_patterns = 1;
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_EMODEL);
	assert_non_null(strstr(r.e.text, "a(b"));
	r.v.n_patterns = 0;
	r.v.bos = 100000;
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_EMODEL);
	assert_null(r.t);
	rig_end(&r);
}

static void
a_merge_of_many_spaces_is_refused_at_once(void **state)
{
	static const size_t n = 1 << 21; /* a look at all of it from each space would take hours */
	char *many = malloc(n + 1);
	struct rig r = { 0 };

	(void)state;
	for (size_t i = 0; i < n; i++)
		many[i] = i % 2 ? ' ' : 'a';
	many[n] = '\0';
	assert_int_equal(small_bpe(&r.v, hello, none, none, &r.e), KV_OK);
	r.v.merges[0] = many;
	assert_int_equal(kv_tokenizer_new(&r.t, &r.v, &r.e), KV_EMODEL);
	assert_non_null(strstr(r.e.text, "merge 0, 'a a a "));
	rig_end(&r);
	free(many);
}

static void
long_words_take_no_longer_than_they_should(void **state)
{
	static const char *const pieces[] = { "a", "aa", "aaaa", NULL };
	static const size_t n = 1 << 20; /* a quadratic loop would take hours */
	struct rig r[2];
	char *text = malloc(n);

	(void)state;
	assert_non_null(text);
	memset(text, 'a', n);
	rig_bpe(&r[0], hello, none, none, "llama-bpe");
	rig_spm(&r[1], pieces, none, none);
	for (int k = 0; k < 2; k++) {
		expect_round_trip(&r[k], text, n);
		assert_true(r[k].ids.n <= n / 4 + 1);
		rig_end(&r[k]);
	}
	free(text);
}

static void
spm_joins_by_score(void **state)
{
	static const char *const pieces[] = { "ab", "_a", "bc", "a", "b", "c", "_", "abc", "__", "_abc", "d", NULL };
	struct rig r;

	(void)state;
	rig_spm(&r, pieces, none, none);
	expect(&r, "", 0, "");
	expect(&r, "abc", 0, " abc"); /* _|a|b|c -> _|ab|c -> _|abc -> _abc */
	expect(&r, "ac", 0, " a|c");
	expect(&r, "bcd", 0, " |bc|d");
	expect(&r, "ac  ac", 0, " a|c| | a|c");
	expect(&r, "x", 0, " |x");
	assert_int_equal(r.ids.v[1], 3 + 'x'); /* by its byte */
	expect(&r, "<0x41>", 0, " |<|0|x|4|1|>");
	rig_end(&r);
}

/* The definition: join the best-scored pair, the leftmost of several; every symbol is one byte here. */
static size_t
naive_spm(const struct kv_vocab *v, const char *text, size_t n, int32_t *out)
{
	size_t start[65], m = n;

	for (size_t i = 0; i <= n; i++)
		start[i] = i;
	for (;;) {
		size_t best = v->n, at = 0;

		for (size_t i = 0; i + 1 < m; i++)
			for (size_t k = SMALL_SPM_FIRST; k < best; k++) /* scores descend with ids */
				if (v->tokens[k].n == start[i + 2] - start[i] &&
				    memcmp(v->tokens[k].text, text + start[i], v->tokens[k].n) == 0) {
					best = k;
					at = i;
				}
		if (best == v->n)
			break;
		memmove(start + at + 1, start + at + 2, (m-- - at - 1) * sizeof *start);
	}
	for (size_t i = 0; i < m; i++)
		for (size_t k = v->n; k-- > SMALL_SPM_FIRST;)
			if (v->tokens[k].n == start[i + 1] - start[i] &&
			    memcmp(v->tokens[k].text, text + start[i], v->tokens[k].n) == 0)
				out[i] = (int32_t)k;
	return m;
}

static void
spm_equals_the_naive_loop(void **state)
{
	static const char *const pieces[] = { "ab", "ba", "aba", "cab", "aa", "bb", "abaab", "bbaa", "cc", "ccc", "a",
		"b", "c", NULL };
	struct rig r;
	uint64_t s = 3;

	(void)state;
	rig_spm(&r, pieces, none, none);
	r.v.add_space_prefix = false;
	for (int round = 0; round < 300; round++) {
		char text[64];
		int32_t wanted[64];
		size_t n = random_next(&s) % 64, m;

		for (size_t i = 0; i < n; i++)
			text[i] = "aaabbc"[random_next(&s) % 6];
		m = naive_spm(&r.v, text, n, wanted);
		r.ids.n = 0;
		assert_int_equal(kv_encode(r.t, text, n, 0, &r.ids, &r.e), KV_OK);
		assert_int_equal(r.ids.n, m);
		if (m > 0)
			assert_memory_equal(r.ids.v, wanted, m * sizeof *wanted);
	}
	rig_end(&r);
}

static void
spm_prefix_stands_where_a_text_begins(void **state)
{
	static const char *const pieces[] = { "_", "_a", "a", "b", NULL };
	static const char *const added[] = { "<tool>", "\xe2\x96\x81\xe2\x96\x81", NULL };
	struct rig r;

	(void)state;
	rig_spm(&r, pieces, none, added);
	expect(&r, "a", KV_ENCODE_BOS, "<s>| a");
	expect(&r, " a", 0, " | a");
	expect(&r, "a</s>a", KV_ENCODE_SPECIAL, " a|</s>| a");
	r.back.n = 0;
	assert_int_equal(kv_decode(r.t, r.ids.v, r.ids.n, true, &r.back, &r.e), KV_OK);
	assert_string_equal(r.back.data, "a</s>a");
	expect(&r, "a<tool>a", 0, " a|<tool>|a");
	expect(&r, "b  a", 0, " |b|  |a"); /* U+2581 in an added token is a space in text */
	assert_int_equal(kv_encode(r.t, "a", 1, KV_ENCODE_BOS, &r.ids, &r.e), KV_OK);
	assert_int_equal(r.ids.v[r.ids.n - 1], SMALL_SPM_FIRST + 2); /* "a", not "_a": the text goes on */
	rig_end(&r);
}

static void
spm_without_bytes_says_unknown(void **state)
{
	static const char *const pieces[] = { "_", "a", NULL };
	struct rig r = { 0 };

	(void)state;
	assert_int_equal(small_spm(&r.v, pieces, none, none, &r.e), KV_OK);
	for (size_t i = 3; i < SMALL_SPM_FIRST; i++)
		r.v.tokens[i].kind = KV_TOKEN_UNUSED;
	rig_start(&r);
	expect(&r, "a\xc3\xa9" "a", 0, " |a|<unk>|a"); /* one for the whole character */
	r.v.unk = -1;
	assert_int_equal(kv_encode(r.t, "\xc3\xa9", 2, 0, &r.ids, &r.e), KV_EMODEL);
	rig_end(&r);
}

static void
bos_comes_once(void **state)
{
	static const char *const pieces[] = { "_", "a", NULL };
	struct rig r;

	(void)state;
	rig_spm(&r, pieces, none, none);
	assert_int_equal(kv_encode(r.t, "a", 1, KV_ENCODE_BOS, &r.ids, &r.e), KV_OK);
	assert_int_equal(kv_encode(r.t, "a", 1, KV_ENCODE_BOS, &r.ids, &r.e), KV_OK);
	assert_int_equal(r.ids.v[0], 1);
	for (size_t i = 1; i < r.ids.n; i++)
		assert_int_not_equal(r.ids.v[i], 1);
	r.v.add_bos = false;
	r.ids.n = 0;
	assert_int_equal(kv_encode(r.t, "a", 1, KV_ENCODE_BOS, &r.ids, &r.e), KV_OK);
	assert_int_not_equal(r.ids.v[0], 1);
	rig_end(&r);
}

static void
unfinished_characters_wait(void **state)
{
	static const struct {
		const char *bytes; size_t ready;
	} rows[] = {
		{ "", 0 },
		{ "a", 1 },
		{ "a\xc3", 1 },
		{ "a\xc3\xa9", 3 },
		{ "a\xe2\x82", 1 },
		{ "a\xe2", 1 },
		{ "\xf0\x9f\x98", 0 },
		{ "\xf0\x9f\x98\x80", 4 },
		{ "a\xff", 2 },
		{ "a\x80", 2 },
		{ "a\xe0\x80", 3 },
		{ "a\xed\xa0", 3 },
		{ "\xf4\x90", 2 },
		{ "\xc0", 1 },
		{ "\xe2\x82\xe2", 2 },
		{ "\xf0\x9f\x98\x41", 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (kv_utf8_ready(rows[i].bytes, strlen(rows[i].bytes)) != rows[i].ready)
			fail_msg("row %zu: expected %zu, found %zu", i, rows[i].ready,
			    kv_utf8_ready(rows[i].bytes, strlen(rows[i].bytes)));
}

static void
ids_out_of_range_are_refused(void **state)
{
	struct rig r;

	(void)state;
	rig_bpe(&r, hello, none, none, NULL);
	assert_int_equal(kv_decode_token(r.t, -1, false, &r.back, &r.e), KV_EARG);
	assert_int_equal(kv_decode_token(r.t, (int32_t)r.v.n, false, &r.back, &r.e), KV_EARG);
	rig_end(&r);
}

/* SmolLM2's own model file, if $KV_MODEL or models/ has it. */
static bool
open_smollm2(struct kv_model *m, struct kv_err *e)
{
	const char *path = getenv("KV_MODEL");
	glob_t found = { 0 };
	bool is = false;

	if (path == NULL && glob("models/*.gguf", 0, NULL, &found) == 0)
		path = found.gl_pathv[0];
	if (path != NULL && kv_model_open(m, path, false, e) == KV_OK)
		is = m->vocab.n == 49152 && m->vocab.n_merges == 48900 && m->vocab.kind == KV_VOCAB_BPE;
	globfree(&found);
	return is;
}

static void
smollm2_equals_its_golden_lists(void **state)
{
	struct kv_model m = { 0 };
	struct kv_tokenizer *t = NULL;
	struct golden_result s, w, c;
	struct kv_err e = { 0 };

	(void)state;
	if (!open_smollm2(&m, &e)) {
		kv_model_fini(&m);
		print_message("no SmolLM2 in $KV_MODEL or models/: its golden token lists are not compared\n");
		skip();
	}
	if (kv_tokenizer_new(&t, &m.vocab, &e) < 0 ||
	    golden_strings(t, "tests/golden/tokens.strings", "tests/golden/tokens.smollm2", KV_ENCODE_SPECIAL, stderr,
		&s, &e) < 0 ||
	    golden_words(t, "tests/golden/tokens.words", "tests/golden/tokens.smollm2.words", stderr, &w, &e) < 0 ||
	    golden_chats(t, "tests/golden/tokens.smollm2.chat", stderr, &c, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(s.n >= 2000 && w.n == 40000 && c.n >= 5);
	assert_int_equal(s.wrong + s.lost + w.wrong + w.lost + c.wrong, 0);
	kv_tokenizer_free(t);
	kv_model_fini(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges_go_by_rank_then_from_the_left),
		cmocka_unit_test(bpe_equals_the_naive_loop),
		cmocka_unit_test(a_whole_piece_counts_before_merges),
		cmocka_unit_test(added_tokens_always_special_ones_on_request),
		cmocka_unit_test(any_bytes_come_back),
		cmocka_unit_test(bytes_that_are_not_utf8_are_a_piece),
		cmocka_unit_test(nfc_touches_valid_text_alone),
		cmocka_unit_test(a_byte_without_a_token_is_named),
		cmocka_unit_test(broken_vocabularies_are_refused),
		cmocka_unit_test(a_merge_of_many_spaces_is_refused_at_once),
		cmocka_unit_test(long_words_take_no_longer_than_they_should),
		cmocka_unit_test(spm_joins_by_score),
		cmocka_unit_test(spm_equals_the_naive_loop),
		cmocka_unit_test(spm_prefix_stands_where_a_text_begins),
		cmocka_unit_test(spm_without_bytes_says_unknown),
		cmocka_unit_test(bos_comes_once),
		cmocka_unit_test(unfinished_characters_wait),
		cmocka_unit_test(ids_out_of_range_are_refused),
		cmocka_unit_test(smollm2_equals_its_golden_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
