/* SPDX-License-Identifier: MIT
 * kv-prefill: run prompts through a model, layer by layer, and write what its attention saw as a stream.
 */
#include "bin/common.h"
#include "formats/emit.h"
#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/model/adapters.h"
#include "lib/model/prefill.h"
#include "lib/model/respond.h"
#include "lib/score/score.h"
#include "lib/text/prompts.h"
#include "lib/text/response.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_QUERIES "window:32"

static struct {
	struct kv_strings texts, files, tokens, token_files, jsonl;
	const char *field, *id_field;
	bool chat, special, no_bos;
	const char *chat_template, *system;
	const char *queries, *method, *response, *lookahead, *dtype;
} o = { .field = "prompt", .queries = DEFAULT_QUERIES, .dtype = "f16" };

static const struct kv_opt opts[] = {
	{ "prompt", 'p', KV_LIST, &o.texts, "TEXT", "a prompt; may be repeated", 0, 0, NULL },
	{ "file", 'f', KV_LIST, &o.files, "FILE", "a file that is one prompt; - is standard input", 0, 0, NULL },
	{ "tokens", 0, KV_LIST, &o.tokens, "IDS", "a prompt as token ids, taken as they are", 0, 0, NULL },
	{ "tokens-file", 0, KV_LIST, &o.token_files, "FILE", "a file of token ids that is one prompt", 0, 0, NULL },
	{ "jsonl", 0, KV_LIST, &o.jsonl, "FILE", "JSON Lines, a prompt per line", 0, 0, NULL },
	{ "field", 0, KV_STRING, &o.field, "NAME", "field of a line that holds the prompt", 0, 0, NULL },
	{ "id-field", 0, KV_STRING, &o.id_field, "NAME", "field that holds the id; else prompts are counted from 0", 0,
	    0, NULL },
	{ "chat", 0, KV_FLAG, &o.chat, NULL, "wrap texts as the user's turn of a conversation", 0, 0, NULL },
	{ "chat-template", 0, KV_STRING, &o.chat_template, "NAME",
	    "template to use, else the model's own; implies --chat", 0, 0, NULL },
	{ "system", 0, KV_STRING, &o.system, "TEXT", "system message; else the template's own", 0, 0, NULL },
	{ "special", 0, KV_FLAG, &o.special, NULL, "special tokens written in the text become those tokens", 0, 0,
	    NULL },
	{ "no-bos", 0, KV_FLAG, &o.no_bos, NULL, "no beginning-of-sequence token", 0, 0, NULL },
	{ "queries", 0, KV_STRING, &o.queries, "WHICH", "queries to write: window:N, part:N, last, all, none", 0, 0,
	    NULL },
	{ "for", 0, KV_STRING, &o.method, "METHOD", "write the queries that this method of kv-score wants", 0, 0,
	    NULL },
	{ "response", 0, KV_STRING, &o.response, "WHICH",
	    "behind each prompt, for its queries: file:FILE, field:NAME, tokens:IDS, generate:N", 0, 0, NULL },
	{ "lookahead", 0, KV_STRING, &o.lookahead, "MODULE",
	    "learned tokens behind each prompt instead, for their queries: a LookaheadKV module", 0, 0, NULL },
	{ "dtype", 0, KV_STRING, &o.dtype, "TYPE", "of keys and values", 0, 0, "f16|bf16|f32" },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "kv-prefill",
	.usage = "-m MODEL [-p TEXT] [-f FILE] [--tokens IDS] [--jsonl FILE] [options]",
	.brief = "run prompts through a model and write tokens, queries, keys, values and logits as a stream",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE | KV_COMMON_MODEL | KV_COMMON_PRECISION,
};

struct run {
	struct kv_queries queries;
	enum kvk_type dtype;
	struct kv_prompts prompts;
	struct kv_response response;
	struct kv_ids *behind; /* [prompts.n] responses */
	struct kv_model model;
	struct kv_tokenizer *tokenizer;
	const struct kv_chat *chat;
	struct kv_device device;
	struct kv_engine *engine;
	struct kv_lookahead *module;
	struct kv_adapters *adapters; /* the module's */
	struct kv_writer *writer;
	size_t done;          /* prompts */
	struct kv_emit *emit; /* the current prompt's */
};

/* ---- the command line */

_Noreturn static void
unknown_method(void)
{
	struct kv_buf b = { 0 };
	struct kv_err e;

	for (size_t i = 0; kv_score_list[i] != NULL; i++)
		kv_buf_printf(&b, &e, "%s%s", i > 0 ? ", " : "", kv_score_list[i]->about.name);
	kv_usage(&tool, "--for: unknown METHOD '%s', kv-score has %s", o.method, b.data != NULL ? b.data : "none");
}

static void
understand_queries(struct kv_queries *q)
{
	const struct kv_score_method *m;
	struct kv_params p;
	struct kv_err e = { 0 };

	if (kv_queries_parse(q, o.queries, &e) < 0)
		kv_usage(&tool, "--queries: %s", e.text);
	if (o.method == NULL)
		return;
	if (strcmp(o.queries, DEFAULT_QUERIES) != 0)
		kv_usage(&tool, "--queries and --for exclude each other");
	if ((m = kv_score_find(o.method)) == NULL)
		unknown_method();
	kv_params_init(&p, &m->about);
	*q = kv_score_queries(m, &p);
	if (kv_score_wants_response(m) && o.response == NULL)
		kv_usage(&tool, "--for %s: the method looks at a response behind the prompt, give --response as well",
		    o.method);
	if (kv_score_wants_lookahead(m) && o.lookahead == NULL)
		kv_usage(&tool,
		    "--for %s: the method looks at learned tokens behind the prompt, give their module as --lookahead "
		    "MODULE",
		    o.method);
}

static size_t
count_stdin(const struct kv_strings *files)
{
	size_t n = 0;

	for (size_t i = 0; i < files->n; i++)
		n += strcmp(files->v[i], "-") == 0;
	return n;
}

static void
check_prompts(void)
{
	struct kv_ids ids = { 0 };
	struct kv_err e = { 0 };

	for (size_t i = 0; i < o.tokens.n; i++)
		if (kv_ids_parse(&ids, o.tokens.v[i], &e) < 0)
			kv_usage(&tool, "--tokens: %s", e.text);
	kv_ids_fini(&ids);
	if (count_stdin(&o.files) + count_stdin(&o.token_files) + count_stdin(&o.jsonl) +
		(o.response != NULL && strcmp(o.response, "file:-") == 0) > 1)
		kv_usage(&tool, "standard input can be read once, but several options name it");
}

static void
understand(int argc, char **argv, struct run *r)
{
	struct kv_err e;

	if (argc > 1)
		kv_usage(&tool, "unexpected '%s': prompts come by -p, -f, --tokens or --jsonl", argv[1]);
	kv_need_model(&tool);
	if (o.texts.n + o.files.n + o.tokens.n + o.token_files.n + o.jsonl.n == 0)
		kv_usage(&tool, "no prompt: give -p TEXT, -f FILE, --tokens IDS or --jsonl FILE");
	check_prompts();
	if (o.chat_template != NULL && (r->chat = kv_chat_find(o.chat_template)) == NULL)
		kv_usage(&tool, "--chat-template: expected one of %s, got '%s'", kv_chat_names, o.chat_template);
	o.chat |= r->chat != NULL;
	if (o.system != NULL && !o.chat)
		kv_usage(&tool, "--system is for --chat");
	understand_queries(&r->queries);
	if (o.response != NULL && kv_response_parse(&r->response, o.response, &e) < 0)
		kv_usage(&tool, "--response: %s", e.text);
	if (o.response != NULL && o.lookahead != NULL)
		kv_usage(&tool, "--response and --lookahead exclude each other: "
		    "run twice, and give both streams to the next program");
	r->dtype = kv_type_find(o.dtype);
}

/* ---- prompts */

static int
read_prompts(struct kv_prompts *p, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; rc == KV_OK && i < o.texts.n; i++)
		rc = kv_prompts_add_text(p, o.texts.v[i], strlen(o.texts.v[i]), e);
	for (size_t i = 0; rc == KV_OK && i < o.files.n; i++)
		rc = kv_prompts_add_file(p, o.files.v[i], e);
	for (size_t i = 0; rc == KV_OK && i < o.tokens.n; i++)
		rc = kv_prompts_add_tokens(p, o.tokens.v[i], e);
	for (size_t i = 0; rc == KV_OK && i < o.token_files.n; i++)
		rc = kv_prompts_add_tokens_file(p, o.token_files.v[i], e);
	for (size_t i = 0; rc == KV_OK && i < o.jsonl.n; i++)
		rc = kv_prompts_add_jsonl(p, o.jsonl.v[i], o.field, o.id_field, e);
	return rc;
}

static bool
have_text(const struct run *r)
{
	for (size_t i = 0; i < r->prompts.n; i++)
		if (r->prompts.v[i].text != NULL || kv_response_is_text(&r->response, r->prompts.v[i].attributes))
			return true;
	return false;
}

static int
open_tokenizer(struct run *r, struct kv_err *e)
{
	int rc;

	if (!have_text(r))
		return KV_OK;
	if ((rc = kv_tokenizer_new(&r->tokenizer, &r->model.vocab, e)) < 0)
		return kv_where(e, "%s", kv_common.model);
	if (o.chat && (r->chat = kv_chat_choose(r->chat, NULL, r->model.vocab.chat_template)) == NULL)
		return kv_fail(e, KV_EMODEL,
		    "%s: no chat template that is known here; choose one with --chat-template %s", kv_common.model,
		    kv_chat_names);
	return KV_OK;
}

/* All prompts and what stands behind them become ids before the first one runs: a fault in the last shows at once. */
static int
encode_prompts(struct run *r, struct kv_err *e)
{
	const struct kv_prompt_coding c = {
		.tokenizer = r->tokenizer,
		.chat = r->chat,
		.system = o.system,
		.vocab = r->model.cfg.vocab,
		.context = r->model.cfg.context,
		.flags = (o.no_bos ? 0 : KV_ENCODE_BOS) | (o.special ? KV_ENCODE_SPECIAL : 0),
	};

	return kv_prompts_encode(&r->prompts, &c, e);
}

/* Behind every prompt stand the module's tokens: there has to be room. */
static int
check_room(const struct run *r, struct kv_err *e)
{
	const size_t context = r->model.cfg.context, n = r->module != NULL ? r->module->shape.n : 0;

	for (size_t i = 0; context > 0 && i < r->prompts.n; i++)
		if (n > context - r->prompts.v[i].ids.n)
			return kv_fail(e, KV_EARG,
			    "prompt %zu: %zu tokens and %zu lookahead tokens: the model's context ends at %zu", i,
			    r->prompts.v[i].ids.n, n, context);
	return KV_OK;
}

static void
say_module(const struct kv_lookahead *m)
{
	kv_note("%s: %zu lookahead tokens, %zu numbers, %.2f %% of the model's %zu", o.lookahead, m->shape.n,
	    m->n_parameters, 100 * (double)m->n_parameters / (double)m->base_parameters, m->base_parameters);
}

static int
read_module(struct run *r, struct kv_err *e)
{
	int rc = o.lookahead != NULL ? kv_lookahead_read(&r->module, o.lookahead, &r->model.cfg, e) : KV_OK;

	if (r->module != NULL)
		say_module(r->module);
	return rc;
}

static int
open_engine(struct run *r, struct kv_err *e)
{
	int rc = kv_engine_new(&r->engine, &r->model, &r->device, e);

	if (rc == KV_OK && r->module != NULL && (rc = kv_adapters_new(&r->adapters, r->engine, r->module, e)) < 0)
		kv_where(e, "%s", o.lookahead);
	return rc;
}

static int
encode_response(struct run *r, const struct kv_prompt *p, struct kv_ids *ids, struct kv_err *e)
{
	const struct kv_vocab *v = &r->model.vocab;
	const struct kv_behind b = {
		.tokenizer = r->tokenizer,
		.vocab = r->model.cfg.vocab,
		.flags = o.special ? KV_ENCODE_SPECIAL : 0,
		.before = p->ids.v,
		.n_before = p->ids.n,
	};
	size_t context = r->model.cfg.context;
	int rc = kv_response_encode(&r->response, &b, p->attributes, v->stops, v->n_stops, ids, e);

	if (rc == KV_OK && context > 0 && ids->n > context - p->ids.n)
		rc = kv_fail(e, KV_EARG, "%zu tokens and a response of %zu: the model's context ends at %zu", p->ids.n,
		    ids->n, context);
	return rc;
}

static int
encode_responses(struct run *r, struct kv_err *e)
{
	int rc = KV_OK;

	if ((r->behind = kv_alloc(r->prompts.n, sizeof *r->behind, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < r->prompts.n && rc == KV_OK; i++)
		if ((rc = encode_response(r, &r->prompts.v[i], &r->behind[i], e)) < 0)
			kv_where(e, "prompt %zu", i);
	return rc;
}

/* ---- the stream */

static json_t *
sequence_map(const struct run *r, const struct kv_prompt *p)
{
	json_t *map = json_pack(
	    "{s:s, s:o, s:I}", "id", p->id, "tokens", kv_ids_to_json(&p->ids), "prompt_length", (json_int_t)p->ids.n);

	if (map != NULL && r->chat != NULL && p->text != NULL)
		json_object_set_new(map, "chat", json_string(kv_chat_name(r->chat)));
	if (map != NULL && p->attributes != NULL)
		json_object_set(map, "attributes", p->attributes);
	return map;
}

/* The model's own response, if that is what was asked for. */
static int
respond(struct run *r, const struct kv_prompt *p, struct kv_ids *ids, json_t *map, struct kv_err *e)
{
	const struct kv_respond how = {
		.tokens = p->ids.v,
		.T = p->ids.n,
		.type = r->dtype,
		.most = r->response.most,
		.stops = r->model.vocab.stops,
		.n_stops = r->model.vocab.n_stops,
	};
	enum kv_stop why;
	int rc;

	if (r->response.kind != KV_RESPONSE_GENERATE)
		return KV_OK;
	if ((rc = kv_respond(r->engine, &how, ids, &why, e)) == KV_OK)
		json_object_set_new(map, "stop", json_string(kv_stop_names[why]));
	return rc;
}

static int
emit_layer(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	struct run *r = ctx;
	size_t L = r->model.cfg.L;
	int rc = kv_emit_layer(r->emit, view, e);

	kv_progress("layers", r->done * L + view->layer + 1, r->prompts.n * L);
	return rc;
}

static int
put_logits(struct run *r, const float *logits, struct kv_err *e)
{
	struct kv_tensor t = { 0 };
	int rc = kv_tensor_init(&t, "logits", KV_NO_LAYER, KVK_F32, "vocab", &r->model.cfg.vocab, e);

	t.data = logits;
	if (rc == KV_OK)
		rc = kv_writer_tensor(r->writer, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

/* The region of the rows behind the prompts; NULL: there are none. */
static const char *
what_is_behind(const struct run *r)
{
	if (r->module != NULL)
		return "lookahead";
	return r->response.kind != KV_RESPONSE_NONE ? "response" : NULL;
}

/* The sequence that `map` opens. */
static int
write_sequence(
    struct run *r, const struct kv_prompt *p, const struct kv_ids *behind, const json_t *map, struct kv_err *e)
{
	const struct kv_emit_options how = {
		.writer = r->writer,
		.device = &r->device,
		.cfg = &r->model.cfg,
		.type = r->dtype,
		.queries = r->queries,
		.behind = what_is_behind(r),
	};
	const struct kv_prefill_input in = { p->ids.v, p->ids.n, behind->v, behind->n, r->adapters };
	const size_t n_behind = r->module != NULL ? r->module->shape.n : in.n_behind;
	float *logits = kv_alloc(r->model.cfg.vocab, sizeof *logits, e);
	int rc = KV_EMEM;

	if (logits == NULL || (rc = kv_emit_new(&r->emit, &how, in.T, n_behind, e)) < 0 ||
	    (rc = kv_writer_sequence(r->writer, map, e)) < 0 ||
	    (rc = kv_prefill(r->engine, &in, emit_layer, r, logits, e)) < 0 || (rc = put_logits(r, logits, e)) < 0)
		goto done;
	rc = kv_writer_close(r->writer, e);
done:
	kv_emit_free(r->emit); /* which settles: the logits have left too */
	r->emit = NULL;
	free(logits);
	return rc;
}

static int
run_prompt(struct run *r, size_t i, struct kv_err *e)
{
	const struct kv_prompt *p = &r->prompts.v[i];
	json_t *map = sequence_map(r, p);
	int rc;

	if (map == NULL)
		return kv_no_memory(e, p->ids.n);
	if ((rc = respond(r, p, &r->behind[i], map, e)) < 0)
		goto done;
	if (r->response.kind != KV_RESPONSE_NONE) {
		json_object_set_new(map, "response", kv_ids_to_json(&r->behind[i]));
		if (r->behind[i].n == 0)
			kv_warn("prompt %zu: the response is empty", i);
	}
	rc = write_sequence(r, p, &r->behind[i], map, e);
	kv_ids_fini(&r->behind[i]);
	r->done++;
done:
	if (rc < 0 && rc != KV_EPIPE && rc != KV_EIO)
		kv_where(e, "prompt %zu", i);
	json_decref(map);
	return rc;
}

static int
write_header(struct run *r, struct kv_err *e)
{
	json_t *model = kv_config_to_json(&r->model.cfg), *entry = kv_history();
	int rc;

	kv_writer_on_unmet(r->writer, kv_unmet);
	if (kv_common.share)
		kv_writer_share_on(r->writer, &r->device);
	if (entry != NULL && r->module != NULL)
		json_object_set_new(entry, "module", json_string(r->module->hash));
	if (model == NULL || entry == NULL)
		rc = kv_no_memory(e, sizeof r->model.cfg);
	else if ((rc = kv_history_precision(entry, &r->device, e)) == KV_OK)
		rc = kv_writer_header(r->writer, model, NULL, entry, e);
	json_decref(model);
	json_decref(entry);
	return rc;
}

static int
work(struct run *r, struct kv_err *e)
{
	int rc;

	if ((rc = kv_writer_open(&r->writer, kv_common.output, kv_common.only, kv_common.drop, e)) < 0 ||
	    (rc = kv_writer_background(r->writer, e)) < 0 ||
	    (rc = read_prompts(&r->prompts, e)) < 0 || (rc = kv_response_read(&r->response, e)) < 0 ||
	    (rc = kv_model_open(&r->model, kv_common.model, true, e)) < 0 || (rc = read_module(r, e)) < 0 ||
	    (rc = open_tokenizer(r, e)) < 0 || (rc = encode_prompts(r, e)) < 0 || (rc = check_room(r, e)) < 0 ||
	    (rc = encode_responses(r, e)) < 0 || (rc = open_engine(r, e)) < 0 || (rc = write_header(r, e)) < 0)
		return rc;
	for (size_t i = 0; rc == KV_OK && i < r->prompts.n; i++)
		rc = run_prompt(r, i, e);
	return rc;
}

int
main(int argc, char **argv)
{
	struct run r = { 0 };
	struct kv_err e = { 0 };
	int rc;

	argc = kv_options(argc, argv, &tool);
	understand(argc, argv, &r);
	kv_device_plan(&r.device, kv_common.device, kv_common.threads);
	r.device.precision = kv_common.precision;
	r.device.unfit = kv_unfit;
	rc = work(&r, &e);
	if (rc == KV_OK)
		rc = kv_writer_finish(r.writer, &e);
	else
		kv_writer_drop(r.writer);
	kv_adapters_free(r.adapters);
	kv_engine_free(r.engine);
	kv_lookahead_free(r.module);
	kv_close_device(&r.device);
	kv_tokenizer_free(r.tokenizer);
	kv_model_fini(&r.model);
	for (size_t i = 0; r.behind != NULL && i < r.prompts.n; i++)
		kv_ids_fini(&r.behind[i]);
	free(r.behind);
	kv_response_fini(&r.response);
	kv_prompts_fini(&r.prompts);
	return kv_report(rc, &e);
}
