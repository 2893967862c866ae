/* SPDX-License-Identifier: MIT */
#include "lib/text/vocab.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

/* The arena: a list of chunks, the newest first.  Small requests share a chunk, large ones have their own. */
struct chunk {
	struct chunk *next;
	size_t used, cap;
	alignas(max_align_t) char bytes[];
};

#define CHUNK_BYTES ((size_t)64 * 1024)

static struct chunk *
chunk_new(size_t cap, struct kv_err *e)
{
	struct chunk *c;

	if (cap > SIZE_MAX - sizeof *c || (c = calloc(1, sizeof *c + cap)) == NULL) {
		kv_no_memory(e, cap);
		return NULL;
	}
	c->cap = cap;
	return c;
}

static void *
take(struct kv_vocab *v, size_t bytes, size_t align, struct kv_err *e)
{
	struct chunk *top = v->arena, *c = top;
	size_t start = top ? (top->used + align - 1) & ~(align - 1) : 0;

	if (top == NULL || start > top->cap || bytes > top->cap - start) {
		bool own = bytes >= CHUNK_BYTES / 4;

		if ((c = chunk_new(own ? bytes : CHUNK_BYTES, e)) == NULL)
			return NULL;
		start = 0;
		if (own && top != NULL) { /* behind the newest, which still has room */
			c->next = top->next;
			top->next = c;
		} else {
			c->next = top;
			v->arena = c;
		}
	}
	c->used = start + bytes;
	return c->bytes + start;
}

void *
kv_vocab_alloc(struct kv_vocab *v, size_t n, size_t size, struct kv_err *e)
{
	size_t bytes;

	if (!kv_mul(n, size, &bytes)) {
		kv_no_memory(e, SIZE_MAX);
		return NULL;
	}
	return take(v, bytes, alignof(max_align_t), e);
}

char *
kv_vocab_strdup(struct kv_vocab *v, const char *s, size_t n, struct kv_err *e)
{
	char *p;

	if (n == SIZE_MAX) {
		kv_no_memory(e, n);
		return NULL;
	}
	if ((p = take(v, n + 1, 1, e)) != NULL && n > 0)
		memcpy(p, s, n);
	return p;
}

void
kv_vocab_fini(struct kv_vocab *v)
{
	struct chunk *c, *next;

	if (v == NULL)
		return;
	for (c = v->arena; c != NULL; c = next) {
		next = c->next;
		free(c);
	}
	*v = (struct kv_vocab){ 0 };
}

/* Special tokens that end a response in the models we know. */
static const char *const ends[] = {
	"</s>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>",
	"<|end|>", "<|end_of_turn|>", "<end_of_turn>", "<|end_of_sentence|>", "<｜end▁of▁sentence｜>", "<|EOT|>",
	"<eos>", "<|return|>", "<|call|>", "<|END_OF_TURN_TOKEN|>",
};

static bool
is_end(const struct kv_token *t)
{
	if (t->kind != KV_TOKEN_SPECIAL)
		return false;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (strlen(ends[i]) == t->n && memcmp(ends[i], t->text, t->n) == 0)
			return true;
	return false;
}

static void
add_stop(struct kv_vocab *v, int32_t id)
{
	for (size_t i = 0; i < v->n_stops; i++)
		if (v->stops[i] == id)
			return;
	v->stops[v->n_stops++] = id;
}

int
kv_vocab_set_stops(struct kv_vocab *v, const int32_t *extra, size_t n_extra, struct kv_err *e)
{
	size_t n = 1 + n_extra; /* the eos and the extra ones */

	for (size_t i = 0; i < n_extra; i++)
		if (extra[i] < 0 || (size_t)extra[i] >= v->n)
			return kv_fail(e, KV_EMODEL, "end token %d is not in the vocabulary of %zu tokens",
			    (int)extra[i], v->n);
	for (size_t i = 0; i < v->n; i++)
		n += is_end(&v->tokens[i]);
	v->n_stops = 0;
	if ((v->stops = kv_vocab_alloc(v, n, sizeof *v->stops, e)) == NULL)
		return KV_EMEM;
	if (v->eos >= 0)
		add_stop(v, v->eos);
	for (size_t i = 0; i < n_extra; i++)
		add_stop(v, extra[i]);
	for (size_t i = 0; i < v->n; i++)
		if (is_end(&v->tokens[i]))
			add_stop(v, (int32_t)i);
	return KV_OK;
}
