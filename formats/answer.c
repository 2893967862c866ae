/* SPDX-License-Identifier: MIT */
#include "formats/answer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/file.h"
#include "lib/text/json_text.h"

struct kv_answers {
	struct kv_answer_options o;
	struct kv_extend_tap tap;
	size_t begun; /* sequences */
	/* The current answer. */
	json_t *map;          /* the sequence's opening map */
	struct kv_ids ids;    /* end token included */
	struct kv_buf text;   /* end token excluded */
	size_t shown;         /* bytes of text that are out */
	struct kv_buf logits; /* [n][vocab] f32; only for a stream */
	struct kv_buf *q;     /* [L], each [rows][Hq][D] f32; only for a stream */
};

static int watch_queries(void *ctx, const struct kv_layer_view *view, struct kv_err *e);

int
kv_answers_new(struct kv_answers **out, const struct kv_answer_options *o, struct kv_err *e)
{
	struct kv_answers *a = kv_alloc(1, sizeof *a, e);

	*out = a;
	if (a == NULL || (a->q = kv_alloc(o->cfg->L, sizeof *a->q, e)) == NULL)
		return KV_EMEM;
	a->o = *o;
	a->tap = (struct kv_extend_tap){ watch_queries, a };
	return KV_OK;
}

static void
clear(struct kv_answers *a)
{
	json_decref(a->map);
	a->map = NULL;
	a->ids.n = a->text.n = a->logits.n = a->shown = 0;
	for (size_t l = 0; l < a->o.cfg->L; l++)
		a->q[l].n = 0;
}

void
kv_answers_free(struct kv_answers *a)
{
	if (a == NULL)
		return;
	json_decref(a->map);
	kv_ids_fini(&a->ids);
	kv_buf_fini(&a->text);
	kv_buf_fini(&a->logits);
	for (size_t l = 0; a->q != NULL && l < a->o.cfg->L; l++)
		kv_buf_fini(&a->q[l]);
	free(a->q);
	free(a);
}

/* ---- while it grows */

static int
print(struct kv_answers *a, const struct kv_buf *b, struct kv_err *e)
{
	return b->n > 0 ? kv_write_all(a->o.fd, b->data, b->n, e) : KV_OK;
}

static const char *
id_of(const struct kv_answers *a)
{
	const char *id = json_string_value(json_object_get(a->map, "id"));

	return id != NULL ? id : "?";
}

int
kv_answer_begin(struct kv_answers *a, const struct kv_sequence *seq, struct kv_err *e)
{
	struct kv_buf line = { 0 };
	int rc = KV_OK;

	clear(a);
	a->map = json_incref(seq->map);
	if (a->o.kind == KV_ANSWER_TEXT && a->begun > 0)
		rc = kv_buf_printf(&line, e, "--- %s\n", id_of(a));
	else if (a->o.kind == KV_ANSWER_NLL && a->begun == 0)
		rc = kv_buf_printf(&line, e, "id\tn_tokens\tnll\tnll_per_token\n");
	if (rc == KV_OK)
		rc = print(a, &line, e);
	a->begun++;
	kv_buf_fini(&line);
	return rc;
}

static int
add_text(struct kv_answers *a, int32_t id, struct kv_err *e)
{
	if (a->o.tokenizer == NULL)
		return kv_buf_printf(&a->text, e, "%s%d", a->text.n > 0 ? " " : "", (int)id);
	return kv_decode_token(a->o.tokenizer, id, false, &a->text, e);
}

/* Show the text up to the last whole character; all of it when it is finished. */
static int
show(struct kv_answers *a, bool finished, struct kv_err *e)
{
	size_t n = a->text.n - a->shown;
	const char *from = n > 0 ? a->text.data + a->shown : "";
	int rc;

	if (!finished)
		n = kv_utf8_ready(from, n);
	if (n > 0 && (rc = kv_write_all(a->o.fd, from, n, e)) < 0)
		return rc;
	a->shown += n;
	if (finished && (a->text.n == 0 || a->text.data[a->text.n - 1] != '\n'))
		return kv_write_all(a->o.fd, "\n", 1, e);
	return KV_OK;
}

int
kv_answer_token(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e)
{
	struct kv_answers *a = ctx;
	int rc = kv_ids_add(&a->ids, id, e);

	if (rc == KV_OK && !end)
		rc = add_text(a, id, e);
	if (rc == KV_OK && a->o.writer != NULL)
		rc = kv_buf_add(&a->logits, logits, a->o.cfg->vocab * sizeof *logits, e);
	if (rc == KV_OK && a->o.kind == KV_ANSWER_TEXT)
		rc = show(a, false, e);
	return rc;
}

/* view->q is [Hq][n][D]; kept row by row, because more rows will come. */
static int
watch_queries(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct kv_answers *a = ctx;
	const struct kv_device *d = a->o.device;
	size_t Hq = a->o.cfg->Hq, D = a->o.cfg->D, n = view->n;
	float *q = kv_alloc(Hq * n, D * sizeof *q, e);
	int rc;

	if (q == NULL)
		return KV_EMEM;
	rc = kv_device_check(d, d->op->get(d->dev, q, view->q, Hq * n * D * sizeof *q), "copy to the host", e);
	for (size_t i = 0; rc == KV_OK && i < n; i++)
		for (size_t h = 0; rc == KV_OK && h < Hq; h++)
			rc = kv_buf_add(&a->q[view->layer], q + (h * n + i) * D, D * sizeof *q, e);
	free(q);
	return rc;
}

const struct kv_extend_tap *
kv_answer_tap(struct kv_answers *a)
{
	return a->o.writer != NULL ? &a->tap : NULL;
}

/* ---- when it is finished */

static json_t *
ids_json(const struct kv_ids *ids)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ids->n; i++)
		json_array_append_new(list, json_integer(ids->v[i]));
	return list;
}

static json_t *
own_keys(const struct kv_answers *a, const struct kv_answer_facts *f)
{
	json_t *o = json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:I}", "id", id_of(a), "response",
	    kv_json_text(a->text.data, a->text.n), "tokens", ids_json(&a->ids), "n_tokens", (json_int_t)a->ids.n,
	    "next_position", (json_int_t)f->next_position, "kept_entries", (json_int_t)f->kept_entries, "kept_bytes",
	    (json_int_t)f->kept_bytes);

	if (o != NULL && f->stop != NULL)
		json_object_set_new(o, "stop", json_string(f->stop));
	if (o != NULL && f->measured) {
		json_object_set_new(o, "nll", json_real(f->nll));
		json_object_set_new(o, "nll_per_token", json_real(a->ids.n > 0 ? f->nll / (double)a->ids.n : 0));
	}
	return o;
}

static int
finish_json(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	json_t *all = json_object(), *own = own_keys(a, f), *value;
	struct kv_buf b = { 0 };
	const char *key;
	char *text = NULL;
	int rc = KV_EMEM;

	if (all == NULL || own == NULL)
		goto done;
	json_object_foreach(json_object_get(a->map, "attributes"), key, value)
	{
		if (json_object_get(own, key) == NULL) {
			json_object_set(all, key, value);
			continue;
		}
		b.n = 0;
		if (kv_buf_printf(&b, e, "attributes.%s", key) < 0)
			goto done;
		json_object_set(all, b.data, value);
	}
	json_object_update(all, own);
	if ((text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17))) == NULL)
		goto done;
	b.n = 0;
	if ((rc = kv_buf_printf(&b, e, "%s\n", text)) == KV_OK)
		rc = print(a, &b, e);
done:
	if (rc == KV_EMEM)
		kv_no_memory(e, a->text.n);
	free(text);
	kv_buf_fini(&b);
	json_decref(own);
	json_decref(all);
	return rc;
}

static int
finish_nll(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	int rc = kv_buf_printf(
	    &b, e, "%s\t%zu\t%.9g\t%.9g\n", id_of(a), a->ids.n, f->nll, a->ids.n > 0 ? f->nll / (double)a->ids.n : 0);

	if (rc == KV_OK)
		rc = print(a, &b, e);
	kv_buf_fini(&b);
	return rc;
}

static int
write_queries(struct kv_answers *a, size_t layer, size_t first, struct kv_err *e)
{
	size_t Hq = a->o.cfg->Hq, D = a->o.cfg->D, rows = a->q[layer].n / (Hq * D * sizeof(float));
	const float *from = (const float *)a->q[layer].data;
	struct kv_tensor t = { 0 };
	json_t *positions = json_array();
	int rc;

	for (size_t i = 0; i < rows; i++)
		json_array_append_new(positions, json_integer((json_int_t)(first + i)));
	rc = kv_tensor_new(&t, "q.response", (int)layer, KVK_F32, "head query dim", (size_t[]){ Hq, rows, D }, e);
	if (rc < 0) {
		json_decref(positions);
		return rc;
	}
	t.attrs = json_pack("{s:s, s:o}", "region", "response", "positions", positions);
	for (size_t i = 0; i < rows; i++)
		for (size_t h = 0; h < Hq; h++)
			memcpy((float *)t.owned + (h * rows + i) * D, from + (i * Hq + h) * D, D * sizeof *from);
	rc = kv_writer_tensor(a->o.writer, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

static int
finish_stream(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	json_t *map = json_copy(a->map);
	struct kv_tensor t = { 0 };
	int rc;

	if (map == NULL)
		return kv_no_memory(e, sizeof t);
	json_object_del(map, "sequence"); /* the writer counts its own */
	json_object_set_new(map, "response", ids_json(&a->ids));
	if (f->stop != NULL)
		json_object_set_new(map, "stop", json_string(f->stop));
	rc = kv_writer_sequence(a->o.writer, map, e);
	for (size_t l = 0; rc == KV_OK && l < a->o.cfg->L; l++)
		rc = write_queries(a, l, f->first_position, e);
	if (rc == KV_OK)
		rc = kv_tensor_init(&t, "logits.response", KV_NO_LAYER, KVK_F32, "token vocab",
		    (size_t[]){ a->ids.n, a->o.cfg->vocab }, e);
	if (rc == KV_OK) {
		t.data = a->logits.data;
		rc = kv_writer_tensor(a->o.writer, &t, e);
	}
	if (rc == KV_OK)
		rc = kv_writer_close(a->o.writer, e);
	kv_tensor_fini(&t);
	json_decref(map);
	return rc;
}

int
kv_answer_finish(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	int rc = KV_OK;

	switch (a->o.kind) {
	case KV_ANSWER_NONE: break;
	case KV_ANSWER_TEXT: rc = show(a, true, e); break;
	case KV_ANSWER_JSON: rc = finish_json(a, f, e); break;
	case KV_ANSWER_NLL: rc = finish_nll(a, f, e); break;
	}
	return rc == KV_OK && a->o.writer != NULL ? finish_stream(a, f, e) : rc;
}
