/* SPDX-License-Identifier: MIT */
#include "lib/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/text/added.h"
#include "lib/text/bpe.h"
#include "lib/text/markup.h"
#include "lib/text/spm.h"
#include "lib/text/token_table.h"

struct kv_tokenizer {
	const struct kv_vocab *vocab;
	struct kv_token_table table;
	struct kv_added added;
	struct kv_bpe bpe; /* one of the two, by vocab->kind */
	struct kv_spm spm;
};

static int
check_vocab(const struct kv_vocab *v, struct kv_err *e)
{
	const int32_t ids[] = { v->bos, v->eos, v->unk, v->pad };
	const char *const names[] = { "bos", "eos", "unk", "pad" };

	if (v->kind == KV_VOCAB_NONE || v->n == 0)
		return kv_fail(e, KV_EMODEL, "the model file has no vocabulary; give token ids instead of text");
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
		if (ids[i] < -1 || (ids[i] >= 0 && (size_t)ids[i] >= v->n))
			return kv_fail(e, KV_EMODEL, "the %s token is %d, in a vocabulary of %zu tokens", names[i],
			    (int)ids[i], v->n);
	return KV_OK;
}

static int
init(struct kv_tokenizer *t, const struct kv_vocab *vocab, struct kv_err *e)
{
	int rc;

	t->vocab = vocab;
	if ((rc = kv_token_table_init(&t->table, vocab, e)) < 0 || (rc = kv_added_init(&t->added, vocab, e)) < 0)
		return rc;
	return vocab->kind == KV_VOCAB_BPE ? kv_bpe_init(&t->bpe, &t->table, e) : kv_spm_init(&t->spm, &t->table, e);
}

int
kv_tokenizer_new(struct kv_tokenizer **out, const struct kv_vocab *vocab, struct kv_err *e)
{
	struct kv_tokenizer *t;
	int rc = check_vocab(vocab, e);

	*out = NULL;
	if (rc < 0)
		return rc;
	if ((t = kv_alloc(1, sizeof *t, e)) == NULL)
		return KV_EMEM;
	if ((rc = init(t, vocab, e)) < 0) {
		kv_tokenizer_free(t);
		return rc;
	}
	*out = t;
	return KV_OK;
}

void
kv_tokenizer_free(struct kv_tokenizer *t)
{
	if (t == NULL)
		return;
	kv_bpe_fini(&t->bpe);
	kv_added_fini(&t->added);
	kv_token_table_fini(&t->table);
	free(t);
}

const struct kv_vocab *
kv_tokenizer_vocab(const struct kv_tokenizer *t)
{
	return t->vocab;
}

int32_t
kv_token_find(const struct kv_tokenizer *t, const char *text)
{
	return kv_token_table_find(&t->table, text, strlen(text));
}

int32_t
kv_markup_find(const struct kv_tokenizer *t, const char *text, size_t n, size_t *at, size_t *len)
{
	const struct kv_added_token *k = kv_added_find(&t->added, text, n, 0, true, at);

	if (k == NULL)
		return -1;
	*len = k->n;
	return k->id;
}

/* Is what comes next the beginning of a text, as SentencePiece's space prefix has it? */
static bool
at_start(const struct kv_vocab *v, const int32_t *ids, size_t n)
{
	return n == 0 || ids[n - 1] == v->bos || (ids[n - 1] >= 0 && (size_t)ids[n - 1] < v->n &&
	    v->tokens[ids[n - 1]].kind == KV_TOKEN_SPECIAL);
}

/* Text without added tokens. */
static int
encode_plain(const struct kv_tokenizer *t, const char *text, size_t n, struct kv_ids *ids, struct kv_err *e)
{
	const struct kv_vocab *v = t->vocab;

	if (v->kind == KV_VOCAB_BPE)
		return kv_bpe_encode(&t->bpe, text, n, ids, e);
	return kv_spm_encode(&t->spm, text, n, v->add_space_prefix && at_start(v, ids->v, ids->n), ids, e);
}

int
kv_encode(const struct kv_tokenizer *t, const char *text, size_t n, unsigned flags, struct kv_ids *ids,
    struct kv_err *e)
{
	const struct kv_vocab *v = t->vocab;
	bool begun = ids->n == 1 && ids->v[0] == v->bos; /* by us or by who called: a text need not say it again */
	int rc = KV_OK;

	if ((flags & KV_ENCODE_BOS) && v->add_bos && v->bos >= 0 && ids->n == 0) {
		rc = kv_ids_add(ids, v->bos, e);
		begun = true;
	}
	for (size_t i = 0; i < n && rc == KV_OK;) {
		size_t at = n;
		const struct kv_added_token *k = kv_added_find(&t->added, text, n, i, flags & KV_ENCODE_SPECIAL, &at);

		if (at > i && (rc = encode_plain(t, text + i, at - i, ids, e)) < 0)
			break;
		if (k != NULL && !(begun && at == 0 && k->id == v->bos))
			rc = kv_ids_add(ids, k->id, e);
		i = at + (k != NULL ? k->n : 0);
	}
	return rc;
}

int
kv_decode_token(const struct kv_tokenizer *t, int32_t id, bool special, struct kv_buf *out, struct kv_err *e)
{
	const struct kv_vocab *v = t->vocab;
	const struct kv_token *k;

	if (id < 0 || (size_t)id >= v->n)
		return kv_fail(e, KV_EARG, "token %d is not in the vocabulary of %zu tokens", (int)id, v->n);
	k = &v->tokens[id];
	if (k->kind == KV_TOKEN_SPECIAL)
		return special ? kv_buf_add(out, k->text, k->n, e) : KV_OK;
	if (v->kind == KV_VOCAB_SPM)
		return kv_spm_bytes(k, out, e);
	if (k->kind == KV_TOKEN_ADDED)
		return kv_buf_add(out, k->text, k->n, e);
	return kv_bpe_bytes(k->text, k->n, out, e);
}

int
kv_decode(const struct kv_tokenizer *t, const int32_t *ids, size_t n, bool special, struct kv_buf *out,
    struct kv_err *e)
{
	const struct kv_vocab *v = t->vocab;
	int rc = KV_OK;

	for (size_t i = 0; i < n && rc == KV_OK; i++) {
		size_t from = out->n;

		if ((rc = kv_decode_token(t, ids[i], special, out, e)) < 0)
			break;
		/* the space that kv_encode put there */
		if (v->kind == KV_VOCAB_SPM && v->add_space_prefix && at_start(v, ids, i) && out->n > from &&
		    out->data[from] == ' ' && v->tokens[ids[i]].kind != KV_TOKEN_ADDED) {
			memmove(out->data + from, out->data + from + 1, out->n - from); /* its terminator too */
			out->n--;
		}
	}
	return rc;
}
