/* SPDX-License-Identifier: MIT */
#include "tests/lib/naive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/tensor.h"

static double *
zeros(size_t n)
{
	double *p = calloc(n, sizeof *p);

	if (p == NULL)
		abort();
	return p;
}

/* A weight as doubles, to be freed; NULL if the model has none. */
static double *
load(const struct kv_model *m, size_t layer, enum kv_role role)
{
	const struct kv_matrix *w = kv_model_weight(m, layer, role);
	struct kv_tensor t = { .type = w->type, .data = w->data };
	double *p;

	if (w->data == NULL)
		return NULL;
	p = zeros(w->rows * w->cols);
	for (size_t i = 0; i < w->rows * w->cols; i++)
		p[i] = kv_tensor_get(&t, i);
	return p;
}

/* y [T][rows] += (alpha / rank) B A x for the rows of a module; cols, rows: of x and y. */
static void
adapt(const struct naive *r, size_t layer, enum kv_role role, const double *x, size_t cols, double *y, size_t rows)
{
	const struct kv_lookahead *m = r->lookahead;
	const struct kv_adapter *a = m != NULL ? &m->adapter[layer * KV_N_ROLES + role] : NULL;

	if (a == NULL || a->a == NULL)
		return;
	for (size_t t = r->T - m->shape.n; t < r->T; t++)
		for (size_t k = 0; k < m->shape.rank; k++) {
			double low = 0;

			for (size_t j = 0; j < cols; j++)
				low += (double)a->a[k * cols + j] * x[t * cols + j];
			for (size_t i = 0; i < rows; i++)
				y[t * rows + i] += m->shape.alpha / (double)m->shape.rank *
						   (double)a->b[i * m->shape.rank + k] * low;
		}
}

/* y [T][rows] += x [T][cols] w^T + bias, for all rows of the run */
static void
linear(const struct naive *r, const struct kv_model *m, size_t layer, enum kv_role role, enum kv_role bias_role,
    const double *x, double *y)
{
	const size_t T = r->T;
	const struct kv_matrix *shape = kv_model_weight(m, layer, role);
	double *w = load(m, layer, role), *bias = bias_role < KV_N_ROLES ? load(m, layer, bias_role) : NULL;

	for (size_t t = 0; t < T; t++) {
		for (size_t i = 0; i < shape->rows; i++) {
			double sum = bias != NULL ? bias[i] : 0;

			for (size_t j = 0; j < shape->cols; j++)
				sum += x[t * shape->cols + j] * w[i * shape->cols + j];
			y[t * shape->rows + i] += sum;
		}
	}
	adapt(r, layer, role, x, shape->cols, y, shape->rows);
	free(bias);
	free(w);
}

/* Rows of x [n][d], in place. */
static void
rms_norm(double *x, size_t n, size_t d, const double *w, double eps)
{
	for (size_t t = 0; t < n; t++) {
		double square = 0;

		for (size_t j = 0; j < d; j++)
			square += x[t * d + j] * x[t * d + j];
		for (size_t j = 0; j < d; j++)
			x[t * d + j] = x[t * d + j] / sqrt(square / (double)d + eps) * w[j];
	}
}

/* The normalised copy of x [T][d]. */
static double *
normed(const struct kv_model *m, size_t layer, enum kv_role role, const double *x, size_t T)
{
	double *y = zeros(T * m->cfg.d), *w = load(m, layer, role);

	memcpy(y, x, T * m->cfg.d * sizeof *y);
	rms_norm(y, T, m->cfg.d, w, m->cfg.rms_eps);
	free(w);
	return y;
}

/* One head vector x [D] turned for this position into y, half-split whatever the order of x. */
static void
rotate(const struct kv_config *c, const double *x, size_t position, double *y)
{
	size_t half = c->rope_dim / 2;

	memcpy(y, x, c->D * sizeof *y);
	for (size_t i = 0; i < half; i++) {
		double angle = (double)position * (double)c->inv_freq[i];
		double a = c->rope_interleaved ? x[2 * i] : x[i];
		double b = c->rope_interleaved ? x[2 * i + 1] : x[i + half];

		y[i] = a * cos(angle) - b * sin(angle);
		y[i + half] = a * sin(angle) + b * cos(angle);
	}
}

/* x [T][H][D] to y [H][T][D]; turn: with norm (if the model has one) and rotation. */
static void
split(const struct kv_model *m, double *x, size_t T, size_t H, double *norm, bool turn, const size_t *position,
    double *y)
{
	const struct kv_config *c = &m->cfg;

	if (norm != NULL)
		rms_norm(x, T * H, c->D, norm, c->rms_eps);
	for (size_t t = 0; t < T; t++) {
		for (size_t h = 0; h < H; h++) {
			const double *from = x + (t * H + h) * c->D;
			double *to = y + (h * T + t) * c->D;

			if (turn)
				rotate(c, from, position != NULL ? position[t] : t, to);
			else
				memcpy(to, from, c->D * sizeof *to);
		}
	}
	free(norm);
}

static bool
is_hidden(const struct naive_mask *mask, size_t head_row, size_t T, size_t i, size_t j)
{
	return j > i || (mask != NULL && i >= mask->from && mask->hidden[head_row * T + j]);
}

/* y [T][Hq][D] of one layer; q [Hq][T][D], k and v [Hkv][T][D]. */
static void
attention(const struct kv_config *c, size_t layer, const double *q, const double *k, const double *v, size_t T,
    const struct naive_mask *mask, double *y)
{
	size_t H = mask != NULL && mask->H > 0 ? mask->H : c->Hkv;
	double *p = zeros(T);

	for (size_t h = 0; h < c->Hq; h++) {
		size_t g = h / (c->Hq / c->Hkv), masked = layer * H + h / (c->Hq / H);

		for (size_t i = 0; i < T; i++) {
			double *out = y + (i * c->Hq + h) * c->D, sum = 0, max = -INFINITY;

			for (size_t j = 0; j < T; j++) {
				p[j] = 0;
				for (size_t x = 0; x < c->D; x++)
					p[j] += q[(h * T + i) * c->D + x] * k[(g * T + j) * c->D + x];
				p[j] *= (double)c->scale;
				if (is_hidden(mask, masked, T, i, j))
					p[j] = -INFINITY;
				max = fmax(max, p[j]);
			}
			for (size_t j = 0; j < T; j++)
				sum += p[j] = exp(p[j] - max);
			for (size_t j = 0; j < T; j++)
				for (size_t x = 0; x < c->D; x++)
					out[x] += p[j] / sum * v[(g * T + j) * c->D + x];
		}
	}
	free(p);
}

static void
attend(struct naive *r, const struct kv_model *m, size_t layer, double *x, const size_t *position,
    const struct naive_mask *mask)
{
	const struct kv_config *c = &m->cfg;
	size_t T = r->T, head = T * c->D;
	double *q = r->q + layer * c->Hq * head, *k = r->k + layer * c->Hkv * head, *v = r->v + layer * c->Hkv * head;
	double *norm = normed(m, layer, KV_ATTN_NORM, x, T), *y = zeros(c->Hq * head);
	double *rows[3] = { zeros(c->Hq * head), zeros(c->Hkv * head), zeros(c->Hkv * head) };

	linear(r, m, layer, KV_Q, KV_Q_BIAS, norm, rows[0]);
	linear(r, m, layer, KV_K, KV_K_BIAS, norm, rows[1]);
	linear(r, m, layer, KV_V, KV_V_BIAS, norm, rows[2]);
	split(m, rows[0], T, c->Hq, load(m, layer, KV_Q_NORM), true, position, q);
	split(m, rows[1], T, c->Hkv, load(m, layer, KV_K_NORM), true, position, k);
	split(m, rows[2], T, c->Hkv, NULL, false, position, v);
	attention(c, layer, q, k, v, T, mask, y);
	linear(r, m, layer, KV_O, KV_N_ROLES, y, x);
	for (size_t i = 0; i < 3; i++)
		free(rows[i]);
	free(y);
	free(norm);
}

static void
feed_forward(const struct naive *r, const struct kv_model *m, size_t layer, double *x)
{
	size_t T = r->T, n = T * m->cfg.ff;
	double *norm = normed(m, layer, KV_FFN_NORM, x, T), *gate = zeros(n), *up = zeros(n);

	linear(r, m, layer, KV_GATE, KV_N_ROLES, norm, gate);
	linear(r, m, layer, KV_UP, KV_N_ROLES, norm, up);
	for (size_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
	linear(r, m, layer, KV_DOWN, KV_N_ROLES, gate, x);
	free(up);
	free(gate);
	free(norm);
}

/* From the embedded rows x [T][d], which it frees, to logits. */
static void
run(struct naive *r, const struct kv_model *m, double *x, const size_t *position, const struct naive_mask *mask)
{
	const struct kv_config *c = &m->cfg;
	size_t head = r->T * c->D;
	double *last;

	r->logits = zeros(r->T * c->vocab);
	r->q = zeros(c->L * c->Hq * head);
	r->k = zeros(c->L * c->Hkv * head);
	r->v = zeros(c->L * c->Hkv * head);
	for (size_t layer = 0; layer < c->L; layer++) {
		attend(r, m, layer, x, position, mask);
		feed_forward(r, m, layer, x);
	}
	last = normed(m, 0, KV_OUT_NORM, x, r->T);
	linear(r, m, 0, KV_OUT, KV_N_ROLES, last, r->logits);
	free(last);
	free(x);
}

/* x [T][d] */
static void
embed(const struct kv_model *m, const int32_t *tokens, size_t T, double *x)
{
	double *table = load(m, 0, KV_EMBED);
	size_t d = m->cfg.d;

	for (size_t t = 0; t < T; t++)
		memcpy(x + t * d, table + (size_t)tokens[t] * d, d * sizeof *x);
	free(table);
}

void
naive_run(struct naive *r, const struct kv_model *m, const int32_t *tokens, size_t T, const size_t *position,
    const struct naive_mask *mask)
{
	double *x = zeros(T * m->cfg.d);

	*r = (struct naive){ .T = T };
	embed(m, tokens, T, x);
	run(r, m, x, position, mask);
}

void
naive_run_lookahead(
    struct naive *r, const struct kv_model *m, const int32_t *tokens, size_t T, const struct kv_lookahead *lookahead)
{
	size_t n = lookahead->shape.n, d = m->cfg.d;
	double *x = zeros((T + n) * d);

	*r = (struct naive){ .T = T + n, .lookahead = lookahead };
	embed(m, tokens, T, x);
	for (size_t i = 0; i < n * d; i++)
		x[T * d + i] = (double)lookahead->p[i];
	run(r, m, x, NULL, NULL);
}

void
naive_fini(struct naive *r)
{
	free(r->logits);
	free(r->q);
	free(r->k);
	free(r->v);
	*r = (struct naive){ 0 };
}
