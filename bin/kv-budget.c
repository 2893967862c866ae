/* SPDX-License-Identifier: MIT
 * kv-budget: adds a tensor `budget` to every layer. */
#include "bin/common.h"

#include "lib/budget/budget.h"
#include "lib/model/config.h"

#define NO_RATIO (-1.0)

static size_t entries; /* 0: not given */
static double ratio = NO_RATIO;

static const struct kv_opt opts[] = {
	{ "entries", 'b', KV_SIZE, &entries, "ENTRIES", "to keep per head and layer on average", 1, KV_COUNT_MAX,
	    NULL },
	{ "ratio", 'r', KV_DOUBLE, &ratio, "RATIO", "the same as a share of the prompt", 0, 1, NULL },
	{ 0 },
};

static size_t
methods(struct kv_method_row *rows, size_t max)
{
	size_t n = 0;

	for (; n < max && kv_budget_list[n] != NULL; n++)
		rows[n] = (struct kv_method_row){ kv_budget_list[n]->name, kv_budget_list[n]->brief };
	return n;
}

static const struct kv_tool tool = {
	.name = "kv-budget",
	.usage = "METHOD [-b ENTRIES | -r RATIO] [options] [FILE...]",
	.brief = "decide how many entries each KV head may keep",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE,
	.methods = methods,
};

/* What the layer's scores, if there are any, tell the allocator. */
static int
read_score(const struct kv_tensor *score, struct kv_budget_input *in, struct kv_score_attrs *a, struct kv_err *e)
{
	const size_t shape[] = { in->Hkv, KV_ANY };
	int rc;

	if (score == NULL) {
		in->n = in->T;
		return KV_OK;
	}
	if ((rc = kv_tensor_expect(score, KVK_F32, "kv_head token", shape, e)) < 0 ||
	    (rc = kv_score_attrs_from_json(a, score->attrs, e)) < 0)
		return rc;
	if (a->n_tokens != in->T)
		return kv_fail(
		    e, KV_ESHAPE, "score: made for a prompt of %zu tokens, this one has %zu", a->n_tokens, in->T);
	in->raw = score->data;
	in->attrs = a;
	in->n = score->shape[1];
	in->n_sink = a->n_sink;
	in->n_recent = a->n_recent;
	return KV_OK;
}

static int
budget_layer(const struct kv_budget *m, const struct kv_config *c, const struct kv_grant *g, struct kv_io *io,
    struct kv_step *s, struct kv_tensor *budget)
{
	struct kv_budget_input in = {
		.device = &io->device,
		.layer = (size_t)s->layer,
		.L = c->L,
		.Hkv = c->Hkv,
		.T = s->seq->T,
	};
	struct kv_budget_source from = { .earlier = kv_step_find(s, "budget") };
	struct kv_score_attrs a;
	int rc;

	if (kv_step_find(s, "index") != NULL)
		return kv_fail(
		    &io->err, KV_ESHAPE, "this cache has been evicted already: decide budgets before kv-evict");
	if ((g->entries != 0 || g->ratio != 0) && (rc = kv_grant_capacity(g, in.T, &from.C, &io->err)) < 0)
		return rc;
	if ((rc = read_score(kv_step_find(s, "score"), &in, &a, &io->err)) < 0)
		return rc;
	return kv_budget_layer(m, &in, &from, budget, &io->err);
}

static int
budget_step(
    const struct kv_budget *m, const struct kv_config *c, const struct kv_grant *g, struct kv_io *io, struct kv_step *s)
{
	struct kv_tensor budget;
	int rc;

	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	if ((rc = budget_layer(m, c, g, io, s, &budget)) < 0) {
		kv_step_where(io->pipe, s, &io->err);
		return rc;
	}
	rc = kv_step_put(s, &budget, &io->err);
	kv_tensor_fini(&budget);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct kv_budget *m = NULL;
	struct kv_config c = { 0 };
	struct kv_grant g;
	struct kv_step *s;
	struct kv_io io;
	int rc;

	argc = kv_options(argc, argv, &tool);
	if (argc < 2 || (m = kv_budget_find(argv[1])) == NULL)
		kv_usage_method(&tool, argv[1]);
	if (entries != 0 && ratio != NO_RATIO)
		kv_usage(&tool, "give either -b ENTRIES or -r RATIO, not both");
	if (ratio == 0)
		kv_usage(&tool, "--ratio: expected a share of the prompt, above 0 and at most 1");
	g = (struct kv_grant){ entries, ratio == NO_RATIO ? 0 : ratio };
	kv_start(&io, argv + 2, false, "score,budget,protect");
	if ((rc = io.status) == KV_OK)
		rc = kv_config_from_json(&c, kv_pipe_model(io.pipe), &io.err);
	while (rc >= 0 && (rc = kv_next(&io, &s)) == KV_OK)
		rc = budget_step(m, &c, &g, &io, s);
	kv_config_fini(&c);
	return kv_finish(&io, rc);
}
