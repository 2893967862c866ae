/* SPDX-License-Identifier: MIT
 * A student's memory and numbers. */
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/train/student_inside.h"

#define OPS "product linear_rows linear_back rms_norm_back silu_mul_back heads_back behind behind_back"

/* The pieces of a trace. */
enum { X, NORM, Q_ROWS, K_ROWS, Q, K, V, SEEN, MID, MID_NORM, GATE, UP, ACT, TT, N_PIECES };

static const struct kv_config *
config(const struct kv_student *s)
{
	return &s->x->m->cfg;
}

/* ---- memory */

static void
sizes(const struct kv_student *s, size_t n, size_t size[N_PIECES])
{
	const struct kv_config *c = config(s);
	const size_t Hq = n * c->Hq * c->D, Hkv = n * c->Hkv * c->D, d = n * c->d, ff = n * c->ff;
	const size_t all[N_PIECES] = { [X] = d,
		[NORM] = d,
		[Q_ROWS] = Hq,
		[K_ROWS] = Hkv,
		[Q] = Hq,
		[K] = Hkv,
		[V] = Hkv,
		[SEEN] = Hq,
		[MID] = d,
		[MID_NORM] = d,
		[GATE] = ff,
		[UP] = ff,
		[ACT] = ff,
		[TT] = KV_N_ROLES * n * s->shape->shape.rank };

	for (size_t i = 0; i < N_PIECES; i++)
		size[i] = (all[i] + 15) / 16 * 16;
}

static void
point(struct trace *t, float *at, const size_t size[N_PIECES])
{
	float **const to[N_PIECES] = { &t->x, &t->norm, &t->q_rows, &t->k_rows, &t->q, &t->k, &t->v, &t->seen, &t->mid,
		&t->mid_norm, &t->gate, &t->up, &t->act, &t->t };

	for (size_t i = 0; i < N_PIECES; at += size[i++])
		*to[i] = at;
}

static void
traces_fini(struct kv_student *s, struct traces *t)
{
	kv_device_free(s->x->d, t->out);
	kv_device_free(s->x->d, t->block);
	free(t->of);
	*t = (struct traces){ 0 };
}

int
kv_student_traces(struct kv_student *s, struct traces *t, size_t n, size_t layers, struct kv_err *e)
{
	size_t size[N_PIECES], sum = 0;

	if (t->n == n)
		return KV_OK;
	traces_fini(s, t);
	sizes(s, n, size);
	for (size_t i = 0; i < N_PIECES; i++)
		sum += size[i];
	if ((t->of = kv_alloc(layers, sizeof *t->of, e)) == NULL ||
	    (t->block = kv_device_alloc(s->x->d, sum * layers, sizeof(float), e)) == NULL ||
	    (t->out = kv_device_alloc(s->x->d, n * config(s)->d, sizeof(float), e)) == NULL) {
		traces_fini(s, t);
		return KV_EMEM;
	}
	for (size_t l = 0; l < layers; l++)
		point(&t->of[l], t->block + l * sum, size);
	t->n = n;
	t->layers = layers;
	return KV_OK;
}

/* Scores of a layer for prompts of T tokens. */
int
kv_student_scores(struct kv_student *s, size_t T, struct kv_err *e)
{
	const size_t floats = config(s)->Hq * T;

	if (s->s != NULL && s->s_floats >= floats)
		return KV_OK;
	kv_device_free(s->x->d, s->s);
	s->s = kv_device_alloc(s->x->d, floats, sizeof(float), e);
	s->s_floats = s->s != NULL ? floats : 0;
	return s->s != NULL ? KV_OK : KV_EMEM;
}

static int
back_memory(struct kv_student *s, struct kv_err *e)
{
	const struct kv_config *c = config(s);
	const struct kv_lookahead_shape *shape = &s->shape->shape;
	const size_t widest = c->ff > c->Hq * c->D ? c->ff : c->Hq * c->D;
	const struct {
		float **to;
		size_t width;
	} rows[] = { { &s->dx, c->d }, { &s->dmid, c->d }, { &s->d1, widest > c->d ? widest : c->d }, { &s->d2, c->ff },
		{ &s->d3, c->ff > c->d ? c->ff : c->d }, { &s->dq, c->Hq * c->D }, { &s->dk, c->Hkv * c->D },
		{ &s->dv, c->Hkv * c->D }, { &s->u, shape->rank + 1 } };

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if ((*rows[i].to = kv_device_alloc(s->x->d, shape->n * rows[i].width, sizeof(float), e)) == NULL)
			return KV_EMEM;
	return KV_OK;
}

static int
open_all(struct kv_student *s, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t l = 0; l < config(s)->L && rc == KV_OK; l++)
		rc = kv_engine_open_layer(s->x, l, KVK_MANY_ROWS, &s->w[l], e);
	return rc;
}

static int
numbers(struct kv_student *s, struct kv_err *e)
{
	const struct kv_device *d = s->x->d;
	const float one = 1;

	if ((s->parameters = kv_device_alloc(d, s->shape->n_parameters, sizeof(float), e)) == NULL ||
	    (s->gradient = kv_device_alloc(d, s->shape->n_parameters, sizeof(float), e)) == NULL ||
	    (s->one = kv_device_alloc(d, 1, sizeof(float), e)) == NULL)
		return KV_EMEM;
	return kv_device_check(d,
	    d->op->put(d->dev, s->one, &one, sizeof one) ||
		d->op->put(d->dev, s->gradient, s->zeros, s->shape->n_parameters * sizeof(float)),
	    "parameters", e);
}

/* What it has on the device from the beginning. */
static int
enter(struct kv_student *s, struct kv_err *e)
{
	int rc;

	if ((rc = open_all(s, e)) < 0 || (rc = numbers(s, e)) < 0)
		return rc;
	return back_memory(s, e);
}

/* Gives back everything there. */
static void
leave(struct kv_student *s)
{
	float **const blocks[] = { &s->dx, &s->dmid, &s->d1, &s->d2, &s->d3, &s->dq, &s->dk, &s->dv, &s->u, &s->s,
		&s->one, &s->gradient, &s->parameters };

	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
		kv_device_free(s->x->d, *blocks[i]);
		*blocks[i] = NULL;
	}
	s->s_floats = 0;
	traces_fini(s, &s->truth);
	traces_fini(s, &s->train);
	for (size_t l = 0; s->w != NULL && l < config(s)->L; l++)
		kv_engine_close_layer(s->x, &s->w[l]);
}

int
kv_student_fall_back(struct kv_student *s, int rc, struct kv_err *e)
{
	while (rc < 0 && s != NULL && kv_engine_can_fall_back(s->x, e)) {
		leave(s);
		if ((rc = kv_engine_fall_back(s->x, rc, e)) == KV_OK)
			rc = enter(s, e);
	}
	return rc;
}

int
kv_student_ready(struct kv_device *d, struct kv_err *e)
{
	return kv_device_ready(d, OPS, e);
}

int
kv_student_new(struct kv_student **out, struct kv_engine *x, struct kv_device *d,
    const struct kv_lookahead_shape *shape, struct kv_err *e)
{
	struct kv_student *s;
	int rc;

	*out = NULL;
	if ((rc = kv_device_ready(d, OPS, e)) < 0)
		return rc;
	if ((s = kv_alloc(1, sizeof *s, e)) == NULL)
		return KV_EMEM;
	s->x = x;
	rc = kv_lookahead_new(&s->shape, &x->m->cfg, shape, e);
	if (rc == KV_OK && ((s->w = kv_alloc(x->m->cfg.L, sizeof *s->w, e)) == NULL ||
			       (s->zeros = kv_alloc(s->shape->n_parameters, sizeof(float), e)) == NULL ||
			       (s->at = kv_alloc(x->m->cfg.Hq, sizeof *s->at, e)) == NULL))
		rc = KV_EMEM;
	if (rc == KV_OK && (rc = enter(s, e)) < 0)
		rc = kv_student_fall_back(s, rc, e);
	if (rc < 0) {
		kv_student_free(s);
		return rc;
	}
	s->factor = (float)kv_lookahead_scale(s->shape);
	*out = s;
	return KV_OK;
}

void
kv_student_free(struct kv_student *s)
{
	if (s == NULL)
		return;
	leave(s);
	free(s->w);
	free(s->at);
	free(s->zeros);
	kv_lookahead_free(s->shape);
	free(s);
}

const struct kv_config *
kv_student_config(const struct kv_student *s)
{
	return config(s);
}

int
kv_student_set(struct kv_student *s, const struct kv_lookahead *m, struct kv_err *e)
{
	const struct kv_device *d = s->x->d;

	return kv_device_check(
	    d, d->op->put(d->dev, s->parameters, m->parameters, m->n_parameters * sizeof(float)), "parameters", e);
}

int
kv_student_gradient(struct kv_student *s, float *gradient, struct kv_err *e)
{
	const struct kv_device *d = s->x->d;
	const size_t bytes = s->shape->n_parameters * sizeof(float);

	return kv_device_check(d,
	    d->op->get(d->dev, gradient, s->gradient, bytes) || d->op->put(d->dev, s->gradient, s->zeros, bytes),
	    "gradient", e);
}
