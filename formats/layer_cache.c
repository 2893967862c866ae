/* SPDX-License-Identifier: MIT */
#include "formats/layer_cache.h"

#include <stdlib.h>

#include "lib/device_memory.h"
#include "lib/model/cache.h"

/* A payload on the device, whose values are all finite.  One that is empty has no place there: NULL. */
static int
view(const struct kv_device *d, const struct kv_tensor *t, const void **on_device, struct kv_err *e)
{
	const size_t n = kv_tensor_n(t);
	size_t first;
	int rc;

	if (n == 0)
		return KV_OK;
	if ((*on_device = kv_device_view_tensor(d, t, e)) == NULL)
		return KV_EMEM;
	rc = kv_device_check(d, d->op->finite(d->dev, *on_device, t->type, n, &first), t->name, e);
	if (rc < 0 || first == n)
		return rc;
	return kv_fail(e, KV_EFAIL,
	    "%s has values that are not finite: too large for %s? kv-prefill --dtype bf16 has the range of f32",
	    t->name, t->type_name);
}

static int
take_heads(struct kv_layer_cache *x, size_t H, struct kv_err *e)
{
	x->H = H;
	x->offset = kv_alloc(H + 1, sizeof *x->offset, e);
	return x->offset != NULL ? KV_OK : KV_EMEM;
}

/* Head after head of the same length T. */
static int
read_whole(struct kv_layer_cache *x, const struct kv_sequence *seq, const struct kv_config *c, struct kv_err *e)
{
	size_t shape[3] = { c->Hkv, seq->T, c->D };
	int rc;

	if ((rc = kv_tensor_expect(x->k, KVK_N_TYPES, "kv_head token dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(x->v, x->k->type, "kv_head token dim", shape, e)) < 0 ||
	    (rc = take_heads(x, c->Hkv, e)) < 0)
		return rc;
	for (size_t g = 0; g <= c->Hkv; g++)
		x->offset[g] = g * seq->T;
	x->next_position = seq->T;
	return KV_OK;
}

/* One number per head and one behind the last: says how many heads there are. */
static int
read_offset(struct kv_layer_cache *x, const struct kv_tensor *offset, const struct kv_config *c, size_t entries,
    struct kv_err *e)
{
	const int32_t *o = offset->data;
	size_t any = KV_ANY, H;
	int rc;

	if ((rc = kv_tensor_expect(offset, KVK_I32, "bound", &any, e)) < 0)
		return rc;
	H = offset->shape[0] > 0 ? offset->shape[0] - 1 : 0;
	if (!kv_cache_fits(c, H))
		return kv_fail(e, KV_ESHAPE,
		    "offset has %zu bounds, expected %zu (a head of entries per KV head) or %zu "
		    "(per query head)",
		    offset->shape[0], c->Hkv + 1, c->Hq + 1);
	if ((rc = take_heads(x, H, e)) < 0)
		return rc;
	for (size_t h = 0; h <= H; h++) {
		if (o[h] < (h > 0 ? o[h - 1] : 0) || (h == 0 && o[0] != 0))
			return kv_fail(
			    e, KV_EFORMAT, "offset %zu is %d, expected 0 and then ascending numbers", h, (int)o[h]);
		x->offset[h] = (size_t)o[h];
	}
	if (x->offset[H] != entries)
		return kv_fail(e, KV_ESHAPE, "offset ends at %zu, k has %zu entries", x->offset[H], entries);
	return KV_OK;
}

/* The true positions of the entries: those of the prompt, which renumbered ones have left. */
static int
check_index(const struct kv_layer_cache *x, const struct kv_tensor *index, size_t T, struct kv_err *e)
{
	const bool renumbered = json_is_true(json_object_get(index->attrs, "renumbered"));
	const size_t end = renumbered ? T : x->next_position;
	const int32_t *p = index->data;

	for (size_t h = 0; h < x->H; h++) {
		if (renumbered && x->offset[h + 1] - x->offset[h] != x->next_position)
			return kv_fail(e, KV_EFORMAT,
			    "head %zu has %zu renumbered entries, and the next position is %zu", h,
			    x->offset[h + 1] - x->offset[h], x->next_position);
		for (size_t i = x->offset[h]; i < x->offset[h + 1]; i++)
			if (p[i] < 0 || (size_t)p[i] >= end || (i > x->offset[h] && p[i] <= p[i - 1]))
				return kv_fail(e, KV_EFORMAT,
				    "index of head %zu: %d is no ascending position below %zu", h, (int)p[i], end);
	}
	return KV_OK;
}

static int
read_evicted(struct kv_layer_cache *x, const struct kv_step *s, const struct kv_config *c, struct kv_err *e)
{
	const struct kv_tensor *index = kv_step_find(s, "index"), *offset = kv_step_find(s, "offset");
	size_t entries = x->k->shape[0], shape[2] = { entries, c->D };
	const json_t *next;
	int rc;

	if (index == NULL || offset == NULL)
		return kv_fail(
		    e, KV_EFORMAT, "%s is missing beside k: where do the entries belong?", index ? "offset" : "index");
	if ((rc = kv_tensor_expect(x->k, KVK_N_TYPES, "entry dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(x->v, x->k->type, "entry dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(index, KVK_I32, "entry", &entries, e)) < 0)
		return rc;
	next = json_object_get(index->attrs, "next_position");
	if (!json_is_integer(next) || json_integer_value(next) < 0 || json_integer_value(next) > INT32_MAX)
		return kv_fail(e, KV_EFORMAT, "index does not say its next_position");
	x->next_position = (size_t)json_integer_value(next);
	x->evicted = true;
	if ((rc = read_offset(x, offset, c, entries, e)) < 0)
		return rc;
	return check_index(x, index, s->seq->T, e);
}

int
kv_layer_cache_read(struct kv_layer_cache *x, const struct kv_step *s, const struct kv_config *c,
    const struct kv_device *d, struct kv_err *e)
{
	int rc;

	*x = (struct kv_layer_cache){ .k = kv_step_find(s, "k"), .v = kv_step_find(s, "v"), .d = d };
	if (x->k == NULL || x->v == NULL)
		return kv_fail(e, KV_EFORMAT, "no %s: kv-prefill writes it, --only or --drop may have left it out",
		    x->k ? "v" : "k");
	rc = x->k->n_axes == 2 ? read_evicted(x, s, c, e) : read_whole(x, s->seq, c, e);
	if (rc == KV_OK && (rc = view(d, x->k, &x->k_on_device, e)) == KV_OK)
		rc = view(d, x->v, &x->v_on_device, e);
	if (rc < 0)
		kv_layer_cache_fini(x);
	return rc;
}

void
kv_layer_cache_fini(struct kv_layer_cache *x)
{
	if (x->k_on_device != NULL)
		kv_device_unview_tensor(x->d, x->k, x->k_on_device);
	if (x->v_on_device != NULL)
		kv_device_unview_tensor(x->d, x->v, x->v_on_device);
	free(x->offset);
	*x = (struct kv_layer_cache){ 0 };
}
