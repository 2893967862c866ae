/* SPDX-License-Identifier: MIT
 * What the views share: the current sequence's tokens, the current layer's index. */
#include "lib/show/show.h"

#include <stdlib.h>
#include <string.h>

#include "lib/file.h"

int
kv_show_flush(struct kv_show *s, size_t bytes)
{
	if (s->out.n <= bytes)
		return s->rc;
	if (s->rc == KV_OK)
		s->rc = kv_write_all(s->fd, s->out.data, s->out.n, &s->err);
	s->out.n = 0;
	return s->rc;
}

void
kv_show_layer_fini(struct kv_show *s)
{
	kv_tensor_fini(&s->index);
	kv_tensor_fini(&s->offset);
	kv_tensor_fini(&s->value);
	s->n_full = 0;
}

void
kv_show_fini(struct kv_show *s)
{
	kv_show_layer_fini(s);
	free(s->tokens);
	free(s->kept);
	kv_buf_fini(&s->out);
	*s = (struct kv_show){ 0 };
}

int
kv_show_begin(struct kv_show *s, size_t number, const json_t *map)
{
	const json_t *tokens = json_object_get(map, "tokens"), *length = json_object_get(map, "prompt_length");

	kv_show_layer_fini(s);
	free(s->tokens);
	free(s->kept);
	s->sequence = number;
	s->n_heads = s->n_kept = 0;
	s->n_tokens = s->T = json_array_size(tokens);
	if (json_is_integer(length) && json_integer_value(length) >= 0 &&
	    (size_t)json_integer_value(length) < s->n_tokens)
		s->T = (size_t)json_integer_value(length);
	s->kept = kv_alloc(s->T, sizeof *s->kept, &s->err);
	s->tokens = kv_alloc(s->n_tokens, sizeof *s->tokens, &s->err);
	if (s->tokens == NULL || s->kept == NULL)
		return s->rc = KV_EMEM;
	for (size_t i = 0; i < s->n_tokens; i++) {
		const json_t *id = json_array_get(tokens, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
			return s->rc = kv_fail(&s->err, KV_EFORMAT, "tokens: entry %zu is not a token id", i);
		s->tokens[i] = (int32_t)json_integer_value(id);
	}
	return s->rc;
}

void
kv_show_hold(struct kv_show *s, struct kv_tensor *t)
{
	struct kv_tensor *to = NULL;

	if (strcmp(t->name, "index") == 0)
		to = &s->index;
	else if (strcmp(t->name, "offset") == 0)
		to = &s->offset;
	else
		return;
	kv_tensor_fini(to);
	*to = *t;
	*t = (struct kv_tensor){ 0 };
}

static int
check_kept(const struct kv_show_kept *k, struct kv_err *e)
{
	int32_t last = 0;

	if (k->offset[0] != 0 || (size_t)k->offset[k->Hkv] != k->n)
		return kv_fail(e, KV_EFORMAT, "offset: runs from %d to %d, but index has %zu entries", k->offset[0],
		    k->offset[k->Hkv], k->n);
	for (size_t h = 0; h <= k->Hkv; last = k->offset[h], h++)
		if (k->offset[h] < last || (size_t)k->offset[h] > k->n)
			return kv_fail(
			    e, KV_EFORMAT, "offset: entry %zu is %d, outside %d..%zu", h, k->offset[h], last, k->n);
	for (size_t i = 0; i < k->n; i++)
		if (k->index[i] < 0)
			return kv_fail(e, KV_EFORMAT, "index: entry %zu is %d, not a position", i, k->index[i]);
	return KV_OK;
}

bool
kv_show_kept(struct kv_show *s, struct kv_show_kept *k)
{
	const struct kv_tensor *index = &s->index, *offset = &s->offset;

	if (s->rc < 0 || index->data == NULL || offset->data == NULL)
		return false;
	if (index->type != KVK_I32 || offset->type != KVK_I32 || index->n_axes != 1 || offset->n_axes != 1 ||
	    offset->shape[0] < 2)
		s->rc = kv_fail(&s->err, KV_EFORMAT, "index, offset: expected i32 [entry] and [kv_head + 1]");
	else {
		*k = (struct kv_show_kept){ index->data, offset->data, index->shape[0], offset->shape[0] - 1 };
		s->rc = check_kept(k, &s->err);
	}
	return s->rc == KV_OK;
}
