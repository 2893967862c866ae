/* SPDX-License-Identifier: MIT */
#include "formats/layer_cache.h"

#include <stdlib.h>

/* The exponent is all ones in what is infinite or no number. */
static bool
all_finite(const struct kv_tensor *t)
{
	size_t n = kv_tensor_n(t);
	const uint16_t *h = t->data;
	const uint32_t *f = t->data;
	uint32_t mask = t->type == KVK_F32 ? 0x7f800000 : t->type == KVK_F16 ? 0x7c00 : 0x7f80;

	if (t->type == KVK_F32) {
		for (size_t i = 0; i < n; i++)
			if ((f[i] & mask) == mask)
				return false;
	} else {
		for (size_t i = 0; i < n; i++)
			if ((h[i] & mask) == mask)
				return false;
	}
	return true;
}

static int
expect_finite(const struct kv_tensor *t, struct kv_err *e)
{
	if (all_finite(t))
		return KV_OK;
	return kv_fail(e, KV_EFAIL,
	    "%s has values that are not finite: too large for %s? kv-prefill --dtype bf16 has the range of f32",
	    t->name, t->type_name);
}

/* Head after head of the same length T. */
static int
read_whole(struct kv_layer_cache *x, const struct kv_sequence *seq, const struct kv_config *c, struct kv_err *e)
{
	size_t shape[3] = { c->Hkv, seq->T, c->D };
	int rc;

	if ((rc = kv_tensor_expect(x->k, KVK_N_TYPES, "kv_head token dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(x->v, x->k->type, "kv_head token dim", shape, e)) < 0)
		return rc;
	for (size_t g = 0; g <= c->Hkv; g++)
		x->offset[g] = g * seq->T;
	x->next_position = seq->T;
	return KV_OK;
}

static int
read_offset(struct kv_layer_cache *x, const struct kv_tensor *offset, size_t Hkv, size_t entries, struct kv_err *e)
{
	const int32_t *o = offset->data;

	for (size_t g = 0; g <= Hkv; g++) {
		if (o[g] < (g > 0 ? o[g - 1] : 0) || (g == 0 && o[0] != 0))
			return kv_fail(
			    e, KV_EFORMAT, "offset %zu is %d, expected 0 and then ascending numbers", g, (int)o[g]);
		x->offset[g] = (size_t)o[g];
	}
	if (x->offset[Hkv] != entries)
		return kv_fail(e, KV_ESHAPE, "offset ends at %zu, k has %zu entries", x->offset[Hkv], entries);
	return KV_OK;
}

static int
check_index(const struct kv_layer_cache *x, const struct kv_tensor *index, size_t Hkv, struct kv_err *e)
{
	const int32_t *p = index->data;

	for (size_t g = 0; g < Hkv; g++)
		for (size_t i = x->offset[g]; i < x->offset[g + 1]; i++)
			if (p[i] < 0 || (size_t)p[i] >= x->next_position || (i > x->offset[g] && p[i] <= p[i - 1]))
				return kv_fail(e, KV_EFORMAT,
				    "index of head %zu: %d is no ascending position below %zu", g, (int)p[i],
				    x->next_position);
	return KV_OK;
}

static int
read_evicted(struct kv_layer_cache *x, const struct kv_step *s, const struct kv_config *c, struct kv_err *e)
{
	const struct kv_tensor *index = kv_step_find(s, "index"), *offset = kv_step_find(s, "offset");
	size_t entries = x->k->shape[0], bounds = c->Hkv + 1, shape[2] = { entries, c->D };
	const json_t *next;
	int rc;

	if (index == NULL || offset == NULL)
		return kv_fail(
		    e, KV_EFORMAT, "%s is missing beside k: where do the entries belong?", index ? "offset" : "index");
	if ((rc = kv_tensor_expect(x->k, KVK_N_TYPES, "entry dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(x->v, x->k->type, "entry dim", shape, e)) < 0 ||
	    (rc = kv_tensor_expect(index, KVK_I32, "entry", &entries, e)) < 0 ||
	    (rc = kv_tensor_expect(offset, KVK_I32, "bound", &bounds, e)) < 0)
		return rc;
	next = json_object_get(index->attrs, "next_position");
	if (!json_is_integer(next) || json_integer_value(next) < 0 || json_integer_value(next) > INT32_MAX)
		return kv_fail(e, KV_EFORMAT, "index does not say its next_position");
	x->next_position = (size_t)json_integer_value(next);
	x->evicted = true;
	if ((rc = read_offset(x, offset, c->Hkv, entries, e)) < 0)
		return rc;
	return check_index(x, index, c->Hkv, e);
}

int
kv_layer_cache_read(struct kv_layer_cache *x, const struct kv_step *s, const struct kv_config *c, struct kv_err *e)
{
	int rc;

	*x = (struct kv_layer_cache){ .k = kv_step_find(s, "k"), .v = kv_step_find(s, "v") };
	if (x->k == NULL || x->v == NULL)
		return kv_fail(e, KV_EFORMAT, "no %s: kv-prefill writes it, --only or --drop may have left it out",
		    x->k ? "v" : "k");
	if ((x->offset = kv_alloc(c->Hkv + 1, sizeof *x->offset, e)) == NULL)
		return KV_EMEM;
	rc = x->k->n_axes == 2 ? read_evicted(x, s, c, e) : read_whole(x, s->seq, c, e);
	if (rc == KV_OK && (rc = expect_finite(x->k, e)) == KV_OK)
		rc = expect_finite(x->v, e);
	if (rc < 0)
		kv_layer_cache_fini(x);
	return rc;
}

void
kv_layer_cache_fini(struct kv_layer_cache *x)
{
	free(x->offset);
	*x = (struct kv_layer_cache){ 0 };
}
