/* SPDX-License-Identifier: MIT
 * kv-decode: continue from a cache, whole or evicted, and write the answer as text, JSON Lines or a stream.
 */
#include "bin/common.h"
#include "formats/answer.h"
#include "formats/format.h"
#include "formats/layer_cache.h"
#include "formats/responses.h"
#include "lib/file.h"
#include "lib/model/generate.h"
#include "lib/text/behind.h"
#include "lib/text/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	size_t n;
	struct kv_sampler sampler;
	bool ignore_eos, jsonl, chat, special;
	const char *prompt, *prompt_file, *prompt_field, *nll_file, *nll_field, *follow, *chat_template;
} o = { .n = 128, .sampler = { .top_p = 1 } };

static const struct kv_opt opts[] = {
	{ "max-tokens", 'n', KV_SIZE, &o.n, "TOKENS", "longest answer", 0, INT32_MAX, NULL },
	{ "temperature", 0, KV_DOUBLE, &o.sampler.temperature, "T", "0 always takes the likeliest token", 0, 1000,
	    NULL },
	{ "top-k", 0, KV_SIZE, &o.sampler.top_k, "K", "choose among the K likeliest; 0: all", 0, INT32_MAX, NULL },
	{ "top-p", 0, KV_DOUBLE, &o.sampler.top_p, "P", "choose among the likeliest that sum to P; 1: all", 1e-9, 1,
	    NULL },
	{ "min-p", 0, KV_DOUBLE, &o.sampler.min_p, "P",
	    "drop what is less likely than P times the likeliest; 0: nothing", 0, 1, NULL },
	{ "ignore-eos", 0, KV_FLAG, &o.ignore_eos, NULL, "go on behind the model's end tokens", 0, 0, NULL },
	{ "prompt", 'p', KV_STRING, &o.prompt, "TEXT", "a turn to append before the answer", 0, 0, NULL },
	{ "file", 'f', KV_STRING, &o.prompt_file, "FILE", "the same from a file", 0, 0, NULL },
	{ "prompt-field", 0, KV_STRING, &o.prompt_field, "NAME", "the same from this attribute of each sequence", 0, 0,
	    NULL },
	{ "chat", 0, KV_FLAG, &o.chat, NULL, "wrap the turn in the conversation's template", 0, 0, NULL },
	{ "chat-template", 0, KV_STRING, &o.chat_template, "NAME",
	    "template to use, else the prompt's or the model's; implies --chat", 0, 0, NULL },
	{ "special", 0, KV_FLAG, &o.special, NULL, "special tokens written in texts become those tokens", 0, 0, NULL },
	{ "nll", 0, KV_STRING, &o.nll_file, "FILE", "print -ln p of this continuation instead of answering", 0, 0,
	    NULL },
	{ "nll-field", 0, KV_STRING, &o.nll_field, "NAME", "the same for this attribute of each sequence", 0, 0, NULL },
	{ "follow", 0, KV_STRING, &o.follow, "STREAM", "the same for the tokens of another run's answers (its -o)", 0,
	    0, NULL },
	{ "jsonl", 0, KV_FLAG, &o.jsonl, NULL, "print a JSON object per sequence", 0, 0, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "kv-decode",
	.usage = "-m MODEL [options] [FILE...]",
	.brief = "generate from caches, whole or evicted",
	.opts = opts,
	.common = KV_COMMON_OUTPUT | KV_COMMON_DEVICE | KV_COMMON_MODEL | KV_COMMON_SEED |
	    KV_COMMON_PRECISION,
};

struct run {
	struct kv_io io;
	struct kv_model model;
	struct kv_tokenizer *tokenizer; /* NULL: the model has no vocabulary */
	const struct kv_chat *chat;     /* --chat-template */
	struct kv_engine *engine;
	struct kv_buf turn, given; /* -p or -f; --nll */
	struct kv_responses *responses; /* --follow */
	struct kv_writer *writer;
	struct kv_answers *answers;
	float *logits; /* [vocab], what the next token is chosen from */
	/* The current sequence; cache NULL between sequences. */
	struct kv_cache *cache;
	size_t layers, next_position, entries;
	struct kv_ids turn_ids, given_ids;
};

/* ---- the command line */

static bool
has_turn(void)
{
	return o.prompt != NULL || o.prompt_file != NULL || o.prompt_field != NULL;
}

static bool
has_nll(void)
{
	return o.nll_file != NULL || o.nll_field != NULL || o.follow != NULL;
}

static bool
is_stdin(const char *file)
{
	return file != NULL && strcmp(file, "-") == 0;
}

/* n operands */
static void
check_stdin(char *const *files, int n)
{
	int reads = (n == 0) + is_stdin(o.prompt_file) + is_stdin(o.nll_file);

	for (int i = 0; i < n; i++)
		reads += is_stdin(files[i]);
	if (reads > 1)
		kv_usage(&tool, "standard input can be read once, and a cache comes from there unless a FILE is named");
}

static void
understand(struct run *r, char *const *files, int n)
{
	kv_need_model(&tool);
	if ((o.prompt != NULL) + (o.prompt_file != NULL) + (o.prompt_field != NULL) > 1)
		kv_usage(&tool, "-p, -f and --prompt-field exclude each other");
	if ((o.nll_file != NULL) + (o.nll_field != NULL) + (o.follow != NULL) > 1)
		kv_usage(&tool, "--nll, --nll-field and --follow exclude each other");
	if (o.follow != NULL && strcmp(o.follow, "-") == 0)
		kv_usage(&tool, "--follow wants a file: standard input is for the cache");
	if (o.chat_template != NULL && (r->chat = kv_chat_find(o.chat_template)) == NULL)
		kv_usage(&tool, "--chat-template: expected one of %s, got '%s'", kv_chat_names, o.chat_template);
	o.chat |= r->chat != NULL;
	if (o.chat && !has_turn())
		kv_usage(&tool, "--chat wraps a turn: give one with -p, -f or --prompt-field");
	if ((kv_common.only != NULL || kv_common.drop != NULL) && kv_common.output == NULL)
		kv_usage(&tool, "--only and --drop choose from a stream: ask for one with -o");
	if (o.jsonl && kv_common.output != NULL && strcmp(kv_common.output, "-") == 0)
		kv_usage(&tool, "--jsonl and -o - both want standard output");
	check_stdin(files, n);
	o.sampler.seed = kv_common.seed;
}

/* ---- opening */

static int
read_texts(struct run *r, struct kv_err *e)
{
	int rc = KV_OK;

	if (o.prompt != NULL)
		rc = kv_buf_add(&r->turn, o.prompt, strlen(o.prompt), e);
	else if (o.prompt_file != NULL)
		rc = kv_file_read(o.prompt_file, SIZE_MAX / 4, &r->turn, e);
	if (rc == KV_OK && o.nll_file != NULL)
		rc = kv_file_read(o.nll_file, SIZE_MAX / 4, &r->given, e);
	return rc;
}

/* Keys of one model mean nothing to another: same sizes and same weights, or none of it. */
static int
check_model(const struct run *r, struct kv_err *e)
{
	const struct kv_config *m = &r->model.cfg;
	struct kv_config c = { 0 };
	int rc = kv_config_from_json(&c, kv_pipe_model(r->io.pipe), e);

	if (rc < 0)
		goto done;
	if (c.L != m->L || c.Hq != m->Hq || c.Hkv != m->Hkv || c.D != m->D || c.vocab != m->vocab)
		rc = kv_fail(e, KV_EMODEL,
		    "wrong model for this cache: it is from %s (%zu layers, %zu/%zu heads of %zu, vocabulary "
		    "%zu), %s is %s (%zu, %zu/%zu of %zu, %zu)",
		    c.name, c.L, c.Hq, c.Hkv, c.D, c.vocab, kv_common.model, m->name, m->L, m->Hq, m->Hkv, m->D,
		    m->vocab);
	else if (c.fingerprint[0] != '\0' && m->fingerprint[0] != '\0' && strcmp(c.fingerprint, m->fingerprint) != 0)
		rc = kv_fail(e, KV_EMODEL,
		    "wrong model for this cache: it is from %s with weights %s, %s is %s with weights %s", c.name,
		    c.fingerprint, kv_common.model, m->name, m->fingerprint);
done:
	if (rc < 0)
		kv_where(e, "%s", kv_pipe_name(r->io.pipe));
	kv_config_fini(&c);
	return rc;
}

static int
open_writer(struct run *r, struct kv_err *e)
{
	int rc;

	if (kv_common.output == NULL)
		return KV_OK;
	if ((rc = kv_writer_open(&r->writer, kv_common.output, kv_common.only, kv_common.drop, e)) < 0)
		return rc;
	kv_writer_on_unmet(r->writer, kv_unmet);
	if (kv_common.share)
		kv_writer_share(r->writer);
	/* our entry stands in the history already */
	return kv_writer_header(r->writer, kv_pipe_model(r->io.pipe), kv_pipe_history(r->io.pipe), NULL, e);
}

static enum kv_answer_kind
kind_of_answer(void)
{
	if (o.jsonl)
		return KV_ANSWER_JSON;
	if (kv_common.output != NULL && strcmp(kv_common.output, "-") == 0)
		return KV_ANSWER_NONE;
	return has_nll() ? KV_ANSWER_NLL : KV_ANSWER_TEXT;
}

/* io is open: the header of the cache has been read. */
static int
open_rest(struct run *r, struct kv_err *e)
{
	struct kv_answer_options a = { .kind = kind_of_answer(), .fd = STDOUT_FILENO, .cfg = &r->model.cfg };
	int rc;

	if ((rc = read_texts(r, e)) < 0 ||
	    (o.follow != NULL &&
		(rc = kv_responses_open(&r->responses, o.follow, kv_pipe_model(r->io.pipe), e)) < 0) ||
	    (rc = kv_model_open(&r->model, kv_common.model, true, e)) < 0 ||
	    (rc = check_model(r, e)) < 0 ||
	    (rc = kv_engine_new(&r->engine, &r->model, &r->io.device, e)) < 0 ||
	    (rc = kv_history_precision(r->io.entry, &r->io.device, e)) < 0 ||
	    (rc = open_writer(r, e)) < 0)
		return rc;
	if (r->model.vocab.kind != KV_VOCAB_NONE) {
		if ((rc = kv_tokenizer_new(&r->tokenizer, &r->model.vocab, e)) < 0)
			return kv_where(e, "%s", kv_common.model);
	} else if (o.chat)
		return kv_fail(
		    e, KV_EMODEL, "%s: no vocabulary, so no turn of a conversation can be appended", kv_common.model);
	if ((r->logits = kv_alloc(r->model.cfg.vocab, sizeof *r->logits, e)) == NULL)
		return KV_EMEM;
	a.tokenizer = r->tokenizer;
	a.writer = r->writer;
	a.device = &r->io.device;
	return kv_answers_new(&r->answers, &a, e);
}

/* ---- one sequence: what is to be appended */

static struct kv_behind
behind(const struct run *r, const struct kv_sequence *seq)
{
	return (struct kv_behind){
		.tokenizer = r->tokenizer,
		.vocab = r->model.cfg.vocab,
		.flags = o.special ? KV_ENCODE_SPECIAL : 0,
		.before = seq->tokens,
		.n_before = seq->T,
	};
}

/* A text of the command line or, if field is not NULL, this attribute of the sequence. */
static int
encode(const struct run *r, const struct kv_sequence *seq, const struct kv_buf *text, const char *field,
    struct kv_ids *ids, struct kv_err *e)
{
	const struct kv_behind b = behind(r, seq);

	if (field != NULL)
		return kv_behind_field(&b, json_object_get(seq->map, "attributes"), field, ids, e);
	return kv_behind_text(&b, text->data != NULL ? text->data : "", text->n, ids, e);
}

/* The same as a turn of the conversation. */
static int
encode_chat(const struct run *r, const struct kv_sequence *seq, struct kv_ids *ids, struct kv_err *e)
{
	const char *text = r->turn.data, *prompts = json_string_value(json_object_get(seq->map, "chat"));
	const struct kv_chat *chat = kv_chat_choose(r->chat, prompts, r->model.vocab.chat_template);
	size_t bytes = r->turn.n;

	if (o.prompt_field != NULL) {
		const json_t *v = json_object_get(json_object_get(seq->map, "attributes"), o.prompt_field);

		if ((text = json_string_value(v)) == NULL)
			return kv_fail(
			    e, KV_EARG, "field '%s' is %s", o.prompt_field, v == NULL ? "missing" : "no text");
		bytes = json_string_length(v);
	}
	if (chat == NULL)
		return kv_fail(e, KV_EMODEL, "no chat template that is known here; choose one with --chat-template %s",
		    kv_chat_names);
	if (bytes == 0)
		return KV_OK; /* of an empty turn the markup alone would be left */
	/* a prompt that was wrapped ends where the assistant begins: that turn has to be closed */
	return kv_chat_encode(
	    chat, r->tokenizer, "", text, bytes, false, prompts != NULL, o.special ? KV_ENCODE_SPECIAL : 0, ids, e);
}

static int
encode_turn(struct run *r, const struct kv_sequence *seq, struct kv_err *e)
{
	int rc;

	r->turn_ids.n = 0;
	if (!has_turn())
		return KV_OK;
	rc = o.chat ? encode_chat(r, seq, &r->turn_ids, e) : encode(r, seq, &r->turn, o.prompt_field, &r->turn_ids, e);
	return rc == KV_OK && r->turn_ids.n == 0 ? kv_fail(e, KV_EARG, "the turn to append is empty") : rc;
}

/* The answer of another run to this sequence. */
static int
take_response(struct run *r, const struct kv_sequence *seq, struct kv_err *e)
{
	const struct kv_behind b = behind(r, seq);
	const json_t *map;
	int rc = kv_responses_find(r->responses, seq->map, seq->number, &map, e);

	return rc < 0 ? rc : kv_behind_field(&b, map, "response", &r->given_ids, e);
}

static int
encode_given(struct run *r, const struct kv_sequence *seq, struct kv_err *e)
{
	int rc;

	r->given_ids.n = 0;
	if (!has_nll())
		return KV_OK;
	rc = o.follow != NULL ? take_response(r, seq, e) : encode(r, seq, &r->given, o.nll_field, &r->given_ids, e);
	return rc == KV_OK && r->given_ids.n == 0 ? kv_fail(e, KV_EARG, "the continuation to measure is empty") : rc;
}

/* ---- one sequence: the cache */

/* Before its first layer.  Room beyond the context would never be used. */
static int
begin_sequence(struct run *r, const struct kv_sequence *seq, enum kvk_type type, struct kv_err *e)
{
	size_t context = r->model.cfg.context, room;
	int rc;

	if ((rc = encode_turn(r, seq, e)) < 0 || (rc = encode_given(r, seq, e)) < 0)
		return rc;
	room = has_nll() ? r->given_ids.n : o.n;
	if (context > 0 && room > context)
		room = context;
	r->layers = r->entries = 0;
	return kv_cache_new(&r->cache, r->engine, type, r->turn_ids.n + room + 1, e);
}

static int
load_once(struct run *r, const struct kv_step *s, struct kv_err *e)
{
	const struct kv_config *c = &r->model.cfg;
	struct kv_layer_cache x;
	int rc;

	if ((rc = kv_layer_cache_read(&x, s, c, &r->io.device, e)) < 0)
		return rc;
	if (r->cache == NULL && (rc = begin_sequence(r, s->seq, x.k->type, e)) < 0)
		goto done;
	if ((size_t)s->layer != r->layers)
		rc = kv_fail(e, KV_EFORMAT, "expected layer %zu: the cache is incomplete", r->layers);
	else if (r->layers > 0 && x.next_position != r->next_position)
		rc = kv_fail(e, KV_EFORMAT, "next position %zu here, %zu in the layers before", x.next_position,
		    r->next_position);
	else
		rc = kv_cache_set(r->cache, r->layers, x.H, x.k->type, x.k_on_device, x.v_on_device, x.offset, e);
	if (rc < 0)
		goto done;
	r->next_position = x.next_position;
	r->entries += x.offset[x.H];
	r->layers++;
done:
	kv_layer_cache_fini(&x);
	return rc;
}

/* What a card has no room for the CPU takes, if auto had the choice: with this layer's keys and values, if they lie on
 * the card. */
static int
load_layer(struct run *r, const struct kv_step *s, struct kv_err *e)
{
	struct kv_err other = { 0 };
	int rc = load_once(r, s, e);

	while (rc < 0 && kv_engine_can_fall_back(r->engine, e) && kv_pipe_fetch(r->io.pipe, &other) == KV_OK &&
	    (rc = kv_engine_fall_back(r->engine, rc, e)) == KV_OK)
		rc = load_once(r, s, e);
	return rc;
}

/* ---- one sequence: the answer */

/* The first token's logits come from the prefill, or from the turn's last token. */
static int
first_logits(struct run *r, const struct kv_step *s, struct kv_err *e)
{
	const struct kv_tensor *t = kv_step_find(s, "logits");
	size_t V = r->model.cfg.vocab;
	int rc;

	if (r->turn_ids.n > 0)
		return kv_extend(r->cache, r->turn_ids.v, r->turn_ids.n, r->logits, 1, NULL, e);
	if (t == NULL)
		return kv_fail(e, KV_EFORMAT,
		    "no logits, from which the first token is chosen: kv-prefill writes them, --only or --drop "
		    "may have left them out; or append a turn with -p TEXT");
	if ((rc = kv_tensor_expect(t, KVK_F32, "vocab", &V, e)) == KV_OK)
		memcpy(r->logits, t->data, V * sizeof *r->logits);
	return rc;
}

static int
continue_cache(struct run *r, const struct kv_sequence *seq, struct kv_answer_facts *f, struct kv_err *e)
{
	struct kv_generation g = {
		.sampler = o.sampler,
		.stream = seq->number,
		.cfg = &r->model.cfg,
		.max_tokens = o.n,
		.stops = r->model.vocab.stops,
		.n_stops = o.ignore_eos ? 0 : r->model.vocab.n_stops,
		.feed_last = r->writer != NULL,
		.tap = kv_answer_tap(r->answers),
		.token = kv_answer_token,
		.ctx = r->answers,
	};
	enum kv_stop why;
	int rc;

	f->first_position = kv_cache_position(r->cache);
	if (has_nll()) {
		g.n_stops = 0; /* an end token that is given is a token like others */
		f->measured = true;
		rc = kv_follow(r->cache, &g, r->given_ids.v, r->given_ids.n, r->logits, &f->nll, e);
	} else if ((rc = kv_generate(r->cache, &g, r->logits, &why, e)) == KV_OK) {
		f->stop = kv_stop_names[why];
		if (why == KV_STOP_CONTEXT)
			kv_warn("sequence %zu: the answer stops where the model's context of %zu tokens ends",
			    seq->number, r->model.cfg.context);
	}
	f->next_position = kv_cache_position(r->cache);
	return rc;
}

static int
answer(struct run *r, const struct kv_step *s, struct kv_err *e)
{
	struct kv_answer_facts f = { .kept_entries = r->entries };
	int rc;

	if (r->cache == NULL || r->layers != r->model.cfg.L)
		return kv_fail(e, KV_EFORMAT, "%zu of the model's %zu layers are there: the cache is incomplete",
		    r->layers, r->model.cfg.L);
	kv_cache_seek(r->cache, r->next_position);
	f.kept_bytes = kv_cache_bytes(r->cache);
	if ((rc = first_logits(r, s, e)) == KV_OK && (rc = kv_answer_begin(r->answers, s->seq, e)) == KV_OK &&
	    (rc = continue_cache(r, s->seq, &f, e)) == KV_OK)
		rc = kv_answer_finish(r->answers, &f, e);
	kv_cache_free(r->cache);
	r->cache = NULL;
	r->layers = 0;
	return rc;
}

/* ---- the loop */

static int
work(struct run *r)
{
	struct kv_err *e = &r->io.err;
	struct kv_step *s;
	int rc;

	if (r->io.status < 0)
		return r->io.status;
	if ((rc = open_rest(r, e)) < 0)
		return rc;
	while ((rc = kv_next(&r->io, &s)) == KV_OK) {
		rc = s->layer == KV_NO_LAYER ? answer(r, s, e) : load_layer(r, s, e);
		if (rc == KV_EIO || rc == KV_EPIPE)
			return rc; /* of the output: no fault of the input's */
		if (rc < 0)
			return kv_step_where(r->io.pipe, s, e);
	}
	if (rc == KV_END && r->writer != NULL) {
		rc = kv_writer_finish(r->writer, e);
		r->writer = NULL;
	}
	return rc;
}

int
main(int argc, char **argv)
{
	struct run r = { 0 };
	int rc;

	argc = kv_options(argc, argv, &tool);
	understand(&r, argv + 1, argc - 1);
	kv_start(&r.io, argv + 1, true, "k,v,index,offset,logits", NULL, NULL, "k,v");
	rc = work(&r);
	kv_writer_drop(r.writer);
	kv_responses_free(r.responses);
	kv_answers_free(r.answers);
	kv_cache_free(r.cache);
	kv_ids_fini(&r.turn_ids);
	kv_ids_fini(&r.given_ids);
	kv_engine_free(r.engine);
	kv_tokenizer_free(r.tokenizer);
	kv_model_fini(&r.model);
	kv_buf_fini(&r.turn);
	kv_buf_fini(&r.given);
	free(r.logits);
	return kv_finish(&r.io, rc);
}
