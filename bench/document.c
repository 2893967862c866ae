/* SPDX-License-Identifier: MIT
 * document -m MODEL -n TOKENS FILE... - a text of exactly TOKENS tokens of the model (its beginning-of-sequence token
 * counted, if it has one): the files, one behind the other, as often as it takes.
 *
 * Where the cut would change how the last word is read, the text begins one token later.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bin/common.h"
#include "formats/format.h"
#include "lib/file.h"
#include "lib/text/tokenizer.h"

#define FIRST_MAX 1000 /* tokens; that many beginnings are tried */

static size_t wanted;

static const struct kv_opt opts[] = {
	{ "tokens", 'n', KV_SIZE, &wanted, "TOKENS", "length", 1, KV_COUNT_MAX, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "document",
	.usage = "-m MODEL -n TOKENS FILE...",
	.brief = "a text of exactly so many tokens",
	.opts = opts,
	.common = KV_COMMON_MODEL,
};

static int
read_all(char *const *files, struct kv_buf *text, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; files[i] != NULL && rc == KV_OK; i++)
		if ((rc = kv_file_read(files[i], (size_t)1 << 30, text, e)) < 0)
			kv_where(e, "%s", files[i]);
	return rc == KV_OK && text->n == 0 ? kv_fail(e, KV_EARG, "the files are empty") : rc;
}

/* At least n ids of the text, over and over. */
static int
encode(const struct kv_tokenizer *t, const struct kv_buf *text, size_t n, struct kv_ids *ids, struct kv_err *e)
{
	int rc = KV_OK;

	while (rc == KV_OK && ids->n < n)
		rc = kv_encode(t, text->data, text->n, 0, ids, e);
	return rc;
}

/* Does the text of ids [n] become n ids again, and with the beginning-of-sequence token as many as wanted? */
static int
try(const struct kv_tokenizer *t, const int32_t *ids, size_t n, struct kv_buf *out, bool *fits, struct kv_err *e)
{
	struct kv_ids again = { 0 };
	int rc;

	out->n = 0;
	if ((rc = kv_decode(t, ids, n, false, out, e)) == KV_OK)
		rc = kv_encode(t, out->data, out->n, KV_ENCODE_BOS, &again, e);
	*fits = out->n > 0 && again.n == wanted;
	kv_ids_fini(&again);
	return rc;
}

static int
cut(const struct kv_tokenizer *t, const struct kv_ids *ids, struct kv_buf *out, struct kv_err *e)
{
	bool fits = false;
	int rc = KV_OK;

	for (size_t first = 0; first < FIRST_MAX && rc == KV_OK && !fits; first++)
		for (size_t bos = 0; bos < 2 && rc == KV_OK && !fits; bos++)
			rc = try(t, ids->v + first, wanted - bos, out, &fits, e);
	return rc == KV_OK && !fits ? kv_fail(e, KV_EFAIL, "no part of these files is read as %zu tokens", wanted) : rc;
}

int
main(int argc, char **argv)
{
	struct kv_model model = { 0 };
	struct kv_tokenizer *t = NULL;
	struct kv_buf text = { 0 }, out = { 0 };
	struct kv_ids ids = { 0 };
	struct kv_err e = { 0 };
	int rc;

	argc = kv_options(argc, argv, &tool);
	kv_need_model(&tool);
	if (argc < 2 || wanted == 0)
		kv_usage(&tool, "give -n TOKENS and at least one FILE");
	if ((rc = read_all(argv + 1, &text, &e)) < 0 || (rc = kv_model_open(&model, kv_common.model, false, &e)) < 0 ||
	    (rc = kv_tokenizer_new(&t, &model.vocab, &e)) < 0 ||
	    (rc = encode(t, &text, wanted + FIRST_MAX, &ids, &e)) < 0 || (rc = cut(t, &ids, &out, &e)) < 0)
		goto done;
	if (fwrite(out.data, 1, out.n, stdout) != out.n || fflush(stdout) != 0)
		rc = kv_fail(&e, KV_EIO, "standard output: %s", strerror(errno));
done:
	kv_ids_fini(&ids);
	kv_buf_fini(&out);
	kv_buf_fini(&text);
	kv_tokenizer_free(t);
	kv_model_fini(&model);
	return kv_report(rc, &e);
}
