/* SPDX-License-Identifier: MIT
 * Pre-tokenising patterns by the name that GGUF files give them (tokenizer.ggml.pre).
 *
 * Each row has the expressions of the model's published tokenizer.  Rows marked (o) are compared with the original
 * tokenizer by tests/golden.
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

/* Letters of the Latin, Greek, Cyrillic, Armenian, Cherokee and a few more scripts. */
#define LETTERS \
	"A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}" \
	"\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}" \
	"\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}" \
	"\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}" \
	"\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}" \
	"\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}" \
	"\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}" \
	"\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}" \
	"\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
	"\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}" \
	"\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}" \
	"\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}" \
	"\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}" \
	"\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}" \
	"\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}" \
	"\\x{1e900}-\\x{1e943}"

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

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
	{ .names = "qwen35", .nfc = true, .patterns = { "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"
		"|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES } },
	/* (o) */
	{ .names = "tekken", .patterns = { CASED("", "\\p{N}") }, .ignore_merges = true },
	/* (o) */
	{ .names = "gpt-4o llama4", .patterns = { CASED("(?i:" CONTRACTIONS ")?", "\\p{N}{1,3}") } },
	{ .names = "falcon", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" } },
	{ .names = "deepseek-llm", .patterns = { "[\r\n]", "\\s?[" LETTERS "]+",
		"\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
		CJK, "\\p{N}+" } },
	{ .names = "deepseek-coder", .patterns = { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}" } },
	{ .names = "deepseek-v3", .patterns = { "\\p{N}{1,3}",
		"[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
		"| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES } },
	/* what llama.cpp assumes for files that name none */
	{ .names = "default", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
};

#define N_TABLE    (sizeof table / sizeof *table)
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
		rc = kv_fail(e, KV_EMODEL, "pre-tokenizer '%s' is not known (known: %s); a Hugging Face folder of the "
		    "model carries its own pattern", name, known.data);
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
