/* SPDX-License-Identifier: MIT
 * card_times -m MODEL [options] - what prefill, the stages of eviction and decoding take inside one process, where the
 * model has been opened and the device is warm.  TSV on standard output: what, tokens, entries, seconds, each the best
 * of some rounds; entries are 0 where they do not matter.
 *
 *	prefill            all layers and the last token's logits
 *	prefill_lookahead  with a module's rows behind the prompt; rounds of both take turns
 *	prefill_spread     the worst round of prefill less the best one
 *	scores_window      of a whole model: the last 32 queries over all keys before them (SnapKV)
 *	scores_behind      32 queries that stand behind the prompt (LookaheadKV, LAQ)
 *	scores_all         every query of the prompt (H2O)
 *	rank               groups of heads reduced, and pooled
 *	select             the kept positions of every head, SnapKV's budgets
 *	gather             their keys and values
 *	step_score         kv-score's whole work on a layer that is in host memory, as pipes bring it; step_uniform,
 *	step_...           step_champion, step_adakv, kv-budget's; step_evict, kv-evict's
 *	decode             one token behind the whole cache (entries 0), or behind so many entries per head
 *
 * Stages are measured in a few layers, which are all alike, and stand for all of them.  Keys are f16 on the device,
 * where --share leaves them.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "bin/common.h"
#include "formats/emit.h"
#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/budget/budget.h"
#include "lib/clock.h"
#include "lib/device_memory.h"
#include "lib/evict/evict.h"
#include "lib/hash.h"
#include "lib/model/adapters.h"
#include "lib/model/cache.h"
#include "lib/model/prefill.h"
#include "lib/tensor.h"
#include "lib/text/ids.h"

#define WINDOW ((size_t)32)
#define SHOWN  4 /* layers in which stages are measured */

static struct {
	const char *sizes, *entries, *module;
	size_t rounds, answer;
} o = { .sizes = "4096", .entries = "128,1024", .rounds = 2, .answer = 32 };

static const struct kv_opt opts[] = {
	{ "sizes", 0, KV_STRING, &o.sizes, "LIST", "tokens of the prompts", 0, 0, NULL },
	{ "entries", 'b', KV_STRING, &o.entries, "LIST", "to keep per head", 0, 0, NULL },
	{ "lookahead", 0, KV_STRING, &o.module, "MODULE", "a LookaheadKV module", 0, 0, NULL },
	{ "rounds", 0, KV_SIZE, &o.rounds, "N", "of which the best counts", 1, 1000, NULL },
	{ "max-tokens", 'n', KV_SIZE, &o.answer, "TOKENS", "of an answer", 2, 1e6, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "card_times",
	.usage = "-m MODEL [options]",
	.brief = "times of prefill, stages and decoding in one process",
	.opts = opts,
	.common = KV_COMMON_DEVICE | KV_COMMON_MODEL | KV_COMMON_PRECISION,
};

enum what {
	SCORES_WINDOW,
	SCORES_BEHIND,
	SCORES_ALL,
	RANK,
	SELECT,
	GATHER,
	STEP_SCORE,
	STEP_UNIFORM,
	STEP_CHAMPION,
	STEP_ADAKV,
	STEP_EVICT,
	N_WHATS
};
static const char *const names[N_WHATS] = { "scores_window", "scores_behind", "scores_all", "rank", "select",
	"gather", "step_score", "step_uniform", "step_champion", "step_adakv", "step_evict" };

struct bench {
	struct kv_device device;
	struct kv_model model;
	struct kv_engine *engine;
	struct kv_lookahead *module;
	struct kv_adapters *adapters;
	struct kv_ids entries, prompt;
	struct kv_sequence seq;
	struct kv_params score;
	float *logits;
	size_t at, layers;       /* entries[at] are kept; layers measured so far */
	double seconds[N_WHATS]; /* of those */
};

/* The time once the device has done all that was queued. */
static double
settled(struct bench *b)
{
	b->device.op->wait(b->device.dev);
	return kv_seconds();
}

static void
print(const char *what, size_t tokens, size_t entries, double seconds)
{
	printf("%s\t%zu\t%zu\t%.6f\n", what, tokens, entries, seconds);
	fflush(stdout);
}

/* ---- one layer of a prompt: the operations */

struct arrays {
	size_t T, scored;         /* columns before the window */
	const void *k, *q;        /* device: [Hkv][T][D] f16, [Hq][WINDOW][D] f32 */
	void *host_k, *host_q;    /* the same */
	float *s, *raw, *pooled;  /* device: [Hq][T], [Hkv][T], [Hkv][T] */
	int32_t *index;           /* device: [Hkv * entries] */
	void *small;              /* device: [Hkv * entries][D] f16 */
	size_t *rows;             /* [Hkv * entries] of k: as far apart as they can be */
	int32_t q_pos[];          /* [T + WINDOW] */
};

static void
arrays_free(struct bench *b, struct arrays *a)
{
	if (a == NULL)
		return;
	kv_device_unview(&b->device, a->k);
	kv_device_unview(&b->device, a->q);
	kv_device_free(&b->device, a->s);
	kv_device_free(&b->device, a->raw);
	kv_device_free(&b->device, a->pooled);
	kv_device_free(&b->device, a->index);
	kv_device_free(&b->device, a->small);
	free(a->rows);
	free(a->host_k);
	free(a->host_q);
	free(a);
}

static int
arrays_new(struct bench *b, const struct kv_layer_view *v, struct arrays **out, struct kv_err *e)
{
	const struct kv_config *c = &b->model.cfg;
	const struct kv_device *d = &b->device;
	const size_t T = v->n, kept = c->Hkv * (size_t)b->entries.v[b->at];
	struct arrays *a = kv_alloc(1, sizeof *a + (T + WINDOW) * sizeof *a->q_pos, e);
	int rc;

	if ((*out = a) == NULL)
		return KV_EMEM;
	a->T = T;
	a->scored = T - WINDOW;
	for (size_t i = 0; i < T + WINDOW; i++)
		a->q_pos[i] = (int32_t)i;
	if ((a->host_k = kv_alloc(c->Hkv * T * c->D, 2, e)) == NULL ||
	    (a->host_q = kv_alloc(c->Hq * WINDOW * c->D, sizeof(float), e)) == NULL ||
	    (a->s = kv_device_alloc(d, c->Hq * T, sizeof(float), e)) == NULL ||
	    (a->raw = kv_device_alloc(d, c->Hkv * T, sizeof(float), e)) == NULL ||
	    (a->pooled = kv_device_alloc(d, c->Hkv * T, sizeof(float), e)) == NULL ||
	    (a->index = kv_device_alloc(d, kept, sizeof *a->index, e)) == NULL ||
	    (a->small = kv_device_alloc(d, kept * c->D, 2, e)) == NULL ||
	    (a->rows = kv_alloc(kept, sizeof *a->rows, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < kept; i++)
		a->rows[i] = c->Hkv * T / kept * i;
	if ((rc = kv_device_get_rows(d, a->host_k, KVK_F16, v->k, c->Hkv, v->stride, T, c->D, e)) < 0 ||
	    (rc = kv_device_get_rows(
	         d, a->host_q, KVK_F32, v->q + a->scored * c->D, c->Hq, T, WINDOW, c->D, e)) < 0)
		return rc;
	a->k = kv_device_view(d, a->host_k, c->Hkv * T * c->D * 2, e);
	a->q = kv_device_view(d, a->host_q, c->Hq * WINDOW * c->D * sizeof(float), e);
	return a->k != NULL && a->q != NULL ? KV_OK : KV_EMEM;
}

static int
run_op(struct bench *b, enum what what, const struct arrays *a, const struct kv_layer_view *v)
{
	const struct kv_config *c = &b->model.cfg;
	const struct kvk_backend *op = b->device.op;
	struct kvk_dev *dev = b->device.dev;
	const bool all = what == SCORES_ALL, behind = what == SCORES_BEHIND;
	const struct kvk_scores scores = { .q = all ? v->q : a->q,
		.q_type = KVK_F32,
		.q_pos = a->q_pos + (all ? 0 : behind ? a->T : a->scored),
		.n_q = all ? a->T : WINDOW,
		.Hq = c->Hq,
		.Hkv = c->Hkv,
		.D = c->D,
		.k = a->k,
		.k_type = KVK_F16,
		.T = a->T,
		.scale = c->scale,
		.rows = all ? KVK_SUM : KVK_MEAN,
		.n = all || behind ? a->T : a->scored };
	size_t offset[1025];
	const struct kvk_select select = { .rank = a->pooled,
		.tie = a->raw,
		.H = c->Hkv,
		.n = a->scored,
		.T = a->T,
		.n_recent = WINDOW,
		.offset = offset };
	const struct kvk_copy gather = { .x = a->k,
		.x_type = KVK_F16,
		.rows = a->rows,
		.y = a->small,
		.y_type = KVK_F16,
		.H = 1,
		.n = c->Hkv * (size_t)b->entries.v[b->at],
		.D = c->D };
	int rc;

	for (size_t h = 0; h <= c->Hkv; h++)
		offset[h] = h * (size_t)b->entries.v[b->at];
	switch (what) {
	case RANK:
		rc = op->reduce_heads(dev, a->s, c->Hq, c->Hkv, a->scored, KVK_MEAN, a->raw);
		return rc != 0 ? rc : op->pool(dev, a->raw, c->Hkv, a->scored, KVK_POOL_MAX, 7, a->pooled);
	case SELECT:
		return op->select(dev, &select, a->index);
	case GATHER: /* values as keys */
		rc = op->copy_rows(dev, &gather);
		return rc != 0 ? rc : op->copy_rows(dev, &gather);
	default:
		return op->scores(dev, &scores, a->s);
	}
}

static int
time_op(struct bench *b, enum what what, const struct arrays *a, const struct kv_layer_view *v, struct kv_err *e)
{
	double best = DBL_MAX, begin;
	int rc = KV_OK;

	for (size_t i = 0; i < o.rounds && rc == KV_OK; i++) {
		begin = settled(b);
		rc = kv_device_check(&b->device, run_op(b, what, a, v), names[what], e);
		begin = settled(b) - begin;
		best = begin < best ? begin : best;
	}
	b->seconds[what] += best;
	return rc;
}

static int
time_ops(struct bench *b, const struct kv_layer_view *v, struct kv_err *e)
{
	struct arrays *a;
	int rc = arrays_new(b, v, &a, e);

	for (int i = SCORES_BEHIND; i <= SCORES_ALL && rc == KV_OK && b->at == 0; i++)
		rc = time_op(b, (enum what)i, a, v, e);
	if (rc == KV_OK && (rc = time_op(b, SCORES_WINDOW, a, v, e)) == KV_OK &&
	    (rc = time_op(b, RANK, a, v, e)) == KV_OK)
		rc = time_op(b, SELECT, a, v, e);
	if (rc == KV_OK)
		rc = time_op(b, GATHER, a, v, e);
	arrays_free(b, a);
	return rc;
}

/* ---- one layer of a prompt: what the programs do with it */

static int
put_rows(struct bench *b, struct kv_step *s, const char *name, const float *x, size_t H, size_t stride, size_t first,
    size_t n, struct kv_err *e)
{
	const size_t D = b->model.cfg.D, shape[] = { H, n, D };
	const bool q = name[0] == 'q';
	struct kv_tensor t;
	int rc = kv_tensor_new(
	    &t, name, s->layer, q ? KVK_F32 : KVK_F16, q ? "head query dim" : "kv_head token dim", shape, e);

	if (rc < 0)
		return rc;
	if (q)
		t.attrs = kv_row_attrs(kv_queries_region(kv_score_queries(kv_score_find("snapkv"), &b->score)), first);
	rc = kv_device_get_rows(&b->device, t.owned, t.type, x + first * D, H, stride, n, D, e);
	if (rc == KV_OK)
		rc = kv_step_put(s, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

static int
budget(struct bench *b, const struct kv_layer *l, enum what what, const char *method, struct kv_err *e)
{
	struct kv_params p;
	struct kv_budgeting how = { .p = &p, .grant = { .entries = (size_t)b->entries.v[b->at] } };
	double begin;
	int rc;

	kv_params_init(&p, &kv_budget_find(method)->about);
	begin = settled(b);
	rc = kv_budget_layers(&how, l, 1, e);
	b->seconds[what] += settled(b) - begin;
	return rc;
}

static int
time_steps(struct bench *b, const struct kv_layer_view *v, struct kv_err *e)
{
	const struct kv_config *c = &b->model.cfg;
	struct kv_step s = { .seq = &b->seq, .layer = (int)v->layer };
	const struct kv_layer l = { .device = &b->device, .cfg = c, .step = &s, .layer = s.layer, .T = v->n };
	const struct kv_evicting how = { 0 };
	double begin;
	size_t n_nan;
	int rc;

	if ((rc = put_rows(b, &s, "q", v->q, c->Hq, v->n, v->n - WINDOW, WINDOW, e)) < 0 ||
	    (rc = put_rows(b, &s, "k", v->k, c->Hkv, v->stride, 0, v->n, e)) < 0 ||
	    (rc = put_rows(b, &s, "v", v->v, c->Hkv, v->stride, 0, v->n, e)) < 0)
		goto done;
	begin = settled(b);
	rc = kv_score_layer(&l, &b->score, e);
	b->seconds[STEP_SCORE] += settled(b) - begin;
	if (rc < 0 || (rc = budget(b, &l, STEP_CHAMPION, "champion", e)) < 0 ||
	    (rc = budget(b, &l, STEP_ADAKV, "adakv", e)) < 0 || (rc = budget(b, &l, STEP_UNIFORM, "uniform", e)) < 0)
		goto done;
	begin = settled(b);
	rc = kv_evict_layer(&l, &how, &n_nan, e);
	b->seconds[STEP_EVICT] += settled(b) - begin;
done:
	kv_step_clear(&s);
	return rc;
}

static int
stages(void *ctx, const struct kv_layer_view *v, struct kv_err *e)
{
	struct bench *b = ctx;
	const size_t every = (b->model.cfg.L + SHOWN - 1) / SHOWN;
	int rc;

	if (v->layer % every != 0)
		return KV_OK;
	b->layers++;
	return (rc = time_ops(b, v, e)) == KV_OK ? time_steps(b, v, e) : rc;
}

static bool
by_entries(int what)
{
	return what == SELECT || what == GATHER || what >= STEP_UNIFORM;
}

static int
time_stages(struct bench *b, size_t n, struct kv_err *e)
{
	const struct kv_prefill_input in = { .tokens = b->prompt.v, .T = n };
	const double L = (double)b->model.cfg.L;
	int rc = KV_OK;

	b->seq = (struct kv_sequence){ .tokens = b->prompt.v, .n_tokens = n, .T = n };
	for (b->at = 0; b->at < b->entries.n && rc == KV_OK; b->at++) {
		if ((size_t)b->entries.v[b->at] > n)
			continue;
		for (int i = 0; i < N_WHATS; i++)
			b->seconds[i] = 0;
		b->layers = 0;
		rc = kv_prefill(b->engine, &in, stages, b, NULL, e);
		for (int i = 0; i < N_WHATS && rc == KV_OK; i++)
			if (b->seconds[i] > 0 && (b->at == 0 || by_entries(i)))
				print(names[i], n, by_entries(i) ? (size_t)b->entries.v[b->at] : 0,
				    b->seconds[i] * L / (double)b->layers);
	}
	return rc;
}

/* ---- the rest */

/* The plain one and the one with rows behind it. */
struct prefills {
	double best[2], worst[2];
};

static int
one_prefill(struct bench *b, size_t n, const struct kv_adapters *behind, double *seconds, struct kv_err *e)
{
	const struct kv_prefill_input in = { .tokens = b->prompt.v, .T = n, .lookahead = behind };
	const double begin = settled(b);
	int rc = kv_prefill(b->engine, &in, NULL, NULL, b->logits, e);

	*seconds = settled(b) - begin;
	return rc;
}

/* The first round takes memory and weights, and does not count. */
static int
time_prefills(struct bench *b, size_t n, struct kv_err *e)
{
	struct prefills p = { .best = { DBL_MAX, DBL_MAX } };
	double s;
	int rc = KV_OK;

	for (size_t i = 0; i <= o.rounds; i++)
		for (size_t k = 0; k < (b->adapters != NULL ? 2 : 1); k++) {
			if ((rc = one_prefill(b, n, k > 0 ? b->adapters : NULL, &s, e)) < 0)
				return rc;
			p.best[k] = i > 0 && s < p.best[k] ? s : p.best[k];
			p.worst[k] = i > 0 && s > p.worst[k] ? s : p.worst[k];
		}
	print("prefill", n, 0, p.best[0]);
	print("prefill_spread", n, 0, p.worst[0] - p.best[0]);
	if (b->adapters != NULL)
		print("prefill_lookahead", n, 0, p.best[1]);
	return KV_OK;
}

/* Behind `entries` entries of every head, whose contents do not matter; position n. */
static int
time_decode(struct bench *b, size_t n, size_t entries, struct kv_err *e)
{
	const struct kv_config *c = &b->model.cfg;
	const size_t held = entries > 0 ? entries : n;
	size_t *offset = kv_alloc(c->Hkv + 1, sizeof *offset, e);
	void *zeros = kv_alloc(c->Hkv * held * c->D, 2, e);
	const void *rows = NULL;
	struct kv_cache *cache = NULL;
	double begin = 0;
	int rc = KV_EMEM;

	if (offset == NULL || zeros == NULL ||
	    (rows = kv_device_view(&b->device, zeros, c->Hkv * held * c->D * 2, e)) == NULL ||
	    (rc = kv_cache_new(&cache, b->engine, KVK_F16, o.answer + 1, e)) < 0)
		goto done;
	for (size_t h = 0; h <= c->Hkv; h++)
		offset[h] = h * held;
	for (size_t layer = 0; layer < c->L && rc == KV_OK; layer++)
		rc = kv_cache_set(cache, layer, c->Hkv, KVK_F16, rows, rows, offset, e);
	kv_cache_seek(cache, n);
	for (size_t i = 0; i <= o.answer && rc == KV_OK; i++) {
		if (i == 1) /* the first token may have opened the weights */
			begin = settled(b);
		rc = kv_extend(cache, &b->prompt.v[i], 1, b->logits, 1, NULL, e);
	}
	if (rc == KV_OK)
		print("decode", n, entries, (settled(b) - begin) / (double)o.answer);
done:
	kv_cache_free(cache);
	kv_device_unview(&b->device, rows);
	free(zeros);
	free(offset);
	return rc;
}

static int
one_size(struct bench *b, size_t n, struct kv_err *e)
{
	int rc;

	if ((rc = time_prefills(b, n, e)) < 0 || (rc = time_stages(b, n, e)) < 0 || (rc = time_decode(b, n, 0, e)) < 0)
		return rc;
	for (size_t i = 0; i < b->entries.n && rc == KV_OK; i++)
		if ((size_t)b->entries.v[i] <= n)
			rc = time_decode(b, n, (size_t)b->entries.v[i], e);
	return rc;
}

static int
work(struct bench *b, const struct kv_ids *sizes, struct kv_err *e)
{
	size_t longest = 0;
	int rc;

	for (size_t i = 0; i < sizes->n; i++)
		longest = (size_t)sizes->v[i] > longest ? (size_t)sizes->v[i] : longest;
	for (size_t i = 0; i < sizes->n; i++)
		if ((size_t)sizes->v[i] <= WINDOW)
			return kv_fail(e, KV_EARG, "prompts have more than %zu tokens", WINDOW);
	if ((rc = kv_model_open(&b->model, kv_common.model, true, e)) < 0 ||
	    (rc = kv_engine_new(&b->engine, &b->model, &b->device, e)) < 0 ||
	    (rc = kv_device_ready(&b->device, "scores reduce_heads pool select", e)) < 0)
		return rc;
	if (o.module != NULL && ((rc = kv_lookahead_read(&b->module, o.module, &b->model.cfg, e)) < 0 ||
				    (rc = kv_adapters_new(&b->adapters, b->engine, b->module, e)) < 0))
		return rc;
	if ((b->logits = kv_alloc(b->model.cfg.vocab, sizeof *b->logits, e)) == NULL ||
	    (b->prompt.v = kv_alloc(longest + o.answer + 1, sizeof *b->prompt.v, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < longest + o.answer + 1; i++)
		b->prompt.v[i] = (int32_t)(kv_hash_slot(1, 0, 0, i) % b->model.cfg.vocab);
	kv_params_init(&b->score, &kv_score_find("snapkv")->about);
	for (size_t i = 0; i < sizes->n && rc == KV_OK; i++)
		rc = one_size(b, (size_t)sizes->v[i], e);
	return rc;
}

static void
fini(struct bench *b)
{
	free(b->logits);
	kv_adapters_free(b->adapters);
	kv_lookahead_free(b->module);
	kv_engine_free(b->engine);
	kv_close_device(&b->device);
	kv_model_fini(&b->model);
	kv_ids_fini(&b->entries);
	kv_ids_fini(&b->prompt);
}

int
main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct kv_ids sizes = { 0 };
	struct kv_err e = { 0 };
	int rc;

	kv_options(argc, argv, &tool);
	kv_need_model(&tool);
	kv_device_plan(&b.device, kv_common.device, kv_common.threads);
	b.device.precision = kv_common.precision;
	if ((rc = kv_ids_parse(&sizes, o.sizes, &e)) == KV_OK &&
	    (rc = kv_ids_parse(&b.entries, o.entries, &e)) == KV_OK)
		rc = work(&b, &sizes, &e);
	fini(&b);
	kv_ids_fini(&sizes);
	return kv_report(rc, &e);
}
