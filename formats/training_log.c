/* SPDX-License-Identifier: MIT */
#include "formats/training_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/buf.h"
#include "lib/file.h"

#define LOG_MAX ((size_t)1 << 30) /* bytes */

struct kv_training_log {
	FILE *f;
	char *path;
};

/* The lines of an earlier run up to this step. */
static int
keep(const char *path, size_t first, struct kv_buf *kept, struct kv_err *e)
{
	struct kv_buf old = { 0 };
	struct stat st;
	int rc;

	if (first == 0 || (stat(path, &st) < 0 && errno == ENOENT))
		return KV_OK;
	rc = kv_file_read(path, LOG_MAX, &old, e);
	for (char *line = old.data, *end; rc == KV_OK && line != NULL && *line != '\0'; line = end) {
		json_t *o;

		end = strchr(line, '\n');
		end = end != NULL ? end + 1 : line + strlen(line);
		o = json_loadb(line, (size_t)(end - line), 0, NULL);
		if (json_is_object(o) && json_integer_value(json_object_get(o, "step")) <= (json_int_t)first)
			rc = kv_buf_add(kept, line, (size_t)(end - line), e);
		json_decref(o);
	}
	kv_buf_fini(&old);
	return rc;
}

static int
refused(const struct kv_training_log *l, struct kv_err *e)
{
	return kv_fail(e, KV_EIO, "%s: %s", l->path, strerror(errno));
}

int
kv_training_log_open(struct kv_training_log **out, const char *path, size_t first, struct kv_err *e)
{
	struct kv_training_log *l = kv_alloc(1, sizeof *l, e);
	struct kv_buf kept = { 0 };
	int rc = KV_EMEM;

	if ((*out = l) == NULL)
		return rc;
	if ((l->path = strdup(path)) == NULL)
		rc = kv_no_memory(e, strlen(path));
	else if ((rc = keep(path, first, &kept, e)) == KV_OK &&
		 ((l->f = fopen(path, "w")) == NULL || (kept.n > 0 && fwrite(kept.data, 1, kept.n, l->f) != kept.n) ||
		     fflush(l->f) != 0))
		rc = refused(l, e);
	kv_buf_fini(&kept);
	if (rc < 0) {
		kv_training_log_close(l);
		*out = NULL;
	}
	return rc;
}

/* Takes o. */
static int
put(struct kv_training_log *l, json_t *o, struct kv_err *e)
{
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	int rc = text != NULL ? KV_OK : kv_no_memory(e, 256);

	if (rc == KV_OK && (fprintf(l->f, "%s\n", text) < 0 || fflush(l->f) != 0))
		rc = refused(l, e);
	free(text);
	json_decref(o);
	return rc;
}

int
kv_training_log_step(
    struct kv_training_log *l, const struct kv_training_step *s, double seconds, double of_step, struct kv_err *e)
{
	const double per = of_step > 0 ? 1 / of_step : 0;

	if (l == NULL)
		return KV_OK;
	return put(l,
	    json_pack("{s:I s:f s:f s:f s:f s:I s:f s:f s:f}", "step", (json_int_t)s->step, "epoch", s->epoch, "rate",
		s->rate, "loss", s->loss, "gradient_norm", s->gradient_norm, "tokens", (json_int_t)s->tokens, "seconds",
		seconds, "samples_per_second", (double)s->samples * per, "tokens_per_second", (double)s->tokens * per),
	    e);
}

int
kv_training_log_measure(
    struct kv_training_log *l, const struct kv_training *t, const struct kv_training_figures *f, struct kv_err *e)
{
	json_t *o, *held;
	char name[40];

	if (l == NULL)
		return KV_OK;
	held = json_pack("{s:I s:f}", "samples", (json_int_t)f->n, "loss", f->loss);
	for (size_t i = 0; i < t->plan->n_k; i++) {
		snprintf(name, sizeof name, "recall@%zu", t->plan->ks[i]);
		json_object_set_new(held, name, json_real(f->recall[i]));
	}
	o = json_pack(
	    "{s:I s:o s:I}", "step", (json_int_t)t->step, "held_out", held, "best_step", (json_int_t)t->best_step);
	return put(l, o, e);
}

void
kv_training_log_close(struct kv_training_log *l)
{
	if (l == NULL)
		return;
	if (l->f != NULL)
		fclose(l->f);
	free(l->path);
	free(l);
}
