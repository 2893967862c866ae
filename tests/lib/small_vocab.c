/* SPDX-License-Identifier: MIT */
#include "tests/lib/small_vocab.h"

#include <stdio.h>
#include <string.h>

static size_t
count(const char *const *list)
{
	size_t n = 0;

	while (list[n] != NULL)
		n++;
	return n;
}

static int
add(struct kv_vocab *v, const char *text, size_t n, enum kv_token_kind kind, float score, struct kv_err *e)
{
	const char *copy = kv_vocab_strdup(v, text, n, e);

	if (copy == NULL)
		return KV_EMEM;
	v->tokens[v->n++] = (struct kv_token){ .text = copy, .n = (uint32_t)n, .score = score, .kind = (uint8_t)kind };
	return KV_OK;
}

static int
begin(struct kv_vocab *v, size_t n, struct kv_err *e)
{
	*v = (struct kv_vocab){ .bos = -1, .eos = -1, .unk = -1, .pad = -1 };
	return (v->tokens = kv_vocab_alloc(v, n, sizeof *v->tokens, e)) != NULL ? KV_OK : KV_EMEM;
}

static int
add_list(struct kv_vocab *v, const char *const *list, enum kv_token_kind kind, struct kv_err *e)
{
	int rc = KV_OK;

	for (; *list != NULL && rc == KV_OK; list++)
		rc = add(v, *list, strlen(*list), kind, 0, e);
	return rc;
}

/* The character of GPT-2's alphabet for a byte: by the four ranges it consists of. */
static size_t
spell(unsigned b, char out[2])
{
	unsigned c = b;

	if (b <= 0x20)
		c = 0x100 + b;
	else if (b >= 0x7f && b <= 0xa0)
		c = 0x121 + (b - 0x7f);
	else if (b == 0xad)
		c = 0x143;
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = (char)(0xc0 + c / 64);
	out[1] = (char)(0x80 + c % 64);
	return 2;
}

int
small_bpe(struct kv_vocab *v, const char *const *merges, const char *const *special, const char *const *added,
    struct kv_err *e)
{
	int rc = begin(v, 256 + count(merges) + count(special) + count(added), e);

	v->kind = KV_VOCAB_BPE;
	for (unsigned b = 0; b < 256 && rc == KV_OK; b++) {
		char s[2];

		rc = add(v, s, spell(b, s), KV_TOKEN_NORMAL, 0, e);
	}
	if (rc < 0 || (v->merges = kv_vocab_alloc(v, count(merges), sizeof *v->merges, e)) == NULL)
		return KV_EMEM;
	for (; merges[v->n_merges] != NULL && rc == KV_OK; v->n_merges++) {
		const char *m = v->merges[v->n_merges] = merges[v->n_merges], *space = strchr(m, ' ');
		char joined[64];

		rc = add(v, joined, (size_t)snprintf(joined, sizeof joined, "%.*s%s", (int)(space - m), m, space + 1),
		    KV_TOKEN_NORMAL, 0, e);
	}
	if (rc == KV_OK && (rc = add_list(v, special, KV_TOKEN_SPECIAL, e)) == KV_OK)
		rc = add_list(v, added, KV_TOKEN_ADDED, e);
	return rc;
}

static int
add_piece(struct kv_vocab *v, const char *piece, float score, struct kv_err *e)
{
	char text[128];
	size_t n = 0;

	for (; *piece != '\0'; piece++)
		n += (size_t)sprintf(text + n, *piece == '_' ? "\xe2\x96\x81" : "%c", *piece);
	return add(v, text, n, KV_TOKEN_NORMAL, score, e);
}

int
small_spm(struct kv_vocab *v, const char *const *pieces, const char *const *special, const char *const *added,
    struct kv_err *e)
{
	static const char *const control[] = { "<unk>", "<s>", "</s>", NULL };
	int rc = begin(v, SMALL_SPM_FIRST + count(pieces) + count(special) + count(added), e);

	v->kind = KV_VOCAB_SPM;
	v->add_bos = v->add_space_prefix = true;
	v->unk = 0;
	v->bos = 1;
	v->eos = 2;
	if (rc == KV_OK)
		rc = add_list(v, control, KV_TOKEN_SPECIAL, e);
	for (unsigned b = 0; b < 256 && rc == KV_OK; b++) {
		char s[8];

		snprintf(s, sizeof s, "<0x%02X>", b);
		rc = add(v, s, 6, KV_TOKEN_BYTE, 0, e);
	}
	for (size_t i = 0; pieces[i] != NULL && rc == KV_OK; i++)
		rc = add_piece(v, pieces[i], -(float)i, e);
	if (rc == KV_OK && (rc = add_list(v, special, KV_TOKEN_SPECIAL, e)) == KV_OK)
		rc = add_list(v, added, KV_TOKEN_ADDED, e);
	return rc;
}
