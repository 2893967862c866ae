/* SPDX-License-Identifier: MIT
 * The rows' way forth and back through the layers.  Names follow METHODS 5: y = W x + f B A x with f = alpha / rank,
 * t = A x; dx is the gradient of the loss with respect to x. */
#include "lib/train/student.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

#define OPS "product linear_rows linear_back rms_norm_back silu_mul_back heads_back behind behind_back"

/* What a layer's rows were on their way forth; device memory. */
struct trace {
	float *x, *norm;        /* [n][d] input; normalised */
	float *q_rows, *k_rows; /* [n][H D] before norm and rotation */
	float *q, *k, *v;       /* [H][n][D] */
	float *seen;            /* [n][Hq D] attention's output */
	float *mid, *mid_norm;  /* [n][d] behind attention; normalised */
	float *gate, *up, *act; /* [n][ff] */
	float *t;               /* [KV_N_ROLES][n][rank] */
};

enum { X, NORM, Q_ROWS, K_ROWS, Q, K, V, SEEN, MID, MID_NORM, GATE, UP, ACT, TT, N_PIECES };

struct traces {
	size_t n, layers; /* rows; 1 layer: all layers use the same memory, there is no way back */
	float *block;
	struct trace *of; /* [layers] */
	float *out;       /* [n][d] of the last layer */
};

struct kv_student {
	struct kv_engine *x;
	struct kv_lookahead *shape; /* the layout of parameters; its numbers are not used */
	struct kv_layer_weights *w; /* [L] */
	float *parameters, *gradient; /* device */
	bool on;                      /* adapters do something */
	float factor;
	float *one;                   /* device: 1.0 */
	struct traces train, truth;
	float *dx, *dmid, *d1, *d2, *d3, *dq, *dk, *dv; /* device, the way back of one layer */
	float *u;                                       /* [n][rank] */
	float *s;                                       /* [Hq][T] device */
	size_t s_floats;
	size_t *at;                                     /* host [Hq] */
	float *zeros;                                   /* host [n_parameters] */
};

static const struct kv_config *
config(const struct kv_student *s)
{
	return &s->x->m->cfg;
}

static const float *
vector_of(const struct kv_student *s, size_t layer, enum kv_role role)
{
	return s->x->vector[layer * KV_N_ROLES + role];
}

/* ---- memory */

static void
sizes(const struct kv_student *s, size_t n, size_t size[N_PIECES])
{
	const struct kv_config *c = config(s);
	const size_t Hq = n * c->Hq * c->D, Hkv = n * c->Hkv * c->D, d = n * c->d, ff = n * c->ff;
	const size_t all[N_PIECES] = { [X] = d, [NORM] = d, [Q_ROWS] = Hq, [K_ROWS] = Hkv, [Q] = Hq, [K] = Hkv, [V] = Hkv,
		[SEEN] = Hq, [MID] = d, [MID_NORM] = d, [GATE] = ff, [UP] = ff, [ACT] = ff,
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

static int
traces_init(struct kv_student *s, struct traces *t, size_t n, size_t layers, struct kv_err *e)
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
static int
score_memory(struct kv_student *s, size_t T, struct kv_err *e)
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
	const struct kv_config *c = config(s);
	int rc = KV_OK;

	if ((s->w = kv_alloc(c->L, sizeof *s->w, e)) == NULL)
		return KV_EMEM;
	for (size_t l = 0; l < c->L && rc == KV_OK; l++)
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
	    (s->one = kv_device_alloc(d, 1, sizeof(float), e)) == NULL ||
	    (s->zeros = kv_alloc(s->shape->n_parameters, sizeof(float), e)) == NULL ||
	    (s->at = kv_alloc(config(s)->Hq, sizeof *s->at, e)) == NULL)
		return KV_EMEM;
	return kv_device_check(d,
	    d->op->put(d->dev, s->one, &one, sizeof one) ||
		d->op->put(d->dev, s->gradient, s->zeros, s->shape->n_parameters * sizeof(float)),
	    "parameters", e);
}

int
kv_student_ready(struct kv_device *d, struct kv_err *e)
{
	return kv_device_ready(d, OPS, e);
}

int
kv_student_new(struct kv_student **out, struct kv_engine *x, struct kv_device *d, const struct kv_lookahead_shape *shape,
    struct kv_err *e)
{
	struct kv_student *s;
	int rc;

	*out = NULL;
	if ((rc = kv_device_ready(d, OPS, e)) < 0)
		return rc;
	if ((s = kv_alloc(1, sizeof *s, e)) == NULL)
		return KV_EMEM;
	s->x = x;
	if ((rc = kv_lookahead_new(&s->shape, &x->m->cfg, shape, e)) < 0 || (rc = open_all(s, e)) < 0 ||
	    (rc = numbers(s, e)) < 0 || (rc = back_memory(s, e)) < 0) {
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
	float *const blocks[] = { s->dx, s->dmid, s->d1, s->d2, s->d3, s->dq, s->dk, s->dv, s->u, s->s, s->one,
		s->gradient, s->parameters };

	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
		kv_device_free(s->x->d, blocks[i]);
	traces_fini(s, &s->truth);
	traces_fini(s, &s->train);
	for (size_t l = 0; s->w != NULL && l < config(s)->L; l++)
		kv_engine_close_layer(s->x, &s->w[l]);
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

	return kv_device_check(d,
	    d->op->put(d->dev, s->parameters, m->parameters, m->n_parameters * sizeof(float)), "parameters", e);
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

/* ---- one matrix, with its adapter if the rows have one */

/* The rows of one pass in one layer. */
struct pass {
	struct kv_student *s;
	const struct kv_seen *p;
	size_t layer, n;
	bool adapted;
	const struct trace *t;
};

/* An adapter's A and B in a block of parameters, or of gradients; false where there is none. */
static bool
adapter(const struct pass *p, enum kv_role role, float *block, float **a, float **b)
{
	const struct kv_lookahead *m = p->s->shape;
	const struct kv_adapter *x = kv_lookahead_adapter(m, p->layer, role);

	if (x == NULL || !p->adapted || p->s->factor == 0)
		return false;
	*a = block + (x->a - m->parameters);
	*b = block + (x->b - m->parameters);
	return true;
}

static int
product(const struct pass *p, struct kvk_product job)
{
	return p->s->x->d->op->product(p->s->x->d->dev, &job);
}

/* to [count] = from (+ to).  A product by 1. */
static int
add_floats(const struct pass *p, const float *from, size_t count, int add, float *to)
{
	return product(p, (struct kvk_product){ .a = p->s->one, .a_row = 1, .a_col = 1, .b = from, .b_row = count, .b_col = 1,
	    .c = to, .c_row = count, .m = 1, .n = count, .k = 1, .factor = 1, .add = add });
}

static int
apply(const struct pass *p, enum kv_role role, const float *in, const float *bias, int add, float *y)
{
	const struct kv_student *s = p->s;
	const size_t r = s->shape->shape.rank, n = p->n;
	float *a, *b, *t = p->t->t + role * n * r;
	size_t rows, cols;
	int status = s->x->d->op->linear_rows(s->x->d->dev, s->w[p->layer].w[role], in, n, bias, add, y);

	if (status != 0 || !adapter(p, role, s->parameters, &a, &b))
		return status;
	kv_role_shape(config(s), role, &rows, &cols);
	return product(p, (struct kvk_product){ .a = in, .a_row = cols, .a_col = 1, .b = a, .b_row = 1, .b_col = cols,
	           .c = t, .c_row = r, .m = n, .n = r, .k = cols, .factor = 1 }) ||
	       product(p, (struct kvk_product){ .a = t, .a_row = r, .a_col = 1, .b = b, .b_row = 1, .b_col = r, .c = y,
	           .c_row = rows, .m = n, .n = rows, .k = r, .factor = s->factor, .add = 1 });
}

/* dx (+)= W^T dy and the adapter's share; gradients of A and B gathered. */
static int
apply_back(const struct pass *p, enum kv_role role, const float *in, const float *dy, int add, float *dx)
{
	const struct kv_student *s = p->s;
	const size_t r = s->shape->shape.rank, n = p->n;
	float *a, *b, *da, *db, *t = p->t->t + role * n * r;
	size_t rows, cols;
	int status = s->x->d->op->linear_back(s->x->d->dev, s->w[p->layer].w[role], dy, n, add, dx);

	if (status != 0 || !adapter(p, role, s->parameters, &a, &b) || !adapter(p, role, s->gradient, &da, &db))
		return status;
	kv_role_shape(config(s), role, &rows, &cols);
	return product(p, (struct kvk_product){ .a = dy, .a_row = 1, .a_col = rows, .b = t, .b_row = r, .b_col = 1,
	           .c = db, .c_row = r, .m = rows, .n = r, .k = n, .factor = s->factor, .add = 1 }) ||
	       product(p, (struct kvk_product){ .a = dy, .a_row = rows, .a_col = 1, .b = b, .b_row = r, .b_col = 1,
	           .c = s->u, .c_row = r, .m = n, .n = r, .k = rows, .factor = s->factor }) ||
	       product(p, (struct kvk_product){ .a = s->u, .a_row = 1, .a_col = r, .b = in, .b_row = cols, .b_col = 1,
	           .c = da, .c_row = cols, .m = r, .n = cols, .k = n, .factor = 1, .add = 1 }) ||
	       product(p, (struct kvk_product){ .a = s->u, .a_row = r, .a_col = 1, .b = a, .b_row = cols, .b_col = 1,
	           .c = dx, .c_row = cols, .m = n, .n = cols, .k = r, .factor = 1, .add = 1 });
}

/* ---- forth */

/* q, k or v from the layer's normalised input, split into heads. */
static int
project(const struct pass *p, enum kv_role role, enum kv_role bias, enum kv_role norm, float *rows, float *heads)
{
	const struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const size_t H = role == KV_Q ? c->Hq : c->Hkv;
	const float *w = norm < KV_N_ROLES ? vector_of(s, p->layer, norm) : NULL;
	int status = apply(p, role, p->t->norm, vector_of(s, p->layer, bias), 0, rows);

	for (size_t h = 0; h < H; h++)
		s->at[h] = h * p->n;
	return status ||
	       s->x->d->op->heads(s->x->d->dev, rows, p->n, H, c->D, w, c->rms_eps, role != KV_V ? &s->x->rope : NULL,
	           p->p->T, heads, KVK_F32, s->at);
}

/* The layer's attention as the device sees it; v NULL: its keys alone. */
static struct kvk_behind
attention(const struct pass *p, const void *k, const void *v)
{
	const struct kv_config *c = config(p->s);

	return (struct kvk_behind){ .q = p->t->q, .k = k, .v = v, .type = p->p->type, .k_behind = p->t->k,
		.v_behind = p->t->v, .n = p->n, .T = p->p->T, .Hq = c->Hq, .Hkv = c->Hkv, .D = c->D, .scale = c->scale };
}

/* The prompt's keys and values of the layer on the device, and away again. */
static int
view_prompt(const struct pass *p, const void **k, const void **v, struct kv_err *e)
{
	const struct kv_config *c = config(p->s);
	const size_t bytes = c->Hkv * p->p->T * c->D * kvk_types[p->p->type].bytes;

	*v = NULL;
	if ((*k = kv_device_view(p->s->x->d, p->p->k[p->layer], bytes, e)) == NULL)
		return KV_EMEM;
	if ((*v = kv_device_view(p->s->x->d, p->p->v[p->layer], bytes, e)) != NULL)
		return KV_OK;
	kv_device_unview(p->s->x->d, *k);
	return KV_EMEM;
}

static void
unview_prompt(const struct pass *p, const void *k, const void *v)
{
	kv_device_unview(p->s->x->d, v);
	kv_device_unview(p->s->x->d, k);
}

/* Up to attention; in the last layer its scores are all that is wanted. */
static int
look(const struct pass *p, bool last, struct kv_err *e)
{
	const struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct trace *t = p->t;
	struct kvk_behind a;
	const void *k, *v;
	int rc = view_prompt(p, &k, &v, e);

	if (rc < 0)
		return rc;
	a = attention(p, k, v);
	rc = d->op->rms_norm(
	         d->dev, t->x, vector_of(s, p->layer, KV_ATTN_NORM), c->rms_eps, p->n, c->d, t->norm) ||
	     project(p, KV_Q, KV_Q_BIAS, KV_Q_NORM, t->q_rows, t->q) ||
	     project(p, KV_K, KV_K_BIAS, KV_K_NORM, t->k_rows, t->k) ||
	     (!last && project(p, KV_V, KV_V_BIAS, KV_N_ROLES, t->seen, t->v)) ||
	     d->op->behind(d->dev, &a, last ? NULL : t->seen, s->s);
	unview_prompt(p, k, v);
	return kv_device_check(d, rc, "attention", e);
}

/* From attention to the layer's output. */
static int
think(const struct pass *p, float *out, struct kv_err *e)
{
	const struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct trace *t = p->t;

	return kv_device_check(d,
	    add_floats(p, t->x, p->n * c->d, 0, t->mid) || apply(p, KV_O, t->seen, NULL, 1, t->mid) ||
		d->op->rms_norm(
		    d->dev, t->mid, vector_of(s, p->layer, KV_FFN_NORM), c->rms_eps, p->n, c->d, t->mid_norm) ||
		apply(p, KV_GATE, t->mid_norm, NULL, 0, t->gate) || apply(p, KV_UP, t->mid_norm, NULL, 0, t->up) ||
		d->op->silu_mul(d->dev, t->gate, t->up, p->n * c->ff, t->act) ||
		add_floats(p, t->mid, p->n * c->d, 0, out) || apply(p, KV_DOWN, t->act, NULL, 1, out),
	    "feed-forward", e);
}

static int
check_scores(const float *score, size_t n, size_t layer, struct kv_err *e)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(score[i]))
			return kv_fail(e, KV_EFAIL, "layer %zu: a score is not finite", layer);
	return KV_OK;
}

/* The rows in traces->of[0].x through all layers. */
static int
forward(struct kv_student *s, const struct kv_seen *seen, const struct traces *tr, bool adapted, float *score,
    struct kv_err *e)
{
	const struct kv_config *c = config(s);
	const size_t floats = c->Hq * seen->T;
	int rc = score_memory(s, seen->T, e);

	for (size_t l = 0; l < c->L && rc == KV_OK; l++, score += floats) {
		const struct pass p = { s, seen, l, tr->n, adapted, &tr->of[tr->layers > 1 ? l : 0] };

		if ((rc = look(&p, l + 1 == c->L, e)) == KV_OK)
			rc = kv_device_get(s->x->d, score, s->s, floats * sizeof *score, "scores", e);
		if (rc == KV_OK)
			rc = check_scores(score, floats, l, e);
		if (rc == KV_OK && l + 1 < c->L)
			rc = think(&p, tr->layers > 1 ? tr->of[l + 1].x : tr->of[0].x, e);
	}
	return rc;
}

int
kv_student_forward(struct kv_student *s, const struct kv_seen *seen, float *score, struct kv_err *e)
{
	const size_t n = s->shape->shape.n;
	const struct pass p = { .s = s };
	int rc = traces_init(s, &s->train, n, config(s)->L, e);

	if (rc == KV_OK)
		rc = kv_device_check(s->x->d,
		    add_floats(&p, s->parameters, n * config(s)->d, 0, s->train.of[0].x), "lookahead tokens", e);
	return rc == KV_OK ? forward(s, seen, &s->train, true, score, e) : rc;
}

int
kv_student_truth(struct kv_student *s, const struct kv_seen *seen, const int32_t *tokens, size_t n, float *score,
    struct kv_err *e)
{
	const struct kv_config *c = config(s);
	struct kv_rows rows = { .n = n, .pos = seen->T };
	int rc;

	if (n == 0) {
		memset(score, 0, c->L * c->Hq * seen->T * sizeof *score);
		return KV_OK;
	}
	if ((rc = traces_init(s, &s->truth, n, 1, e)) < 0)
		return rc;
	rows.x = s->truth.of[0].x;
	if ((rc = kv_rows_embed(s->x, &rows, tokens, e)) < 0)
		return rc;
	return forward(s, seen, &s->truth, false, score, e);
}

/* ---- and back */

/* From d out in s->dx to d mid in s->dmid, through the feed-forward part. */
static int
think_back(const struct pass *p)
{
	struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct trace *t = p->t;

	return apply_back(p, KV_DOWN, t->act, s->dx, 0, s->d1) ||
	       d->op->silu_mul_back(d->dev, t->gate, t->up, s->d1, p->n * c->ff, s->d2, s->d1) ||
	       apply_back(p, KV_GATE, t->mid_norm, s->d2, 0, s->d3) ||
	       apply_back(p, KV_UP, t->mid_norm, s->d1, 1, s->d3) ||
	       add_floats(p, s->dx, p->n * c->d, 0, s->dmid) ||
	       d->op->rms_norm_back(d->dev, t->mid, vector_of(s, p->layer, KV_FFN_NORM), c->rms_eps, s->d3, p->n, c->d, 1,
	           s->dmid);
}

/* From the gradient of a head's rows to that of the layer's normalised input, in s->d3. */
static int
project_back(const struct pass *p, enum kv_role role, enum kv_role norm, const float *rows, const float *dheads, int add)
{
	struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct kvk_heads_back h = { .x = rows, .dy = dheads, .n = p->n, .H = role == KV_Q ? c->Hq : c->Hkv, .D = c->D,
		.norm = norm < KV_N_ROLES ? vector_of(s, p->layer, norm) : NULL, .eps = c->rms_eps,
		.rope = role != KV_V ? &s->x->rope : NULL, .pos = p->p->T };

	return d->op->heads_back(d->dev, &h, s->d1) || apply_back(p, role, p->t->norm, s->d1, add, s->d3);
}

/* From d mid in s->dmid (none in the last layer) and d score in s->s to d x in s->dx. */
static int
look_back(const struct pass *p, bool last, struct kv_err *e)
{
	struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct trace *t = p->t;
	struct kvk_behind a;
	const void *k, *v;
	int rc = view_prompt(p, &k, &v, e);

	if (rc < 0)
		return rc;
	a = attention(p, k, v);
	rc = (!last && apply_back(p, KV_O, t->seen, s->dmid, 0, s->d1)) ||
	     d->op->behind_back(d->dev, &a, last ? NULL : s->d1, s->s, s->dq, s->dk, s->dv) ||
	     project_back(p, KV_Q, KV_Q_NORM, t->q_rows, s->dq, 0) ||
	     project_back(p, KV_K, KV_K_NORM, t->k_rows, s->dk, 1) ||
	     (!last && project_back(p, KV_V, KV_N_ROLES, NULL, s->dv, 1)) ||
	     (!last && add_floats(p, s->dmid, p->n * c->d, 0, s->dx)) ||
	     d->op->rms_norm_back(d->dev, t->x, vector_of(s, p->layer, KV_ATTN_NORM), c->rms_eps, s->d3, p->n, c->d, !last,
	         s->dx);
	unview_prompt(p, k, v);
	return kv_device_check(d, rc, "the way back", e);
}

int
kv_student_backward(struct kv_student *s, const struct kv_seen *seen, const float *dscore, struct kv_err *e)
{
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const size_t floats = c->Hq * seen->T, n = s->shape->shape.n;
	struct pass p = { .s = s, .p = seen, .n = n, .adapted = true };
	int rc = KV_OK;

	for (size_t l = c->L; l-- > 0 && rc == KV_OK;) {
		const bool last = l + 1 == c->L;

		p.layer = l;
		p.t = &s->train.of[c->L > 1 ? l : 0];
		rc = kv_device_check(d,
		    d->op->put(d->dev, s->s, dscore + l * floats, floats * sizeof *dscore) || (!last && think_back(&p)),
		    "the way back", e);
		if (rc == KV_OK)
			rc = look_back(&p, last, e);
	}
	return rc == KV_OK ? kv_device_check(d, add_floats(&p, s->dx, n * c->d, 1, s->gradient), "gradient", e) : rc;
}
