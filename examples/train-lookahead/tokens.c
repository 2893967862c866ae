/* SPDX-License-Identifier: MIT
 * tokens lines MODEL            - text to the same text, each line with its number of tokens and a tab before it
 * tokens prompts MODEL MIN MAX  - JSON Lines: the text `prompt` becomes a list of token ids, in the model's chat
 *                                 template when `chat` is true, and `n_tokens` is added; prompts with fewer or more
 *                                 tokens are left out
 *
 * Both read standard input and write standard output. A line counts as a text of its own with its line feed, so that
 * the sum over lines is some percent off what they have together; the second form's numbers are exact. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/format.h"
#include "lib/text/chat.h"

struct reader {
	struct kv_model model;
	struct kv_tokenizer *tokenizer;
	const struct kv_chat *chat;
	char *line; /* [n], its line feed included */
	size_t cap, n;
	struct kv_ids ids;
};

static bool
next_line(struct reader *r)
{
	ssize_t n = getline(&r->line, &r->cap, stdin);

	r->n = n > 0 ? (size_t)n : 0;
	r->ids.n = 0;
	return n > 0;
}

static int
count_lines(struct reader *r, struct kv_err *e)
{
	while (next_line(r)) {
		const bool name = r->line[0] == '\f';
		int rc = name ? KV_OK : kv_encode(r->tokenizer, r->line, r->n, 0, &r->ids, e);

		if (rc < 0)
			return rc;
		printf("%zu\t%s", r->ids.n, r->line);
	}
	return KV_OK;
}

static int
encode(struct reader *r, const json_t *prompt, bool chat, struct kv_err *e)
{
	const char *text = json_string_value(prompt);
	const size_t bytes = json_string_length(prompt);

	if (text == NULL)
		return kv_fail(e, KV_EFORMAT, "expected a text under \"prompt\"");
	if (!chat)
		return kv_encode(r->tokenizer, text, bytes, KV_ENCODE_BOS, &r->ids, e);
	if (r->chat == NULL)
		return kv_fail(e, KV_EMODEL, "the model has no chat template that is known here");
	return kv_chat_encode(r->chat, r->tokenizer, NULL, text, bytes, true, false, 0, &r->ids, e);
}

static int
encode_prompts(struct reader *r, size_t least, size_t most, struct kv_err *e)
{
	size_t dropped = 0;

	while (next_line(r)) {
		json_t *o = json_loadb(r->line, r->n, 0, NULL);
		int rc = encode(r, json_object_get(o, "prompt"), json_is_true(json_object_get(o, "chat")), e);

		if (rc == KV_OK && (r->ids.n < least || r->ids.n > most)) {
			dropped++;
		} else if (rc == KV_OK) {
			json_object_set_new(o, "n_tokens", json_integer((json_int_t)r->ids.n));
			json_object_set_new(o, "prompt", kv_ids_to_json(&r->ids));
			json_dumpf(o, stdout, JSON_COMPACT);
			putchar('\n');
		}
		json_decref(o);
		if (rc < 0)
			return rc;
	}
	fprintf(stderr, "tokens: %zu prompts had fewer than %zu or more than %zu tokens and were left out\n", dropped,
	    least, most);
	return KV_OK;
}

int
main(int argc, char **argv)
{
	const bool lines = argc == 3 && strcmp(argv[1], "lines") == 0;
	struct reader r = { 0 };
	struct kv_err e = { 0 };
	int rc;

	if (!lines && (argc != 5 || strcmp(argv[1], "prompts") != 0)) {
		fprintf(stderr, "usage: tokens lines MODEL | tokens prompts MODEL MIN MAX\n");
		return 2;
	}
	if ((rc = kv_model_open(&r.model, argv[2], false, &e)) == KV_OK &&
	    (rc = kv_tokenizer_new(&r.tokenizer, &r.model.vocab, &e)) == KV_OK) {
		r.chat = kv_chat_choose(NULL, NULL, r.model.vocab.chat_template);
		rc = lines ? count_lines(&r, &e)
			   : encode_prompts(&r, strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), &e);
	}
	if (rc == KV_OK && fflush(stdout) != 0)
		rc = kv_fail(&e, KV_EIO, "standard output cannot be written");
	if (rc < 0)
		fprintf(stderr, "tokens: %s\n", e.text);
	kv_ids_fini(&r.ids);
	free(r.line);
	kv_tokenizer_free(r.tokenizer);
	kv_model_fini(&r.model);
	return rc < 0;
}
