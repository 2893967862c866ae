/* SPDX-License-Identifier: MIT */
#include "formats/lessons.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/fingerprint.h"

struct item {
	char *id;
	struct kv_ids prompt, response;
	bool given; /* the response */
};

struct kv_lessons {
	struct kv_lessons_options o;
	struct item *v;
	size_t n, cap;
	/* What runs prompts; opened when the first one has to. */
	struct kv_device device;
	struct kv_engine *engine;
	const char *precision; /* its name */
	/* The sample at hand. */
	struct kv_lesson_file file;
	struct kv_lesson lesson;
	const void **of; /* [2 L] layers of lesson */
};

int
kv_lessons_new(struct kv_lessons **out, const struct kv_lessons_options *o, struct kv_err *e)
{
	struct kv_lessons *l = kv_alloc(1, sizeof *l, e);

	if ((*out = l) == NULL)
		return KV_EMEM;
	l->o = *o;
	kv_device_plan(&l->device, o->device, o->threads);
	l->device.precision = o->precision;
	if ((l->of = kv_alloc(2 * o->model->cfg.L, sizeof *l->of, e)) == NULL) {
		kv_lessons_free(l);
		*out = NULL;
		return KV_EMEM;
	}
	return KV_OK;
}

static void
put_away(struct kv_lessons *l)
{
	kv_lesson_close(&l->file);
	kv_lesson_fini(&l->lesson);
}

void
kv_lessons_free(struct kv_lessons *l)
{
	if (l == NULL)
		return;
	put_away(l);
	kv_engine_free(l->engine);
	kv_device_close(&l->device);
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].id);
		kv_ids_fini(&l->v[i].prompt);
		kv_ids_fini(&l->v[i].response);
	}
	free(l->v);
	free((void *)l->of);
	free(l);
}

int
kv_lessons_add(struct kv_lessons *l, const char *id, struct kv_ids *prompt, struct kv_ids *response, struct kv_err *e)
{
	struct item *x;

	if (l->n == l->cap) {
		const size_t cap = l->cap > 0 ? 2 * l->cap : 64;
		struct item *v = reallocarray(l->v, cap, sizeof *v);

		if (v == NULL)
			return kv_no_memory(e, cap * sizeof *v);
		l->v = v;
		l->cap = cap;
	}
	x = &l->v[l->n];
	*x = (struct item){ .prompt = *prompt, .given = response != NULL };
	if ((x->id = strdup(id)) == NULL)
		return kv_no_memory(e, strlen(id));
	*prompt = (struct kv_ids){ 0 };
	if (response != NULL) {
		x->response = *response;
		*response = (struct kv_ids){ 0 };
	}
	l->n++;
	return KV_OK;
}

size_t
kv_lessons_count(const struct kv_lessons *l)
{
	return l->n;
}

/* The device that runs prompts is open then; its precision is part of what a sample is. */
static int
ready(struct kv_lessons *l, struct kv_err *e)
{
	int rc = kv_device_ready(&l->device, "linear", e);

	if (rc < 0)
		return rc;
	l->precision = kvk_precisions[kv_device_precision(&l->device)];
	l->device.unfit = l->o.unfit;
	return KV_OK;
}

int
kv_lessons_precision(struct kv_lessons *l, const char **name, struct kv_err *e)
{
	int rc = ready(l, e);

	*name = l->precision;
	return rc;
}

static struct kv_lesson_key
key_of(const struct kv_lessons *l, const struct item *x)
{
	return (struct kv_lesson_key){ .cfg = &l->o.model->cfg,
		.precision = l->precision,
		.id = x->id,
		.prompt = &x->prompt,
		.generate = x->given ? 0 : l->o.generate,
		.response = x->given ? &x->response : NULL };
}

static int
teach_once(struct kv_lessons *l, const struct item *x, bool truth, struct kv_err *e)
{
	const struct kv_vocab *v = &l->o.model->vocab;
	const struct kv_teach how = { .tokens = x->prompt.v,
		.T = x->prompt.n,
		.generate = x->given ? 0 : l->o.generate,
		.stops = v->stops,
		.n_stops = v->n_stops,
		.truth = truth };
	int rc = l->engine == NULL ? kv_engine_new(&l->engine, l->o.model, &l->device, e) : KV_OK;

	kv_lesson_fini(&l->lesson);
	for (size_t i = 0; i < x->response.n && rc == KV_OK; i++)
		rc = kv_ids_add(&l->lesson.response, x->response.v[i], e);
	return rc == KV_OK ? kv_teach(l->engine, l->o.student, &how, &l->lesson, e) : rc;
}

/* Runs the prompt into l->lesson; truth: and what the response looks at. */
static int
teach(struct kv_lessons *l, const struct item *x, bool truth, struct kv_err *e)
{
	int rc = teach_once(l, x, truth, e);

	while (rc < 0 && l->engine != NULL && (rc = kv_engine_fall_back(l->engine, rc, e)) == KV_OK)
		rc = teach_once(l, x, truth, e);
	return rc;
}

static int
make(struct kv_lessons *l, const struct item *x, uint64_t *bytes, struct kv_err *e)
{
	const struct kv_lesson_key key = key_of(l, x);
	int rc = teach(l, x, true, e);

	return rc == KV_OK ? kv_lesson_write(l->o.dir, &key, &l->lesson, l->o.with_kv, l->o.entry, bytes, e) : rc;
}

/* A file that cannot be used is none. */
static int
missing(const struct kv_lessons *l, int rc, const struct kv_err *e)
{
	if (rc == KV_EFORMAT || rc == KV_ESHAPE) {
		char text[KV_ERR_TEXT + 64];

		snprintf(text, sizeof text, "%s: made anew", e->text);
		if (l->o.note != NULL)
			l->o.note(text);
		return KV_END;
	}
	return rc;
}

int
kv_lessons_prepare(struct kv_lessons *l, size_t i, struct kv_lesson_state *s, struct kv_err *e)
{
	const struct item *x = &l->v[i];
	int rc = ready(l, e);

	*s = (struct kv_lesson_state){ .tokens = x->prompt.n };
	put_away(l);
	if (rc == KV_OK) {
		const struct kv_lesson_key key = key_of(l, x);

		rc = missing(l, kv_lesson_open(&l->file, l->o.dir, &key, e), e);
	}
	s->bytes = l->file.bytes;
	s->response = l->file.response.n;
	if (rc == KV_END) {
		s->made = true;
		rc = make(l, x, &s->bytes, e);
		while (rc < 0 && (rc = kv_student_fall_back(l->o.student, rc, e)) == KV_OK)
			rc = make(l, x, &s->bytes, e);
		s->response = l->lesson.response.n;
	}
	put_away(l);
	s->usable = s->response > 0;
	return rc < 0 ? kv_where(e, "sample %s", x->id) : rc;
}

/* The prompt's keys and values anew; they are not in the file, and join it if they should be. */
static int
run_again(struct kv_lessons *l, const struct item *x, struct kv_err *e)
{
	const struct kv_lesson_key key = key_of(l, x);
	const size_t floats = key.cfg->L * key.cfg->Hq * x->prompt.n;
	uint64_t bytes;
	int rc = teach(l, x, false, e);

	if (rc < 0 || !l->o.with_kv)
		return rc;
	kv_ids_fini(&l->lesson.response);
	l->lesson.response = l->file.response;
	l->file.response = (struct kv_ids){ 0 };
	if ((l->lesson.truth = kv_alloc_unset(floats, sizeof(float), e)) == NULL)
		return KV_EMEM;
	memcpy(l->lesson.truth, l->file.truth, floats * sizeof(float));
	return kv_lesson_write(l->o.dir, &key, &l->lesson, true, l->o.entry, &bytes, e);
}

static int
load(struct kv_lessons *l, const struct item *x, struct kv_err *e)
{
	const struct kv_lesson_key key = key_of(l, x);
	int rc = kv_lesson_open(&l->file, l->o.dir, &key, e);

	if (rc == KV_OK)
		rc = kv_lesson_read(&l->file, &key, e);
	if ((rc = missing(l, rc, e)) == KV_OK && l->file.k == NULL)
		rc = run_again(l, x, e);
	return rc;
}

static void
show(struct kv_lessons *l, const struct item *x, struct kv_sample_view *v)
{
	const struct kv_config *c = &l->o.model->cfg;
	const size_t layer = c->Hkv * x->prompt.n * c->D;

	for (size_t i = 0; i < c->L && l->lesson.k != NULL; i++) {
		l->of[i] = l->lesson.k + i * layer;
		l->of[c->L + i] = l->lesson.v + i * layer;
	}
	v->seen = (struct kv_seen){ .T = x->prompt.n, .type = KVK_F16, .k = l->of, .v = l->of + c->L };
	v->truth = l->file.truth;
	if (l->lesson.k == NULL) {
		v->seen.k = l->file.k;
		v->seen.v = l->file.v;
	} else if (l->lesson.truth != NULL) {
		v->truth = l->lesson.truth;
	}
}

int
kv_lessons_get(struct kv_lessons *l, size_t i, struct kv_sample_view *v, struct kv_err *e)
{
	const struct item *x = &l->v[i];
	uint64_t bytes;
	int rc = ready(l, e);

	put_away(l);
	if (rc == KV_OK && (rc = load(l, x, e)) == KV_END) {
		kv_lesson_close(&l->file);
		rc = make(l, x, &bytes, e);
	}
	if (rc < 0)
		return kv_where(e, "sample %s", x->id);
	show(l, x, v);
	return KV_OK;
}

int
kv_lessons_hash(const struct kv_lessons *l, char hex[33], struct kv_err *e)
{
	struct kv_fingerprint *f = kv_fingerprint_new();

	if (f == NULL)
		return kv_no_memory(e, 33);
	kv_fingerprint_add(f, &l->o.generate, sizeof l->o.generate);
	for (size_t i = 0; i < l->n; i++) {
		const struct item *x = &l->v[i];
		const size_t sizes[2] = { x->prompt.n, x->given ? x->response.n + 1 : 0 };

		kv_fingerprint_add(f, sizes, sizeof sizes);
		kv_fingerprint_add(f, x->prompt.v, x->prompt.n * sizeof *x->prompt.v);
		kv_fingerprint_add(f, x->response.v, x->response.n * sizeof *x->response.v);
	}
	kv_fingerprint_take(f, hex);
	return KV_OK;
}
