/* SPDX-License-Identifier: MIT
 * kv-train: learn where a response will look, from prompts and responses (LookaheadKV).
 */
#include "bin/train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/clock.h"
#include "lib/file.h"
#include "lib/model/adapters.h"

static const struct kv_train_options *const o = &kv_train;

/* A new module, or the one to start from. */
static int
make_module(struct kv_train_run *r, struct kv_err *e)
{
	double sigma;
	int rc;

	if (o->from != NULL) {
		if ((rc = kv_lookahead_read(&r->module, o->from, &r->model.cfg, e)) == KV_OK)
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
open_module(struct kv_train_run *r, struct kv_err *e)
{
	const size_t context = r->model.cfg.context;
	int rc = make_module(r, e);

	if (rc == KV_OK && context > 0 && r->shape.n >= context)
		return kv_fail(e, KV_EARG,
		    "%zu lookahead tokens leave no room for a prompt in the model's context of %zu", r->shape.n,
		    context);
	return rc;
}

static int
open_model(struct kv_train_run *r, struct kv_err *e)
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
open_lessons(struct kv_train_run *r, struct kv_err *e)
{
	char generate[40];
	char *words[] = { "lookahead", generate };

	snprintf(generate, sizeof generate, "--generate=%zu", o->generate);
	if (r->cache == NULL || (!o->prepare_only && r->checkpoint == NULL) ||
	    (r->entry = kv_history_entry(kv_train_tool.name, KV_VERSION, o->response_field == NULL ? 2 : 1, words)) ==
		NULL)
		return kv_no_memory(e, 256);
	return kv_lessons_new(&r->lessons,
	    &(struct kv_lessons_options){ .dir = r->cache,
		.with_kv = !o->no_cache_kv,
		.generate = o->generate,
		.model = &r->model,
		.student = r->student,
		.device = kv_common.device,
		.threads = kv_common.threads,
		.precision = kv_common.precision,
		.entry = r->entry,
		.note = tell_damage,
		.unfit = kv_unfit },
	    e);
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
check_places(const struct kv_train_run *r, struct kv_err *e)
{
	int rc = KV_OK;

	if (!o->prepare_only && (rc = check_place(o->output, e)) == KV_OK && o->save_every > 0)
		rc = check_place(r->checkpoint, e);
	return rc;
}

static int
work(struct kv_train_run *r, struct kv_err *e)
{
	int rc;

	if ((rc = kv_train_check_from(e)) < 0 || (rc = check_places(r, e)) < 0 || (rc = open_model(r, e)) < 0 ||
	    (rc = open_lessons(r, e)) < 0 || (rc = kv_train_read(r, e)) < 0 || (rc = kv_train_prepare(r, e)) < 0)
		return rc;
	if (!o->prepare_only)
		return kv_train_learn(r, e);
	kv_train_say(r);
	return KV_OK;
}

int
main(int argc, char **argv)
{
	struct kv_train_run r = { .began = kv_seconds() };
	struct kv_err e = { 0 };
	int rc;

	argc = kv_options(argc, argv, &kv_train_tool);
	kv_train_understand(argv, &r);
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
