/* SPDX-License-Identifier: MIT
 * kv-evict: replaces k and v of every layer by the entries that stay, and adds `index` and `offset`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bin/filter.h"
#include "lib/evict/evict.h"

#define BOUND 1e300 /* of a threshold: beyond any score */

static struct {
	const char *tie, *unit;
	bool uniform_heads, renumber;
	size_t chunk, sink, recent;
	double threshold, share;
	struct kv_strings skip;
} o = { .tie = "raw", .unit = "mean", .sink = KV_UNSET, .recent = KV_UNSET, .threshold = INFINITY, .share = INFINITY };

static const struct kv_opt opts[] = {
	{ "tie", 0, KV_STRING, &o.tie, "RULE", "equal pooled scores: higher raw score first, or lower position", 0, 0,
	    "raw|position" },
	{ "uniform-heads", 0, KV_FLAG, &o.uniform_heads, NULL, "one set per layer, by the mean of its heads' scores", 0,
	    0, NULL },
	{ "chunk", 0, KV_SIZE, &o.chunk, "TOKENS",
	    "rank units of so many tokens instead of single ones; 0: single ones", 0, KV_COUNT_MAX, NULL },
	{ "chunk-score", 0, KV_STRING, &o.unit, "HOW", "a unit's score from those of its tokens", 0, 0,
	    "mean|sum|max" },
	{ "threshold", 0, KV_DOUBLE, &o.threshold, "X", "keep no unprotected token with a score below X", -BOUND, BOUND,
	    NULL },
	{ "threshold-share", 0, KV_DOUBLE, &o.share, "P",
	    "stop where a head's kept tokens have this share of its scores", 0, 1, NULL },
	{ "sink", 0, KV_SIZE, &o.sink, "TOKENS", "protect so many first tokens, whatever the budget says", 0,
	    KV_COUNT_MAX, NULL },
	{ "recent", 0, KV_SIZE, &o.recent, "TOKENS", "protect so many last tokens, whatever the budget says", 0,
	    KV_COUNT_MAX, NULL },
	{ "skip-layers", 0, KV_LIST, &o.skip, "A-B", "layers that keep everything; may be given several times", 0, 0,
	    NULL },
	{ "renumber", 0, KV_FLAG, &o.renumber, NULL, "move what stays to positions 0, 1, ...: turn its keys", 0, 0,
	    NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "kv-evict",
	.usage = "[options] [FILE...]",
	.brief = "keep the best entries of every head, within its budget",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE,
};

struct run {
	struct kv_evicting how;
	struct kv_layers *skip;
	/* of the sequence that is being renumbered */
	size_t sequence, first_layer;
	json_int_t next_position; /* -1: no layer yet */
};

static void
understand(struct run *r)
{
	struct kv_evicting *how = &r->how;
	struct kv_err e = { 0 };

	how->tie = strcmp(o.tie, "position") == 0 ? KV_TIE_POSITION : KV_TIE_RAW;
	how->rules.uniform_heads = o.uniform_heads;
	how->rules.chunk = o.chunk;
	how->rules.unit = (enum kvk_reduce)kv_reduce_find(o.unit);
	how->rules.by_score = o.threshold <= BOUND;
	how->rules.least = o.threshold;
	how->rules.share = o.share <= 1 ? o.share : 0;
	how->sink = (struct kv_count_option){ o.sink < KV_UNSET, o.sink };
	how->recent = (struct kv_count_option){ o.recent < KV_UNSET, o.recent };
	how->renumber = o.renumber;
	if (o.share == 0)
		kv_usage(&tool,
		    "--threshold-share 0 would keep nothing but what is protected: give -b to kv-budget instead");
	if ((r->skip = kv_alloc(o.skip.n + 1, sizeof *r->skip, &e)) == NULL)
		exit(kv_report(e.code, &e));
	for (size_t i = 0; i < o.skip.n; i++)
		if (kv_layers_parse(&r->skip[i], o.skip.v[i], &e) < 0)
			kv_usage(&tool, "--skip-layers: %s", e.text);
	how->skip = r->skip;
	how->n_skip = o.skip.n;
}

static int
check_skip(const struct run *r, const struct kv_config *cfg, struct kv_err *e)
{
	for (size_t i = 0; i < o.skip.n; i++)
		if (r->skip[i].first >= cfg->L || (r->skip[i].last != SIZE_MAX && r->skip[i].last >= cfg->L))
			return kv_fail(
			    e, KV_EARG, "--skip-layers %s: the model has layers 0 to %zu", o.skip.v[i], cfg->L - 1);
	return KV_OK;
}

/* A token has one position, the same in all layers. */
static int
check_renumbered(struct run *r, const struct kv_layer *l, struct kv_err *e)
{
	const struct kv_tensor *index = kv_step_find(l->step, "index");
	const json_int_t next = json_integer_value(json_object_get(index->attrs, "next_position"));

	if (r->next_position < 0 || r->sequence != l->step->seq->number) {
		r->next_position = next;
		r->sequence = l->step->seq->number;
		r->first_layer = (size_t)l->layer;
	}
	if (next == r->next_position)
		return KV_OK;
	return kv_fail(e, KV_ESHAPE,
	    "the heads of this layer keep %lld entries each, those of layer %zu %lld: with --renumber all layers "
	    "must keep equally many, or the next token has no position",
	    (long long)next, r->first_layer, (long long)r->next_position);
}

static int
evict(void *ctx, struct kv_layer *l, size_t n, struct kv_err *e)
{
	struct run *r = ctx;
	size_t n_nan;
	int rc;

	(void)n;
	if ((rc = check_skip(r, l->cfg, e)) < 0 || (rc = kv_evict_layer(l, &r->how, &n_nan, e)) < 0)
		return rc;
	if (n_nan > 0)
		kv_warn("sequence %zu, layer %d: %zu scores are not numbers, they rank last", l->step->seq->number,
		    l->layer, n_nan);
	return r->how.renumber ? check_renumbered(r, l, e) : KV_OK;
}

int
main(int argc, char **argv)
{
	struct run r = { .next_position = -1 };
	const struct kv_filter f = {
		.uses = "k,v,score,budget,protect", .partly = "k,v", .on_device = "k,v", .run = evict, .ctx = &r
	};
	int status;

	kv_options(argc, argv, &tool);
	understand(&r);
	status = kv_filter(argv + 1, &f);
	free(r.skip);
	return status;
}
