/* SPDX-License-Identifier: MIT
 * Answers as a stream: the tokens, what each was chosen from, and the queries of those that were appended. */
#include <stdlib.h>
#include <string.h>

#include "formats/answer_sink.h"
#include "formats/emit.h"
#include "lib/device_memory.h"

/* Kept row by row, because more rows will come. */
int
kv_answer_watch(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct kv_answers *a = ctx;
	size_t Hq = a->o.cfg->Hq, D = a->o.cfg->D, n = view->n;
	float *q = kv_alloc(Hq * n, D * sizeof *q, e);
	int rc;

	if (q == NULL)
		return KV_EMEM;
	rc = kv_device_get_rows(a->o.device, q, KVK_F32, view->q, Hq, n, n, D, e);
	for (size_t i = 0; rc == KV_OK && i < n; i++)
		for (size_t h = 0; rc == KV_OK && h < Hq; h++)
			rc = kv_buf_add(&a->q[view->layer], q + (h * n + i) * D, D * sizeof *q, e);
	free(q);
	return rc;
}

static int
grow(struct kv_answers *a, const float *logits, struct kv_err *e)
{
	return kv_buf_add(&a->logits, logits, a->o.cfg->vocab * sizeof *logits, e);
}

static int
write_queries(struct kv_answers *a, size_t layer, size_t first, struct kv_err *e)
{
	size_t Hq = a->o.cfg->Hq, D = a->o.cfg->D, rows = a->q[layer].n / (Hq * D * sizeof(float));
	const float *from = (const float *)a->q[layer].data;
	struct kv_tensor t = { 0 };
	int rc = kv_tensor_new(&t, "q.response", (int)layer, KVK_F32, "head query dim", (size_t[]){ Hq, rows, D }, e);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rows; i++)
		for (size_t h = 0; h < Hq; h++)
			memcpy((float *)t.owned + (h * rows + i) * D, from + (i * Hq + h) * D, D * sizeof *from);
	if ((t.attrs = kv_row_attrs(NULL, first)) == NULL)
		rc = kv_no_memory(e, rows);
	else
		rc = kv_writer_tensor(a->o.writer, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

static int
write_logits(struct kv_answers *a, struct kv_err *e)
{
	struct kv_tensor t = { 0 };
	int rc = kv_tensor_init(
	    &t, "logits.response", KV_NO_LAYER, KVK_F32, "row vocab", (size_t[]){ a->ids.n, a->o.cfg->vocab }, e);

	t.data = a->logits.data;
	if (rc == KV_OK)
		rc = kv_writer_tensor(a->o.writer, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

static int
finish(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	json_t *map = json_copy(a->map);
	int rc;

	if (map == NULL)
		return kv_no_memory(e, a->ids.n);
	json_object_del(map, "sequence"); /* the writer counts its own */
	json_object_set_new(map, "response", kv_ids_to_json(&a->ids));
	if (f->stop != NULL)
		json_object_set_new(map, "stop", json_string(f->stop));
	rc = kv_writer_sequence(a->o.writer, map, e);
	for (size_t l = 0; rc == KV_OK && l < a->o.cfg->L; l++)
		rc = write_queries(a, l, f->first_position, e);
	if (rc == KV_OK)
		rc = write_logits(a, e);
	if (rc == KV_OK)
		rc = kv_writer_close(a->o.writer, e);
	json_decref(map);
	return rc;
}

const struct kv_answer_sink kv_answer_stream = { .grow = grow, .finish = finish };
