/* SPDX-License-Identifier: MIT
 * kv-train in parts: the command line (train_options.c), samples and their preparation (train_samples.c), learning with
 * its log, figures and checkpoints (train_run.c).  bin/kv-train.c opens what they need and calls them in order.
 */
#ifndef KV_TRAIN_H
#define KV_TRAIN_H

#include "bin/common.h"
#include "formats/lessons.h"
#include "formats/training_log.h"
#include "lib/model/module.h"

/* The program's own options, as the command line left them. */
struct kv_train_options {
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
};
extern struct kv_train_options kv_train;
extern const struct kv_tool kv_train_tool;

struct kv_train_run {
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
	bool leaving;                   /* the time is up */
	struct kv_err unsaved;          /* why the last checkpoint is missing; zero: it is there, or none was wanted */
	struct kv_err unlogged, unsaid; /* why log and standard output end on the way; zero: they do not */
	double began, last;             /* seconds */
	double loss_sum;                /* since the last line */
	size_t loss_n;
};

/* train_options.c: after kv_options(); misuse ends the program. */
void kv_train_understand(char **argv, struct kv_train_run *r);
/* A module to start from brings its shape, and the options that were given must not say another one.  Fails: as
 * kv_lookahead_read_shape(). */
int kv_train_check_from(struct kv_err *e);
/* --max-minutes */
bool kv_train_time_is_up(const struct kv_train_run *r);

/* train_samples.c: lines of all files into r->lessons, shared out among r->of. */
int kv_train_read(struct kv_train_run *r, struct kv_err *e);
/* Every sample is in the folder then; those without a response leave r->of. */
int kv_train_prepare(struct kv_train_run *r, struct kv_err *e);

/* train_run.c: from samples that are prepared to a module that is written. */
int kv_train_learn(struct kv_train_run *r, struct kv_err *e);
/* Samples, and unless --prepare-only what is learnt from them, to standard output. */
void kv_train_say(const struct kv_train_run *r);

#endif
