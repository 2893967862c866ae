/* SPDX-License-Identifier: MIT
 * check_tokens [--special] VOCABULARY STRINGS WORDS IDS: compare this library's token ids with golden ones, which are
 * in IDS, IDS.words and IDS.chat.
 *
 * VOCABULARY is in the text form of tests/lib/golden_tokens.h.  --special: special tokens in the strings are parsed.
 * Exits 0 when everything is equal and comes back, 1 otherwise.
 */
#include <stdio.h>
#include <string.h>

#include "tests/lib/golden_tokens.h"

static int
check(char **argv, unsigned flags, const struct kv_tokenizer *t, struct kv_err *e)
{
	struct golden_result s, w, c;
	struct kv_buf words = { 0 }, chats = { 0 };
	int rc;

	if ((rc = kv_buf_printf(&words, e, "%s.words", argv[4])) < 0 ||
	    (rc = kv_buf_printf(&chats, e, "%s.chat", argv[4])) < 0 ||
	    (rc = golden_strings(t, argv[2], argv[4], flags, stdout, &s, e)) < 0 ||
	    (rc = golden_words(t, argv[3], words.data, stdout, &w, e)) < 0 ||
	    (rc = golden_chats(t, chats.data, stdout, &c, e)) < 0)
		goto done;
	printf("%s: %zu strings, %zu with other ids, %zu lost; ", argv[1], s.n, s.wrong, s.lost);
	printf("%zu words, %zu hundreds with other ids, %zu lost; ", w.n, w.wrong, w.lost);
	printf("%zu chats, %zu with other ids\n", c.n, c.wrong);
	if (s.wrong + s.lost + w.wrong + w.lost + c.wrong > 0)
		rc = kv_fail(e, KV_EFAIL, "token ids differ");
done:
	kv_buf_fini(&chats);
	kv_buf_fini(&words);
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_err e = { 0 };
	struct kv_vocab v = { 0 };
	struct kv_tokenizer *t = NULL;
	unsigned flags = 0;
	int rc;

	if (argc > 1 && strcmp(argv[1], "--special") == 0) {
		flags = KV_ENCODE_SPECIAL;
		argc--;
		argv++;
	}
	if (argc != 5) {
		fputs("usage: check_tokens [--special] VOCABULARY STRINGS WORDS IDS\n", stderr);
		return 2;
	}
	if ((rc = golden_read_vocab(&v, argv[1], &e)) == KV_OK && (rc = kv_tokenizer_new(&t, &v, &e)) == KV_OK)
		rc = check(argv, flags, t, &e);
	if (rc < 0)
		fprintf(stderr, "check_tokens: %s\n", e.text);
	kv_tokenizer_free(t);
	kv_vocab_fini(&v);
	return rc < 0;
}
