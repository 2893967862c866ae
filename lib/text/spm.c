/* SPDX-License-Identifier: MIT */
#include "lib/text/spm.h"

#include <stdlib.h>
#include <string.h>

#include "lib/text/utf8.h"

#define SPACE   "\xe2\x96\x81" /* U+2581 */
#define N_SPACE 3

static bool
is_space(const char *text, size_t n)
{
	return n >= N_SPACE && memcmp(text, SPACE, N_SPACE) == 0;
}

/* <0xXX>: the byte, -1 for anything else. */
static int
byte_token(const struct kv_token *k)
{
	char hex[3] = { 0 }, *end;
	unsigned long b;

	if (k->kind != KV_TOKEN_BYTE || k->n != 6 || memcmp(k->text, "<0x", 3) != 0 || k->text[5] != '>')
		return -1;
	memcpy(hex, k->text + 3, 2);
	b = strtoul(hex, &end, 16);
	return end == hex + 2 ? (int)b : -1;
}

static bool
space_inside(const struct kv_token *k)
{
	for (size_t i = 1; i < k->n; i++)
		if (is_space(k->text + i, k->n - i) && (i < N_SPACE || !is_space(k->text + i - N_SPACE, N_SPACE)))
			return true;
	return false;
}

int
kv_spm_init(struct kv_spm *s, const struct kv_token_table *table, struct kv_err *e)
{
	const struct kv_vocab *v = table->vocab;

	*s = (struct kv_spm){ .vocab = v, .table = table, .cut_at_spaces = true };
	if (v->nfc)
		return kv_fail(e, KV_EMODEL, "a SentencePiece vocabulary that normalises to NFC is not supported");
	memset(s->byte_id, 0xff, sizeof s->byte_id);
	for (size_t i = 0; i < v->n; i++) {
		const struct kv_token *k = &v->tokens[i];
		int byte = byte_token(k);

		if (k->kind == KV_TOKEN_BYTE && byte < 0)
			return kv_fail(e, KV_EMODEL, "byte token %zu is spelled '%.*s', expected <0xXX>", i, (int)k->n,
			    k->text);
		if (byte >= 0)
			s->byte_id[byte] = (int32_t)i;
		if (k->kind == KV_TOKEN_NORMAL && space_inside(k))
			s->cut_at_spaces = false;
	}
	return KV_OK;
}

/* One call of kv_spm_encode. */
struct job {
	const struct kv_spm *s;
	struct kv_merge merge;
	struct kv_buf text; /* of the piece at hand, spaces spelled U+2581 */
	struct kv_ids *ids;
};

static int32_t
normal_token(const struct kv_spm *s, const char *text, size_t n)
{
	int32_t id = n <= s->table->longest ? kv_token_table_find(s->table, text, n) : -1;

	return id >= 0 && s->vocab->tokens[id].kind == KV_TOKEN_NORMAL ? id : -1;
}

/* A float so that a larger score is a smaller number. */
static uint32_t
rank_of(float score)
{
	uint32_t u;

	score += 0.0f; /* -0 ranks as 0 */
	memcpy(&u, &score, sizeof u);
	return u & 0x80000000u ? u : 0x7fffffffu - u;
}

static bool
find_pair(const void *ctx, const struct kv_symbol *left, const struct kv_symbol *right, uint32_t *rank, int32_t *id)
{
	const struct job *j = ctx;

	if ((*id = normal_token(j->s, j->text.data + left->start, left->n + right->n)) < 0)
		return false;
	*rank = rank_of(j->s->vocab->tokens[*id].score);
	return true;
}

static int
add_bytes(struct job *j, const char *text, size_t n, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < n && rc == KV_OK; i++) {
		int32_t id = j->s->byte_id[(unsigned char)text[i]];

		if (id < 0 && (id = j->s->vocab->unk) < 0)
			return kv_fail(e, KV_EMODEL,
			    "the model's vocabulary has no token for byte 0x%02x; remove it from the text",
			    (unsigned char)text[i]);
		rc = kv_ids_add(j->ids, id, e);
		if (id == j->s->vocab->unk && kv_utf8_char(text, n) == (int)n)
			break; /* one for the whole character */
	}
	return rc;
}

/* Merge the piece in j->text and append its tokens. */
static int
flush(struct job *j, struct kv_err *e)
{
	const char *text = j->text.data;
	size_t n = j->text.n;
	int rc;

	if (n == 0)
		return KV_OK;
	if ((rc = kv_merge_begin(&j->merge, n, e)) < 0)
		return rc;
	for (size_t i = 0, k; i < n; i += k) {
		int len = kv_utf8_char(text + i, n - i);

		k = len > 0 ? (size_t)len : 1;
		kv_merge_add(&j->merge, (uint32_t)i, (uint32_t)k, len > 0 ? normal_token(j->s, text + i, k) : -1);
	}
	kv_merge_run(&j->merge, find_pair, j);
	for (int32_t i = 0; i >= 0 && rc == KV_OK; i = j->merge.symbols[i].next) {
		const struct kv_symbol *m = &j->merge.symbols[i];

		if (m->id >= 0)
			rc = kv_ids_add(j->ids, m->id, e);
		else if (is_space(text + m->start, m->n)) /* a vocabulary without U+2581 */
			rc = add_bytes(j, " ", 1, e);
		else
			rc = add_bytes(j, text + m->start, m->n, e);
	}
	j->text.n = 0;
	return rc;
}

static int
add_space(struct job *j, struct kv_err *e)
{
	size_t n = j->text.n;
	int rc;

	if (j->s->cut_at_spaces && n > 0 && (n < N_SPACE || !is_space(j->text.data + n - N_SPACE, N_SPACE)) &&
	    (rc = flush(j, e)) < 0)
		return rc;
	return kv_buf_add(&j->text, SPACE, N_SPACE, e);
}

static int
encode(struct job *j, const char *text, size_t n, struct kv_err *e)
{
	bool has_bytes = j->s->byte_id[0xe2] >= 0 && j->s->byte_id[0x96] >= 0 && j->s->byte_id[0x81] >= 0;
	int rc = KV_OK;

	for (size_t i = 0, k; i < n && rc == KV_OK; i += k) {
		for (k = 0; i + k < n && text[i + k] != ' ' && !(has_bytes && is_space(text + i + k, n - i - k)); k++)
			;
		if (k > 0) {
			rc = kv_buf_add(&j->text, text + i, k, e);
		} else if (text[i] == ' ') {
			k = 1;
			rc = add_space(j, e);
		} else {
			k = N_SPACE;
			if ((rc = flush(j, e)) == KV_OK)
				rc = add_bytes(j, text + i, k, e);
		}
	}
	return rc;
}

int
kv_spm_encode(const struct kv_spm *s, const char *text, size_t n, bool prefix, struct kv_ids *ids, struct kv_err *e)
{
	struct job j = { .s = s, .ids = ids };
	int rc = prefix && n > 0 ? add_space(&j, e) : KV_OK;

	if (rc == KV_OK)
		rc = encode(&j, text, n, e);
	if (rc == KV_OK)
		rc = flush(&j, e);
	kv_buf_fini(&j.text);
	kv_merge_fini(&j.merge);
	return rc;
}

int
kv_spm_bytes(const struct kv_token *k, struct kv_buf *out, struct kv_err *e)
{
	int byte = byte_token(k), rc = KV_OK;
	char c = (char)byte;

	if (byte >= 0)
		return kv_buf_add(out, &c, 1, e);
	for (size_t i = 0, n; i < k->n && rc == KV_OK; i += n) {
		bool space = is_space(k->text + i, k->n - i);

		n = space ? N_SPACE : 1;
		rc = kv_buf_add(out, space ? " " : k->text + i, 1, e);
	}
	return rc;
}
