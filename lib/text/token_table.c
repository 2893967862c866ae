/* SPDX-License-Identifier: MIT */
#include "lib/text/token_table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/buf.h"

/* The slot that holds this text, or the empty one where it belongs. */
static size_t
slot(const struct kv_token_table *t, const char *text, size_t n)
{
	size_t i = (size_t)XXH3_64bits(text, n) & t->mask;

	for (; t->slots[i] >= 0; i = (i + 1) & t->mask) {
		const struct kv_token *k = &t->vocab->tokens[t->slots[i]];

		if (k->n == n && memcmp(k->text, text, n) == 0)
			break;
	}
	return i;
}

int
kv_token_table_init(struct kv_token_table *t, const struct kv_vocab *vocab, struct kv_err *e)
{
	size_t cap = 16;

	if (vocab->n > INT32_MAX / 4)
		return kv_fail(e, KV_EMODEL, "a vocabulary of %zu tokens is too large", vocab->n);
	while (cap < 2 * vocab->n)
		cap *= 2;
	*t = (struct kv_token_table){ .vocab = vocab, .mask = cap - 1 };
	if ((t->slots = kv_alloc(cap, sizeof *t->slots, e)) == NULL)
		return KV_EMEM;
	memset(t->slots, 0xff, cap * sizeof *t->slots);
	for (size_t i = 0; i < vocab->n; i++) {
		const struct kv_token *k = &vocab->tokens[i];
		size_t s = slot(t, k->text, k->n);

		if (k->kind != KV_TOKEN_SPECIAL && k->n > t->longest)
			t->longest = k->n;
		if (t->slots[s] < 0 ||
		    (k->kind == KV_TOKEN_NORMAL && vocab->tokens[t->slots[s]].kind != KV_TOKEN_NORMAL))
			t->slots[s] = (int32_t)i;
	}
	return KV_OK;
}

void
kv_token_table_fini(struct kv_token_table *t)
{
	free(t->slots);
	*t = (struct kv_token_table){ 0 };
}

int32_t
kv_token_table_find(const struct kv_token_table *t, const char *text, size_t n)
{
	return t->slots[slot(t, text, n)];
}
