/* SPDX-License-Identifier: MIT */
#include "formats/answer.h"

#include <stdlib.h>

#include "formats/answer_sink.h"

static const struct kv_answer_sink nothing;

static const struct kv_answer_sink *const sinks[] = {
	[KV_ANSWER_NONE] = &nothing,
	[KV_ANSWER_TEXT] = &kv_answer_text,
	[KV_ANSWER_JSON] = &kv_answer_json,
	[KV_ANSWER_NLL] = &kv_answer_table,
};

/* Where an answer goes: its form, and beside it a stream if one is written. */
static const struct kv_answer_sink *
sink(const struct kv_answers *a, size_t i)
{
	if (i == 0)
		return sinks[a->o.kind];
	return a->o.writer != NULL ? &kv_answer_stream : &nothing;
}

int
kv_answers_new(struct kv_answers **out, const struct kv_answer_options *o, struct kv_err *e)
{
	struct kv_answers *a = kv_alloc(1, sizeof *a, e);

	*out = NULL;
	if (a == NULL || (a->q = kv_alloc(o->cfg->L, sizeof *a->q, e)) == NULL) {
		free(a);
		return KV_EMEM;
	}
	a->o = *o;
	a->tap = (struct kv_extend_tap){ kv_answer_watch, a };
	*out = a;
	return KV_OK;
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
	for (size_t l = 0; l < a->o.cfg->L; l++)
		kv_buf_fini(&a->q[l]);
	free(a->q);
	free(a);
}

const char *
kv_answer_id(const struct kv_answers *a)
{
	const char *id = json_string_value(json_object_get(a->map, "id"));

	return id != NULL ? id : "?";
}

const struct kv_extend_tap *
kv_answer_tap(struct kv_answers *a)
{
	return a->o.writer != NULL ? &a->tap : NULL;
}

int
kv_answer_begin(struct kv_answers *a, const struct kv_sequence *seq, struct kv_err *e)
{
	int rc = KV_OK;

	json_decref(a->map);
	a->map = json_incref(seq->map);
	a->ids.n = a->text.n = a->logits.n = a->shown = 0;
	for (size_t l = 0; l < a->o.cfg->L; l++)
		a->q[l].n = 0;
	for (size_t i = 0; rc == KV_OK && i < 2; i++)
		if (sink(a, i)->begin != NULL)
			rc = sink(a, i)->begin(a, e);
	a->begun++;
	return rc;
}

static int
add_text(struct kv_answers *a, int32_t id, struct kv_err *e)
{
	if (a->o.tokenizer == NULL)
		return kv_buf_printf(&a->text, e, "%s%d", a->text.n > 0 ? " " : "", (int)id);
	return kv_decode_token(a->o.tokenizer, id, false, &a->text, e);
}

int
kv_answer_token(void *ctx, int32_t id, bool end, const float *logits, struct kv_err *e)
{
	struct kv_answers *a = ctx;
	int rc = kv_ids_add(&a->ids, id, e);

	if (rc == KV_OK && !end)
		rc = add_text(a, id, e);
	for (size_t i = 0; rc == KV_OK && i < 2; i++)
		if (sink(a, i)->grow != NULL)
			rc = sink(a, i)->grow(a, logits, e);
	return rc;
}

int
kv_answer_finish(struct kv_answers *a, const struct kv_answer_facts *f, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; rc == KV_OK && i < 2; i++)
		if (sink(a, i)->finish != NULL)
			rc = sink(a, i)->finish(a, f, e);
	return rc;
}
