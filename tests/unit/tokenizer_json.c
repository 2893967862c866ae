/* SPDX-License-Identifier: MIT
 * The vocabulary of a Hugging Face folder, from tokenizer.json and the files beside it. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/huggingface.h"
#include "tests/lib/streams.h"

static void
remove_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *d;
	char path[1024];

	while (dir != NULL && (d = readdir(dir)) != NULL) {
		snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
		unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(folder);
}

static void
put_file(const char *folder, const char *name, const void *bytes, size_t n)
{
	char path[1024];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	scratch_write(path, bytes, n);
}

struct files {
	const char *tokenizer, *settings, *generation; /* JSON with ' for "; NULL: no such file */
};

static int
parse_vocab(struct kv_vocab *v, const struct files *f, struct kv_err *e)
{
	const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "generation_config.json" };
	const char *const texts[] = { f->tokenizer, f->settings, f->generation };
	char folder[256];
	json_t *config = json_of("{'eos_token_id': 2}");
	int rc;

	snprintf(folder, sizeof folder, "%s", scratch("vocab"));
	assert_int_equal(mkdir(folder, 0777), 0);
	for (int i = 0; i < 3; i++) {
		char *text = texts[i] != NULL ? strdup(texts[i]) : NULL;

		for (char *p = text; p != NULL && *p != '\0'; p++)
			if (*p == '\'')
				*p = '"';
		if (text != NULL)
			put_file(folder, names[i], text, strlen(text));
		free(text);
	}
	*v = (struct kv_vocab){ 0 };
	rc = hf_vocab(folder, config, v, e);
	json_decref(config);
	remove_folder(folder);
	return rc;
}

#define MARK "\xe2\x96\x81"
#define SPM_MODEL                                                                                                      \
	"'model': {'type': 'BPE', 'byte_fallback': true, 'unk_token': '<unk>', 'vocab': {'<unk>': 0, '<s>': 1, "       \
	"'</s>': 2, '<0x00>': 3, "                                                                                     \
	"'" MARK "': 4, 'a': 5, 'b': 6, 'ab': 7, '" MARK "ab': 8, '" MARK "a': 9}, "                                   \
	"'merges': ['" MARK " a', 'a b', '" MARK " ab', '" MARK "a b']}"
#define SPM_ADDED                                                                                                      \
	"'added_tokens': [{'id': 0, 'content': '<unk>', 'special': true}, {'id': 1, 'content': '<s>', 'special': "     \
	"true}, "                                                                                                      \
	"{'id': 2, 'content': '</s>', 'special': true}, {'id': 12, 'content': '<tool>', 'special': false}], "

static void
sentencepiece_from_json(void **state)
{
	const struct files prepend = {
		"{" SPM_ADDED "'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '" MARK
		"'}, "
		"{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '" MARK "'}]}, 'pre_tokenizer': null, "
		"'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}, "
		"{'Sequence': {'id': 'A'}}]}, " SPM_MODEL "}",
		"{'bos_token': {'content': '<s>'}, 'eos_token': '</s>', 'add_bos_token': false, "
		"'model_max_length': 1000000000000000019884624838656, "
		"'chat_template': [{'name': 'tools', 'template': 'T'}, {'name': 'default', 'template': 'D'}]}",
		"{'eos_token_id': [2, 12, 99]}",
	};
	struct kv_vocab v;
	struct kv_err e = { 0 };

	(void)state;
	if (parse_vocab(&v, &prepend, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(v.kind == KV_VOCAB_SPM && v.n == 13 && v.add_space_prefix);
	assert_true(v.add_bos && !v.add_eos); /* the post_processor knows better than add_bos_token */
	assert_true(v.bos == 1 && v.eos == 2 && v.unk == 0 && v.pad == -1);
	assert_int_equal(v.tokens[0].kind, KV_TOKEN_SPECIAL);
	assert_int_equal(v.tokens[3].kind, KV_TOKEN_BYTE);
	assert_int_equal(v.tokens[10].kind, KV_TOKEN_UNUSED); /* a gap in the ids */
	assert_int_equal(v.tokens[12].kind, KV_TOKEN_ADDED);
	/* by rank: _a first, then ab, then _ab (which two pairs give) */
	assert_true(
	    v.tokens[9].score == 0 && v.tokens[7].score == -1 && v.tokens[8].score == -2 && v.tokens[5].score < -2);
	assert_true(v.n_stops == 2 && v.stops[0] == 2 && v.stops[1] == 12); /* 99 is no token */
	assert_string_equal(v.chat_template, "D");
	kv_vocab_fini(&v);
}

static void
metaspace_from_json(void **state)
{
	static const struct {
		const char *pre;
		bool prefix;
	} cases[] = {
		{ "{'type': 'Metaspace', 'replacement': '" MARK "', 'prepend_scheme': 'first', 'split': false}", true },
		{ "{'type': 'Metaspace', 'replacement': '" MARK "', 'prepend_scheme': 'never'}", false },
		{ "{'type': 'Metaspace', 'replacement': '" MARK "', 'add_prefix_space': false}", false },
		{ "{'type': 'Metaspace', 'replacement': '" MARK "'}", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kv_err e = { 0 };
		struct kv_vocab v;
		char text[2048];

		snprintf(text, sizeof text, "{" SPM_ADDED "'pre_tokenizer': %s, " SPM_MODEL "}", cases[i].pre);
		if (parse_vocab(&v, &(struct files){ text, NULL, NULL }, &e) < 0)
			fail_msg("%s", e.text);
		assert_true(v.kind == KV_VOCAB_SPM && v.add_space_prefix == cases[i].prefix && v.add_bos);
		kv_vocab_fini(&v);
	}
}

#define BPE_MODEL                                                                                                      \
	"'added_tokens': [{'id': 4, 'content': '<|end|>', 'special': true}], "                                         \
	"'model': {'type': 'BPE', 'ignore_merges': true, 'vocab': {'a': 0, 'b': 1, 'ab': 2, 'aab': 3}, 'merges': "     \
	"[['a', 'b'], 'a ab']}"

static void
byte_level_from_json(void **state)
{
	const struct files f = {
		"{'normalizer': {'type': 'NFC'}, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
		"{'type': 'Digits', 'individual_digits': true}, "
		"{'type': 'Split', 'pattern': {'Regex': '\\\\s+'}, 'behavior': 'Isolated', 'invert': false}, "
		"{'type': 'Split', 'pattern': {'String': 'a.b'}, 'behavior': 'Isolated'}, "
		"{'type': 'Split', 'pattern': {'Regex': 'x|y'}, 'behavior': 'Removed', 'invert': true}, "
		"{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': false}]}, "
		"'post_processor': {'type': 'Sequence', 'processors': [{'type': 'ByteLevel'}, {'type': "
		"'TemplateProcessing', 'single': "
		"[{'Sequence': {'id': 'A'}}, {'SpecialToken': {'id': '<|end|>'}}]}]}, " BPE_MODEL "}",
		"{'chat_template': 'plain'}",
		NULL,
	};
	static const char *const patterns[] = { "\\p{N}", "\\s+", "a\\.b", "x|y" };
	struct kv_vocab v;
	struct kv_err e = { 0 };

	(void)state;
	if (parse_vocab(&v, &f, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(
	    v.kind == KV_VOCAB_BPE && v.nfc && v.ignore_merges && !v.add_bos && v.add_eos && !v.add_space_prefix);
	assert_int_equal(v.n_patterns, 4);
	for (int i = 0; i < 4; i++)
		assert_string_equal(v.patterns[i], patterns[i]);
	assert_int_equal(v.n_merges, 2);
	assert_string_equal(v.merges[0], "a b");
	assert_string_equal(v.merges[1], "a ab");
	assert_string_equal(v.chat_template, "plain");
	assert_true(v.eos == 2); /* config.json's, for want of another */
	kv_vocab_fini(&v);
}

static void
unsupported_tokenizers_are_named(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "{'model': {'type': 'Unigram', 'vocab': []}}", "model type 'Unigram'" },
		{ "{'model': {'type': 'BPE', 'vocab': {'a': 0}, 'merges': []}}",
		    "pre_tokenizer: neither ByteLevel nor" },
		{ "{'pre_tokenizer': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': {'a': 0}, 'merges': []}}",
		    "model.merges" },
		{ "{'pre_tokenizer': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': {}, 'merges': ['a b']}}",
		    "model.vocab" },
		{ "{'pre_tokenizer': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': {'a': 0}, 'merges': "
		  "['ab']}}",
		    "model.merges: entry 0 is no pair" },
		{ "{'pre_tokenizer': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': {'a': 0}, 'merges': "
		  "[['a']]}}",
		    "model.merges: entry 0 is no pair" },
		{ "{'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 0}}}", "have the same id 0" },
		{ "{'model': {'type': 'BPE', 'vocab': {'a': 1000000000}}}", "token 'a': its id is not a number below" },
		{ "{'model': {'type': 'BPE', 'vocab': {'a': -1}}}", "token 'a': its id" },
		{ "{'added_tokens': [{'id': 1}], 'model': {'type': 'BPE', 'vocab': {'a': 0}}}",
		    "added_tokens: entry 0 has no content" },
		{ "{'normalizer': {'type': 'Lowercase'}, " BPE_MODEL "}", "normalizer Lowercase" },
		{ "{'pre_tokenizer': {'type': 'Punctuation'}, " BPE_MODEL "}", "pre_tokenizer Punctuation" },
		{ "{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': true}, " BPE_MODEL "}",
		    "add_prefix_space" },
		{ "{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'x'}, 'behavior': "
		  "'MergedWithNext'}, " BPE_MODEL "}",
		    "behavior MergedWithNext" },
		{ "{'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'NFKC'}, {'type': 'Replace', "
		  "'pattern': {'String': ' '}, "
		  "'content': '" MARK "'}]}, " SPM_MODEL "}",
		    "normalizer NFKC" },
		{ "{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Metaspace'}, {'type': "
		  "'Digits'}]}, " SPM_MODEL "}",
		    "pre_tokenizer Digits" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct kv_err e = { 0 };
		struct kv_vocab v;
		int rc = parse_vocab(&v, &(struct files){ bad[i].text, NULL, NULL }, &e);

		if (rc >= 0 || strstr(e.text, bad[i].says) == NULL || strstr(e.text, "tokenizer.json: ") == NULL)
			fail_msg("%s: status %d, \"%s\"", bad[i].text, rc, e.text);
		kv_vocab_fini(&v);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentencepiece_from_json),
		cmocka_unit_test(metaspace_from_json),
		cmocka_unit_test(byte_level_from_json),
		cmocka_unit_test(unsupported_tokenizers_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
