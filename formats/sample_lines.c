/* SPDX-License-Identifier: MIT */
#include "formats/sample_lines.h"

#include "lib/text/response.h"

static int
open_tokenizer(struct kv_sample_lines *s, const struct kv_prompts *p, struct kv_err *e)
{
	bool text = false;
	int rc;

	for (size_t i = 0; i < p->n && !text; i++)
		text =
		    p->v[i].text != NULL || (s->response_field != NULL &&
						json_is_string(json_object_get(p->v[i].attributes, s->response_field)));
	if (!text || s->tokenizer != NULL)
		return KV_OK;
	if ((rc = kv_tokenizer_new(&s->tokenizer, &s->model->vocab, e)) < 0)
		return rc;
	if (s->chat && (s->template = kv_chat_choose(s->template, NULL, s->model->vocab.chat_template)) == NULL)
		return kv_fail(e, KV_EMODEL,
		    "the model has no chat template that is known here; choose one with --chat-template %s",
		    kv_chat_names);
	return KV_OK;
}

static int
encode_response(const struct kv_sample_lines *s, const struct kv_prompt *p, struct kv_ids *ids, struct kv_err *e)
{
	const struct kv_response how = { .kind = KV_RESPONSE_FIELD, .rest = s->response_field };
	const struct kv_behind b = { .tokenizer = s->tokenizer,
		.vocab = s->model->cfg.vocab,
		.flags = s->flags & KV_ENCODE_SPECIAL,
		.before = p->ids.v,
		.n_before = p->ids.n };
	const struct kv_vocab *v = &s->model->vocab;
	int rc = kv_response_encode(&how, &b, p->attributes, v->stops, v->n_stops, ids, e);

	if (rc == KV_OK && ids->n > s->max_response)
		ids->n = s->max_response;
	return rc;
}

/* A prompt becomes a lesson, unless it is too long. */
static int
add_sample(struct kv_sample_lines *s, struct kv_prompt *p, struct kv_lessons *to, struct kv_err *e)
{
	struct kv_ids response = { 0 };
	int rc = KV_OK;

	if (p->ids.n > s->max_prompt && !s->cut) {
		s->n_left_out++;
		return KV_OK;
	}
	if (p->ids.n > s->max_prompt) {
		p->ids.n = s->max_prompt;
		s->n_cut++;
	}
	if (s->response_field != NULL)
		rc = encode_response(s, p, &response, e);
	if (rc == KV_OK)
		rc = kv_lessons_add(to, p->id, &p->ids, s->response_field != NULL ? &response : NULL, e);
	kv_ids_fini(&response);
	return rc < 0 ? kv_where(e, "%s", p->from != NULL ? p->from : p->id) : rc;
}

int
kv_sample_lines_read(struct kv_sample_lines *s, const char *path, struct kv_lessons *to, struct kv_err *e)
{
	const size_t context = s->model->cfg.context;
	struct kv_prompts p = { 0 };
	int rc = kv_prompts_add_jsonl(&p, path, s->field, s->id_field, e);

	if (context > 1 && s->max_prompt > context - 1)
		s->max_prompt = context - 1;
	if (rc == KV_OK && (rc = open_tokenizer(s, &p, e)) == KV_OK) {
		const struct kv_prompt_coding c = { .tokenizer = s->tokenizer,
			.chat = s->chat ? s->template : NULL,
			.system = s->system,
			.vocab = s->model->cfg.vocab,
			.flags = s->flags };

		rc = kv_prompts_encode(&p, &c, e);
	}
	for (size_t i = 0; i < p.n && rc == KV_OK; i++)
		rc = add_sample(s, &p.v[i], to, e);
	kv_prompts_fini(&p);
	return rc;
}

void
kv_sample_lines_fini(struct kv_sample_lines *s)
{
	kv_tokenizer_free(s->tokenizer);
	s->tokenizer = NULL;
}
