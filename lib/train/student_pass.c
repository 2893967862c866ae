/* SPDX-License-Identifier: MIT
 * The rows' way forth and back through the layers.  Names follow METHODS 5: y = W x + f B A x with f = alpha / rank,
 * t = A x; dx is the gradient of the loss with respect to x. */
#include <math.h>
#include <string.h>

#include "lib/device_memory.h"
#include "lib/model/transformer.h"
#include "lib/train/student_inside.h"

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
	return product(p, (struct kvk_product){ .a = p->s->one,
			      .a_row = 1,
			      .a_col = 1,
			      .b = from,
			      .b_row = count,
			      .b_col = 1,
			      .c = to,
			      .c_row = count,
			      .m = 1,
			      .n = count,
			      .k = 1,
			      .factor = 1,
			      .add = add });
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
	return product(p, (struct kvk_product){ .a = in,
			      .a_row = cols,
			      .a_col = 1,
			      .b = a,
			      .b_row = 1,
			      .b_col = cols,
			      .c = t,
			      .c_row = r,
			      .m = n,
			      .n = r,
			      .k = cols,
			      .factor = 1 }) ||
	       product(p, (struct kvk_product){ .a = t,
			      .a_row = r,
			      .a_col = 1,
			      .b = b,
			      .b_row = 1,
			      .b_col = r,
			      .c = y,
			      .c_row = rows,
			      .m = n,
			      .n = rows,
			      .k = r,
			      .factor = s->factor,
			      .add = 1 });
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
	return product(p, (struct kvk_product){ .a = dy,
			      .a_row = 1,
			      .a_col = rows,
			      .b = t,
			      .b_row = r,
			      .b_col = 1,
			      .c = db,
			      .c_row = r,
			      .m = rows,
			      .n = r,
			      .k = n,
			      .factor = s->factor,
			      .add = 1 }) ||
	       product(p, (struct kvk_product){ .a = dy,
			      .a_row = rows,
			      .a_col = 1,
			      .b = b,
			      .b_row = r,
			      .b_col = 1,
			      .c = s->u,
			      .c_row = r,
			      .m = n,
			      .n = r,
			      .k = rows,
			      .factor = s->factor }) ||
	       product(p, (struct kvk_product){ .a = s->u,
			      .a_row = 1,
			      .a_col = r,
			      .b = in,
			      .b_row = cols,
			      .b_col = 1,
			      .c = da,
			      .c_row = cols,
			      .m = r,
			      .n = cols,
			      .k = n,
			      .factor = 1,
			      .add = 1 }) ||
	       product(p, (struct kvk_product){ .a = s->u,
			      .a_row = r,
			      .a_col = 1,
			      .b = a,
			      .b_row = cols,
			      .b_col = 1,
			      .c = dx,
			      .c_row = cols,
			      .m = n,
			      .n = cols,
			      .k = r,
			      .factor = 1,
			      .add = 1 });
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
	return status || s->x->d->op->heads(s->x->d->dev, rows, p->n, H, c->D, w, c->rms_eps,
			     role != KV_V ? &s->x->rope : NULL, p->p->T, heads, KVK_F32, s->at);
}

/* The layer's attention as the device sees it; v NULL: its keys alone. */
static struct kvk_behind
attention(const struct pass *p, const void *k, const void *v)
{
	const struct kv_config *c = config(p->s);

	return (struct kvk_behind){ .q = p->t->q,
		.k = k,
		.v = v,
		.type = p->p->type,
		.k_behind = p->t->k,
		.v_behind = p->t->v,
		.n = p->n,
		.T = p->p->T,
		.Hq = c->Hq,
		.Hkv = c->Hkv,
		.D = c->D,
		.scale = c->scale };
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
	rc = d->op->rms_norm(d->dev, t->x, vector_of(s, p->layer, KV_ATTN_NORM), c->rms_eps, p->n, c->d, t->norm) ||
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
	int rc = kv_student_scores(s, seen->T, e);

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
	int rc = kv_student_traces(s, &s->train, n, config(s)->L, e);

	if (rc == KV_OK)
		rc = kv_device_check(s->x->d, add_floats(&p, s->parameters, n * config(s)->d, 0, s->train.of[0].x),
		    "lookahead tokens", e);
	return rc == KV_OK ? forward(s, seen, &s->train, true, score, e) : rc;
}

int
kv_student_truth(
    struct kv_student *s, const struct kv_seen *seen, const int32_t *tokens, size_t n, float *score, struct kv_err *e)
{
	const struct kv_config *c = config(s);
	struct kv_rows rows = { .n = n, .pos = seen->T };
	int rc;

	if (n == 0) {
		memset(score, 0, c->L * c->Hq * seen->T * sizeof *score);
		return KV_OK;
	}
	if ((rc = kv_student_traces(s, &s->truth, n, 1, e)) < 0)
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
	       apply_back(p, KV_UP, t->mid_norm, s->d1, 1, s->d3) || add_floats(p, s->dx, p->n * c->d, 0, s->dmid) ||
	       d->op->rms_norm_back(
		   d->dev, t->mid, vector_of(s, p->layer, KV_FFN_NORM), c->rms_eps, s->d3, p->n, c->d, 1, s->dmid);
}

/* From the gradient of a head's rows to that of the layer's normalised input, in s->d3. */
static int
project_back(
    const struct pass *p, enum kv_role role, enum kv_role norm, const float *rows, const float *dheads, int add)
{
	struct kv_student *s = p->s;
	const struct kv_config *c = config(s);
	const struct kv_device *d = s->x->d;
	const struct kvk_heads_back h = { .x = rows,
		.dy = dheads,
		.n = p->n,
		.H = role == KV_Q ? c->Hq : c->Hkv,
		.D = c->D,
		.norm = norm < KV_N_ROLES ? vector_of(s, p->layer, norm) : NULL,
		.eps = c->rms_eps,
		.rope = role != KV_V ? &s->x->rope : NULL,
		.pos = p->p->T };

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
	     d->op->rms_norm_back(
		 d->dev, t->x, vector_of(s, p->layer, KV_ATTN_NORM), c->rms_eps, s->d3, p->n, c->d, !last, s->dx);
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
