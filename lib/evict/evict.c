/* SPDX-License-Identifier: MIT
 * One layer's eviction: read the budgets, select, gather K and V, describe the result. */
#include "lib/evict/evict.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

void
kv_evicted_fini(struct kv_evicted *x)
{
	if (x == NULL)
		return;
	kv_tensor_fini(&x->v);
	kv_tensor_fini(&x->k);
	kv_tensor_fini(&x->offset);
	kv_tensor_fini(&x->index);
	*x = (struct kv_evicted){ 0 };
}

int
kv_evict_gather(const struct kv_device *d, const void *x, size_t H, size_t T, size_t row_bytes, const int32_t *index,
    const size_t *offset, void *y, struct kv_err *e)
{
	size_t most = 0, bytes = H * T * row_bytes;
	const char *from;
	char *part;
	int rc = KV_OK;

	for (size_t h = 0; h < H; h++)
		if (most < offset[h + 1] - offset[h])
			most = offset[h + 1] - offset[h];
	if (most == 0 || row_bytes == 0)
		return KV_OK;
	/* head by head, so that the device needs room for one head's entries only */
	if ((part = kv_device_alloc(d, most, row_bytes, e)) == NULL)
		return KV_EDEV;
	if ((from = d->op->view(d->dev, x, bytes)) == NULL)
		rc = kv_no_memory(e, bytes);
	for (size_t h = 0; h < H && rc == KV_OK; h++) {
		const size_t n = offset[h + 1] - offset[h], bound[] = { 0, n };

		rc = kv_device_check(d,
		    d->op->gather(d->dev, from + h * T * row_bytes, 1, T, row_bytes, index + offset[h], bound, part),
		    "gather", e);
		if (rc == KV_OK)
			rc = kv_device_check(
			    d, d->op->get(d->dev, (char *)y + offset[h] * row_bytes, part, n * row_bytes), "gather", e);
	}
	if (from != NULL)
		d->op->unview(d->dev, from);
	kv_device_free(d, part);
	return rc;
}

/* The sizes of a layer and what has been read of its inputs. */
struct plan {
	size_t Hkv, T, D, n;
	size_t *keep, *offset; /* [Hkv], [Hkv + 1] */
	struct kv_score_attrs attrs;
	const float *raw;
};

static int
check_cache(const struct kv_evict_input *in, struct plan *p, struct kv_err *e)
{
	const size_t any[] = { KV_ANY, in->next_position, KV_ANY };
	int rc;

	if ((rc = kv_tensor_expect(in->k, KVK_N_TYPES, "kv_head token dim", any, e)) < 0)
		return rc;
	p->Hkv = in->k->shape[0], p->T = in->k->shape[1], p->D = in->k->shape[2];
	if ((double)p->Hkv * (double)p->T > KV_COUNT_MAX)
		return kv_fail(
		    e, KV_ESHAPE, "k: %zu heads of %zu tokens are more than %.0f entries", p->Hkv, p->T, KV_COUNT_MAX);
	return kv_tensor_expect(in->v, in->k->type, "kv_head token dim", in->k->shape, e);
}

/* keep, offset and whether there is anything to decide. */
static int
read_budget(const struct kv_evict_input *in, struct plan *p, bool *all, struct kv_err *e)
{
	const size_t shape[] = { p->Hkv };
	const int32_t *B = in->budget->data;
	int rc;

	if ((rc = kv_tensor_expect(in->budget, KVK_I32, "kv_head", shape, e)) < 0)
		return rc;
	if ((p->keep = kv_alloc(p->Hkv, sizeof *p->keep, e)) == NULL ||
	    (p->offset = kv_alloc(p->Hkv + 1, sizeof *p->offset, e)) == NULL)
		return KV_EMEM;
	*all = true;
	for (size_t h = 0; h < p->Hkv; h++) {
		if (B[h] < 1)
			return kv_fail(
			    e, KV_EARG, "budget: head %zu would keep %d entries, expected at least 1", h, (int)B[h]);
		p->keep[h] = (size_t)B[h] < p->T ? (size_t)B[h] : p->T;
		p->offset[h + 1] = p->offset[h] + p->keep[h];
		*all = *all && p->keep[h] == p->T;
	}
	return KV_OK;
}

static int
read_score(const struct kv_evict_input *in, struct plan *p, size_t *n_nan, struct kv_err *e)
{
	const size_t shape[] = { p->Hkv, KV_ANY };
	int rc;

	if ((rc = kv_tensor_expect(in->score, KVK_F32, "kv_head token", shape, e)) < 0 ||
	    (rc = kv_score_attrs_from_json(&p->attrs, in->score->attrs, e)) < 0)
		return rc;
	p->n = in->score->shape[1];
	if (p->attrs.n_tokens != p->T || p->n > p->T)
		return kv_fail(e, KV_ESHAPE, "score: %zu columns for a prompt of %zu tokens, but k has %zu tokens",
		    p->n, p->attrs.n_tokens, p->T);
	p->raw = in->score->data;
	for (size_t i = 0; i < p->Hkv * p->n; i++)
		*n_nan += isnan(p->raw[i]) != 0;
	return KV_OK;
}

static int
read_inputs(const struct kv_evict_input *in, struct plan *p, size_t *n_nan, struct kv_err *e)
{
	bool all;
	int rc;

	if ((rc = check_cache(in, p, e)) < 0 || (rc = read_budget(in, p, &all, e)) < 0)
		return rc;
	if (in->score != NULL)
		return read_score(in, p, n_nan, e);
	if (!all)
		return kv_fail(e, KV_ESHAPE,
		    "the budget is smaller than the prompt and there is no tensor score to choose by: put kv-score "
		    "METHOD before kv-evict, or give the file that has the scores as a further FILE");
	return KV_OK;
}

/* One of k and v, compacted. */
static int
compact(const struct kv_evict_input *in, const struct plan *p, const struct kv_tensor *from, const int32_t *index,
    struct kv_tensor *to, struct kv_err *e)
{
	const size_t shape[] = { p->offset[p->Hkv], p->D }, row = p->D * kvk_types[from->type].bytes;
	int rc = kv_tensor_new(to, from->name, in->layer, from->type, "entry dim", shape, e);

	if (rc < 0)
		return rc;
	to->attrs = json_deep_copy(from->attrs);
	return kv_evict_gather(in->device, from->data, p->Hkv, p->T, row, index, p->offset, to->owned, e);
}

int
kv_evict_layer(const struct kv_evict_input *in, struct kv_evicted *out, struct kv_err *e)
{
	struct plan p = { 0 };
	size_t n_entries, n_bounds;
	int rc;

	*out = (struct kv_evicted){ 0 };
	if ((rc = read_inputs(in, &p, &out->n_nan, e)) < 0)
		goto done;
	n_entries = p.offset[p.Hkv];
	n_bounds = p.Hkv + 1;
	if ((rc = kv_tensor_new(&out->index, "index", in->layer, KVK_I32, "entry", &n_entries, e)) < 0 ||
	    (rc = kv_tensor_new(&out->offset, "offset", in->layer, KVK_I32, "bound", &n_bounds, e)) < 0)
		goto done;
	for (size_t h = 0; h <= p.Hkv; h++)
		((int32_t *)out->offset.owned)[h] = (int32_t)p.offset[h];
	if ((out->index.attrs = json_pack("{s:I}", "next_position", (json_int_t)in->next_position)) == NULL) {
		rc = kv_no_memory(e, 1);
		goto done;
	}
	if ((rc = kv_evict_select(in->device, &p.attrs, p.raw, p.Hkv, p.n, p.T, p.keep, in->tie, out->index.owned, e)) <
		0 ||
	    (rc = compact(in, &p, in->k, out->index.data, &out->k, e)) < 0 ||
	    (rc = compact(in, &p, in->v, out->index.data, &out->v, e)) < 0)
		goto done;
done:
	free(p.offset);
	free(p.keep);
	if (rc < 0)
		kv_evicted_fini(out);
	return rc;
}
