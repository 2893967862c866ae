/* SPDX-License-Identifier: MIT
 * inverted: minus what the scores in the stream rank by (METHODS 2.14), so that what was last comes first.  A negative
 * control.  The earlier pooling is part of the ranking: it is done here, and nothing is pooled later.  Protection
 * stays. */
#include "lib/score/score.h"

static int
size(const struct kv_layer *l, const struct kv_params *p, size_t *H, size_t *n, struct kv_err *e)
{
	struct kv_score_attrs a;
	const struct kv_tensor *t;

	return kv_score_earlier(l, p->method->name, &t, &a, H, n, e);
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_tensor *t;
	struct kv_score_attrs a;
	size_t H, n;
	int rc;

	if ((rc = kv_score_earlier(l, p->method->name, &t, &a, &H, &n, e)) < 0 ||
	    (rc = kv_pooled(l->device, &a, t->data, H, n, out->s, e)) < 0)
		return rc;
	for (size_t i = 0; i < H * n; i++)
		out->s[i] = -out->s[i];
	json_object_set_new(out->attrs, "of", json_string(a.method));
	snprintf(a.method, sizeof a.method, "%s", p->method->name);
	a.pool = KVK_POOL_NONE;
	a.pool_width = 1;
	return kv_score_attrs_to_json(&a, out->attrs, e);
}

const struct kv_score_method kv_score_inverted = {
	.about = {
	    .name = "inverted",
	    .brief = "minus the scores in the stream: the worst stay (a control)",
	},
	.needs = "score",
	.size = size,
	.run = run,
};
