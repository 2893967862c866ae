/* SPDX-License-Identifier: MIT
 * A model file as text and as JSON Lines. */
#include <stdio.h>

#include "lib/show/show.h"
#include "lib/text/chat.h"

static const char *const vocab_kinds[] = { "none", "byte-level BPE", "SentencePiece BPE" };

static const char *
chat_family(const struct kv_vocab *v)
{
	const struct kv_chat *c = v->chat_template ? kv_chat_recognise(v->chat_template) : NULL;

	return c ? kv_chat_name(c) : NULL;
}

static void
say_token(struct kv_show *s, const struct kv_vocab *v, const char *what, int32_t id)
{
	if (id < 0 || (size_t)id >= v->n)
		return;
	kv_say(s, "  %s %d '", what, id);
	kv_say_bytes(s, v->tokens[id].text, v->tokens[id].n);
	kv_say(s, "'");
}

static void
say_vocab(struct kv_show *s, const struct kv_vocab *v)
{
	const char *family = chat_family(v);

	kv_say(s, "tokens   %s, %zu tokens, %zu merges", vocab_kinds[v->kind], v->n, v->n_merges);
	say_token(s, v, "bos", v->bos);
	say_token(s, v, "eos", v->eos);
	for (size_t i = 0; i < v->n_stops; i++)
		say_token(s, v, "stop", v->stops[i]);
	if (family == NULL)
		family = v->chat_template ? "a template of no known family" : "no template";
	kv_say(s, "%s\nchat     %s\n", v->add_bos ? "  prompts begin with bos" : "", family);
}

static int
text_config(struct kv_show *s, const char *format, const struct kv_model *m)
{
	static const char *const said[] = { "name", "architecture", "layers", "heads", "kv_heads", "head_dim",
		"vocabulary", "context", NULL };
	const struct kv_config *c = &m->cfg;
	json_t *all = kv_config_to_json(c);

	kv_say_string(s, s->file);
	kv_say(s, ": model file, %s\nmodel    ", format);
	kv_say_string(s, c->name);
	kv_say(s, " (%s): %zu layers, %zu query heads, %zu KV heads of %zu, vocabulary %zu, context %zu\n       ",
	    c->arch ? c->arch->name : "?", c->L, c->Hq, c->Hkv, c->D, c->vocab, c->context);
	kv_say_pairs(s, all, said);
	kv_say(s, "\n");
	json_decref(all);
	say_vocab(s, &m->vocab);
	return s->rc;
}

static int
text_other(struct kv_show *s, const char *format, const char *brief)
{
	(void)format;
	kv_say_string(s, s->file);
	kv_say(s, ": %s\n", brief);
	return s->rc;
}

static int
text_metadata(struct kv_show *s, const json_t *metadata)
{
	const char *key;
	json_t *value;

	kv_say(s, "\nmetadata\n");
	json_object_foreach ((json_t *)metadata, key, value) {
		kv_say(s, "  ");
		kv_say_string(s, key);
		kv_say(s, " = ");
		kv_say_value(s, value);
		kv_say(s, "\n");
	}
	kv_say(s, "\n%-6s %15s %16s  tensor\n", "type", "bytes", "rows x columns");
	return s->rc;
}

static size_t
count(struct kv_show *s, const struct kv_matrix *w)
{
	size_t n, bytes = 0;

	if (kv_mul(w->rows, w->cols, &n) && kv_type_bytes(w->type, n, &bytes))
		s->n_bytes += bytes;
	s->n_tensors++;
	return bytes;
}

static int
text_weight(struct kv_show *s, const char *name, const struct kv_matrix *w)
{
	char shape[64];

	snprintf(shape, sizeof shape, "%zu x %zu", w->rows, w->cols);
	kv_say(s, "%-6s ", kvk_types[w->type].name);
	kv_say_count(s, count(s, w), 15);
	kv_say(s, " %16s  ", shape);
	kv_say_string(s, name);
	kv_say(s, "\n");
	return s->rc;
}

static int
text_end(struct kv_show *s)
{
	kv_say(s, "\ntotal    %zu tensors, ", s->n_tensors);
	kv_say_count(s, s->n_bytes, 0);
	kv_say(s, " bytes\n");
	return s->rc;
}

const struct kv_model_view kv_model_view_text = {
	.config = text_config,
	.other = text_other,
	.metadata = text_metadata,
	.weight = text_weight,
	.end = text_end,
};

static json_t *
stops(const struct kv_vocab *v)
{
	json_t *a = json_array();

	for (size_t i = 0; i < v->n_stops; i++)
		json_array_append_new(a, json_integer(v->stops[i]));
	return a;
}

static int
json_config(struct kv_show *s, const char *format, const struct kv_model *m)
{
	const struct kv_vocab *v = &m->vocab;
	json_t *o = json_pack("{s:s, s:o, s:s, s:o}", "record", "model", "file", json_string_nocheck(s->file), "format",
	    format, "model", kv_config_to_json(&m->cfg));

	json_object_set_new(o, "vocabulary",
	    json_pack("{s:s, s:I, s:I, s:i, s:i, s:b, s:o, s:s?}", "kind", vocab_kinds[v->kind], "tokens",
		(json_int_t)v->n, "merges", (json_int_t)v->n_merges, "bos", v->bos, "eos", v->eos, "add_bos",
		v->add_bos, "stops", stops(v), "chat", chat_family(v)));
	kv_say_json(s, o);
	return s->rc;
}

static int
json_other(struct kv_show *s, const char *format, const char *brief)
{
	(void)brief;
	kv_say_json(
	    s, json_pack("{s:s, s:o, s:s}", "record", "file", "file", json_string_nocheck(s->file), "format", format));
	return s->rc;
}

static int
json_metadata(struct kv_show *s, const json_t *metadata)
{
	kv_say_json(s, json_pack("{s:s, s:O}", "record", "metadata", "metadata", metadata));
	return s->rc;
}

static int
json_weight(struct kv_show *s, const char *name, const struct kv_matrix *w)
{
	kv_say_json(s, json_pack("{s:s, s:o, s:s, s:[II], s:I}", "record", "tensor", "name", json_string_nocheck(name),
			   "dtype", kvk_types[w->type].name, "shape", (json_int_t)w->rows, (json_int_t)w->cols, "bytes",
			   (json_int_t)count(s, w)));
	return s->rc;
}

static int
json_end(struct kv_show *s)
{
	kv_say_json(s, json_pack("{s:s, s:I, s:I}", "record", "end", "tensors", (json_int_t)s->n_tensors, "bytes",
			   (json_int_t)s->n_bytes));
	return s->rc;
}

const struct kv_model_view kv_model_view_json = {
	.config = json_config,
	.other = json_other,
	.metadata = json_metadata,
	.weight = json_weight,
	.end = json_end,
};
