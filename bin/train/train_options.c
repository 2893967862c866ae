/* SPDX-License-Identifier: MIT
 * The command line of kv-train. */
#include "bin/train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/module_file.h"
#include "lib/clock.h"
#include "lib/text/chat.h"

struct kv_train_options kv_train = { .dtype = "f16",
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
	{ "output", 'o', KV_STRING, &kv_train.output, "FILE", "the module, safetensors", 0, 0, NULL },
	{ "dtype", 0, KV_STRING, &kv_train.dtype, "TYPE", "of the module's numbers in the file", 0, 0, "f16|bf16|f32" },
	{ "rows", 0, KV_SIZE, &kv_train.rows, "N", "lookahead tokens", 1, KV_LOOKAHEAD_MAX, NULL },
	{ "rank", 0, KV_SIZE, &kv_train.rank, "N", "of the adapters; 0: none", 0, KV_LOOKAHEAD_MAX, NULL },
	{ "alpha", 0, KV_DOUBLE, &kv_train.alpha, "X", "of the adapters, whose weight is alpha / rank", -1e6, 1e6,
	    NULL },
	{ "targets", 0, KV_STRING, &kv_train.targets, "WHICH", "matrices with adapters", 0, 0, "none|qkv|all" },
	{ "from", 0, KV_STRING, &kv_train.from, "MODULE", "start from this one, its shape included", 0, 0, NULL },
	{ "field", 0, KV_STRING, &kv_train.field, "NAME", "field of a line that holds the prompt", 0, 0, NULL },
	{ "id-field", 0, KV_STRING, &kv_train.id_field, "NAME",
	    "field that holds the id; else samples are counted from 0", 0, 0, NULL },
	{ "response-field", 0, KV_STRING, &kv_train.response_field, "NAME",
	    "field of a line that holds the response; else the model's own is generated", 0, 0, NULL },
	{ "generate", 0, KV_SIZE, &kv_train.generate, "TOKENS", "longest response of the model's own", 1, 65536, NULL },
	{ "chat", 0, KV_FLAG, &kv_train.chat, NULL, "wrap texts as the user's turn of a conversation", 0, 0, NULL },
	{ "chat-template", 0, KV_STRING, &kv_train.chat_template, "NAME",
	    "template to use, else the model's own; implies --chat", 0, 0, NULL },
	{ "system", 0, KV_STRING, &kv_train.system, "TEXT", "system message; else the template's own", 0, 0, NULL },
	{ "special", 0, KV_FLAG, &kv_train.special, NULL, "special tokens written in the text become those tokens", 0,
	    0, NULL },
	{ "no-bos", 0, KV_FLAG, &kv_train.no_bos, NULL, "no beginning-of-sequence token", 0, 0, NULL },
	{ "max-prompt", 0, KV_SIZE, &kv_train.max_prompt, "TOKENS", "longer prompts are left out", 1, 1e9, NULL },
	{ "cut", 0, KV_FLAG, &kv_train.cut, NULL, "cut longer prompts at their end instead", 0, 0, NULL },
	{ "max-response", 0, KV_SIZE, &kv_train.max_response, "TOKENS", "longer responses are cut", 1, 65536, NULL },
	{ "held-out", 0, KV_STRING, &kv_train.held_out, "FILE", "JSON Lines to measure on, not to learn from", 0, 0,
	    NULL },
	{ "held-out-share", 0, KV_DOUBLE, &kv_train.held_out_share, "X", "hold out this share of the samples instead",
	    0, 0.9, NULL },
	{ "cache", 0, KV_STRING, &kv_train.cache, "FOLDER", "for prepared samples; else the output's name and .cache",
	    0, 0, NULL },
	{ "no-cache-kv", 0, KV_FLAG, &kv_train.no_cache_kv, NULL, "keep scores only there, run prompts again each time",
	    0, 0, NULL },
	{ "prepare-only", 0, KV_FLAG, &kv_train.prepare_only, NULL, "fill the folder, train nothing", 0, 0, NULL },
	{ "shard", 0, KV_STRING, &kv_train.shard, "I/N", "prepare every N-th sample from the I-th on (from 0)", 0, 0,
	    NULL },
	{ "batch", 0, KV_SIZE, &kv_train.batch, "SAMPLES", "per step", 1, 65536, NULL },
	{ "epochs", 0, KV_DOUBLE, &kv_train.epochs, "X", "how often each sample is seen", 1e-6, 1e6, NULL },
	{ "steps", 0, KV_SIZE, &kv_train.steps, "N", "instead of --epochs", 0, 1e9, NULL },
	{ "lr", 0, KV_DOUBLE, &kv_train.rate, "X", "highest learning rate", 0, 1e3, NULL },
	{ "warm-up", 0, KV_SIZE, &kv_train.warm_up, "STEPS", "of climbing to it; else 3 % of the steps", 0, 1e9, NULL },
	{ "decay", 0, KV_STRING, &kv_train.decay, "HOW", "from there on", 0, 0, "cosine|linear|none" },
	{ "last-lr", 0, KV_DOUBLE, &kv_train.last_rate, "SHARE", "of the highest rate, at the end", 0, 1, NULL },
	{ "betas", 0, KV_STRING, &kv_train.betas, "X,Y", "of Adam", 0, 0, NULL },
	/* steps divide by it where gradients, or their squares in f32, are 0: they stay finite and small */
	{ "eps", 0, KV_DOUBLE, &kv_train.eps, "X", "of Adam", 1e-20, 1, NULL },
	{ "clip", 0, KV_DOUBLE, &kv_train.clip, "NORM", "largest norm of a step's gradient; 0: any", 0, 1e9, NULL },
	{ "recall", 0, KV_STRING, &kv_train.recall, "K,...", "entries whose recall is measured", 0, 0, NULL },
	{ "measure-every", 0, KV_SIZE, &kv_train.measure_every, "STEPS", "on what is held out; 0: at the end only", 0,
	    1e9, NULL },
	{ "patience", 0, KV_SIZE, &kv_train.patience, "N", "end after N measurements without a better one; 0: never", 0,
	    1e9, NULL },
	{ "save-every", 0, KV_SIZE, &kv_train.save_every, "STEPS", "write a checkpoint; 0: never", 0, 1e9, NULL },
	{ "checkpoint", 0, KV_STRING, &kv_train.checkpoint, "FILE", "where; else the output's name and .checkpoint", 0,
	    0, NULL },
	{ "resume", 0, KV_FLAG, &kv_train.resume, NULL, "go on from the checkpoint, if there is one", 0, 0, NULL },
	{ "log", 0, KV_STRING, &kv_train.log, "FILE", "figures of every step as JSON Lines", 0, 0, NULL },
	{ "max-minutes", 0, KV_DOUBLE, &kv_train.max_minutes, "X", "stop cleanly after that time; 0: never", 0, 1e7,
	    NULL },
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

const struct kv_tool kv_train_tool = {
	.name = "kv-train",
	.usage = "lookahead -m MODEL -o MODULE [options] [FILE...]",
	.brief = "train a module that sees where a response will look; samples are JSON Lines",
	.opts = opts,
	.common = KV_COMMON_MODEL | KV_COMMON_DEVICE | KV_COMMON_SEED | KV_COMMON_PRECISION,
	.methods = methods,
};

static struct kv_train_options *const o = &kv_train;

bool
kv_train_time_is_up(const struct kv_train_run *r)
{
	return o->max_minutes > 0 && kv_seconds() - r->began > 60 * o->max_minutes;
}

static void
understand_recall(struct kv_training_plan *p)
{
	const char *at = o->recall;
	char *end;

	for (p->n_k = 0; p->n_k < KV_RECALL_MAX; at = end + 1) {
		const unsigned long k = strtoul(at, &end, 10);

		if (end == at || *at < '0' || *at > '9' || k == 0 || k > INT32_MAX || (*end != ',' && *end != '\0'))
			break;
		p->ks[p->n_k++] = k;
		if (*end == '\0')
			return;
	}
	kv_usage(&kv_train_tool, "--recall: expected up to %d numbers of entries, separated by commas, got '%s'",
	    KV_RECALL_MAX, o->recall);
}

static void
understand_betas(void)
{
	int used = 0;

	if (sscanf(o->betas, "%lf,%lf%n", &o->beta1, &o->beta2, &used) != 2 || o->betas[used] != '\0' ||
	    !(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
		kv_usage(&kv_train_tool,
		    "--betas: expected two numbers from 0 to below 1, separated by a comma, got '%s'", o->betas);
}

static void
understand_shard(struct kv_train_run *r)
{
	int used = 0;

	r->shards = 1;
	if (o->shard != NULL && (sscanf(o->shard, "%zu/%zu%n", &r->shard, &r->shards, &used) != 2 ||
				    o->shard[used] != '\0' || r->shard >= r->shards))
		kv_usage(&kv_train_tool, "--shard: expected I/N with I below N, got '%s'", o->shard);
	if (o->shard != NULL && !o->prepare_only)
		kv_usage(&kv_train_tool, "--shard is for --prepare-only");
}

static char *
beside_output(const char *given, const char *suffix)
{
	char *path = NULL;

	if (given != NULL)
		path = strdup(given);
	else if (o->output != NULL && asprintf(&path, "%s%s", o->output, suffix) < 0)
		path = NULL;
	return path;
}

/* Elsewhere a dash is standard output. */
static void
refuse_dash(const char *option, const char *path)
{
	if (path != NULL && strcmp(path, "-") == 0)
		kv_usage(
		    &kv_train_tool, "%s -: standard output has the figures, this wants a file (./- is one)", option);
}

void
kv_train_understand(char **argv, struct kv_train_run *r)
{
	static char *const standard_input[] = { "-", NULL };

	kv_need_model(&kv_train_tool);
	r->files = argv[2] != NULL ? argv + 2 : standard_input;
	if (o->output == NULL && !(o->prepare_only && o->cache != NULL))
		kv_usage(&kv_train_tool, "where does the module go? give -o FILE");
	refuse_dash("-o", o->output);
	refuse_dash("--checkpoint", o->checkpoint);
	refuse_dash("--log", o->log);
	if (o->held_out != NULL && o->held_out_share > 0)
		kv_usage(&kv_train_tool, "--held-out and --held-out-share exclude each other");
	if (o->response_field == NULL && o->generate > o->max_response)
		kv_usage(&kv_train_tool, "--generate %zu: responses have at most %zu tokens (--max-response)",
		    o->generate, o->max_response);
	if (o->chat_template != NULL && (r->chat = kv_chat_find(o->chat_template)) == NULL)
		kv_usage(
		    &kv_train_tool, "--chat-template: expected one of %s, got '%s'", kv_chat_names, o->chat_template);
	o->chat |= r->chat != NULL;
	if (o->system != NULL && !o->chat)
		kv_usage(&kv_train_tool, "--system is for --chat");
	understand_recall(&r->plan);
	understand_betas();
	understand_shard(r);
	r->shape = (struct kv_lookahead_shape){ o->rows, o->rank, o->alpha, kv_lookahead_targets_find(o->targets) };
	r->cache = beside_output(o->cache, ".cache");
	r->checkpoint = beside_output(o->checkpoint, ".checkpoint");
}

static void
refuse_other_number(const char *option, double ours, double its)
{
	if (kv_option_given(option) && ours != its)
		kv_usage(
		    &kv_train_tool, "--%s %.9g, but the module of --from has %.9g: %s", option, ours, its, o->from);
}

int
kv_train_check_from(struct kv_err *e)
{
	enum kv_lookahead_targets targets = kv_lookahead_targets_find(o->targets);
	struct kv_lookahead_shape its;
	size_t rank = o->rank;
	int rc;

	if (o->from == NULL)
		return KV_OK;
	if ((rc = kv_lookahead_read_shape(&its, o->from, e)) < 0)
		return rc;
	/* two ways to ask for no adapters */
	if (kv_option_given("rank") && rank == 0)
		targets = KV_LOOKAHEAD_NONE;
	if (kv_option_given("targets") && targets == KV_LOOKAHEAD_NONE)
		rank = 0;
	if (kv_option_given("targets") && targets != its.targets)
		kv_usage(&kv_train_tool, "--targets %s, but the module of --from has %s: %s", o->targets,
		    kv_lookahead_targets[its.targets], o->from);
	refuse_other_number("rows", (double)o->rows, (double)its.n);
	refuse_other_number("rank", (double)rank, (double)its.rank);
	refuse_other_number("alpha", o->alpha, its.alpha);
	return KV_OK;
}
