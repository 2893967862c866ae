/* SPDX-License-Identifier: MIT
 * The attention family: A = softmax(scale q.k) of the last prompt queries over all keys they see, reduced over the
 * query rows, then over the query heads.  METHODS 1.2, 1.5, 1.7; the presets are rows of scores.c. */
#include "lib/score/score.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

size_t
kv_columns_all(const struct kv_score_params *p, size_t T)
{
	(void)p;
	return T;
}

size_t
kv_columns_history(const struct kv_score_params *p, size_t T)
{
	return T > p->window ? T - p->window : 0;
}

const char *
kv_score_queries(const struct kv_score_params *p, char text[32])
{
	if (p->window == KV_ALL)
		strcpy(text, "all");
	else if (p->window == 1)
		strcpy(text, "last");
	else
		snprintf(text, 32, "window:%zu", p->window);
	return text;
}

/* Does q hold rows of the prompt, rather than of lookahead tokens or of a response? */
static bool
is_of_prompt(const struct kv_tensor *q)
{
	const char *region = json_string_value(json_object_get(q->attrs, "region"));

	return region != NULL &&
	       (strcmp(region, "window") == 0 || strcmp(region, "last") == 0 || strcmp(region, "all") == 0);
}

/* pos [W]: the positions of q's last W rows, which must be the prompt's last W. */
static int
check_positions(const struct kv_tensor *q, size_t W, size_t T, int32_t *pos, struct kv_err *e)
{
	const json_t *list = json_object_get(q->attrs, "positions");
	size_t n = q->shape[1];

	if (!json_is_array(list) || json_array_size(list) != n)
		return kv_fail(
		    e, KV_ESHAPE, "q: attribute positions must list one position for each of its %zu rows", n);
	for (size_t i = 0; i < W; i++) {
		json_int_t at = json_integer_value(json_array_get(list, n - W + i));

		if (at != (json_int_t)(T - W + i))
			return kv_fail(e, KV_ESHAPE,
			    "q: row %zu stands at position %lld, expected %zu of a prompt of %zu tokens", n - W + i,
			    (long long)at, T - W + i, T);
		pos[i] = (int32_t)at;
	}
	return KV_OK;
}

/* The last W query rows of every head, as one array [head][W][dim], and their positions [W]. */
struct rows {
	const void *data; /* q's own bytes when it has no more rows than that, else packed */
	size_t bytes;
	void *packed;
	int32_t *pos;
};

static void
rows_fini(struct rows *r)
{
	free(r->packed);
	free(r->pos);
}

static int
pack(struct rows *r, const struct kv_tensor *q, size_t W, struct kv_err *e)
{
	const size_t row = q->shape[2] * kvk_types[q->type].bytes, n = q->shape[1];

	r->data = q->data;
	r->bytes = q->shape[0] * W * row;
	if (n == W)
		return KV_OK;
	if ((r->packed = kv_alloc(r->bytes, 1, e)) == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < q->shape[0]; h++)
		memcpy((char *)r->packed + h * W * row, (const char *)q->data + (h * n + n - W) * row, W * row);
	r->data = r->packed;
	return KV_OK;
}

static int
take_rows(struct rows *r, const struct kv_score_input *in, const struct kv_score_params *p, size_t W, struct kv_err *e)
{
	char option[32];
	int rc;

	if (!is_of_prompt(in->q) || in->q->shape[1] < W)
		return kv_fail(e, KV_ESHAPE,
		    "q does not hold the queries of the last %zu prompt tokens: run kv-prefill with --queries %s", W,
		    kv_score_queries(p, option));
	if ((r->pos = kv_alloc(W, sizeof *r->pos, e)) == NULL)
		return KV_EMEM;
	if ((rc = check_positions(in->q, W, in->T, r->pos, e)) < 0)
		return rc;
	return pack(r, in->q, W, e);
}

/* Device part: s [Hq][n] per query head, y [heads][n] reduced, copied to raw [heads][n]. */
static int
compute(const struct kv_score_input *in, const struct kv_score_params *p, struct kvk_scores *job, size_t heads,
    float *raw, struct kv_err *e)
{
	const struct kv_device *d = in->device;
	const size_t n = job->n;
	const enum kvk_reduce how = p->all_heads ? KVK_MEAN : p->gqa;
	float *s = NULL, *y = NULL;
	int rc = KV_EDEV;

	if ((s = kv_device_alloc(d, in->Hq * n, sizeof *s, e)) == NULL ||
	    (y = kv_device_alloc(d, heads * n, sizeof *y, e)) == NULL)
		goto done;
	rc = kv_device_check(d, d->op->scores(d->dev, job, s), "scores", e);
	if (rc == KV_OK)
		rc = kv_device_check(d, d->op->reduce_heads(d->dev, s, in->Hq, heads, n, how, y), "reduce_heads", e);
	if (rc == KV_OK)
		rc = kv_device_check(d, d->op->get(d->dev, raw, y, heads * n * sizeof *y), "scores", e);
done:
	kv_device_free(d, y);
	kv_device_free(d, s);
	return rc;
}

int
kv_attention_score(
    const struct kv_score_input *in, const struct kv_score_params *p, size_t n, float *raw, struct kv_err *e)
{
	const struct kv_device *d = in->device;
	const size_t W = p->window < in->T ? p->window : in->T, heads = p->all_heads ? 1 : in->Hkv;
	struct kvk_scores job = { .q_type = in->q->type, .n_q = W, .Hq = in->Hq, .Hkv = in->Hkv, .D = in->D,
		.k_type = in->k->type, .T = in->T, .scale = in->scale, .rows = p->rows, .n = n };
	struct rows r = { 0 };
	int rc;

	if ((rc = take_rows(&r, in, p, W, e)) < 0)
		goto done;
	job.q_pos = r.pos;
	if ((job.q = d->op->view(d->dev, r.data, r.bytes)) == NULL) {
		rc = kv_no_memory(e, r.bytes);
		goto done;
	}
	if ((job.k = d->op->view(d->dev, in->k->data, in->k->bytes)) == NULL) {
		rc = kv_no_memory(e, in->k->bytes);
		goto done;
	}
	if ((rc = compute(in, p, &job, heads, raw, e)) < 0)
		goto done;
	for (size_t g = heads; g < in->Hkv; g++)
		memcpy(raw + g * n, raw, n * sizeof *raw);
	for (size_t i = 0; i < in->Hkv * n; i++)
		raw[i] += 0.0f; /* -0 becomes +0 */
done:
	if (job.k != NULL)
		d->op->unview(d->dev, job.k);
	if (job.q != NULL)
		d->op->unview(d->dev, job.q);
	rows_fini(&r);
	return rc;
}
