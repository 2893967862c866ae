/* SPDX-License-Identifier: MIT */
#include "lib/text/merge.h"

#include <stdlib.h>

#include "lib/buf.h"

int
kv_merge_begin(struct kv_merge *m, size_t n, struct kv_err *e)
{
	m->n = m->n_heap = 0;
	if (n <= m->cap)
		return KV_OK;
	if (n >= INT32_MAX)
		return kv_fail(e, KV_EARG, "a piece of %zu bytes is too long for the tokenizer", n);
	kv_merge_fini(m);
	if (n < 64)
		n = 64;
	/* n - 1 pairs at first, and each of at most n - 1 merges makes two more */
	if ((m->symbols = kv_alloc(n, sizeof *m->symbols, e)) == NULL ||
	    (m->heap = kv_alloc(n, 3 * sizeof *m->heap, e)) == NULL)
		return KV_EMEM;
	m->cap = n;
	m->cap_heap = 3 * n;
	return KV_OK;
}

void
kv_merge_fini(struct kv_merge *m)
{
	free(m->heap);
	free(m->symbols);
	*m = (struct kv_merge){ 0 };
}

void
kv_merge_add(struct kv_merge *m, uint32_t start, uint32_t n, int32_t id)
{
	int32_t i = (int32_t)m->n++;

	m->symbols[i] = (struct kv_symbol){ start, n, id, i - 1, -1 };
	if (i > 0)
		m->symbols[i - 1].next = i;
}

static void
push(struct kv_merge *m, struct kv_candidate c)
{
	size_t i = m->n_heap++;

	for (; i > 0 && c.key < m->heap[(i - 1) / 2].key; i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = c;
}

static struct kv_candidate
pop(struct kv_merge *m)
{
	struct kv_candidate top = m->heap[0], last = m->heap[--m->n_heap];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < m->n_heap; i = child) {
		if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key)
			child++;
		if (last.key <= m->heap[child].key)
			break;
		m->heap[i] = m->heap[child];
	}
	m->heap[i] = last;
	return top;
}

static void
consider(struct kv_merge *m, int32_t left, kv_pair_fn *pair, const void *ctx)
{
	const struct kv_symbol *l, *r;
	uint32_t rank;
	int32_t id;

	if (left < 0 || m->symbols[left].next < 0)
		return;
	l = &m->symbols[left];
	r = &m->symbols[l->next];
	if (pair(ctx, l, r, &rank, &id))
		push(m, (struct kv_candidate){ (uint64_t)rank << 32 | (uint32_t)left, l->n + r->n, id });
}

void
kv_merge_run(struct kv_merge *m, kv_pair_fn *pair, const void *ctx)
{
	for (size_t i = 0; i + 1 < m->n; i++)
		consider(m, (int32_t)i, pair, ctx);
	while (m->n_heap > 0) {
		struct kv_candidate c = pop(m);
		int32_t left = (int32_t)(c.key & UINT32_MAX);
		struct kv_symbol *l = &m->symbols[left], *r;

		/* Symbols only grow, so the same start and the same length mean the same two halves. */
		if (l->n == 0 || l->next < 0 || l->n + (r = &m->symbols[l->next])->n != c.n)
			continue;
		l->n = c.n;
		l->id = c.id;
		l->next = r->next;
		r->n = 0;
		if (l->next >= 0)
			m->symbols[l->next].prev = left;
		consider(m, l->prev, pair, ctx);
		consider(m, left, pair, ctx);
	}
}
