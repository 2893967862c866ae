/* SPDX-License-Identifier: MIT
 * kv-evict: replaces k and v of every layer by the entries that stay, and adds `index` and `offset`. */
#include "bin/common.h"

#include <string.h>

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
evict_layer(struct kv_io *io, struct kv_step *s, struct kv_evicted *out)
{
	struct kv_evict_input in = {
		.device = &io->device,
		.layer = s->layer,
		.k = kv_step_find(s, "k"),
		.v = kv_step_find(s, "v"),
		.score = kv_step_find(s, "score"),
		.budget = kv_step_find(s, "budget"),
		.next_position = s->seq->T,
		.tie = strcmp(tie, "position") == 0 ? KV_TIE_POSITION : KV_TIE_RAW,
	};

	if (kv_step_find(s, "index") != NULL)
		return kv_fail(&io->err, KV_ESHAPE, "this cache has been evicted already");
	if (in.k == NULL || in.v == NULL)
		return kv_fail(&io->err, KV_ESHAPE,
		    "no tensor %s: kv-prefill writes it; give the file that has it as a further FILE",
		    in.k == NULL ? "k" : "v");
	if (in.budget == NULL)
		return kv_fail(&io->err, KV_ESHAPE,
		    "no tensor budget: put kv-budget METHOD -b ENTRIES before kv-evict, or give the file that has it "
		    "as a further FILE");
	return kv_evict_layer(&in, out, &io->err);
}

static int
evict_step(struct kv_io *io, struct kv_step *s)
{
	struct kv_evicted x = { 0 };
	int rc;

	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	if ((rc = evict_layer(io, s, &x)) < 0) {
		kv_step_where(io->pipe, s, &io->err);
		return rc;
	}
	if (x.n_nan > 0)
		kv_warn("sequence %zu, layer %d: %zu scores are not numbers, they rank last", s->seq->number, s->layer,
		    x.n_nan);
	if ((rc = kv_step_put(s, &x.index, &io->err)) == KV_OK && (rc = kv_step_put(s, &x.offset, &io->err)) == KV_OK &&
	    (rc = kv_step_put(s, &x.k, &io->err)) == KV_OK)
		rc = kv_step_put(s, &x.v, &io->err);
	kv_evicted_fini(&x);
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_step *s;
	struct kv_io io;
	int rc;

	kv_options(argc, argv, &tool);
	kv_start(&io, argv + 1, false, "k,v,score,budget,protect");
	rc = io.status;
	while (rc >= 0 && (rc = kv_next(&io, &s)) == KV_OK)
		rc = evict_step(&io, s);
	return kv_finish(&io, rc);
}
