/* SPDX-License-Identifier: MIT
 * one_process METHOD -m MODEL -f FILE -b ENTRIES -n TOKENS - the work of
 *
 *	kv-prefill -f FILE | kv-score snapkv | kv-budget METHOD -b ENTRIES | kv-evict | kv-decode -n TOKENS
 *
 * in one process, through the library: what the pipes cost is the difference.  The answer is the same text.
 */
#include <stdlib.h>
#include <unistd.h>

#include "bin/common.h"
#include "formats/answer.h"
#include "formats/emit.h"
#include "formats/format.h"
#include "formats/layer_cache.h"
#include "lib/budget/budget.h"
#include "lib/device_memory.h"
#include "lib/evict/evict.h"
#include "lib/file.h"
#include "lib/model/generate.h"
#include "lib/model/prefill.h"
#include "lib/text/tokenizer.h"

static struct {
	const char *file;
	size_t entries, n;
} o = { .n = 64 };

static const struct kv_opt opts[] = {
	{ "file", 'f', KV_STRING, &o.file, "FILE", "a file that is one prompt", 0, 0, NULL },
	{ "entries", 'b', KV_SIZE, &o.entries, "ENTRIES", "to keep per head and layer on average", 1, KV_COUNT_MAX,
	    NULL },
	{ "max-tokens", 'n', KV_SIZE, &o.n, "TOKENS", "longest answer", 1, KV_COUNT_MAX, NULL },
	{ 0 },
};

static const struct kv_method *
methods(size_t i)
{
	return kv_budget_list[i] != NULL ? &kv_budget_list[i]->about : NULL;
}

static const struct kv_tool tool = {
	.name = "one_process",
	.usage = "METHOD -m MODEL -f FILE -b ENTRIES -n TOKENS",
	.brief = "prefill, score, budget, evict and decode in one process",
	.opts = opts,
	.common = KV_COMMON_DEVICE | KV_COMMON_MODEL | KV_COMMON_PRECISION,
	.methods = methods,
};

struct run {
	struct kv_device device;
	struct kv_model model;
	struct kv_tokenizer *tokenizer;
	struct kv_engine *engine;
	struct kv_params score;
	struct kv_queries queries; /* that the score wants */
	struct kv_budgeting budgeting;
	struct kv_evicting evicting;
	struct kv_ids ids;
	struct kv_sequence seq;
	struct kv_step *steps; /* [L] what stays of each layer */
	float *logits;         /* [vocab] */
	struct kv_cache *cache;
	struct kv_answers *answers;
};

/* ---- one layer: what stands between kv-prefill and kv-decode */

/* Rows first .. first + n - 1 of each head, x [H][stride][D], as a tensor of the step. */
static int
put_rows(struct run *r, struct kv_step *s, struct kv_tensor *t, const float *x, size_t stride, size_t first,
    struct kv_err *e)
{
	const size_t D = r->model.cfg.D;
	int rc = kv_device_get_rows(
	    &r->device, t->owned, t->type, x + first * D, t->shape[0], stride, t->shape[1], D, e);

	if (rc == KV_OK)
		rc = kv_step_put(s, t, e);
	kv_tensor_fini(t);
	return rc;
}

static int
put_tensors(struct run *r, struct kv_step *s, const struct kv_layer_view *view, struct kv_err *e)
{
	const struct kv_config *c = &r->model.cfg;
	const size_t W = kv_queries_rows(r->queries, view->n);
	const size_t q_shape[] = { c->Hq, W, c->D }, k_shape[] = { c->Hkv, view->n, c->D };
	const int layer = (int)view->layer;
	struct kv_tensor t;
	int rc;

	if ((rc = kv_tensor_new(&t, "q", layer, KVK_F32, "head query dim", q_shape, e)) < 0)
		return rc;
	t.attrs = kv_row_attrs(kv_queries_region(r->queries), view->n - W);
	if ((rc = put_rows(r, s, &t, view->q, view->n, view->n - W, e)) < 0 ||
	    (rc = kv_tensor_new(&t, "k", layer, KVK_F16, "kv_head token dim", k_shape, e)) < 0 ||
	    (rc = put_rows(r, s, &t, view->k, view->stride, 0, e)) < 0 ||
	    (rc = kv_tensor_new(&t, "v", layer, KVK_F16, "kv_head token dim", k_shape, e)) < 0)
		return rc;
	return put_rows(r, s, &t, view->v, view->stride, 0, e);
}

static int
run_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct run *r = ctx;
	struct kv_step *s = &r->steps[view->layer];
	const struct kv_layer l = {
		.device = &r->device, .cfg = &r->model.cfg, .step = s, .layer = (int)view->layer, .T = view->n
	};
	size_t n_nan;
	int rc;

	*s = (struct kv_step){ .seq = &r->seq, .layer = l.layer };
	if ((rc = put_tensors(r, s, view, e)) < 0 || (rc = kv_score_layer(&l, &r->score, e)) < 0 ||
	    (rc = kv_budget_layers(&r->budgeting, &l, 1, e)) < 0)
		return rc;
	return kv_evict_layer(&l, &r->evicting, &n_nan, e);
}

/* ---- the answer */

static int
load_layer(struct run *r, size_t layer, struct kv_err *e)
{
	struct kv_layer_cache x;
	int rc = kv_layer_cache_read(&x, &r->steps[layer], &r->model.cfg, &r->device, e);

	if (rc < 0)
		return rc;
	rc = kv_cache_set(r->cache, layer, x.H, x.k->type, x.k_on_device, x.v_on_device, x.offset, e);
	kv_cache_seek(r->cache, x.next_position);
	kv_layer_cache_fini(&x);
	return rc;
}

static int
decode(struct run *r, struct kv_err *e)
{
	const struct kv_answer_options how = {
		.kind = KV_ANSWER_TEXT,
		.fd = STDOUT_FILENO,
		.tokenizer = r->tokenizer,
		.cfg = &r->model.cfg,
		.device = &r->device,
	};
	struct kv_generation g = {
		.sampler = { .top_p = 1 },
		.cfg = &r->model.cfg,
		.max_tokens = o.n,
		.stops = r->model.vocab.stops,
		.n_stops = r->model.vocab.n_stops,
		.token = kv_answer_token,
	};
	enum kv_stop why;
	int rc;

	if ((rc = kv_answers_new(&r->answers, &how, e)) < 0 ||
	    (rc = kv_cache_new(&r->cache, r->engine, KVK_F16, o.n + 1, e)) < 0)
		return rc;
	for (size_t layer = 0; layer < r->model.cfg.L; layer++)
		if ((rc = load_layer(r, layer, e)) < 0)
			return rc;
	g.ctx = r->answers;
	if ((rc = kv_answer_begin(r->answers, &r->seq, e)) < 0 ||
	    (rc = kv_generate(r->cache, &g, r->logits, &why, e)) < 0)
		return rc;
	return kv_answer_finish(r->answers, &(struct kv_answer_facts){ .stop = kv_stop_names[why] }, e);
}

/* ---- the whole */

static int
encode(struct run *r, struct kv_err *e)
{
	struct kv_buf text = { 0 };
	int rc = kv_file_read(o.file, (size_t)1 << 30, &text, e);

	if (rc == KV_OK)
		rc = kv_encode(r->tokenizer, text.data, text.n, KV_ENCODE_BOS, &r->ids, e);
	kv_buf_fini(&text);
	r->seq = (struct kv_sequence){ .tokens = r->ids.v, .n_tokens = r->ids.n, .T = r->ids.n };
	if (rc == KV_OK && (r->seq.map = json_pack("{s:s}", "id", "0")) == NULL)
		rc = kv_no_memory(e, r->ids.n);
	return rc;
}

static int
work(struct run *r, struct kv_err *e)
{
	int rc;

	if ((rc = kv_model_open(&r->model, kv_common.model, true, e)) < 0 ||
	    (rc = kv_tokenizer_new(&r->tokenizer, &r->model.vocab, e)) < 0 || (rc = encode(r, e)) < 0 ||
	    (rc = kv_engine_new(&r->engine, &r->model, &r->device, e)) < 0)
		return rc;
	if ((r->steps = kv_alloc(r->model.cfg.L, sizeof *r->steps, e)) == NULL ||
	    (r->logits = kv_alloc(r->model.cfg.vocab, sizeof *r->logits, e)) == NULL)
		return KV_EMEM;
	rc = kv_prefill(r->engine, &(struct kv_prefill_input){ .tokens = r->ids.v, .T = r->ids.n }, run_layer, r,
	    r->logits, e);
	return rc == KV_OK ? decode(r, e) : rc;
}

static void
fini(struct run *r)
{
	kv_answers_free(r->answers);
	kv_cache_free(r->cache);
	for (size_t i = 0; r->steps != NULL && i < r->model.cfg.L; i++)
		kv_step_clear(&r->steps[i]);
	free(r->steps);
	free(r->logits);
	json_decref(r->seq.map);
	kv_ids_fini(&r->ids);
	kv_engine_free(r->engine);
	kv_close_device(&r->device);
	kv_tokenizer_free(r->tokenizer);
	kv_model_fini(&r->model);
	kv_params_close(&kv_common.params);
}

int
main(int argc, char **argv)
{
	const struct kv_score_method *snapkv = kv_score_find("snapkv");
	struct run r = { 0 };
	struct kv_err e = { 0 };
	int rc;

	kv_options(argc, argv, &tool);
	kv_need_model(&tool);
	if (o.file == NULL || o.entries == 0)
		kv_usage(&tool, "give -f FILE and -b ENTRIES");
	kv_params_init(&r.score, &snapkv->about);
	r.queries = kv_score_queries(snapkv, &r.score);
	r.budgeting = (struct kv_budgeting){ .p = &kv_common.params, .grant = { .entries = o.entries } };
	if (kv_budget_needs_all(&r.budgeting))
		kv_usage(&tool, "METHOD looks at all layers: not here");
	kv_device_plan(&r.device, kv_common.device, kv_common.threads);
	r.device.precision = kv_common.precision;
	if ((rc = kv_params_open(&kv_common.params, &e)) == KV_OK)
		rc = work(&r, &e);
	fini(&r);
	return kv_report(rc, &e);
}
