/* SPDX-License-Identifier: MIT
 * The table of scoring methods, and the step that every program runs for one layer. */
#include "lib/score/score.h"

#include <string.h>

#include "lib/buf.h"

static const struct kv_score snapkv = {
	.name = "snapkv",
	.brief = "attention of the last W prompt tokens (the observation window)",
	.paper = "arXiv:2404.14469",
	.needs = KV_NEED_K | KV_NEED_Q,
	.takes = KV_TAKES_WINDOW | KV_TAKES_ROWS | KV_TAKES_GQA,
	.queries = "window:32",
	.defaults = { .window = 32,
	    .pool = KVK_POOL_MAX,
	    .pool_width = 7,
	    .rows = KVK_MEAN,
	    .gqa = KVK_MEAN,
	    .n_recent = KV_SAME },
	.columns = kv_columns_history,
	.run = kv_attention_score,
};

static const struct kv_score tova = {
	.name = "tova",
	.brief = "attention of the last prompt token, averaged over all heads of the layer",
	.paper = "arXiv:2401.06104",
	.needs = KV_NEED_K | KV_NEED_Q,
	.queries = "last",
	.defaults = { .window = 1,
	    .pool = KVK_POOL_NONE,
	    .pool_width = 7,
	    .rows = KVK_MEAN,
	    .gqa = KVK_MEAN,
	    .all_heads = true,
	    .n_recent = 1 },
	.columns = kv_columns_all,
	.run = kv_attention_score,
};

const struct kv_score *const kv_score_list[] = {
	&snapkv,
	&tova,
	NULL,
};

const struct kv_score *
kv_score_find(const char *name)
{
	for (const struct kv_score *const *m = kv_score_list; *m != NULL; m++)
		if (strcmp((*m)->name, name) == 0)
			return *m;
	return NULL;
}

/* Is what the method reads there, and of the shape that the model has? */
static int
check_inputs(
    const struct kv_score *m, const struct kv_score_params *p, const struct kv_score_input *in, struct kv_err *e)
{
	const size_t kv_shape[] = { in->Hkv, in->T, in->D }, q_shape[] = { in->Hq, KV_ANY, in->D };
	char rows[32];
	int rc = KV_OK;

	if (in->Hkv == 0 || in->Hq % in->Hkv != 0)
		return kv_fail(e, KV_ESHAPE, "%zu query heads cannot share %zu KV heads", in->Hq, in->Hkv);
	if ((m->needs & KV_NEED_K) && in->k == NULL)
		return kv_fail(e, KV_ESHAPE,
		    "%s needs the keys (tensor k): kv-prefill writes them, do not drop them on the way", m->name);
	if ((m->needs & KV_NEED_V) && in->v == NULL)
		return kv_fail(e, KV_ESHAPE,
		    "%s needs the values (tensor v): kv-prefill writes them, do not drop them on the way", m->name);
	if ((m->needs & KV_NEED_Q) && in->q == NULL)
		return kv_fail(e, KV_ESHAPE, "%s needs queries (tensor q): run kv-prefill with --queries %s", m->name,
		    kv_score_queries(p, rows));
	if (m->needs & KV_NEED_K)
		rc = kv_tensor_expect(in->k, KVK_N_TYPES, "kv_head token dim", kv_shape, e);
	if (rc == KV_OK && (m->needs & KV_NEED_V))
		rc = kv_tensor_expect(in->v, KVK_N_TYPES, "kv_head token dim", kv_shape, e);
	if (rc == KV_OK && (m->needs & KV_NEED_Q))
		rc = kv_tensor_expect(in->q, KVK_N_TYPES, "head query dim", q_shape, e);
	return rc;
}

int
kv_score_layer(const struct kv_score *m, const struct kv_score_params *p, const struct kv_score_input *in,
    struct kv_tensor *score, struct kv_err *e)
{
	struct kv_score_attrs a = { .pool = p->pool,
		.pool_width = p->pool_width,
		.n_sink = p->n_sink,
		.n_recent = p->n_recent,
		.n_tokens = in->T };
	const size_t n = m->columns(p, in->T), shape[] = { in->Hkv, n };
	int rc;

	*score = (struct kv_tensor){ 0 };
	if ((rc = check_inputs(m, p, in, e)) < 0)
		return rc;
	if ((rc = kv_tensor_new(score, "score", in->layer, KVK_F32, "kv_head token", shape, e)) < 0)
		goto done;
	if (n > 0 && (rc = m->run(in, p, n, score->owned, e)) < 0)
		goto done;
	strcpy(a.method, m->name);
	if ((score->attrs = kv_score_attrs_to_json(&a, p)) == NULL)
		rc = kv_no_memory(e, sizeof a);
done:
	if (rc < 0)
		kv_tensor_fini(score);
	return rc;
}

int
kv_pooled(const struct kv_device *d, const struct kv_score_attrs *a, const float *raw, size_t H, size_t n,
    float *pooled, struct kv_err *e)
{
	const void *x = NULL;
	float *y = NULL;
	size_t count;
	int rc = KV_OK;

	if (!kv_mul(H, n, &count))
		return kv_fail(e, KV_ESHAPE, "score: %zu heads of %zu tokens are too many", H, n);
	if (count == 0)
		return KV_OK;
	if (a->pool == KVK_POOL_NONE) {
		memcpy(pooled, raw, count * sizeof *raw);
		return KV_OK;
	}
	if ((y = kv_device_alloc(d, count, sizeof *y, e)) == NULL)
		return KV_EDEV;
	if ((x = d->op->view(d->dev, raw, count * sizeof *raw)) == NULL) {
		rc = kv_no_memory(e, count * sizeof *raw);
		goto done;
	}
	rc = kv_device_check(d, d->op->pool(d->dev, x, H, n, a->pool, a->pool_width, y), "pool", e);
	if (rc == KV_OK)
		rc = kv_device_check(d, d->op->get(d->dev, pooled, y, count * sizeof *y), "pool", e);
	d->op->unview(d->dev, x);
done:
	kv_device_free(d, y);
	return rc;
}
