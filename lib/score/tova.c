/* SPDX-License-Identifier: MIT
 * tova: attention of the last prompt token, averaged over all heads, so that all heads of a layer keep the same set
 * (METHODS 2.7, arXiv:2401.06104).  Protects that token, which the original lets compete. */
#include <string.h>

#include "lib/attention.h"
#include "lib/score/score.h"

static const struct kv_takes takes[] = {
	{ &kv_param_pool, "none" },
	{ &kv_param_pool_width, "7" },
	{ &kv_param_sink, "0" },
	{ &kv_param_recent, "1" },
	{ 0 },
};

static int
run(const struct kv_layer *l, const struct kv_params *p, struct kv_raw *out, struct kv_err *e)
{
	const struct kv_attention a = { .window = 1, .rows = KVK_MEAN, .heads = KVK_MEAN };
	int rc = kv_attention(l, p->method->name, &a, 1, out->n, out->s, e);

	for (size_t h = 1; rc == KV_OK && h < out->H && out->n > 0; h++)
		memcpy(out->s + h * out->n, out->s, out->n * sizeof *out->s);
	json_object_set_new(out->attrs, "gqa", json_string("all"));
	return rc;
}

const struct kv_score_method kv_score_tova = {
	.about = {
	    .name = "tova",
	    .brief = "attention of the last prompt token, averaged over all heads of the layer",
	    .paper = "arXiv:2401.06104",
	    .takes = takes,
	},
	.needs = "k,q",
	.queries = kv_queries_last,
	.run = run,
};
