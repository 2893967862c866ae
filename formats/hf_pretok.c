/* SPDX-License-Identifier: MIT
 * normalizer and pre_tokenizer of tokenizer.json.  A step we do not know is refused by name: guessing would give wrong
 * ids. */
#include <ctype.h>
#include <string.h>

#include "formats/huggingface.h"
#include "lib/buf.h"

#define MAX_PATTERNS 16
#define MAX_DEPTH    4              /* Sequences within Sequences */
#define SPACE_MARK   "\xe2\x96\x81" /* U+2581 */

static const char *
type_of(const json_t *step)
{
	const char *type = json_string_value(hf_get(step, "type"));

	return type != NULL ? type : "without a type";
}

static bool
is_type(const json_t *step, const char *type)
{
	return strcmp(type_of(step), type) == 0;
}

/* Calls fn for each step of a chain; a Sequence is taken apart.  NULL: an empty chain. */
typedef int (*step_fn)(void *ctx, const json_t *step, struct kv_err *e);

static int
each_step(const json_t *step, step_fn fn, void *ctx, unsigned depth, struct kv_err *e)
{
	const json_t *list, *item;
	size_t i;
	int rc;

	if (step == NULL)
		return KV_OK;
	if (!is_type(step, "Sequence"))
		return fn(ctx, step, e);
	if (depth == MAX_DEPTH)
		return kv_fail(e, KV_EMODEL, "sequences nested too deeply");
	list = hf_get(step, "pretokenizers") ? hf_get(step, "pretokenizers") : hf_get(step, "normalizers");
	json_array_foreach(list, i, item) if ((rc = each_step(item, fn, ctx, depth + 1, e)) < 0) return rc;
	return KV_OK;
}

static bool
replaces_spaces(const json_t *step)
{
	const char *from = json_string_value(hf_get(hf_get(step, "pattern"), "String"));
	const char *to = json_string_value(hf_get(step, "content"));

	return is_type(step, "Replace") && from != NULL && to != NULL && strcmp(from, " ") == 0 &&
	       strcmp(to, SPACE_MARK) == 0;
}

static int
note_spaces(void *ctx, const json_t *step, struct kv_err *e)
{
	(void)e;
	*(bool *)ctx |= replaces_spaces(step) || is_type(step, "Metaspace");
	return KV_OK;
}

bool
hf_is_sentencepiece(const json_t *tokenizer)
{
	bool yes = false;

	each_step(hf_get(tokenizer, "normalizer"), note_spaces, &yes, 0, NULL);
	each_step(hf_get(tokenizer, "pre_tokenizer"), note_spaces, &yes, 0, NULL);
	return yes;
}

/* ---- SentencePiece ---- */

static int
spm_normalizer(void *ctx, const json_t *step, struct kv_err *e)
{
	struct kv_vocab *v = ctx;

	if (is_type(step, "Prepend"))
		v->add_space_prefix = true;
	else if (is_type(step, "NFC"))
		v->nfc = true;
	else if (!replaces_spaces(step))
		return kv_fail(e, KV_EMODEL, "normalizer %s is not supported", type_of(step));
	return KV_OK;
}

/* Metaspace leaves its mark out before a text that begins with a space, and with prepend_scheme "first" behind special
 * tokens too.  We put it where SentencePiece itself does, before every text: then any text comes back from its ids, and
 * a model's ids are those of its GGUF file.  A Split at spaces finds none: the normalizer has replaced them. */
static int
spm_pretok(void *ctx, const json_t *step, struct kv_err *e)
{
	const char *scheme = json_string_value(hf_get(step, "prepend_scheme"));
	const char *at = json_string_value(hf_get(hf_get(step, "pattern"), "String"));
	struct kv_vocab *v = ctx;

	if (is_type(step, "Metaspace"))
		v->add_space_prefix |=
		    scheme != NULL ? strcmp(scheme, "never") != 0 : !json_is_false(hf_get(step, "add_prefix_space"));
	else if (!is_type(step, "Split") || at == NULL || strcmp(at, " ") != 0)
		return kv_fail(
		    e, KV_EMODEL, "pre_tokenizer %s is not supported beside U+2581 for spaces", type_of(step));
	return KV_OK;
}

int
hf_spaces(const json_t *tokenizer, struct kv_vocab *v, struct kv_err *e)
{
	int rc = each_step(hf_get(tokenizer, "normalizer"), spm_normalizer, v, 0, e);

	return rc < 0 ? rc : each_step(hf_get(tokenizer, "pre_tokenizer"), spm_pretok, v, 0, e);
}

/* ---- byte-level ---- */

struct chain {
	struct kv_vocab *v;
	const char *patterns[MAX_PATTERNS];
	size_t n;
	bool byte_level;
};

static int
add_pattern(struct chain *c, const char *pattern, struct kv_err *e)
{
	char *copy;

	if (c->n == MAX_PATTERNS)
		return kv_fail(e, KV_EMODEL, "pre_tokenizer: more than %d patterns", MAX_PATTERNS);
	if ((copy = kv_vocab_strdup(c->v, pattern, strlen(pattern), e)) == NULL)
		return KV_EMEM;
	c->patterns[c->n++] = copy;
	return KV_OK;
}

/* ByteLevel's own pattern is GPT-2's. */
static int
add_gpt2(struct chain *c, struct kv_err *e)
{
	struct kv_vocab gpt2 = { 0 };
	int rc = kv_vocab_set_pre(&gpt2, "gpt-2", e);

	for (size_t i = 0; i < gpt2.n_patterns && rc == KV_OK; i++)
		rc = add_pattern(c, gpt2.patterns[i], e);
	kv_vocab_fini(&gpt2);
	return rc;
}

/* A literal text as a pattern: whatever is not a letter or digit is escaped; bytes of UTF-8 are literal. */
static int
add_literal(struct chain *c, const char *text, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	int rc = KV_OK;

	for (; *text != '\0' && rc == KV_OK; text++)
		rc = kv_buf_printf(
		    &b, e, "%s%c", (unsigned char)*text < 128 && !isalnum((unsigned char)*text) ? "\\" : "", *text);
	if (rc == KV_OK)
		rc = add_pattern(c, b.data ? b.data : "", e);
	kv_buf_fini(&b);
	return rc;
}

/* Isolated: matches and what lies between are pieces, which is what our patterns do.  Removed with invert removes what
 * lies between: published patterns leave nothing there. */
static int
add_split(struct chain *c, const json_t *step, struct kv_err *e)
{
	const char *behaviour = json_string_value(hf_get(step, "behavior"));
	const char *regex = json_string_value(hf_get(hf_get(step, "pattern"), "Regex"));
	const char *text = json_string_value(hf_get(hf_get(step, "pattern"), "String"));
	bool isolated = behaviour != NULL && strcmp(behaviour, "Isolated") == 0;
	bool inverted = behaviour != NULL && strcmp(behaviour, "Removed") == 0 && json_is_true(hf_get(step, "invert"));

	if (!isolated && !inverted)
		return kv_fail(e, KV_EMODEL, "pre_tokenizer Split with behavior %s is not supported",
		    behaviour ? behaviour : "(none)");
	if (regex != NULL)
		return add_pattern(c, regex, e);
	if (text != NULL)
		return add_literal(c, text, e);
	return kv_fail(e, KV_EMODEL, "pre_tokenizer Split without a pattern");
}

static int
bpe_pretok(void *ctx, const json_t *step, struct kv_err *e)
{
	struct chain *c = ctx;

	if (is_type(step, "Split"))
		return add_split(c, step, e);
	if (is_type(step, "Digits"))
		return add_pattern(c, json_is_true(hf_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+", e);
	if (!is_type(step, "ByteLevel"))
		return kv_fail(e, KV_EMODEL, "pre_tokenizer %s is not supported", type_of(step));
	if (json_is_true(hf_get(step, "add_prefix_space")))
		return kv_fail(e, KV_EMODEL, "pre_tokenizer ByteLevel with add_prefix_space is not supported");
	c->byte_level = true;
	return json_is_false(hf_get(step, "use_regex")) ? KV_OK : add_gpt2(c, e);
}

static int
bpe_normalizer(void *ctx, const json_t *step, struct kv_err *e)
{
	struct kv_vocab *v = ctx;

	if (!is_type(step, "NFC"))
		return kv_fail(e, KV_EMODEL, "normalizer %s is not supported", type_of(step));
	v->nfc = true;
	return KV_OK;
}

int
hf_pretok(const json_t *tokenizer, struct kv_vocab *v, struct kv_err *e)
{
	struct chain c = { .v = v };
	int rc;

	if ((rc = each_step(hf_get(tokenizer, "normalizer"), bpe_normalizer, v, 0, e)) < 0 ||
	    (rc = each_step(hf_get(tokenizer, "pre_tokenizer"), bpe_pretok, &c, 0, e)) < 0)
		return rc;
	if (!c.byte_level)
		return kv_fail(e, KV_EMODEL,
		    "pre_tokenizer: neither ByteLevel nor U+2581 for spaces: this kind of vocabulary is not supported");
	if ((v->patterns = kv_vocab_alloc(v, c.n, sizeof *v->patterns, e)) == NULL)
		return KV_EMEM;
	memcpy(v->patterns, c.patterns, c.n * sizeof *v->patterns);
	v->n_patterns = c.n;
	return KV_OK;
}
