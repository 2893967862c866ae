/* SPDX-License-Identifier: MIT
 * shuffled: the scores that are in the stream, each head's at random positions (METHODS 2.14).  A negative control: a
 * method is worth what it does better than its own numbers in a wrong order.  Pooling and protection stay. */
#include <string.h>

#include "lib/hash.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_seed, "0" },
	{ 0 },
};

static int
size(const struct kv_layer *l, const struct kv_params *p, size_t *H, size_t *n, struct kv_err *e)
{
	struct kv_score_attrs a;
	const struct kv_tensor *t;

	return kv_score_earlier(l, p->method->name, &t, &a, H, n, e);
}

/* Fisher and Yates: what goes to the place i, from the last on, is drawn from the first i + 1. */
static void
shuffle(float *s, size_t n, uint64_t seed, size_t layer, size_t h)
{
	for (size_t i = n; i-- > 1;) {
		const size_t j = kv_hash_slot(seed, layer, h, i) % (i + 1);
		const float x = s[i];

		s[i] = s[j];
		s[j] = x;
	}
}

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_tensor *t;
	struct kv_score_attrs a;
	size_t H, n;
	int rc;

	if ((rc = kv_score_earlier(l, p->method->name, &t, &a, &H, &n, e)) < 0)
		return rc;
	if (t->bytes > 0)
		memcpy(out->s, t->data, t->bytes);
	for (size_t h = 0; h < H; h++)
		shuffle(out->s + h * n, n, kv_seed(p, &kv_param_seed), (size_t)l->layer, h);
	json_object_set_new(out->attrs, "of", json_string(a.method));
	snprintf(a.method, sizeof a.method, "%s", p->method->name);
	return kv_score_attrs_to_json(&a, out->attrs, e);
}

const struct kv_score_method kv_score_shuffled = {
	.about = {
	    .name = "shuffled",
	    .brief = "the scores in the stream, at random positions (a control)",
	    .takes = takes,
	},
	.needs = "score",
	.size = size,
	.run = run,
};
