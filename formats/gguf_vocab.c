/* SPDX-License-Identifier: MIT
 * The vocabulary of a GGUF file: tokenizer.ggml.* and tokenizer.chat_template. */
#include <string.h>

#include "formats/gguf.h"
#include "lib/buf.h"

#define MAX_TOKENS ((uint64_t)1 << 24)

static bool
equals(const struct gguf_value *v, const char *text)
{
	const unsigned char *at = v->data;
	const char *s;
	size_t n;

	if (v->is_array || v->type != GGUF_STRING)
		return false;
	s = gguf_string(&at, &n);
	return n == strlen(text) && memcmp(s, text, n) == 0;
}

/* A list of elements of one type with as many elements as there are tokens; *out NULL when the key is absent. */
static int
find_list(const struct gguf *g, const char *key, enum gguf_type type, const struct gguf_value **out, struct kv_err *e)
{
	*out = gguf_find(g, key);
	if (*out != NULL && (!(*out)->is_array || (*out)->type != type || (*out)->n > MAX_TOKENS))
		return kv_fail(e, KV_EMODEL, "key %s: expected a list of %s", key, gguf_type_name(type));
	return KV_OK;
}

static int
find_token_list(const struct gguf *g, const struct kv_vocab *v, const char *key, enum gguf_type type,
    const struct gguf_value **out, struct kv_err *e)
{
	int rc = find_list(g, key, type, out, e);

	if (rc == KV_OK && *out != NULL && (*out)->n != v->n)
		return kv_fail(
		    e, KV_EMODEL, "key %s: %llu elements for %zu tokens", key, (unsigned long long)(*out)->n, v->n);
	return rc;
}

/* All strings of a list in one piece of memory, each terminated; calls put(v, i, text, n) for each. */
static int
copy_strings(struct kv_vocab *v, const struct gguf_value *list,
    void (*put)(struct kv_vocab *, size_t, const char *, size_t), struct kv_err *e)
{
	const unsigned char *at = list->data;
	char *copy = kv_vocab_alloc(v, list->bytes, 1, e); /* the 8 bytes of a length hold the terminator */
	const char *s;
	size_t n;

	if (copy == NULL)
		return KV_EMEM;
	for (uint64_t i = 0; i < list->n; i++) {
		s = gguf_string(&at, &n);
		if (n > UINT32_MAX)
			return kv_fail(e, KV_EMODEL, "token %llu has %zu bytes", (unsigned long long)i, n);
		memcpy(copy, s, n);
		put(v, i, copy, n);
		copy += n;
		*copy++ = '\0';
	}
	return KV_OK;
}

static void
put_token(struct kv_vocab *v, size_t i, const char *text, size_t n)
{
	v->tokens[i] = (struct kv_token){ .text = text, .n = (uint32_t)n };
}

static void
put_merge(struct kv_vocab *v, size_t i, const char *text, size_t n)
{
	(void)n;
	v->merges[i] = text;
}

/* The file's numbers for token kinds: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
static uint8_t
token_kind(int64_t number)
{
	static const uint8_t kinds[] = { KV_TOKEN_NORMAL, KV_TOKEN_NORMAL, KV_TOKEN_SPECIAL, KV_TOKEN_SPECIAL,
		KV_TOKEN_ADDED, KV_TOKEN_UNUSED, KV_TOKEN_BYTE };

	return number >= 0 && number < (int64_t)sizeof kinds ? kinds[number] : KV_TOKEN_NORMAL;
}

static int
set_tokens(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	const struct gguf_value *tokens, *scores, *kinds;
	int64_t kind;
	double score;
	int rc;

	if ((rc = find_list(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, e)) < 0)
		return rc;
	if (tokens == NULL || tokens->n == 0)
		return kv_fail(e, KV_EMODEL, "key tokenizer.ggml.tokens is missing");
	v->n = (size_t)tokens->n;
	if ((v->tokens = kv_vocab_alloc(v, v->n, sizeof *v->tokens, e)) == NULL)
		return KV_EMEM;
	if ((rc = copy_strings(v, tokens, put_token, e)) < 0 ||
	    (rc = find_token_list(g, v, "tokenizer.ggml.scores", GGUF_F32, &scores, e)) < 0 ||
	    (rc = find_token_list(g, v, "tokenizer.ggml.token_type", GGUF_I32, &kinds, e)) < 0)
		return rc;
	if (v->kind == KV_VOCAB_SPM && scores == NULL)
		return kv_fail(e, KV_EMODEL, "key tokenizer.ggml.scores is missing");
	for (size_t i = 0; i < v->n; i++) {
		if (scores != NULL && gguf_real(scores, i, &score))
			v->tokens[i].score = (float)score;
		if (kinds != NULL && gguf_int(kinds, i, &kind))
			v->tokens[i].kind = token_kind(kind);
	}
	return KV_OK;
}

static int
set_merges(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	const struct gguf_value *merges;
	int rc = find_list(g, "tokenizer.ggml.merges", GGUF_STRING, &merges, e);

	if (rc < 0)
		return rc;
	if (merges == NULL)
		return kv_fail(e, KV_EMODEL, "key tokenizer.ggml.merges is missing");
	v->n_merges = (size_t)merges->n;
	if ((v->merges = kv_vocab_alloc(v, v->n_merges, sizeof *v->merges, e)) == NULL)
		return KV_EMEM;
	return copy_strings(v, merges, put_merge, e);
}

static int
set_pre(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	const struct gguf_value *pre = gguf_find(g, "tokenizer.ggml.pre");
	/* Without a key these two families still expect their BOS. */
	static const char *const with_bos[] = { "llama-bpe", "llama3", "llama-v3", "tekken" };
	const unsigned char *at;
	const char *name;
	size_t n;

	if (pre == NULL || pre->is_array || pre->type != GGUF_STRING)
		return kv_vocab_set_pre(v, "default", e);
	for (size_t i = 0; i < sizeof with_bos / sizeof *with_bos; i++)
		v->add_bos |= equals(pre, with_bos[i]);
	at = pre->data;
	name = gguf_string(&at, &n);
	if ((name = kv_vocab_strdup(v, name, n, e)) == NULL)
		return KV_EMEM;
	return kv_vocab_set_pre(v, name, e);
}

/* Token ids by key.  One that is no token is no pad or unknown token, but a missing beginning or end would spoil
 * everything. */
static int
get_id(const struct gguf *g, const struct kv_vocab *v, const char *key, bool strict, int32_t *id, struct kv_err *e)
{
	const struct gguf_value *x = gguf_find(g, key);
	uint64_t n;

	if (x == NULL)
		return KV_OK;
	if (!x->is_array && gguf_uint(x, 0, &n) && n < v->n) {
		*id = (int32_t)n;
		return KV_OK;
	}
	*id = -1;
	return strict ? kv_fail(e, KV_EMODEL, "key %s: not one of the %zu tokens", key, v->n) : KV_OK;
}

static void
get_flag(const struct gguf *g, const char *key, bool *flag)
{
	const struct gguf_value *x = gguf_find(g, key);
	int64_t n;

	if (x != NULL && !x->is_array && gguf_int(x, 0, &n))
		*flag = n != 0;
}

static int
set_ids(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	int rc;

	if (v->kind == KV_VOCAB_SPM) { /* llama's, when the keys are absent */
		v->unk = 0;
		v->bos = v->n > 1 ? 1 : -1;
		v->eos = v->n > 2 ? 2 : -1;
	}
	if ((rc = get_id(g, v, "tokenizer.ggml.bos_token_id", true, &v->bos, e)) < 0 ||
	    (rc = get_id(g, v, "tokenizer.ggml.eos_token_id", true, &v->eos, e)) < 0 ||
	    (rc = get_id(g, v, "tokenizer.ggml.unknown_token_id", false, &v->unk, e)) < 0 ||
	    (rc = get_id(g, v, "tokenizer.ggml.padding_token_id", false, &v->pad, e)) < 0)
		return rc;
	get_flag(g, "tokenizer.ggml.add_bos_token", &v->add_bos);
	get_flag(g, "tokenizer.ggml.add_eos_token", &v->add_eos);
	get_flag(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix);
	return KV_OK;
}

static int
set_stops(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	static const char *const keys[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
	int32_t extra[2], id;
	size_t n = 0;

	for (int i = 0; i < 2; i++) {
		id = -1;
		get_id(g, v, keys[i], false, &id, e);
		if (id >= 0)
			extra[n++] = id;
	}
	return kv_vocab_set_stops(v, extra, n, e);
}

/* A file without token types: the tokens that must not come out of plain text are known all the same. */
static void
guess_kinds(struct kv_vocab *v)
{
	const int32_t ids[] = { v->bos, v->eos, v->unk };

	for (int i = 0; i < 3; i++)
		if (ids[i] >= 0)
			v->tokens[ids[i]].kind = KV_TOKEN_SPECIAL;
	for (size_t i = 0; i < v->n && v->kind == KV_VOCAB_SPM; i++)
		if (v->tokens[i].n == 6 && memcmp(v->tokens[i].text, "<0x", 3) == 0 && v->tokens[i].text[5] == '>')
			v->tokens[i].kind = KV_TOKEN_BYTE;
}

static int
set_template(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	const struct gguf_value *x = gguf_find(g, "tokenizer.chat_template");
	const unsigned char *at;
	const char *s;
	size_t n;

	if (x == NULL || x->is_array || x->type != GGUF_STRING)
		return KV_OK;
	at = x->data;
	s = gguf_string(&at, &n);
	v->chat_template = kv_vocab_strdup(v, s, n, e);
	return v->chat_template != NULL ? KV_OK : KV_EMEM;
}

int
gguf_vocab(const struct gguf *g, struct kv_vocab *v, struct kv_err *e)
{
	const struct gguf_value *model = gguf_find(g, "tokenizer.ggml.model");
	int rc;

	v->bos = v->eos = v->unk = v->pad = -1;
	if (model == NULL || equals(model, "none") || equals(model, "no_vocab"))
		return KV_OK;
	if (equals(model, "gpt2")) {
		v->kind = KV_VOCAB_BPE;
	} else if (equals(model, "llama")) {
		v->kind = KV_VOCAB_SPM;
		v->add_bos = v->add_space_prefix = true;
	} else {
		return kv_fail(e, KV_EMODEL,
		    "key tokenizer.ggml.model: expected gpt2 or llama; other kinds of vocabulary are not supported");
	}
	if ((rc = set_tokens(g, v, e)) < 0)
		return rc;
	if (v->kind == KV_VOCAB_BPE && ((rc = set_merges(g, v, e)) < 0 || (rc = set_pre(g, v, e)) < 0))
		return rc;
	if ((rc = set_ids(g, v, e)) < 0)
		return rc;
	if (gguf_find(g, "tokenizer.ggml.token_type") == NULL)
		guess_kinds(v);
	if ((rc = set_stops(g, v, e)) < 0)
		return rc;
	return set_template(g, v, e);
}
