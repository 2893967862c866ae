/* SPDX-License-Identifier: MIT
 * Pre-tokenising patterns by the name that GGUF files give them (tokenizer.ggml.pre).
 *
 * Each row has the expressions of the model's published tokenizer, not a rewriting for a lesser engine.  Rows marked (o) are
 * compared with the original tokenizer by tests/golden.
 */
#include "lib/text/vocab.h"

#include <string.h>

#include "lib/buf.h"

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define GPT2         CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* One word with at most one other character before it; NUMBER says how digits group. */
#define WORDS(NUMBER) \
	"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBER "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
/* The same with words cut where capitals begin. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(SUFFIX, NUMBER) \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" SUFFIX \
	"|" NUMBER "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES

#define LATIN_GREEK_CYRILLIC \
	"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼ" \
	"ℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

struct pretok {
	const char *names; /* separated by spaces */
	const char *patterns[6];
	bool nfc, ignore_merges;
};

static const struct pretok table[] = {
	{ .names = "gpt-2 phi-2 mpt olmo jais roberta-bpe", .patterns = { GPT2 } },
	/* digits one by one (o: smollm) */
	{ .names = "smollm starcoder refact command-r codeshell exaone minerva-7b", .patterns = { "\\p{N}", GPT2 } },
	/* (o) */
	{ .names = "llama-bpe llama3 llama-v3", .patterns = { WORDS("\\p{N}{1,3}") }, .ignore_merges = true },
	{ .names = "dbrx smaug-bpe", .patterns = { WORDS("\\p{N}{1,3}") } },
	/* (o) */
	{ .names = "qwen2 deepseek-r1-qwen megrez", .patterns = { WORDS("\\p{N}") }, .nfc = true },
	/* marks count as letters (o) */
	{ .names = "qwen35", .nfc = true, .patterns = {
		"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES } },
	/* (o) */
	{ .names = "tekken", .patterns = { CASED("", "\\p{N}") }, .ignore_merges = true },
	{ .names = "gpt-4o llama4", .patterns = { CASED("(?i:" CONTRACTIONS ")?", "\\p{N}{1,3}") } },
	{ .names = "falcon", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" } },
	{ .names = "deepseek-llm", .patterns = { "[\r\n]", "\\s?[" LATIN_GREEK_CYRILLIC "]+",
		"\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+", "\\p{N}+" } },
	{ .names = "deepseek-coder", .patterns = { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}" } },
	{ .names = "deepseek-v3", .patterns = { "\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
		"| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES } },
	/* what llama.cpp assumes for files that name none */
	{ .names = "default", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
};

#define N_TABLE   (sizeof table / sizeof *table)
#define N_PATTERNS (sizeof table->patterns / sizeof *table->patterns)

static bool
has_name(const char *names, const char *name)
{
	size_t n = strlen(name), len;

	for (; *names != '\0'; names += len + (names[len] == ' ')) {
		len = strcspn(names, " ");
		if (len == n && memcmp(names, name, n) == 0)
			return true;
	}
	return false;
}

static int
unknown(const char *name, struct kv_err *e)
{
	struct kv_buf known = { 0 };
	int rc = KV_OK;

	for (size_t i = 0; i < N_TABLE && rc == KV_OK; i++)
		rc = kv_buf_printf(&known, e, "%s%s", i ? " " : "", table[i].names);
	if (rc == KV_OK)
		rc = kv_fail(e, KV_EMODEL, "pre-tokenizer '%s' is not known (known: %s); a Hugging Face folder of the model "
		    "carries its own pattern", name, known.data);
	kv_buf_fini(&known);
	return rc;
}

int
kv_vocab_set_pre(struct kv_vocab *v, const char *name, struct kv_err *e)
{
	const struct pretok *p = NULL;
	size_t n = 0;

	for (size_t i = 0; i < N_TABLE && p == NULL; i++)
		if (has_name(table[i].names, name))
			p = &table[i];
	if (p == NULL)
		return unknown(name, e);
	while (n < N_PATTERNS && p->patterns[n] != NULL)
		n++;
	if ((v->patterns = kv_vocab_alloc(v, n, sizeof *v->patterns, e)) == NULL)
		return KV_EMEM;
	memcpy(v->patterns, p->patterns, n * sizeof *v->patterns);
	v->n_patterns = n;
	v->nfc = p->nfc;
	v->ignore_merges = p->ignore_merges;
	return KV_OK;
}
