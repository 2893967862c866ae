/* SPDX-License-Identifier: MIT
 * Learning: the plan, what the training calls on the way, and the module at its end. */
#include "bin/train/train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/module_file.h"
#include "formats/training_state.h"
#include "lib/clock.h"

static const struct kv_train_options *const o = &kv_train;

/* ---- what the training calls: learning does not end for what is said about it or kept beside it */

/* What goes to a place ends with its first fault there. */
static void
say_end(const char *what, size_t step, const struct kv_err *why)
{
	kv_progress_end();
	kv_warn("step %zu: %s here: %s", step, what, why->text);
}

static int
get(void *ctx, bool held_out, size_t i, struct kv_sample_view *v, struct kv_err *e)
{
	struct kv_train_run *r = ctx;

	return kv_lessons_get(r->lessons, r->of[held_out][i], v, e);
}

static int
stepped(void *ctx, const struct kv_training_step *s, struct kv_err *e)
{
	struct kv_train_run *r = ctx;
	const double now = kv_seconds(), took = now - r->last;

	(void)e;
	r->last = now;
	r->loss_sum += s->loss;
	r->loss_n++;
	kv_progress("steps", s->step, r->plan.schedule.steps);
	if (r->unlogged.code == 0 && kv_training_log_step(r->log, s, now - r->began, took, &r->unlogged) < 0)
		say_end("the log ends", s->step, &r->unlogged);
	return KV_OK;
}

static int
say_figures(
    const struct kv_train_run *r, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e)
{
	printf("step %zu/%zu  loss %.4f  held-out %.4f", t->step, r->plan.schedule.steps,
	    r->loss_n > 0 ? r->loss_sum / (double)r->loss_n : 0, f->loss);
	for (size_t i = 0; i < r->plan.n_k; i++)
		printf("  recall@%zu %.4f", r->plan.ks[i], f->recall[i]);
	printf("%s  %.0f s\n", t->best_step == t->step ? "  best" : "", kv_seconds() - r->began);
	return fflush(stdout) == 0 ? KV_OK : kv_fail(e, KV_EIO, "standard output: %s", strerror(errno));
}

static int
measured(void *ctx, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e)
{
	struct kv_train_run *r = ctx;

	(void)e;
	kv_progress_end();
	if (!kv_common.quiet && r->unsaid.code == 0 && say_figures(r, t, f, &r->unsaid) < 0)
		say_end("figures end", t->step, &r->unsaid);
	r->loss_sum = 0;
	r->loss_n = 0;
	r->last = kv_seconds();
	if (r->unlogged.code == 0 && kv_training_log_measure(r->log, t, f, &r->unlogged) < 0)
		say_end("the log ends", t->step, &r->unlogged);
	return KV_OK;
}

/* A checkpoint is there to go on from, and learning goes on without one.  The last one's fault is told in the end, when
 * the module is written. */
static int
save(void *ctx, const struct kv_training *t, struct kv_err *e)
{
	struct kv_train_run *r = ctx;

	(void)e;
	r->unsaved = (struct kv_err){ 0 };
	if (kv_training_save(t, r->checkpoint, r->recipe, &r->unsaved) < 0 && !t->ended && !r->leaving)
		kv_warn("step %zu: no checkpoint: %s", t->step, r->unsaved.text);
	return KV_OK;
}

static bool
stop(void *ctx)
{
	struct kv_train_run *r = ctx;

	return r->leaving = kv_train_time_is_up(r);
}

/* ---- the run */

static void
make_plan(struct kv_train_run *r)
{
	static const struct {
		const char *name;
		enum kv_decay decay;
	} decays[] = { { "cosine", KV_DECAY_COSINE }, { "linear", KV_DECAY_LINEAR }, { "none", KV_DECAY_NONE } };
	struct kv_training_plan *p = &r->plan;
	struct kv_schedule *s = &p->schedule;

	p->batch = o->batch;
	p->clip = o->clip;
	p->seed = kv_common.seed;
	p->measure_every = o->measure_every;
	p->save_every = o->save_every;
	p->patience = o->patience;
	s->rate = o->rate;
	s->last = o->last_rate;
	s->steps = o->steps > 0 ? o->steps : (size_t)ceil(o->epochs * (double)r->n[0] / (double)o->batch);
	s->warm_up = o->warm_up != SIZE_MAX ? o->warm_up : (s->steps + 32) / 33;
	for (size_t i = 0; i < sizeof decays / sizeof *decays; i++)
		if (strcmp(o->decay, decays[i].name) == 0)
			s->decay = decays[i].decay;
}

/* Everything that decides what comes out, and nothing else: a run that was interrupted gives the same bytes. */
static int
make_recipe(struct kv_train_run *r, struct kv_err *e)
{
	const struct kv_training_plan *p = &r->plan;
	const char *precision;
	char data[33];
	json_t *j;
	int rc;

	if ((rc = kv_lessons_hash(r->lessons, data, e)) < 0 ||
	    (rc = kv_lessons_precision(r->lessons, &precision, e)) < 0)
		return rc;
	j = json_pack("{s:s s:s s:s s:s s:I s:I s:I s:I s:I s:I}", "program", kv_train_tool.name, "version", KV_VERSION,
	    "method", kv_common.params.method->name, "data", data, "samples", (json_int_t)r->n[0], "held_out_samples",
	    (json_int_t)r->n[1], "batch", (json_int_t)p->batch, "steps", (json_int_t)p->schedule.steps, "warm_up",
	    (json_int_t)p->schedule.warm_up, "seed", (json_int_t)p->seed);
	if (j == NULL ||
	    json_object_update_new(
		j, json_pack("{s:f s:f s:s s:f s:f s:f s:f s:I s:I s:s}", "rate", o->rate, "last_rate", o->last_rate,
		       "decay", o->decay, "beta1", o->beta1, "beta2", o->beta2, "eps", o->eps, "clip", o->clip,
		       "measure_every", (json_int_t)p->measure_every, "patience", (json_int_t)p->patience, "precision",
		       precision)) != 0 ||
	    json_object_update_new(j, json_pack("{s:s s:I s:I s:f s:s}", "model", r->model.cfg.fingerprint, "tokens",
					  (json_int_t)r->shape.n, "rank", (json_int_t)r->shape.rank, "alpha",
					  r->shape.alpha, "targets", kv_lookahead_targets[r->shape.targets])) != 0 ||
	    (o->response_field == NULL &&
		json_object_set_new(j, "generate", json_integer((json_int_t)o->generate)) != 0) ||
	    (o->from != NULL && json_object_set_new(j, "from", json_string(r->module->hash)) != 0)) {
		json_decref(j);
		return kv_no_memory(e, 1024);
	}
	r->recipe = j;
	return KV_OK;
}

/* The state to begin with: that of the checkpoint, if it is wanted and there. */
static int
take_up(struct kv_train_run *r, struct kv_err *e)
{
	int rc;

	r->calls = (struct kv_training_calls){ r, r->n[0], r->n[1], get, stepped, measured, save, stop };
	r->training = (struct kv_training){
		.plan = &r->plan, .calls = &r->calls, .student = r->student, .device = &r->device, .module = r->module
	};
	if ((rc = kv_training_init(&r->training, e)) < 0)
		return rc;
	r->training.adam.beta1 = o->beta1;
	r->training.adam.beta2 = o->beta2;
	r->training.adam.eps = o->eps;
	if (o->resume && (rc = kv_training_load(&r->training, r->checkpoint, r->recipe, e)) == KV_EIO) {
		kv_warn("%s: starting anew", e->text);
		*e = (struct kv_err){ 0 };
		rc = KV_OK;
	}
	if (rc == KV_OK && o->log != NULL)
		rc = kv_training_log_open(&r->log, o->log, r->training.step, e);
	return rc;
}

void
kv_train_say(const struct kv_train_run *r)
{
	if (kv_common.quiet)
		return;
	printf("%zu samples, %zu held out, %.2f GB in %s\n", r->n[0], r->n[1], (double)r->bytes * 1e-9, r->cache);
	if (!o->prepare_only)
		printf("%zu numbers to learn, %.2f %% of the model's; %zu steps of %zu samples\n",
		    r->module->n_parameters,
		    100.0 * (double)r->module->n_parameters / (double)r->module->base_parameters,
		    r->plan.schedule.steps, r->plan.batch);
	fflush(stdout);
}

/* The best module that was seen, or the last one where nothing was held out. */
static int
write_module(struct kv_train_run *r, struct kv_err *e)
{
	const struct kv_training *t = &r->training;
	int rc;

	if (t->best_step > 0)
		memcpy(r->module->parameters, t->best, r->module->n_parameters * sizeof *t->best);
	if (r->module->training != NULL)
		json_object_clear(r->module->training);
	if ((rc = kv_training_describe(t, r->recipe, r->module->training, e)) < 0)
		return rc;
	return kv_lookahead_write(r->module, o->output, kv_type_find(o->dtype), e);
}

/* One more fault that costs no module. */
static void
add_late(struct kv_err *late, const char *what, const struct kv_err *why)
{
	const struct kv_err before = *late;

	if (why->code < 0)
		kv_fail(late, KV_EIO, "%s%s%s%s", before.text, before.code < 0 ? "; " : "", what, why->text);
}

/* What was learnt is not lost for a fault of what is said about it or kept beside it, which goes to late.
 * Fails: learning did. */
static int
run(struct kv_train_run *r, struct kv_err *late, struct kv_err *e)
{
	int rc = kv_training_run(&r->training, e);

	if (rc == KV_EIO && r->training.ended)
		*late = *e;
	else if (rc < 0)
		return kv_where(e, "step %zu", r->training.step + 1);
	add_late(late, "there is no checkpoint to go on from: ", &r->unsaved);
	add_late(late, "the log is not whole: ", &r->unlogged);
	add_late(late, "", &r->unsaid);
	if (!r->training.ended)
		kv_warn("the time is up at step %zu of %zu%s", r->training.step, r->plan.schedule.steps,
		    r->unsaved.code == 0 ? ": go on with --resume" : "");
	return KV_OK;
}

int
kv_train_learn(struct kv_train_run *r, struct kv_err *e)
{
	struct kv_err late = { 0 };
	int rc;

	if (r->n[0] == 0)
		return kv_fail(e, KV_EARG, "no sample is left to learn from");
	make_plan(r);
	if ((rc = make_recipe(r, e)) < 0 || (rc = take_up(r, e)) < 0)
		return rc;
	kv_train_say(r);
	r->last = kv_seconds();
	if ((rc = run(r, &late, e)) == KV_OK && (rc = write_module(r, e)) == KV_OK && late.code < 0)
		rc = kv_fail(e, late.code, "%s is written, but %s", o->output, late.text);
	return rc;
}
