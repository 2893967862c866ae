/* SPDX-License-Identifier: MIT
 * The table of scoring methods, and the step that every program runs for one layer. */
#include "lib/score/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"

#define BLOCK 16 /* scores */

const struct kv_score_method *const kv_score_list[] = {
	&kv_score_snapkv,
	&kv_score_tova,
	&kv_score_h2o,
	&kv_score_observed,
	&kv_score_nacl,
	&kv_score_cake,
	&kv_score_lookahead,
	&kv_score_truth,
	&kv_score_laq,
	&kv_score_speckv,
	&kv_score_streaming,
	&kv_score_knorm,
	&kv_score_keydiff,
	&kv_score_expected_attention,
	&kv_score_random,
	&kv_score_first_k,
	&kv_score_shuffled,
	&kv_score_inverted,
	&kv_score_combine,
	NULL,
};

const struct kv_score_method *
kv_score_find(const char *name)
{
	for (const struct kv_score_method *const *m = kv_score_list; *m != NULL; m++)
		if (strcmp((*m)->about.name, name) == 0)
			return *m;
	return NULL;
}

const char *
kv_score_uses(const struct kv_score_method *m, char text[KV_USES_MAX])
{
	snprintf(text, KV_USES_MAX, "score%s%s%s%s", m->needs != NULL ? "," : "", m->needs != NULL ? m->needs : "",
	    m->looks != NULL ? "," : "", m->looks != NULL ? m->looks : "");
	return text;
}

/* ---- for rows */

size_t
kv_columns_history(const struct kv_params *p, size_t T)
{
	const size_t W = kv_window(p);

	return T > W ? T - W : 0;
}

size_t
kv_columns_none(const struct kv_params *p, size_t T)
{
	(void)p;
	(void)T;
	return 0;
}

struct kv_queries
kv_queries_window(const struct kv_params *p)
{
	return kv_queries_of(kv_window(p));
}

struct kv_queries
kv_queries_last(const struct kv_params *p)
{
	(void)p;
	return kv_queries_of(1);
}

struct kv_queries
kv_queries_all(const struct kv_params *p)
{
	(void)p;
	return kv_queries_of(KV_ALL);
}

bool
kv_score_wants_response(const struct kv_score_method *m)
{
	return m->needs != NULL && strstr(m->needs, "k.response") != NULL;
}

bool
kv_score_wants_lookahead(const struct kv_score_method *m)
{
	return m->needs != NULL && strstr(m->needs, "k.lookahead") != NULL;
}

struct kv_queries
kv_score_queries(const struct kv_score_method *m, const struct kv_params *p)
{
	return m->queries != NULL ? m->queries(p) : kv_queries_of(0);
}

/* ---- protection */

void
kv_protection_resolve(struct kv_protection *p, size_t C)
{
	if (p->recent_share >= 0)
		p->n_recent = C > p->n_sink ? (size_t)floor(p->recent_share * (double)(C - p->n_sink)) : 0;
	p->recent_share = -1;
}

/* A count of tokens that may be "all". */
static size_t
capped(size_t n)
{
	return (double)n > KV_COUNT_MAX ? (size_t)KV_COUNT_MAX : n;
}

static struct kv_protection
protection(const struct kv_score_method *m, const struct kv_params *p, size_t T)
{
	struct kv_protection x = { .recent_share = -1 };
	size_t recent = kv_takes(p, &kv_param_recent) ? kv_count(p, &kv_param_recent) : KV_UNSET;

	if (kv_takes(p, &kv_param_sink) && kv_count(p, &kv_param_sink) != KV_UNSET)
		x.n_sink = capped(kv_count(p, &kv_param_sink));
	if (kv_takes(p, &kv_param_recent_share) && !kv_given(p, &kv_param_recent))
		x.recent_share = kv_number(p, &kv_param_recent_share);
	else if (recent != KV_UNSET)
		x.n_recent = capped(recent == KV_WINDOW ? kv_window(p) : recent);
	if (m->protect != NULL)
		m->protect(p, T, &x);
	return x;
}

/* ---- one layer */

/* The tensor with the room for its scores, and attrs an empty object. */
static int
prepare(const struct kv_layer *l, const struct kv_score_method *m, const struct kv_params *p, struct kv_tensor *score,
    struct kv_raw *raw, struct kv_err *e)
{
	bool per_query = kv_takes(p, &kv_param_granularity) && kv_is(p, &kv_param_granularity, "head");
	const struct kv_queries q = kv_score_queries(m, p);
	size_t shape[2];
	int rc;

	if (l->cfg->Hkv == 0 || l->cfg->Hq % l->cfg->Hkv != 0)
		return kv_fail(
		    e, KV_ESHAPE, "%zu query heads cannot share %zu KV heads", l->cfg->Hq, l->cfg->Hkv);
	if ((rc = kv_layer_needs(l, m->about.name, m->needs, &q, e)) < 0)
		return rc;
	raw->H = per_query ? l->cfg->Hq : l->cfg->Hkv;
	raw->n = m->columns != NULL ? m->columns(p, l->T) : l->T;
	if (m->size != NULL && (rc = m->size(l, p, &raw->H, &raw->n, e)) < 0)
		return rc;
	per_query = per_query || raw->H != l->cfg->Hkv;
	shape[0] = raw->H;
	shape[1] = raw->n;
	if ((rc = kv_tensor_new(
		 score, "score", l->layer, KVK_F32, per_query ? "head token" : "kv_head token", shape, e)) < 0)
		return rc;
	raw->s = score->owned;
	raw->attrs = score->attrs = json_object();
	return raw->attrs != NULL ? KV_OK : kv_no_memory(e, sizeof *raw);
}

static int
describe(const struct kv_layer *l, const struct kv_score_method *m, const struct kv_params *p, json_t *attrs,
    struct kv_err *e)
{
	struct kv_score_attrs a = { .pool = kv_pool(p), .pool_width = 1, .n_tokens = l->T };
	int rc;

	if (a.pool != KVK_POOL_NONE)
		a.pool_width = kv_count(p, &kv_param_pool_width);
	a.protect = protection(m, p, l->T);
	snprintf(a.method, sizeof a.method, "%s", m->about.name);
	rc = kv_score_attrs_to_json(&a, attrs, e);
	return rc < 0 ? rc : kv_params_describe(p, attrs, e);
}

/* -0 becomes +0.  The inner loop's length is known, so that it becomes vectors. */
static void
make_zeros_positive(float *s, size_t n)
{
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK)
		for (size_t j = 0; j < BLOCK; j++)
			s[i + j] += 0.0f;
	for (; i < n; i++)
		s[i] += 0.0f;
}

int
kv_score_layer(const struct kv_layer *l, const struct kv_params *p, struct kv_err *e)
{
	const struct kv_score_method *m = (const struct kv_score_method *)p->method; /* `about` is its first member */
	struct kv_tensor score = { 0 };
	struct kv_raw raw = { 0 };
	int rc;

	if ((rc = prepare(l, m, p, &score, &raw, e)) < 0 || (rc = m->run(l, p, &raw, e)) < 0 ||
	    (rc = describe(l, m, p, score.attrs, e)) < 0)
		goto done;
	make_zeros_positive(raw.s, raw.H * raw.n);
	rc = kv_step_put(l->step, &score, e);
done:
	kv_tensor_fini(&score);
	return rc;
}

int
kv_pooled_on_device(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n,
    float *pooled, struct kv_err *e)
{
	return kv_device_check(d, d->op->pool(d->dev, raw, H, n, a->pool, a->pool_width, pooled), "pool", e);
}

int
kv_pooled(struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n, float *pooled,
    struct kv_err *e)
{
	const void *x = NULL;
	float *y = NULL;
	size_t count;
	int rc;

	if (!kv_mul(H, n, &count))
		return kv_fail(e, KV_ESHAPE, "score: %zu heads of %zu tokens are too many", H, n);
	if (count == 0)
		return KV_OK;
	if (a->pool == KVK_POOL_NONE) {
		memcpy(pooled, raw, count * sizeof *raw);
		return KV_OK;
	}
	if ((rc = kv_device_ready(d, "pool", e)) < 0)
		return rc;
	rc = KV_EMEM;
	if ((y = kv_device_alloc(d, count, sizeof *y, e)) == NULL ||
	    (x = kv_device_view(d, raw, count * sizeof *raw, e)) == NULL)
		goto done;
	rc = kv_pooled_on_device(d, a, x, H, n, y, e);
	if (rc == KV_OK)
		rc = kv_device_get(d, pooled, y, count * sizeof *y, "pool", e);
done:
	kv_device_unview(d, x);
	kv_device_free(d, y);
	return rc;
}
