/* SPDX-License-Identifier: MIT
 * The vocabulary of a Hugging Face folder: tokenizer.json, tokenizer_config.json, generation_config.json,
 * chat_template.jinja. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/huggingface.h"
#include "lib/buf.h"
#include "lib/file.h"

#define MAX_TEMPLATE ((size_t)16 << 20)
#define MAX_STOPS    64

struct source {
	const char *folder;
	json_t *tokenizer, *settings; /* tokenizer.json, tokenizer_config.json (NULL if absent) */
	json_t *generation;           /* generation_config.json (NULL if absent) */
	const json_t *config;         /* config.json, borrowed */
	const json_t *model, *vocab;  /* parts of tokenizer */
};

/* ---- tokens ---- */

static int
check_id(const json_t *id, const char *text, size_t n, struct kv_err *e)
{
	if (!json_is_integer(id) || json_integer_value(id) < 0 || (size_t)json_integer_value(id) >= n)
		return kv_fail(e, KV_EFORMAT, "token '%s': its id is not a number below %zu", text, n);
	return KV_OK;
}

/* One more than the largest id.  Ids may have gaps, but not such that the table would be mostly holes. */
static int
count_tokens(const struct source *s, size_t *n, struct kv_err *e)
{
	const json_t *added = hf_get(s->tokenizer, "added_tokens"), *token;
	size_t limit = 4 * (json_object_size(s->vocab) + json_array_size(added)) + 1024, i;
	const char *text;
	json_t *id;
	int rc;

	*n = 0;
	json_object_foreach((json_t *)s->vocab, text, id)
	{
		if ((rc = check_id(id, text, limit, e)) < 0)
			return rc;
		if (*n <= (size_t)json_integer_value(id))
			*n = (size_t)json_integer_value(id) + 1;
	}
	json_array_foreach(added, i, token)
	{
		text = json_string_value(hf_get(token, "content"));
		if (text == NULL)
			return kv_fail(e, KV_EFORMAT, "added_tokens: entry %zu has no content", i);
		if ((rc = check_id(id = hf_get(token, "id"), text, limit, e)) < 0)
			return rc;
		if (*n <= (size_t)json_integer_value(id))
			*n = (size_t)json_integer_value(id) + 1;
	}
	return *n > 0 ? KV_OK : kv_fail(e, KV_EFORMAT, "model.vocab is missing or empty");
}

/* The size of the texts with their terminators, so that one piece of memory takes them all. */
static size_t
text_bytes(const json_t *vocab)
{
	const char *text;
	size_t bytes = 0;
	json_t *id;

	json_object_foreach((json_t *)vocab, text, id) bytes += strlen(text) + 1;
	return bytes;
}

static int
fill_vocab(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	char *copy = kv_vocab_alloc(v, text_bytes(s->vocab), 1, e);
	const char *text;
	json_t *id;

	if (copy == NULL)
		return KV_EMEM;
	json_object_foreach((json_t *)s->vocab, text, id)
	{
		struct kv_token *t = &v->tokens[json_integer_value(id)];
		size_t n = strlen(text);

		if (t->text != NULL)
			return kv_fail(e, KV_EFORMAT, "tokens '%s' and '%s' have the same id %lld", t->text, text,
			    (long long)json_integer_value(id));
		memcpy(copy, text, n + 1);
		*t = (struct kv_token){ .text = copy, .n = (uint32_t)n };
		copy += n + 1;
	}
	return KV_OK;
}

/* Added tokens are spelled as they read in the text, also in a byte-level vocabulary. */
static int
fill_added(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	const json_t *token;
	size_t i;

	json_array_foreach(hf_get(s->tokenizer, "added_tokens"), i, token)
	{
		const char *text = json_string_value(hf_get(token, "content"));
		struct kv_token *t = &v->tokens[json_integer_value(hf_get(token, "id"))];

		if ((t->text = kv_vocab_strdup(v, text, strlen(text), e)) == NULL)
			return KV_EMEM;
		t->n = (uint32_t)strlen(text);
		t->kind = json_is_true(hf_get(token, "special")) ? KV_TOKEN_SPECIAL : KV_TOKEN_ADDED;
	}
	for (i = 0; i < v->n; i++)
		if (v->tokens[i].text == NULL)
			v->tokens[i] = (struct kv_token){ .text = "", .kind = KV_TOKEN_UNUSED };
	return KV_OK;
}

static int
fill_tokens(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	int rc;

	if ((rc = count_tokens(s, &v->n, e)) < 0)
		return rc;
	if ((v->tokens = kv_vocab_alloc(v, v->n, sizeof *v->tokens, e)) == NULL)
		return KV_EMEM;
	if ((rc = fill_vocab(v, s, e)) < 0)
		return rc;
	return fill_added(v, s, e);
}

/* ---- merges ---- */

/* The two sides of a merge, written "left right" or ["left", "right"]; false if it is neither. */
static bool
split_merge(const json_t *merge, const char **left, size_t *n_left, const char **right)
{
	const char *space;

	if (json_is_array(merge)) {
		*left = json_string_value(json_array_get(merge, 0));
		*right = json_string_value(json_array_get(merge, 1));
		*n_left = *left ? strlen(*left) : 0;
		return *left != NULL && *right != NULL && json_array_size(merge) == 2;
	}
	*left = json_string_value(merge);
	if (*left == NULL || (space = strchr(*left + (**left == ' '), ' ')) == NULL)
		return false;
	*n_left = (size_t)(space - *left);
	*right = space + 1;
	return true;
}

/* Calls fn for every merge in order of rank; text is left and right with `gap` between them. */
static int
each_merge(const struct source *s, const char *gap,
    int (*fn)(struct kv_vocab *, const struct source *, size_t, const char *, size_t, struct kv_err *),
    struct kv_vocab *v, struct kv_err *e)
{
	const json_t *merges = hf_get(s->model, "merges"), *merge;
	const char *left, *right;
	struct kv_buf b = { 0 };
	size_t rank, n_left;
	int rc = KV_OK;

	json_array_foreach(merges, rank, merge)
	{
		b.n = 0;
		if (!split_merge(merge, &left, &n_left, &right))
			rc = kv_fail(e, KV_EFORMAT, "model.merges: entry %zu is no pair", rank);
		else
			rc = kv_buf_printf(&b, e, "%.*s%s%s", (int)n_left, left, gap, right);
		if (rc < 0 || (rc = fn(v, s, rank, b.data, b.n, e)) < 0)
			break;
	}
	kv_buf_fini(&b);
	return rc;
}

static int
put_merge(struct kv_vocab *v, const struct source *s, size_t rank, const char *text, size_t n, struct kv_err *e)
{
	(void)s;
	v->merges[rank] = kv_vocab_strdup(v, text, n, e);
	return v->merges[rank] != NULL ? KV_OK : KV_EMEM;
}

static int
fill_merges(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	v->n_merges = json_array_size(hf_get(s->model, "merges"));
	if (v->n_merges == 0)
		return kv_fail(e, KV_EFORMAT, "model.merges is missing or empty");
	if ((v->merges = kv_vocab_alloc(v, v->n_merges, sizeof *v->merges, e)) == NULL)
		return KV_EMEM;
	return each_merge(s, " ", put_merge, v, e);
}

/* SentencePiece joins the neighbours whose union has the highest score.  tokenizer.json has ranked pairs instead, made
 * from these scores: all pairs that give one piece follow each other where the piece stood in the order of scores.  So
 * minus the first rank that gives a piece puts the pieces back into that order. */
static int
put_score(struct kv_vocab *v, const struct source *s, size_t rank, const char *text, size_t n, struct kv_err *e)
{
	const json_t *id = json_object_get(s->vocab, text);
	float score = -(float)rank;

	(void)n, (void)e;
	if (id != NULL && v->tokens[json_integer_value(id)].score < score)
		v->tokens[json_integer_value(id)].score = score;
	return KV_OK;
}

static bool
is_byte(const struct kv_token *t)
{
	return t->n == 6 && memcmp(t->text, "<0x", 3) == 0 && t->text[5] == '>';
}

static int
fill_scores(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	/* Below every rank: a piece that no pair gives is joined last. */
	float lowest = -(float)json_array_size(hf_get(s->model, "merges")) - 1;
	bool byte_fallback = json_is_true(hf_get(s->model, "byte_fallback"));

	for (size_t i = 0; i < v->n; i++) {
		v->tokens[i].score = lowest;
		if (byte_fallback && v->tokens[i].kind == KV_TOKEN_NORMAL && is_byte(&v->tokens[i]))
			v->tokens[i].kind = KV_TOKEN_BYTE;
	}
	return each_merge(s, "", put_score, v, e);
}

/* ---- ids and flags ---- */

static int32_t
find_id(const struct kv_vocab *v, const char *text)
{
	size_t n = text != NULL ? strlen(text) : 0;

	for (size_t i = 0; i < v->n && text != NULL; i++)
		if (v->tokens[i].n == n && memcmp(v->tokens[i].text, text, n) == 0 &&
		    v->tokens[i].kind != KV_TOKEN_UNUSED)
			return (int32_t)i;
	return -1;
}

/* A token of tokenizer_config.json: a text, or an object with its content. */
static int32_t
named_token(const struct kv_vocab *v, const struct source *s, const char *key)
{
	const json_t *t = hf_get(s->settings, key);

	return find_id(v, json_string_value(json_is_object(t) ? hf_get(t, "content") : t));
}

static int32_t
numbered_token(const struct kv_vocab *v, const json_t *id)
{
	bool valid = json_is_integer(id) && json_integer_value(id) >= 0 && (size_t)json_integer_value(id) < v->n;

	return valid ? (int32_t)json_integer_value(id) : -1;
}

static void
set_ids(struct kv_vocab *v, const struct source *s)
{
	const json_t *eos = hf_get(s->config, "eos_token_id");

	v->bos = named_token(v, s, "bos_token");
	v->eos = named_token(v, s, "eos_token");
	v->unk = named_token(v, s, "unk_token");
	v->pad = named_token(v, s, "pad_token");
	if (v->bos < 0)
		v->bos = numbered_token(v, hf_get(s->config, "bos_token_id"));
	if (v->eos < 0)
		v->eos = numbered_token(v, json_is_array(eos) ? json_array_get(eos, 0) : eos);
	if (v->unk < 0)
		v->unk = find_id(v, json_string_value(hf_get(s->model, "unk_token")));
}

/* The TemplateProcessing of a post_processor, alone or in a Sequence; NULL if none. */
static const json_t *
find_template(const json_t *post)
{
	const json_t *list = hf_get(post, "processors"), *item;
	const char *type = json_string_value(hf_get(post, "type"));
	size_t i;

	if (type != NULL && strcmp(type, "TemplateProcessing") == 0)
		return post;
	json_array_foreach(list, i, item)
	{
		type = json_string_value(hf_get(item, "type"));
		if (type != NULL && strcmp(type, "TemplateProcessing") == 0)
			return item;
	}
	return NULL;
}

/* What is put around a single text: a template says it exactly; else tokenizer_config.json; else the habit of the kind.
 */
static void
set_flags(struct kv_vocab *v, const struct source *s)
{
	const json_t *single = hf_get(find_template(hf_get(s->tokenizer, "post_processor")), "single"), *piece;
	const json_t *bos = hf_get(s->settings, "add_bos_token");
	bool behind = false;
	int32_t id;
	size_t i;

	v->add_bos = bos != NULL ? json_is_true(bos) : v->kind == KV_VOCAB_SPM;
	v->add_eos = json_is_true(hf_get(s->settings, "add_eos_token"));
	if (single != NULL)
		v->add_bos = v->add_eos = false;
	json_array_foreach(single, i, piece)
	{
		id = find_id(v, json_string_value(hf_get(hf_get(piece, "SpecialToken"), "id")));
		behind |= hf_get(piece, "Sequence") != NULL;
		if (id < 0)
			continue;
		if (behind) {
			v->add_eos = true;
		} else {
			v->add_bos = true;
			v->bos = id;
		}
	}
}

static size_t
collect_stops(const struct kv_vocab *v, const json_t *ids, int32_t *stops, size_t n)
{
	size_t count = json_is_array(ids) ? json_array_size(ids) : 1;

	for (size_t i = 0; i < count && n < MAX_STOPS; i++) {
		int32_t id = numbered_token(v, json_is_array(ids) ? json_array_get(ids, i) : ids);

		if (id >= 0)
			stops[n++] = id;
	}
	return n;
}

static int
set_stops(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	int32_t stops[MAX_STOPS];
	size_t n = collect_stops(v, hf_get(s->generation, "eos_token_id"), stops, 0);

	n = collect_stops(v, hf_get(s->config, "eos_token_id"), stops, n);
	return kv_vocab_set_stops(v, stops, n, e);
}

/* ---- chat template ---- */

/* tokenizer_config.json has one text, or a list of named ones of which "default" counts. */
static const char *
template_text(const json_t *settings)
{
	const json_t *t = hf_get(settings, "chat_template"), *item;
	const char *name;
	size_t i;

	json_array_foreach(t, i, item)
	{
		name = json_string_value(hf_get(item, "name"));
		if (name != NULL && strcmp(name, "default") == 0)
			return json_string_value(hf_get(item, "template"));
	}
	return json_string_value(t);
}

static int
set_template(struct kv_vocab *v, const struct source *s, struct kv_err *e)
{
	struct kv_buf path = { 0 }, text = { 0 };
	const char *t = template_text(s->settings);
	int rc;

	if ((rc = kv_buf_printf(&path, e, "%s/chat_template.jinja", s->folder)) < 0)
		goto done;
	if (kv_file_read(path.data, MAX_TEMPLATE, &text, NULL) == KV_OK && text.n > 0)
		t = text.data;
	if (t != NULL && (v->chat_template = kv_vocab_strdup(v, t, strlen(t), e)) == NULL)
		rc = KV_EMEM;
done:
	kv_buf_fini(&text);
	kv_buf_fini(&path);
	return rc;
}

/* ---- the whole ---- */

static int
fill(struct kv_vocab *v, struct source *s, struct kv_err *e)
{
	const char *type;
	int rc;

	s->model = hf_get(s->tokenizer, "model");
	s->vocab = hf_get(s->model, "vocab");
	type = json_string_value(hf_get(s->model, "type"));
	if ((type != NULL && strcmp(type, "BPE") != 0) || !json_is_object(s->vocab))
		return kv_fail(e, KV_EMODEL, "model type '%s' is not supported (BPE is)", type ? type : "unnamed");
	v->kind = hf_is_sentencepiece(s->tokenizer) ? KV_VOCAB_SPM : KV_VOCAB_BPE;
	if ((rc = fill_tokens(v, s, e)) < 0)
		return rc;
	if (v->kind == KV_VOCAB_SPM)
		rc = (rc = hf_spaces(s->tokenizer, v, e)) < 0 ? rc : fill_scores(v, s, e);
	else
		rc = (rc = hf_pretok(s->tokenizer, v, e)) < 0 ? rc : fill_merges(v, s, e);
	if (rc < 0)
		return rc;
	v->ignore_merges = v->kind == KV_VOCAB_BPE && json_is_true(hf_get(s->model, "ignore_merges"));
	set_ids(v, s);
	set_flags(v, s);
	return set_stops(v, s, e);
}

int
hf_vocab(const char *folder, const json_t *config, struct kv_vocab *v, struct kv_err *e)
{
	struct source s = { .folder = folder, .config = config };
	int rc;

	v->bos = v->eos = v->unk = v->pad = -1;
	if ((rc = hf_read_json(folder, "tokenizer.json", &s.tokenizer, e)) < 0 ||
	    (rc = hf_read_json(folder, "tokenizer_config.json", &s.settings, e)) < 0 ||
	    (rc = hf_read_json(folder, "generation_config.json", &s.generation, e)) < 0 || s.tokenizer == NULL)
		goto done;
	if ((rc = fill(v, &s, e)) < 0)
		kv_where(e, "%s/tokenizer.json", folder);
	else
		rc = set_template(v, &s, e);
done:
	json_decref(s.tokenizer);
	json_decref(s.settings);
	json_decref(s.generation);
	return rc;
}
