/* SPDX-License-Identifier: MIT
 * kv-score: adds a tensor `score` to every layer. */
#include "bin/filter.h"
#include "lib/score/score.h"

static const char *layers;

static const struct kv_opt opts[] = {
	{ "layers", 0, KV_STRING, &layers, "A-B", "score only these layers, the first is 0; the others pass", 0, 0,
	    NULL },
	{ 0 },
};

static const struct kv_method *
methods(size_t i)
{
	return kv_score_list[i] != NULL ? &kv_score_list[i]->about : NULL;
}

static const struct kv_tool tool = {
	.name = "kv-score",
	.usage = "METHOD [options] [FILE...]",
	.brief = "score every prompt token, per KV head",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE,
	.methods = methods,
};

static int
score(void *ctx, struct kv_layer *l, size_t n, struct kv_err *e)
{
	(void)ctx;
	(void)n;
	return kv_score_layer(l, &kv_common.params, e);
}

int
main(int argc, char **argv)
{
	struct kv_filter f = { .keeps = "q,k,v", .on_device = "q,k,v,q.*,k.*", .run = score };
	char uses[KV_USES_MAX];

	kv_options(argc, argv, &tool);
	f.uses = kv_score_uses(kv_score_find(kv_common.params.method->name), uses);
	f.layers = layers;
	return kv_filter(argv + 2, &f);
}
