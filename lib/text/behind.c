/* SPDX-License-Identifier: MIT */
#include "lib/text/behind.h"

int
kv_behind_text(const struct kv_behind *b, const char *text, size_t bytes, struct kv_ids *ids, struct kv_err *e)
{
	struct kv_ids all = { 0 };
	size_t known = b->n_before > 0 ? 1 : 0; /* how a text begins depends on the token before it alone */
	int rc = KV_OK;

	if (b->tokenizer == NULL)
		return kv_fail(e, KV_EMODEL, "the model has no vocabulary; give token ids instead of text");
	if (known > 0)
		rc = kv_ids_add(&all, b->before[b->n_before - 1], e);
	if (rc == KV_OK)
		rc = kv_encode(b->tokenizer, text, bytes, b->flags, &all, e);
	for (size_t i = known; i < all.n && rc == KV_OK; i++)
		rc = kv_ids_add(ids, all.v[i], e);
	kv_ids_fini(&all);
	return rc;
}

int
kv_behind_field(const struct kv_behind *b, const json_t *object, const char *name, struct kv_ids *ids, struct kv_err *e)
{
	const json_t *v = json_object_get(object, name);
	struct kv_ids given = { 0 };
	int rc;

	if (json_is_string(v))
		return kv_behind_text(b, json_string_value(v), json_string_length(v), ids, e);
	if (!json_is_array(v))
		return kv_fail(e, KV_EARG, "field '%s' is %s", name,
		    v == NULL ? "missing" : "neither text nor a list of token ids");
	if ((rc = kv_ids_from_json(&given, v, e)) == KV_OK)
		rc = kv_ids_check(&given, b->vocab, b->n_before, e);
	for (size_t i = 0; i < given.n && rc == KV_OK; i++)
		rc = kv_ids_add(ids, given.v[i], e);
	kv_ids_fini(&given);
	return rc < 0 ? kv_where(e, "field '%s'", name) : rc;
}
