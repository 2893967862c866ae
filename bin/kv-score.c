/* SPDX-License-Identifier: MIT
 * kv-score: adds a tensor `score` to every layer. */
#include "bin/common.h"

#include "lib/model/config.h"
#include "lib/score/score.h"

static struct kv_score_options given = KV_SCORE_OPTIONS_NONE;

/* What is not given comes from the method's row, hence no defaults here. */
static const struct kv_opt opts[] = {
	{ "window", 'w', KV_SIZE, &given.window, "TOKENS", "prompt queries that look back; else the method's", 1,
	    KV_COUNT_MAX, NULL },
	{ "pool", 0, KV_STRING, &given.pool, "KIND", "how the ranking pools; else the method's", 0, 0, "max|avg|none" },
	{ "pool-width", 0, KV_SIZE, &given.pool_width, "TOKENS", "odd; else the method's", 1, KV_COUNT_MAX, NULL },
	{ "rows", 0, KV_STRING, &given.rows, "HOW", "over queries; else the method's", 0, 0, "mean|sum" },
	{ "gqa", 0, KV_STRING, &given.gqa, "HOW", "over the heads of a group; else the method's", 0, 0,
	    "mean|max|sum" },
	{ "sink", 0, KV_SIZE, &given.n_sink, "TOKENS", "first tokens to protect; else the method's", 0, KV_COUNT_MAX,
	    NULL },
	{ "recent", 0, KV_SIZE, &given.n_recent, "TOKENS", "last tokens to protect; else the method's", 0, KV_COUNT_MAX,
	    NULL },
	{ 0 },
};

static size_t
methods(struct kv_method_row *rows, size_t max)
{
	size_t n = 0;

	for (; n < max && kv_score_list[n] != NULL; n++)
		rows[n] = (struct kv_method_row){ kv_score_list[n]->name, kv_score_list[n]->brief };
	return n;
}

static const struct kv_tool tool = {
	.name = "kv-score",
	.usage = "METHOD [options] [FILE...]",
	.brief = "score every prompt token, per KV head",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE | KV_COMMON_SEED,
	.methods = methods,
};

static int
score_step(const struct kv_score *m, const struct kv_score_params *p, const struct kv_config *c, struct kv_io *io,
    struct kv_step *s)
{
	struct kv_score_input in = {
		.device = &io->device,
		.layer = s->layer,
		.Hq = c->Hq,
		.Hkv = c->Hkv,
		.D = c->D,
		.T = s->seq->T,
		.scale = c->scale,
		.k = kv_step_find(s, "k"),
		.v = kv_step_find(s, "v"),
		.q = kv_step_find(s, "q"),
	};
	struct kv_tensor score;
	int rc;

	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	if (kv_step_find(s, "index") != NULL)
		rc = kv_fail(&io->err, KV_ESHAPE, "this cache has been evicted already: score before kv-evict");
	else
		rc = kv_score_layer(m, p, &in, &score, &io->err);
	if (rc < 0) {
		kv_step_where(io->pipe, s, &io->err);
		return rc;
	}
	rc = kv_step_put(s, &score, &io->err);
	kv_tensor_fini(&score);
	kv_progress("layer", (size_t)s->layer + 1, c->L);
	return rc;
}

int
main(int argc, char **argv)
{
	const struct kv_score *m = NULL;
	struct kv_score_params p;
	struct kv_config c = { 0 };
	struct kv_step *s;
	struct kv_err e = { 0 };
	struct kv_io io;
	int rc;

	argc = kv_options(argc, argv, &tool);
	if (argc < 2 || (m = kv_score_find(argv[1])) == NULL)
		kv_usage_method(&tool, argv[1]);
	given.seed = kv_common.seed;
	if (kv_score_configure(&p, m, &given, &e) < 0)
		kv_usage(&tool, "%s", e.text);
	kv_start(&io, argv + 2, false, NULL);
	if ((rc = io.status) == KV_OK)
		rc = kv_config_from_json(&c, kv_pipe_model(io.pipe), &io.err);
	while (rc >= 0 && (rc = kv_next(&io, &s)) == KV_OK)
		rc = score_step(m, &p, &c, &io, s);
	kv_config_fini(&c);
	return kv_finish(&io, rc);
}
