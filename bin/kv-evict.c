/* SPDX-License-Identifier: MIT
 * kv-evict: replaces k and v of every layer by the entries that stay, and adds `index` and `offset`. */
#include <string.h>

#include "bin/filter.h"
#include "lib/evict/evict.h"

static const char *tie = "raw";

static const struct kv_opt opts[] = {
	{ "tie", 0, KV_STRING, &tie, "RULE", "equal pooled scores: higher raw score first, or lower position", 0, 0,
	    "raw|position" },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "kv-evict",
	.usage = "[options] [FILE...]",
	.brief = "keep the best entries of every head, within its budget",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE,
};

static int
evict(void *ctx, struct kv_layer *l, size_t n, struct kv_err *e)
{
	size_t n_nan;
	int rc = kv_evict_layer(l, ctx, &n_nan, e);

	(void)n;
	if (rc == KV_OK && n_nan > 0)
		kv_warn("sequence %zu, layer %d: %zu scores are not numbers, they rank last", l->step->seq->number,
		    l->layer, n_nan);
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_evicting how = { KV_TIE_RAW };
	const struct kv_filter f = { .uses = "k,v,score,budget,protect", .run = evict, .ctx = &how };

	kv_options(argc, argv, &tool);
	how.tie = strcmp(tie, "position") == 0 ? KV_TIE_POSITION : KV_TIE_RAW;
	return kv_filter(argv + 1, &f);
}
