/* SPDX-License-Identifier: MIT
 * kv-train: learn where a response will look, from prompts and responses (LookaheadKV).
 */
#include "bin/common.h"
#include "formats/format.h"
#include "formats/lessons.h"
#include "formats/module_file.h"
#include "formats/sample_lines.h"
#include "formats/training_log.h"
#include "formats/training_state.h"
#include "lib/file.h"
#include "lib/train/order.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static struct {
	const char *output, *dtype;
	size_t rows, rank;
	double alpha;
	const char *targets, *from;
	const char *field, *id_field, *response_field;
	bool chat, special, no_bos, cut;
	const char *chat_template, *system;
	size_t generate, max_prompt, max_response;
	const char *held_out;
	double held_out_share;
	const char *cache, *shard;
	bool no_cache_kv, prepare_only;
	size_t batch, steps, warm_up;
	const char *betas;
	double epochs, rate, last_rate, beta1, beta2, eps, clip; /* beta1, beta2: from betas */
	const char *decay, *recall;
	size_t measure_every, patience, save_every;
	const char *checkpoint, *log;
	bool resume;
	double max_minutes;
} o = { .dtype = "f16",
	.rows = 32,
	.rank = 8,
	.alpha = 32,
	.targets = "all",
	.field = "prompt",
	.generate = 64,
	.max_prompt = 4096,
	.max_response = 512,
	.batch = 8,
	.warm_up = SIZE_MAX,
	.epochs = 1,
	.rate = 1e-3,
	.last_rate = 0.05,
	.betas = "0.9,0.999",
	.eps = 1e-8,
	.clip = 1,
	.decay = "cosine",
	.recall = "64,128,256",
	.measure_every = 50,
	.save_every = 20 };

static const struct kv_opt opts[] = {
	{ "output", 'o', KV_STRING, &o.output, "FILE", "the module, safetensors", 0, 0, NULL },
	{ "dtype", 0, KV_STRING, &o.dtype, "TYPE", "of the module's numbers in the file", 0, 0, "f16|bf16|f32" },
	{ "rows", 0, KV_SIZE, &o.rows, "N", "lookahead tokens", 1, KV_LOOKAHEAD_MAX, NULL },
	{ "rank", 0, KV_SIZE, &o.rank, "N", "of the adapters; 0: none", 0, KV_LOOKAHEAD_MAX, NULL },
	{ "alpha", 0, KV_DOUBLE, &o.alpha, "X", "of the adapters, whose weight is alpha / rank", -1e6, 1e6, NULL },
	{ "targets", 0, KV_STRING, &o.targets, "WHICH", "matrices with adapters", 0, 0, "none|qkv|all" },
	{ "from", 0, KV_STRING, &o.from, "MODULE", "start from this one, its shape included", 0, 0, NULL },
	{ "field", 0, KV_STRING, &o.field, "NAME", "field of a line that holds the prompt", 0, 0, NULL },
	{ "id-field", 0, KV_STRING, &o.id_field, "NAME", "field that holds the id; else samples are counted from 0", 0,
	    0, NULL },
	{ "response-field", 0, KV_STRING, &o.response_field, "NAME",
	    "field of a line that holds the response; else the model's own is generated", 0, 0, NULL },
	{ "generate", 0, KV_SIZE, &o.generate, "TOKENS", "longest response of the model's own", 1, 65536, NULL },
	{ "chat", 0, KV_FLAG, &o.chat, NULL, "wrap texts as the user's turn of a conversation", 0, 0, NULL },
	{ "chat-template", 0, KV_STRING, &o.chat_template, "NAME",
	    "template to use, else the model's own; implies --chat", 0, 0, NULL },
	{ "system", 0, KV_STRING, &o.system, "TEXT", "system message; else the template's own", 0, 0, NULL },
	{ "special", 0, KV_FLAG, &o.special, NULL, "special tokens written in the text become those tokens", 0, 0,
	    NULL },
	{ "no-bos", 0, KV_FLAG, &o.no_bos, NULL, "no beginning-of-sequence token", 0, 0, NULL },
	{ "max-prompt", 0, KV_SIZE, &o.max_prompt, "TOKENS", "longer prompts are left out", 1, 1e9, NULL },
	{ "cut", 0, KV_FLAG, &o.cut, NULL, "cut longer prompts at their end instead", 0, 0, NULL },
	{ "max-response", 0, KV_SIZE, &o.max_response, "TOKENS", "longer responses are cut", 1, 65536, NULL },
	{ "held-out", 0, KV_STRING, &o.held_out, "FILE", "JSON Lines to measure on, not to learn from", 0, 0, NULL },
	{ "held-out-share", 0, KV_DOUBLE, &o.held_out_share, "X", "hold out this share of the samples instead", 0, 0.9,
	    NULL },
	{ "cache", 0, KV_STRING, &o.cache, "FOLDER", "for prepared samples; else the output's name and .cache", 0, 0,
	    NULL },
	{ "no-cache-kv", 0, KV_FLAG, &o.no_cache_kv, NULL, "keep scores only there, run prompts again each time", 0, 0,
	    NULL },
	{ "prepare-only", 0, KV_FLAG, &o.prepare_only, NULL, "fill the folder, train nothing", 0, 0, NULL },
	{ "shard", 0, KV_STRING, &o.shard, "I/N", "prepare every N-th sample from the I-th on (from 0)", 0, 0, NULL },
	{ "batch", 0, KV_SIZE, &o.batch, "SAMPLES", "per step", 1, 65536, NULL },
	{ "epochs", 0, KV_DOUBLE, &o.epochs, "X", "how often each sample is seen", 1e-6, 1e6, NULL },
	{ "steps", 0, KV_SIZE, &o.steps, "N", "instead of --epochs", 0, 1e9, NULL },
	{ "lr", 0, KV_DOUBLE, &o.rate, "X", "highest learning rate", 0, 1e3, NULL },
	{ "warm-up", 0, KV_SIZE, &o.warm_up, "STEPS", "of climbing to it; else 3 % of the steps", 0, 1e9, NULL },
	{ "decay", 0, KV_STRING, &o.decay, "HOW", "from there on", 0, 0, "cosine|linear|none" },
	{ "last-lr", 0, KV_DOUBLE, &o.last_rate, "SHARE", "of the highest rate, at the end", 0, 1, NULL },
	{ "betas", 0, KV_STRING, &o.betas, "X,Y", "of Adam", 0, 0, NULL },
	{ "eps", 0, KV_DOUBLE, &o.eps, "X", "of Adam", 0, 1, NULL },
	{ "clip", 0, KV_DOUBLE, &o.clip, "NORM", "largest norm of a step's gradient; 0: any", 0, 1e9, NULL },
	{ "recall", 0, KV_STRING, &o.recall, "K,...", "entries whose recall is measured", 0, 0, NULL },
	{ "measure-every", 0, KV_SIZE, &o.measure_every, "STEPS", "on what is held out; 0: at the end only", 0, 1e9,
	    NULL },
	{ "patience", 0, KV_SIZE, &o.patience, "N", "end after N measurements without a better one; 0: never", 0, 1e9,
	    NULL },
	{ "save-every", 0, KV_SIZE, &o.save_every, "STEPS", "write a checkpoint; 0: never", 0, 1e9, NULL },
	{ "checkpoint", 0, KV_STRING, &o.checkpoint, "FILE", "where; else the output's name and .checkpoint", 0, 0,
	    NULL },
	{ "resume", 0, KV_FLAG, &o.resume, NULL, "go on from the checkpoint, if there is one", 0, 0, NULL },
	{ "log", 0, KV_STRING, &o.log, "FILE", "figures of every step as JSON Lines", 0, 0, NULL },
	{ "max-minutes", 0, KV_DOUBLE, &o.max_minutes, "X", "stop cleanly after that time; 0: never", 0, 1e7, NULL },
	{ 0 },
};

static const struct kv_method lookahead = { .name = "lookahead",
	.brief = "lookahead tokens with adapters of their own (LookaheadKV)",
	.paper = "arXiv:2603.10899" };

static const struct kv_method *
methods(size_t i)
{
	return i == 0 ? &lookahead : NULL;
}

static const struct kv_tool tool = {
	.name = "kv-train",
	.usage = "lookahead -m MODEL -o MODULE [options] [FILE...]",
	.brief = "train a module that sees where a response will look; samples are JSON Lines",
	.opts = opts,
	.common = KV_COMMON_MODEL | KV_COMMON_DEVICE | KV_COMMON_SEED | KV_COMMON_PRECISION,
	.methods = methods,
};

struct run {
	char *const *files;
	struct kv_lookahead_shape shape;
	struct kv_training_plan plan;
	size_t shard, shards;
	char *cache, *checkpoint; /* owned */
	struct kv_model model;
	const struct kv_chat *chat; /* asked for */
	struct kv_device device;    /* the student's, f32 */
	struct kv_engine *engine;
	struct kv_student *student;
	struct kv_lookahead *module;
	json_t *entry, *recipe;
	struct kv_lessons *lessons;
	size_t *of[2], n[2]; /* lessons to learn from, and held out */
	size_t empty;        /* samples without a response */
	uint64_t bytes;      /* of the folder */
	struct kv_training training;
	struct kv_training_calls calls;
	struct kv_training_log *log;
	double began, last; /* seconds */
	double loss_sum;    /* since the last line */
	size_t loss_n;
};

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool
time_is_up(const struct run *r)
{
	return o.max_minutes > 0 && seconds() - r->began > 60 * o.max_minutes;
}

/* ---- the command line */

static void
understand_recall(struct kv_training_plan *p)
{
	const char *at = o.recall;
	char *end;

	for (p->n_k = 0; p->n_k < KV_RECALL_MAX; at = end + 1) {
		const unsigned long k = strtoul(at, &end, 10);

		if (end == at || *at < '0' || *at > '9' || k == 0 || k > INT32_MAX || (*end != ',' && *end != '\0'))
			break;
		p->ks[p->n_k++] = k;
		if (*end == '\0')
			return;
	}
	kv_usage(&tool, "--recall: expected up to %d numbers of entries, separated by commas, got '%s'", KV_RECALL_MAX,
	    o.recall);
}

static void
understand_betas(void)
{
	int used = 0;

	if (sscanf(o.betas, "%lf,%lf%n", &o.beta1, &o.beta2, &used) != 2 || o.betas[used] != '\0' ||
	    !(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1))
		kv_usage(
		    &tool, "--betas: expected two numbers from 0 to below 1, separated by a comma, got '%s'", o.betas);
}

static void
understand_shard(struct run *r)
{
	int used = 0;

	r->shards = 1;
	if (o.shard != NULL && (sscanf(o.shard, "%zu/%zu%n", &r->shard, &r->shards, &used) != 2 ||
				   o.shard[used] != '\0' || r->shard >= r->shards))
		kv_usage(&tool, "--shard: expected I/N with I below N, got '%s'", o.shard);
	if (o.shard != NULL && !o.prepare_only)
		kv_usage(&tool, "--shard is for --prepare-only");
}

static char *
beside_output(const char *given, const char *suffix)
{
	char *path = NULL;

	if (given != NULL)
		path = strdup(given);
	else if (o.output != NULL && asprintf(&path, "%s%s", o.output, suffix) < 0)
		path = NULL;
	return path;
}

static void
understand(char **argv, struct run *r)
{
	static char *const standard_input[] = { "-", NULL };

	kv_need_model(&tool);
	r->files = argv[2] != NULL ? argv + 2 : standard_input;
	if (o.output == NULL && !(o.prepare_only && o.cache != NULL))
		kv_usage(&tool, "where does the module go? give -o FILE");
	if (o.held_out != NULL && o.held_out_share > 0)
		kv_usage(&tool, "--held-out and --held-out-share exclude each other");
	if (o.response_field == NULL && o.generate > o.max_response)
		kv_usage(&tool, "--generate %zu: responses have at most %zu tokens (--max-response)", o.generate,
		    o.max_response);
	if (o.chat_template != NULL && (r->chat = kv_chat_find(o.chat_template)) == NULL)
		kv_usage(&tool, "--chat-template: expected one of %s, got '%s'", kv_chat_names, o.chat_template);
	o.chat |= r->chat != NULL;
	if (o.system != NULL && !o.chat)
		kv_usage(&tool, "--system is for --chat");
	understand_recall(&r->plan);
	understand_betas();
	understand_shard(r);
	r->shape = (struct kv_lookahead_shape){ o.rows, o.rank, o.alpha, kv_lookahead_targets_find(o.targets) };
	r->cache = beside_output(o.cache, ".cache");
	r->checkpoint = beside_output(o.checkpoint, ".checkpoint");
}

/* ---- samples */

/* Which lessons are held out: those of the other file, or the first ones of an order of their own. */
static int
divide(struct run *r, size_t learnt, struct kv_err *e)
{
	const size_t all = kv_lessons_count(r->lessons);
	const size_t share = (size_t)round((double)learnt * o.held_out_share);
	size_t *order = kv_alloc(all, sizeof *order, e);

	r->of[0] = kv_alloc(all, sizeof *order, e);
	r->of[1] = kv_alloc(all, sizeof *order, e);
	if (order == NULL || r->of[0] == NULL || r->of[1] == NULL) {
		free(order);
		return KV_EMEM;
	}
	kv_order(kv_common.seed, KV_ORDER_HELD_OUT, order, learnt);
	for (size_t i = 0; i < all; i++) {
		const bool out = i >= learnt || order[i] < share;

		r->of[out][r->n[out]++] = i;
	}
	free(order);
	return KV_OK;
}

static int
read_all(struct run *r, struct kv_err *e)
{
	struct kv_sample_lines s = {
		.model = &r->model,
		.field = o.field,
		.id_field = o.id_field,
		.response_field = o.response_field,
		.chat = o.chat,
		.template = r->chat,
		.system = o.system,
		.flags = (o.no_bos ? 0 : KV_ENCODE_BOS) | (o.special ? KV_ENCODE_SPECIAL : 0),
		.max_prompt = o.max_prompt,
		.max_response = o.max_response,
		.cut = o.cut,
	};
	size_t learnt;
	int rc = KV_OK;

	for (size_t i = 0; r->files[i] != NULL && rc == KV_OK; i++)
		rc = kv_sample_lines_read(&s, r->files[i], r->lessons, e);
	learnt = rc == KV_OK ? kv_lessons_count(r->lessons) : 0;
	if (rc == KV_OK && o.held_out != NULL)
		rc = kv_sample_lines_read(&s, o.held_out, r->lessons, e);
	if (rc == KV_OK)
		rc = divide(r, learnt, e);
	if (s.n_left_out > 0)
		kv_warn("%zu prompts are longer than %zu tokens and left out (--max-prompt, --cut)", s.n_left_out,
		    s.max_prompt);
	if (s.n_cut > 0)
		kv_warn("%zu prompts were cut to %zu tokens", s.n_cut, s.max_prompt);
	kv_sample_lines_fini(&s);
	return rc;
}

/* Every sample is in the folder then; those without a response are dropped. */
static int
prepare(struct run *r, struct kv_err *e)
{
	const size_t all = kv_lessons_count(r->lessons);
	size_t done = 0;

	for (int out = 0; out < 2; out++) {
		size_t kept = 0;

		for (size_t i = 0; i < r->n[out]; i++, done++) {
			struct kv_lesson_state s = { .usable = true };
			int rc;

			if (time_is_up(r))
				return kv_fail(e, KV_EFAIL,
				    "the time is up after %zu of %zu samples were prepared: run it again to go on",
				    done, all);
			if (done % r->shards != r->shard)
				continue;
			if ((rc = kv_lessons_prepare(r->lessons, r->of[out][i], &s, e)) < 0)
				return rc;
			r->bytes += s.bytes;
			r->empty += !s.usable;
			if (s.usable)
				r->of[out][kept++] = r->of[out][i];
			kv_progress("samples prepared", done + 1, all);
		}
		r->n[out] = kept;
	}
	if (r->empty > 0)
		kv_warn("%zu samples have an empty response and are left out", r->empty);
	return KV_OK;
}

/* ---- what the training calls */

static int
get(void *ctx, bool held_out, size_t i, struct kv_sample_view *v, struct kv_err *e)
{
	struct run *r = ctx;

	return kv_lessons_get(r->lessons, r->of[held_out][i], v, e);
}

static int
stepped(void *ctx, const struct kv_training_step *s, struct kv_err *e)
{
	struct run *r = ctx;
	const double now = seconds(), took = now - r->last;

	r->last = now;
	r->loss_sum += s->loss;
	r->loss_n++;
	kv_progress("steps", s->step, r->plan.schedule.steps);
	return kv_training_log_step(r->log, s, now - r->began, took, e);
}

static int
measured(void *ctx, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e)
{
	struct run *r = ctx;

	kv_progress_end();
	if (!kv_common.quiet) {
		printf("step %zu/%zu  loss %.4f  held-out %.4f", t->step, r->plan.schedule.steps,
		    r->loss_n > 0 ? r->loss_sum / (double)r->loss_n : 0, f->loss);
		for (size_t i = 0; i < r->plan.n_k; i++)
			printf("  recall@%zu %.4f", r->plan.ks[i], f->recall[i]);
		printf("%s  %.0f s\n", t->best_step == t->step ? "  best" : "", seconds() - r->began);
		if (fflush(stdout) != 0)
			return kv_fail(e, KV_EIO, "standard output: %s", strerror(errno));
	}
	r->loss_sum = 0;
	r->loss_n = 0;
	r->last = seconds();
	return kv_training_log_measure(r->log, t, f, e);
}

static int
save(void *ctx, const struct kv_training *t, struct kv_err *e)
{
	const struct run *r = ctx;

	return kv_training_save(t, r->checkpoint, r->recipe, e);
}

static bool
stop(void *ctx)
{
	return time_is_up(ctx);
}

/* ---- the run */

/* A new module, or the one to start from. */
static int
make_module(struct run *r, struct kv_err *e)
{
	double sigma;
	int rc;

	if (o.from != NULL) {
		if ((rc = kv_lookahead_read(&r->module, o.from, &r->model.cfg, e)) == KV_OK)
			r->shape = r->module->shape;
		return rc;
	}
	if ((rc = kv_lookahead_new(&r->module, &r->model.cfg, &r->shape, e)) < 0 ||
	    (rc = kv_embedding_sigma(r->engine, &sigma, e)) < 0)
		return rc;
	r->shape = r->module->shape;
	kv_lookahead_init(r->module, kv_common.seed, sigma);
	return KV_OK;
}

static int
open_module(struct run *r, struct kv_err *e)
{
	const size_t context = r->model.cfg.context;
	int rc = make_module(r, e);

	if (rc == KV_OK && context > 0 && r->shape.n >= context)
		return kv_fail(e, KV_EARG, "%zu lookahead tokens leave no room for a prompt in the model's context of %zu",
		    r->shape.n, context);
	return rc;
}

static int
open_model(struct run *r, struct kv_err *e)
{
	int rc;

	kv_device_plan(&r->device, kv_common.device, kv_common.threads);
	r->device.unfit = kv_unfit;
	if ((rc = kv_model_open(&r->model, kv_common.model, true, e)) < 0 ||
	    (rc = kv_student_ready(&r->device, e)) < 0 ||
	    (rc = kv_engine_new(&r->engine, &r->model, &r->device, e)) < 0 || (rc = open_module(r, e)) < 0)
		return rc;
	return kv_student_new(&r->student, r->engine, &r->device, &r->shape, e);
}

static void
tell_damage(const char *text)
{
	kv_warn("%s", text);
}

static int
open_lessons(struct run *r, struct kv_err *e)
{
	char generate[40];
	char *words[] = { "lookahead", generate };

	snprintf(generate, sizeof generate, "--generate=%zu", o.generate);
	if (r->cache == NULL || (!o.prepare_only && r->checkpoint == NULL) ||
	    (r->entry = kv_history_entry(tool.name, KV_VERSION, o.response_field == NULL ? 2 : 1, words)) == NULL)
		return kv_no_memory(e, 256);
	return kv_lessons_new(&r->lessons,
	    &(struct kv_lessons_options){ .dir = r->cache,
		.with_kv = !o.no_cache_kv,
		.generate = o.generate,
		.model = &r->model,
		.student = r->student,
		.device = kv_common.device,
		.threads = kv_common.threads,
		.precision = kv_common.precision,
		.entry = r->entry,
		.note = tell_damage },
	    e);
}

static void
make_plan(struct run *r)
{
	static const struct {
		const char *name;
		enum kv_decay decay;
	} decays[] = { { "cosine", KV_DECAY_COSINE }, { "linear", KV_DECAY_LINEAR }, { "none", KV_DECAY_NONE } };
	struct kv_training_plan *p = &r->plan;
	struct kv_schedule *s = &p->schedule;

	p->batch = o.batch;
	p->clip = o.clip;
	p->seed = kv_common.seed;
	p->measure_every = o.measure_every;
	p->save_every = o.save_every;
	p->patience = o.patience;
	s->rate = o.rate;
	s->last = o.last_rate;
	s->steps = o.steps > 0 ? o.steps : (size_t)ceil(o.epochs * (double)r->n[0] / (double)o.batch);
	s->warm_up = o.warm_up != SIZE_MAX ? o.warm_up : (s->steps + 32) / 33;
	for (size_t i = 0; i < sizeof decays / sizeof *decays; i++)
		if (strcmp(o.decay, decays[i].name) == 0)
			s->decay = decays[i].decay;
}

/* Everything that decides what comes out, and nothing else: a run that was interrupted gives the same bytes. */
static int
make_recipe(struct run *r, struct kv_err *e)
{
	const struct kv_training_plan *p = &r->plan;
	const char *precision;
	char data[33];
	json_t *j;
	int rc;

	if ((rc = kv_lessons_hash(r->lessons, data, e)) < 0 ||
	    (rc = kv_lessons_precision(r->lessons, &precision, e)) < 0)
		return rc;
	j = json_pack("{s:s s:s s:s s:s s:I s:I s:I s:I s:I s:I}", "program", tool.name, "version", KV_VERSION,
	    "method", lookahead.name, "data", data, "samples", (json_int_t)r->n[0], "held_out_samples",
	    (json_int_t)r->n[1], "batch", (json_int_t)p->batch, "steps", (json_int_t)p->schedule.steps, "warm_up",
	    (json_int_t)p->schedule.warm_up, "seed", (json_int_t)p->seed);
	if (j == NULL ||
	    json_object_update_new(j,
		json_pack("{s:f s:f s:s s:f s:f s:f s:f s:I s:I s:s}", "rate", o.rate, "last_rate", o.last_rate,
		    "decay", o.decay, "beta1", o.beta1, "beta2", o.beta2, "eps", o.eps, "clip", o.clip, "measure_every",
		    (json_int_t)p->measure_every, "patience", (json_int_t)p->patience, "precision", precision)) != 0 ||
	    json_object_update_new(j,
		json_pack("{s:s s:I s:I s:f s:s}", "model", r->model.cfg.fingerprint, "tokens",
		    (json_int_t)r->shape.n, "rank", (json_int_t)r->shape.rank, "alpha", r->shape.alpha, "targets",
		    kv_lookahead_targets[r->shape.targets])) != 0 ||
	    (o.response_field == NULL &&
		json_object_set_new(j, "generate", json_integer((json_int_t)o.generate)) != 0) ||
	    (o.from != NULL && json_object_set_new(j, "from", json_string(r->module->hash)) != 0)) {
		json_decref(j);
		return kv_no_memory(e, 1024);
	}
	r->recipe = j;
	return KV_OK;
}

/* The state to begin with: that of the checkpoint, if it is wanted and there. */
static int
take_up(struct run *r, struct kv_err *e)
{
	int rc;

	r->calls = (struct kv_training_calls){ r, r->n[0], r->n[1], get, stepped, measured, save, stop };
	r->training = (struct kv_training){
		.plan = &r->plan, .calls = &r->calls, .student = r->student, .device = &r->device, .module = r->module
	};
	if ((rc = kv_training_init(&r->training, e)) < 0)
		return rc;
	r->training.adam.beta1 = o.beta1;
	r->training.adam.beta2 = o.beta2;
	r->training.adam.eps = o.eps;
	if (o.resume && (rc = kv_training_load(&r->training, r->checkpoint, r->recipe, e)) == KV_EIO) {
		kv_warn("%s: starting anew", e->text);
		*e = (struct kv_err){ 0 };
		rc = KV_OK;
	}
	if (rc == KV_OK && o.log != NULL)
		rc = kv_training_log_open(&r->log, o.log, r->training.step, e);
	return rc;
}

static void
say_what_is_there(const struct run *r)
{
	if (kv_common.quiet)
		return;
	printf("%zu samples, %zu held out, %.2f GB in %s\n", r->n[0], r->n[1], (double)r->bytes * 1e-9, r->cache);
	if (!o.prepare_only)
		printf("%zu numbers to learn, %.2f %% of the model's; %zu steps of %zu samples\n",
		    r->module->n_parameters,
		    100.0 * (double)r->module->n_parameters / (double)r->module->base_parameters,
		    r->plan.schedule.steps, r->plan.batch);
	fflush(stdout);
}

/* The best module that was seen, or the last one where nothing was held out. */
static int
write_module(struct run *r, struct kv_err *e)
{
	const struct kv_training *t = &r->training;
	int rc;

	if (t->best_step > 0)
		memcpy(r->module->parameters, t->best, r->module->n_parameters * sizeof *t->best);
	if (r->module->training != NULL)
		json_object_clear(r->module->training);
	if ((rc = kv_training_describe(t, r->recipe, r->module->training, e)) < 0)
		return rc;
	return kv_lookahead_write(r->module, o.output, kv_type_find(o.dtype), e);
}

/* Can a file be written there?  Told before the work, not after it. */
static int
check_place(const char *path, struct kv_err *e)
{
	struct kv_outfile f;
	struct stat st;
	int rc;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return KV_OK; /* a pipe is opened once */
	if ((rc = kv_outfile_open(&f, path, e)) == KV_OK)
		kv_outfile_drop(&f);
	return rc;
}

static int
train(struct run *r, struct kv_err *e)
{
	int rc;

	if (r->n[0] == 0)
		return kv_fail(e, KV_EARG, "no sample is left to learn from");
	make_plan(r);
	if ((rc = make_recipe(r, e)) < 0 || (rc = take_up(r, e)) < 0)
		return rc;
	say_what_is_there(r);
	r->last = seconds();
	if ((rc = kv_training_run(&r->training, e)) < 0)
		return kv_where(e, "step %zu", r->training.step + 1);
	if (!r->training.ended)
		kv_warn(
		    "the time is up at step %zu of %zu: go on with --resume", r->training.step, r->plan.schedule.steps);
	return write_module(r, e);
}

static int
check_places(const struct run *r, struct kv_err *e)
{
	int rc = KV_OK;

	if (!o.prepare_only && (rc = check_place(o.output, e)) == KV_OK && o.save_every > 0)
		rc = check_place(r->checkpoint, e);
	return rc;
}

static int
work(struct run *r, struct kv_err *e)
{
	int rc;

	if ((rc = check_places(r, e)) < 0 || (rc = open_model(r, e)) < 0 || (rc = open_lessons(r, e)) < 0 ||
	    (rc = read_all(r, e)) < 0 || (rc = prepare(r, e)) < 0)
		return rc;
	if (!o.prepare_only)
		return train(r, e);
	say_what_is_there(r);
	return KV_OK;
}

int
main(int argc, char **argv)
{
	struct run r = { .began = seconds() };
	struct kv_err e = { 0 };
	int rc;

	argc = kv_options(argc, argv, &tool);
	understand(argv, &r);
	rc = work(&r, &e);
	kv_training_log_close(r.log);
	kv_training_fini(&r.training);
	kv_lessons_free(r.lessons);
	free(r.of[0]);
	free(r.of[1]);
	json_decref(r.entry);
	json_decref(r.recipe);
	kv_student_free(r.student);
	kv_lookahead_free(r.module);
	kv_engine_free(r.engine);
	kv_close_device(&r.device);
	kv_model_fini(&r.model);
	free(r.cache);
	free(r.checkpoint);
	return kv_report(rc, &e);
}
