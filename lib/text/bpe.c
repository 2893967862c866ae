/* SPDX-License-Identifier: MIT */
#include "lib/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/text/utf8.h"

/* GPT-2's alphabet: a byte that prints in Latin-1 is the character of that number; the other 68 are U+0100, U+0101, ...
 * in order. */
static bool
prints(unsigned byte)
{
	return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static unsigned
character_of(unsigned byte)
{
	unsigned k = 0x100;

	if (prints(byte))
		return byte;
	for (unsigned b = 0; b < byte; b++)
		k += !prints(b);
	return k;
}

/* All characters of the alphabet are below U+0800: one or two bytes. */
static size_t
spell(unsigned byte, char out[2])
{
	unsigned c = character_of(byte);

	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = (char)(0xc0 | c >> 6);
	out[1] = (char)(0x80 | (c & 0x3f));
	return 2;
}

/* The byte that character c stands for, -1 if none. */
static int
byte_of(unsigned c)
{
	if (c < 0x100)
		return prints(c) ? (int)c : -1;
	for (unsigned b = 0; b < 0x100; b++)
		if (!prints(b) && c-- == 0x100)
			return (int)b;
	return -1;
}

int
kv_bpe_bytes(const char *text, size_t n, struct kv_buf *out, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0, k; i < n && rc == KV_OK; i += k) {
		const unsigned char *p = (const unsigned char *)text + i;
		int len = kv_utf8_char(text + i, n - i), byte = -1;
		char c;

		k = len > 0 ? (size_t)len : 1;
		if (k == 1)
			byte = byte_of(p[0]);
		else if (k == 2)
			byte = byte_of((p[0] & 0x1fu) << 6 | (p[1] & 0x3fu));
		c = (char)byte;
		rc = byte >= 0 ? kv_buf_add(out, &c, 1, e) : kv_buf_add(out, p, k, e);
	}
	return rc;
}

static size_t
pair_slot(const struct kv_bpe *b, int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(h ^ h >> 32) & b->mask;

	while (b->pairs[i].left >= 0 && (b->pairs[i].left != left || b->pairs[i].right != right))
		i = (i + 1) & b->mask;
	return i;
}

static bool
find_pair(const void *ctx, const struct kv_symbol *left, const struct kv_symbol *right, uint32_t *rank, int32_t *id)
{
	const struct kv_bpe *b = ctx;
	const struct kv_bpe_pair *p = &b->pairs[pair_slot(b, left->id, right->id)];

	if (p->left < 0)
		return false;
	*rank = p->rank;
	*id = p->id;
	return true;
}

#define CUTS_MAX 64 /* spaces at which one merge may be cut: each is a look at the whole of it */

/* "left right" into the pair table.  A space within a half is tried too: the first cut giving three tokens counts. */
static int
add_merge(struct kv_bpe *b, const char *merge, uint32_t rank, struct kv_buf *joined, struct kv_err *e)
{
	const char *cut = strchr(merge, ' ');

	for (int i = 0; cut != NULL && i < CUTS_MAX; cut = strchr(cut + 1, ' '), i++) {
		size_t n = (size_t)(cut - merge), s;
		int32_t left = kv_token_table_find(b->table, merge, n);
		int32_t right = kv_token_table_find(b->table, cut + 1, strlen(cut + 1)), id;
		int rc;

		if (left < 0 || right < 0)
			continue;
		joined->n = 0;
		if ((rc = kv_buf_add(joined, merge, n, e)) < 0 ||
		    (rc = kv_buf_add(joined, cut + 1, strlen(cut + 1), e)) < 0)
			return rc;
		if ((id = kv_token_table_find(b->table, joined->data, joined->n)) < 0)
			continue;
		s = pair_slot(b, left, right);
		if (b->pairs[s].left < 0)
			b->pairs[s] = (struct kv_bpe_pair){ left, right, id, rank };
		return KV_OK;
	}
	return kv_fail(e, KV_EMODEL, "merge %u, '%.100s', does not join two tokens of the vocabulary to a third", rank,
	    merge);
}

static int
fill_pairs(struct kv_bpe *b, struct kv_err *e)
{
	struct kv_buf joined = { 0 };
	size_t cap = 16;
	int rc = KV_OK;

	if (b->vocab->n_merges > INT32_MAX / 4)
		return kv_fail(e, KV_EMODEL, "a list of %zu merges is too long", b->vocab->n_merges);
	while (cap < b->vocab->n_merges + b->vocab->n_merges / 2)
		cap *= 2;
	b->mask = cap - 1;
	if ((b->pairs = kv_alloc(cap, sizeof *b->pairs, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < cap; i++)
		b->pairs[i].left = -1;
	for (size_t i = 0; i < b->vocab->n_merges && rc == KV_OK; i++)
		rc = add_merge(b, b->vocab->merges[i], (uint32_t)i, &joined, e);
	kv_buf_fini(&joined);
	return rc;
}

int
kv_bpe_init(struct kv_bpe *b, const struct kv_token_table *table, struct kv_err *e)
{
	int rc;

	*b = (struct kv_bpe){ .vocab = table->vocab, .table = table };
	for (unsigned byte = 0; byte < 256; byte++) {
		char s[2];

		b->byte_id[byte] = kv_token_table_find(table, s, spell(byte, s));
	}
	if ((rc = fill_pairs(b, e)) < 0)
		return rc;
	return kv_split_new(&b->split, b->vocab->patterns, b->vocab->n_patterns, e);
}

void
kv_bpe_fini(struct kv_bpe *b)
{
	kv_split_free(b->split);
	free(b->pairs);
	*b = (struct kv_bpe){ 0 };
}

/* One call of kv_bpe_encode. */
struct job {
	const struct kv_bpe *b;
	struct kv_merge merge;
	struct kv_buf spelled;
	struct kv_ids *ids;
};

/* The piece as one token, -1 if it is none. */
static int32_t
whole(struct job *j, const char *piece, size_t n, struct kv_err *e)
{
	if (n > j->b->table->longest) /* a token is spelled with at least as many bytes as it stands for */
		return -1;
	j->spelled.n = 0;
	if (kv_buf_reserve(&j->spelled, 2 * n, e) < 0)
		return -1; /* the merges will find it, or the next allocation fail */
	for (size_t i = 0; i < n; i++)
		j->spelled.n += spell((unsigned char)piece[i], j->spelled.data + j->spelled.n);
	return kv_token_table_find(j->b->table, j->spelled.data, j->spelled.n);
}

static int
encode_piece(void *ctx, const char *piece, size_t n, struct kv_err *e)
{
	struct job *j = ctx;
	int32_t id = j->b->vocab->ignore_merges ? whole(j, piece, n, e) : -1;
	int rc;

	if (id >= 0)
		return kv_ids_add(j->ids, id, e);
	if ((rc = kv_merge_begin(&j->merge, n, e)) < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		id = j->b->byte_id[(unsigned char)piece[i]];
		if (id < 0)
			return kv_fail(e, KV_EMODEL,
			    "the model's vocabulary has no token for byte 0x%02x; remove it from the text",
			    (unsigned char)piece[i]);
		kv_merge_add(&j->merge, (uint32_t)i, 1, id);
	}
	kv_merge_run(&j->merge, find_pair, j->b);
	for (int32_t i = 0; i >= 0 && rc == KV_OK; i = j->merge.symbols[i].next)
		rc = kv_ids_add(j->ids, j->merge.symbols[i].id, e);
	return rc;
}

int
kv_bpe_encode(const struct kv_bpe *b, const char *text, size_t n, struct kv_ids *ids, struct kv_err *e)
{
	struct job j = { .b = b, .ids = ids };
	int rc = kv_split_text(b->split, text, n, b->vocab->nfc, encode_piece, &j, e);

	kv_buf_fini(&j.spelled);
	kv_merge_fini(&j.merge);
	return rc;
}
