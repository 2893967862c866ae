/* SPDX-License-Identifier: MIT */
#include "lib/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void
item_fini(struct kv_item *i)
{
	kv_tensor_fini(&i->tensor);
	kv_buf_fini(&i->raw);
	kv_parts_fini(&i->parts);
}

struct kv_item *
kv_step_add(struct kv_step *s, struct kv_err *e)
{
	/* grown at powers of two, so that no capacity need be kept */
	if ((s->n_items & (s->n_items - 1)) == 0) {
		size_t cap = s->n_items ? 2 * s->n_items : 1;
		struct kv_item *p = realloc(s->items, cap * sizeof *p);

		if (p == NULL) {
			kv_no_memory(e, cap * sizeof *p);
			return NULL;
		}
		s->items = p;
	}
	s->items[s->n_items] = (struct kv_item){ 0 };
	return &s->items[s->n_items++];
}

bool
kv_item_is_tensor(const struct kv_item *i)
{
	return i->tensor.name[0] != '\0';
}

struct kv_item *
kv_step_item(const struct kv_step *s, const char *name)
{
	for (size_t i = 0; i < s->n_items; i++)
		if (kv_item_is_tensor(&s->items[i]) && strcmp(s->items[i].tensor.name, name) == 0)
			return &s->items[i];
	return NULL;
}

const struct kv_tensor *
kv_step_find(const struct kv_step *s, const char *name)
{
	const struct kv_item *i = kv_step_item(s, name);

	return i ? &i->tensor : NULL;
}

const struct kv_tensor *
kv_step_at(const struct kv_step *s, size_t i)
{
	for (size_t at = 0; at < s->n_items; at++)
		if (kv_item_is_tensor(&s->items[at]) && i-- == 0)
			return &s->items[at].tensor;
	return NULL;
}

int
kv_step_put(struct kv_step *s, struct kv_tensor *t, struct kv_err *e)
{
	struct kv_item *i = kv_step_item(s, t->name);

	if (t->name[0] == '\0' || t->layer != s->layer)
		return kv_fail(e, KV_EARG, "tensor '%s' of layer %d put into layer %d", t->name, t->layer, s->layer);
	if (i != NULL && (i->unused || i->sent))
		return kv_fail(e, KV_EARG, "tensor '%s' is not among those that are used%s, and cannot be replaced",
		    t->name, i->sent ? " and not kept" : "");
	if (i != NULL)
		item_fini(i);
	else if ((i = kv_step_add(s, e)) == NULL)
		return KV_EMEM;
	*i = (struct kv_item){ .tensor = *t };
	*t = (struct kv_tensor){ 0 };
	return KV_OK;
}

void
kv_step_remove(struct kv_step *s, const char *name)
{
	struct kv_item *i = kv_step_item(s, name);
	size_t after;

	if (i == NULL)
		return;
	assert(!i->unused); /* it may have left already */
	item_fini(i);
	/* an empty item of unknown records keeps the place, so that the growing above stays right */
	after = (size_t)(s->items + s->n_items - i) - 1;
	memmove(i, i + 1, after * sizeof *i);
	s->items[s->n_items - 1] = (struct kv_item){ 0 };
}

int
kv_step_add_other(struct kv_step *s, const struct kv_buf *raw, struct kv_err *e)
{
	struct kv_item *i;
	size_t bytes = raw->n;

	for (size_t k = 0; k < s->n_items; k++)
		bytes += kv_item_is_tensor(&s->items[k]) ? 0 : s->items[k].raw.n;
	if (bytes > KV_STEP_OTHER_MAX)
		return kv_fail(e, KV_EFORMAT, "more than %zu bytes of unknown records in one layer", KV_STEP_OTHER_MAX);
	i = s->n_items ? &s->items[s->n_items - 1] : NULL;
	if ((i == NULL || kv_item_is_tensor(i)) && (i = kv_step_add(s, e)) == NULL)
		return KV_EMEM;
	return kv_buf_add(&i->raw, raw->data, raw->n, e);
}

void
kv_step_clear(struct kv_step *s)
{
	for (size_t i = 0; i < s->n_items; i++)
		item_fini(&s->items[i]);
	free(s->items);
	s->items = NULL;
	s->n_items = 0;
}
