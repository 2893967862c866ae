/* SPDX-License-Identifier: MIT */
#include "lib/train/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/train/loss.h"
#include "lib/train/order.h"

int
kv_training_init(struct kv_training *t, struct kv_err *e)
{
	const size_t n = t->module->n_parameters;

	t->best_loss = INFINITY;
	t->epoch = SIZE_MAX;
	if (kv_adam_init(&t->adam, n, e) < 0 || (t->best = kv_alloc(n, sizeof *t->best, e)) == NULL ||
	    (t->gradient = kv_alloc(n, sizeof *t->gradient, e)) == NULL ||
	    (t->order = kv_alloc(t->calls->n, sizeof *t->order, e)) == NULL)
		return KV_EMEM;
	return KV_OK;
}

void
kv_training_fini(struct kv_training *t)
{
	free(t->order);
	free(t->dscore);
	free(t->score);
	free(t->gradient);
	free(t->best);
	kv_adam_fini(&t->adam);
}

/* Room for the scores of this prompt. */
static int
score_memory(struct kv_training *t, size_t floats, struct kv_err *e)
{
	if (t->score != NULL && t->floats >= floats)
		return KV_OK;
	free(t->score);
	free(t->dscore);
	t->score = kv_alloc_unset(floats, sizeof *t->score, e);
	t->dscore = kv_alloc_unset(floats, sizeof *t->dscore, e);
	t->floats = t->score != NULL && t->dscore != NULL ? floats : 0;
	return t->floats > 0 ? KV_OK : KV_EMEM;
}

/* Forth, and with weight > 0 back as well. */
static int
look_at(struct kv_training *t, const struct kv_sample_view *v, double weight, double *loss, struct kv_err *e)
{
	const struct kv_config *c = kv_student_config(t->student);
	const size_t heads = c->L * c->Hq;
	int rc = score_memory(t, heads * v->seen.T, e);

	if (rc < 0 || (rc = kv_student_forward(t->student, &v->seen, t->score, e)) < 0)
		return rc;
	*loss = kv_loss(v->truth, t->score, heads, v->seen.T, weight, weight > 0 ? t->dscore : NULL);
	if (!isfinite(*loss))
		return kv_fail(e, KV_EFAIL, "the loss is %g: is the rate too high?", *loss);
	return weight > 0 ? kv_student_backward(t->student, &v->seen, t->dscore, e) : KV_OK;
}

/* Which sample comes at this place of the run. */
static size_t
sample_at(struct kv_training *t, size_t place)
{
	const size_t n = t->calls->n, epoch = place / n;

	if (epoch != t->epoch) {
		kv_order(t->plan->seed, epoch, t->order, n);
		t->epoch = epoch;
	}
	return t->order[place % n];
}

/* The gradient of a batch; nothing else changes. */
static int
gather(struct kv_training *t, struct kv_training_step *s, struct kv_err *e)
{
	const struct kv_training_plan *p = t->plan;
	int rc = kv_student_set(t->student, t->module, e);

	*s = (struct kv_training_step){ .step = t->step + 1, .samples = p->batch };
	for (size_t i = 0; i < p->batch && rc == KV_OK; i++) {
		struct kv_sample_view v;
		double loss = 0;

		rc = t->calls->get(t->calls->ctx, false, sample_at(t, t->step * p->batch + i), &v, e);
		if (rc == KV_OK && (rc = look_at(t, &v, 1.0 / (double)p->batch, &loss, e)) == KV_OK) {
			s->loss += loss / (double)p->batch;
			s->tokens += v.seen.T;
		}
	}
	return rc == KV_OK ? kv_student_gradient(t->student, t->gradient, e) : rc;
}

static int
make_step(struct kv_training *t, struct kv_err *e)
{
	const struct kv_training_plan *p = t->plan;
	struct kv_training_step s;
	int rc = gather(t, &s, e);

	while (rc < 0 && (rc = kv_student_fall_back(t->student, rc, e)) == KV_OK)
		rc = gather(t, &s, e);
	if (rc < 0)
		return rc;
	s.gradient_norm = kv_gradient_clip(t->gradient, t->module->n_parameters, p->clip);
	if (!isfinite(s.gradient_norm))
		return kv_fail(e, KV_EFAIL, "the gradient is not finite: is the rate too high?");
	s.rate = kv_schedule_rate(&p->schedule, t->step);
	kv_adam_step(&t->adam, t->module->parameters, t->gradient, s.rate);
	t->step++;
	s.epoch = (double)(t->step * p->batch) / (double)t->calls->n;
	return t->calls->stepped(t->calls->ctx, &s, e);
}

static int
measure(struct kv_training *t, struct kv_training_figures *f, struct kv_err *e)
{
	const struct kv_config *c = kv_student_config(t->student);
	int rc = kv_student_set(t->student, t->module, e);

	*f = (struct kv_training_figures){ .n = t->calls->n_held_out };
	for (size_t i = 0; i < f->n && rc == KV_OK; i++) {
		struct kv_sample_view v;
		double loss = 0;

		if ((rc = t->calls->get(t->calls->ctx, true, i, &v, e)) < 0 || (rc = look_at(t, &v, 0, &loss, e)) < 0)
			break;
		f->loss += loss / (double)f->n;
		rc = kv_recall(
		    t->device, v.truth, t->score, c->L * c->Hq, v.seen.T, t->plan->ks, t->plan->n_k, f->recall, e);
	}
	for (size_t i = 0; i < t->plan->n_k && f->n > 0; i++)
		f->recall[i] /= (double)f->n;
	return rc;
}

int
kv_training_measure(struct kv_training *t, struct kv_training_figures *f, struct kv_err *e)
{
	int rc = measure(t, f, e);

	while (rc < 0 && (rc = kv_student_fall_back(t->student, rc, e)) == KV_OK)
		rc = measure(t, f, e);
	return rc;
}

/* The module as it is becomes the best one, or not. */
static void
judge(struct kv_training *t, double loss)
{
	if (loss < t->best_loss) {
		memcpy(t->best, t->module->parameters, t->module->n_parameters * sizeof *t->best);
		t->best_loss = loss;
		t->best_step = t->step;
		t->worse = 0;
	} else {
		t->worse++;
	}
	if (t->plan->patience > 0 && t->worse >= t->plan->patience)
		t->ended = true;
}

static bool
is_due(size_t every, size_t step)
{
	return every > 0 && step % every == 0;
}

static int
measure_now(struct kv_training *t, struct kv_err *e)
{
	struct kv_training_figures f;
	int rc;

	if (t->calls->n_held_out == 0)
		return KV_OK;
	if ((rc = kv_training_measure(t, &f, e)) < 0)
		return rc;
	judge(t, f.loss);
	return t->calls->measured(t->calls->ctx, t, &f, e);
}

int
kv_training_run(struct kv_training *t, struct kv_err *e)
{
	const size_t steps = t->plan->schedule.steps;
	int rc = KV_OK;

	while (rc == KV_OK && !t->ended) {
		bool leave = false;

		if (t->step < steps && (rc = make_step(t, e)) < 0)
			break;
		t->ended = t->step >= steps;
		if (t->ended || is_due(t->plan->measure_every, t->step))
			rc = measure_now(t, e);
		leave = !t->ended && t->calls->stop(t->calls->ctx);
		if (rc == KV_OK && t->plan->save_every > 0 &&
		    (t->ended || leave || is_due(t->plan->save_every, t->step)))
			rc = t->calls->save(t->calls->ctx, t, e);
		if (leave)
			break;
	}
	return rc;
}
