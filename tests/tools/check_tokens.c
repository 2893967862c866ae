/* SPDX-License-Identifier: MIT
 * check_tokens [--special] VOCABULARY STRINGS IDS [WORDS HASHES]: compare this library's token ids with golden ones.
 *
 * VOCABULARY is in the text form of tests/lib/golden_tokens.h.  --special: special tokens in the strings are parsed.  Exits 0 when everything is equal and comes back, 1 otherwise.
 */
#include <stdio.h>
#include <string.h>

#include "tests/lib/golden_tokens.h"

static int
check(int argc, char **argv, unsigned flags, const struct kv_tokenizer *t, struct kv_err *e)
{
	struct golden_result s, w = { 0 };
	int rc = golden_strings(t, argv[2], argv[3], flags, stdout, &s, e);

	if (rc == KV_OK && argc == 6)
		rc = golden_words(t, argv[4], argv[5], stdout, &w, e);
	if (rc < 0)
		return rc;
	printf("%s: %zu strings, %zu with other ids, %zu lost; %zu words, %zu hundreds with other ids, %zu lost\n", argv[1],
	    s.n, s.wrong, s.lost, w.n, w.wrong, w.lost);
	if (s.wrong + s.lost + w.wrong + w.lost > 0)
		return kv_fail(e, KV_EFAIL, "token ids differ");
	return KV_OK;
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
	if (argc != 4 && argc != 6) {
		fputs("usage: check_tokens [--special] VOCABULARY STRINGS IDS [WORDS HASHES]\n", stderr);
		return 2;
	}
	if ((rc = golden_read_vocab(&v, argv[1], &e)) == KV_OK && (rc = kv_tokenizer_new(&t, &v, &e)) == KV_OK)
		rc = check(argc, argv, flags, t, &e);
	if (rc < 0)
		fprintf(stderr, "check_tokens: %s\n", e.text);
	kv_tokenizer_free(t);
	kv_vocab_fini(&v);
	return rc < 0;
}
