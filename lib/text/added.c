/* SPDX-License-Identifier: MIT */
#include "lib/text/added.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

static int
by_bytes(const void *x, const void *y)
{
	const struct kv_added_token *a = x, *b = y;
	int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

	if (c != 0)
		return c;
	if (a->n != b->n)
		return a->n < b->n ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

/* SentencePiece spells a space U+2581; text has a space there.  Writes at most n bytes. */
static size_t
unescape(const char *text, size_t n, char *out)
{
	size_t w = 0;

	for (size_t i = 0; i < n; i++) {
		if (n - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
			out[w++] = ' ';
			i += 2;
		} else {
			out[w++] = text[i];
		}
	}
	return w;
}

static bool
is_added(const struct kv_token *k)
{
	return (k->kind == KV_TOKEN_ADDED || k->kind == KV_TOKEN_SPECIAL) && k->n > 0;
}

static void
collect(struct kv_added *a, const struct kv_vocab *vocab)
{
	char *spare = a->spaced;

	for (size_t i = 0; i < vocab->n; i++) {
		const struct kv_token *k = &vocab->tokens[i];
		struct kv_added_token *t = &a->v[a->n];

		if (!is_added(k))
			continue;
		*t = (struct kv_added_token){ k->text, k->n, (int32_t)i, k->kind == KV_TOKEN_SPECIAL };
		if (vocab->kind == KV_VOCAB_SPM && !t->special) {
			t->n = unescape(k->text, k->n, spare);
			t->text = spare;
			spare += t->n;
		}
		a->n++;
	}
}

int
kv_added_init(struct kv_added *a, const struct kv_vocab *vocab, struct kv_err *e)
{
	size_t n = 0, bytes = 0;

	*a = (struct kv_added){ 0 };
	for (size_t i = 0; i < vocab->n; i++)
		if (is_added(&vocab->tokens[i])) {
			n++;
			bytes += vocab->tokens[i].n;
		}
	if ((a->v = kv_alloc(n, sizeof *a->v, e)) == NULL || (a->spaced = kv_alloc(bytes, 1, e)) == NULL)
		return KV_EMEM;
	collect(a, vocab);
	qsort(a->v, a->n, sizeof *a->v, by_bytes);
	for (size_t i = 0; i < a->n; i++)
		a->first[(unsigned char)a->v[i].text[0] + 1]++;
	for (size_t b = 0; b < 256; b++)
		a->first[b + 1] += a->first[b];
	return KV_OK;
}

void
kv_added_fini(struct kv_added *a)
{
	free(a->spaced);
	free(a->v);
	*a = (struct kv_added){ 0 };
}

/* First of v[lo .. hi), which agree in their first `depth` bytes and are longer, whose next byte is at least b. */
static size_t
lower(const struct kv_added *a, size_t lo, size_t hi, size_t depth, unsigned b)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if ((unsigned char)a->v[mid].text[depth] < b)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The longest token that text begins with: narrow the sorted list byte by byte. */
static const struct kv_added_token *
longest(const struct kv_added *a, const char *text, size_t n, bool special)
{
	size_t lo = a->first[(unsigned char)text[0]], hi = a->first[(unsigned char)text[0] + 1];
	const struct kv_added_token *best = NULL;

	for (size_t depth = 1; lo < hi; depth++) {
		for (; lo < hi && a->v[lo].n == depth; lo++) /* complete; equal texts: the lowest id stands first */
			if ((best == NULL || best->n < depth) && (special || !a->v[lo].special))
				best = &a->v[lo];
		if (depth == n)
			break;
		lo = lower(a, lo, hi, depth, (unsigned char)text[depth]);
		hi = lower(a, lo, hi, depth, (unsigned char)text[depth] + 1u);
	}
	return best;
}

const struct kv_added_token *
kv_added_find(const struct kv_added *a, const char *text, size_t n, size_t from, bool special, size_t *at)
{
	for (size_t i = from; a->n > 0 && i < n; i++) {
		size_t b = (unsigned char)text[i];
		const struct kv_added_token *t;

		if (a->first[b] == a->first[b + 1] || (t = longest(a, text + i, n - i, special)) == NULL)
			continue;
		*at = i;
		return t;
	}
	return NULL;
}
