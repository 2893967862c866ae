/* SPDX-License-Identifier: MIT
 * A score tensor's attributes: text on one side, typed values on the other. */
#include "lib/score/score.h"

#include <stdio.h>
#include <string.h>

/* value: a new reference; takes it. */
static int
set(json_t *o, const char *key, json_t *value, struct kv_err *e)
{
	if (json_object_get(o, key) != NULL) {
		json_decref(value);
		return KV_OK;
	}
	return json_object_set_new(o, key, value) < 0 ? kv_no_memory(e, sizeof *o) : KV_OK;
}

int
kv_score_attrs_to_json(const struct kv_score_attrs *a, json_t *o, struct kv_err *e)
{
	const bool by_share = a->protect.recent_share >= 0 && json_object_get(o, "n_recent") == NULL;
	int rc;

	if ((rc = set(o, "method", json_string(a->method), e)) < 0 ||
	    (rc = set(o, "pool", json_string(kv_pool_name(a->pool)), e)) < 0 ||
	    (rc = set(o, "pool_width", json_integer((json_int_t)a->pool_width), e)) < 0 ||
	    (rc = set(o, "n_sink", json_integer((json_int_t)a->protect.n_sink), e)) < 0)
		return rc;
	if (by_share)
		rc = set(o, "recent_share", json_real(a->protect.recent_share), e);
	else
		rc = set(o, "n_recent", json_integer((json_int_t)a->protect.n_recent), e);
	return rc < 0 ? rc : set(o, "n_tokens", json_integer((json_int_t)a->n_tokens), e);
}

static int
get_count(const json_t *o, const char *key, size_t *to, struct kv_err *e)
{
	const json_t *x = json_object_get(o, key);
	json_int_t v = json_integer_value(x);

	if (!json_is_integer(x) || v < 0 || (double)v > KV_COUNT_MAX)
		return kv_fail(e, KV_EFORMAT, "score: attribute %s %s: run kv-score again", key,
		    x == NULL ? "is missing" : "is not a number of tokens");
	*to = (size_t)v;
	return KV_OK;
}

static int
get_text(const json_t *o, const char *key, const char **to, struct kv_err *e)
{
	const json_t *x = json_object_get(o, key);

	if ((*to = json_string_value(x)) == NULL)
		return kv_fail(e, KV_EFORMAT, "score: attribute %s %s: run kv-score again", key,
		    x == NULL ? "is missing" : "is not text");
	return KV_OK;
}

static int
get_protection(const json_t *o, struct kv_protection *p, struct kv_err *e)
{
	const json_t *share = json_object_get(o, "recent_share");
	int rc;

	p->recent_share = -1;
	if ((rc = get_count(o, "n_sink", &p->n_sink, e)) < 0)
		return rc;
	if (share == NULL)
		return get_count(o, "n_recent", &p->n_recent, e);
	p->recent_share = json_number_value(share);
	if (!json_is_number(share) || !(p->recent_share >= 0 && p->recent_share <= 1))
		return kv_fail(e, KV_EFORMAT, "score: attribute recent_share is no share from 0 to 1");
	return KV_OK;
}

int
kv_score_attrs_from_json(struct kv_score_attrs *a, const json_t *o, struct kv_err *e)
{
	const char *method, *pool;
	int rc, kind;

	*a = (struct kv_score_attrs){ 0 };
	if ((rc = get_text(o, "method", &method, e)) < 0 || (rc = get_text(o, "pool", &pool, e)) < 0 ||
	    (rc = get_count(o, "pool_width", &a->pool_width, e)) < 0 || (rc = get_protection(o, &a->protect, e)) < 0 ||
	    (rc = get_count(o, "n_tokens", &a->n_tokens, e)) < 0)
		return rc;
	if ((kind = kv_pool_find(pool)) < 0)
		return kv_fail(e, KV_EFORMAT, "score: pooling '%s' is unknown to this version (max, avg, none)", pool);
	if (a->pool_width % 2 == 0)
		return kv_fail(e, KV_EFORMAT, "score: pool_width %zu is not odd", a->pool_width);
	a->pool = (enum kvk_pool)kind;
	snprintf(a->method, sizeof a->method, "%s", method);
	return KV_OK;
}

int
kv_score_read(const struct kv_tensor *score, size_t Hkv, size_t T, struct kv_score_attrs *a, size_t *H, size_t *n,
    struct kv_err *e)
{
	const size_t shape[] = { KV_ANY, KV_ANY };
	const bool per_query = score->n_axes == 2 && strcmp(score->axis[0], "head") == 0;
	int rc;

	if ((rc = kv_tensor_expect(score, KVK_F32, per_query ? "head token" : "kv_head token", shape, e)) < 0 ||
	    (rc = kv_score_attrs_from_json(a, score->attrs, e)) < 0)
		return rc;
	*H = score->shape[0];
	*n = score->shape[1];
	if (*H == 0 || Hkv == 0 || (per_query ? *H % Hkv != 0 : *H != Hkv))
		return kv_fail(e, KV_ESHAPE, "score: %zu heads, expected %zu%s", *H, Hkv,
		    per_query ? " or a multiple" : "");
	if (a->n_tokens != T || *n > T)
		return kv_fail(e, KV_ESHAPE, "score: %zu columns made for a prompt of %zu tokens, this one has %zu", *n,
		    a->n_tokens, T);
	return KV_OK;
}

int
kv_score_earlier(const struct kv_layer *l, const char *who, const struct kv_tensor **t, struct kv_score_attrs *a,
    size_t *H, size_t *n, struct kv_err *e)
{
	int rc = kv_layer_need(l, who, "score", NULL, t, e);

	return rc < 0 ? rc : kv_score_read(*t, l->cfg->Hkv, l->T, a, H, n, e);
}
