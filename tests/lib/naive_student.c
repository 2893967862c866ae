/* SPDX-License-Identifier: MIT */
#include "tests/lib/naive_student.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/tensor.h"

static double *
zeros(size_t n)
{
	double *p = calloc(n + 1, sizeof *p);

	if (p == NULL)
		abort();
	return p;
}

static double
weight(const struct kv_matrix *w, size_t i)
{
	struct kv_tensor t = { .type = w->type, .data = w->data };

	return kv_tensor_get(&t, i);
}

/* y [n][out] = x W^T + bias + alpha / rank (x A^T) B^T */
static double *
linear(const struct naive_student *s, const double *theta, size_t layer, enum kv_role role, enum kv_role bias,
    const double *x)
{
	const struct kv_matrix *w = kv_model_weight(s->m, layer, role);
	const struct kv_matrix *b = bias < KV_N_ROLES ? kv_model_weight(s->m, layer, bias) : NULL;
	const struct kv_adapter *a = kv_lookahead_adapter(s->shape, layer, role);
	const size_t n = s->shape->shape.n, r = s->shape->shape.rank;
	double *y = zeros(n * w->rows);

	for (size_t i = 0; i < n; i++) {
		for (size_t o = 0; o < w->rows; o++) {
			double sum = b != NULL && b->data != NULL ? weight(b, o) : 0;

			for (size_t j = 0; j < w->cols; j++)
				sum += x[i * w->cols + j] * weight(w, o * w->cols + j);
			for (size_t t = 0; a != NULL && t < r; t++) {
				const double *A = theta + (a->a - s->shape->parameters) + t * w->cols;
				double low = 0;

				for (size_t j = 0; j < w->cols; j++)
					low += A[j] * x[i * w->cols + j];
				sum += s->shape->shape.alpha / (double)r * low *
				       theta[(size_t)(a->b - s->shape->parameters) + o * r + t];
			}
			y[i * w->rows + o] = sum;
		}
	}
	return y;
}

static void
norm(double *x, size_t rows, size_t d, const struct kv_matrix *w, double eps)
{
	for (size_t i = 0; i < rows; i++) {
		double square = 0;

		for (size_t j = 0; j < d; j++)
			square += x[i * d + j] * x[i * d + j];
		for (size_t j = 0; j < d; j++)
			x[i * d + j] *= weight(w, j) / sqrt(square / (double)d + eps);
	}
}

static double *
normed(const struct naive_student *s, size_t layer, enum kv_role role, const double *x)
{
	const size_t n = s->shape->shape.n, d = s->m->cfg.d;
	double *y = zeros(n * d);

	memcpy(y, x, n * d * sizeof *y);
	norm(y, n, d, kv_model_weight(s->m, layer, role), s->m->cfg.rms_eps);
	return y;
}

/* Rows [n][H][D]: norm per head where the model has one, rotation to the positions behind the prompt, in half order. */
static void
turn(const struct naive_student *s, size_t layer, enum kv_role role, size_t H, double *x)
{
	const struct kv_config *c = &s->m->cfg;
	const struct kv_matrix *w = kv_model_weight(s->m, layer, role);
	const size_t half = c->rope_dim / 2, n = s->shape->shape.n;
	double *y = zeros(c->D);

	if (w->data != NULL)
		norm(x, n * H, c->D, w, c->rms_eps);
	for (size_t i = 0; i < n * H; i++) {
		double *row = x + i * c->D;

		memcpy(y, row, c->D * sizeof *y);
		for (size_t j = 0; j < half; j++) {
			double angle = (double)(s->T + i / H) * (double)c->inv_freq[j];
			double a = c->rope_interleaved ? row[2 * j] : row[j];
			double b = c->rope_interleaved ? row[2 * j + 1] : row[j + half];

			y[j] = a * cos(angle) - b * sin(angle);
			y[j + half] = a * sin(angle) + b * cos(angle);
		}
		memcpy(row, y, c->D * sizeof *y);
	}
	free(y);
}

/* One head: out [n][*] at distance step, score [T] += weights / n. */
static void
attend(const struct naive_student *s, size_t layer, size_t h, const double *q, const double *k, const double *v,
    double *out, double *score)
{
	const struct kv_config *c = &s->m->cfg;
	const size_t n = s->shape->shape.n, T = s->T, D = c->D, g = h / (c->Hq / c->Hkv);
	const float *pk = s->k + (layer * c->Hkv + g) * T * D, *pv = s->v + (layer * c->Hkv + g) * T * D;
	double *p = zeros(T + n);

	for (size_t i = 0; i < n; i++) {
		double max = -INFINITY, sum = 0;

		for (size_t j = 0; j <= T + i; j++) {
			double dot = 0;

			for (size_t d = 0; d < D; d++)
				dot += q[(i * c->Hq + h) * D + d] *
				       (j < T ? (double)pk[j * D + d] : k[((j - T) * c->Hkv + g) * D + d]);
			p[j] = dot * (double)c->scale;
			max = fmax(max, p[j]);
		}
		for (size_t j = 0; j <= T + i; j++)
			sum += p[j] = exp(p[j] - max);
		for (size_t j = 0; j <= T + i; j++) {
			if (j < T)
				score[j] += p[j] / sum / (double)n;
			for (size_t d = 0; d < D && out != NULL; d++)
				out[(i * c->Hq + h) * D + d] +=
				    p[j] / sum * (j < T ? (double)pv[j * D + d] : v[((j - T) * c->Hkv + g) * D + d]);
		}
	}
	free(p);
}

static void
feed(const struct naive_student *s, const double *theta, size_t layer, double *x)
{
	const struct kv_config *c = &s->m->cfg;
	const size_t n = s->shape->shape.n;
	double *h = normed(s, layer, KV_FFN_NORM, x), *gate = linear(s, theta, layer, KV_GATE, KV_N_ROLES, h);
	double *up = linear(s, theta, layer, KV_UP, KV_N_ROLES, h), *down;

	for (size_t i = 0; i < n * c->ff; i++)
		gate[i] *= up[i] / (1 + exp(-gate[i]));
	down = linear(s, theta, layer, KV_DOWN, KV_N_ROLES, gate);
	for (size_t i = 0; i < n * c->d; i++)
		x[i] += down[i];
	free(down);
	free(up);
	free(gate);
	free(h);
}

static void
run_layer(const struct naive_student *s, const double *theta, size_t layer, double *x, double *score)
{
	const struct kv_config *c = &s->m->cfg;
	const size_t n = s->shape->shape.n;
	double *h = normed(s, layer, KV_ATTN_NORM, x), *out = zeros(n * c->Hq * c->D), *o;
	double *q = linear(s, theta, layer, KV_Q, KV_Q_BIAS, h), *k = linear(s, theta, layer, KV_K, KV_K_BIAS, h);
	double *v = linear(s, theta, layer, KV_V, KV_V_BIAS, h);

	turn(s, layer, KV_Q_NORM, c->Hq, q);
	turn(s, layer, KV_K_NORM, c->Hkv, k);
	for (size_t i = 0; i < c->Hq; i++)
		attend(s, layer, i, q, k, v, out, score + i * s->T);
	o = linear(s, theta, layer, KV_O, KV_N_ROLES, out);
	for (size_t i = 0; i < n * c->d; i++)
		x[i] += o[i];
	feed(s, theta, layer, x);
	free(o);
	free(v);
	free(k);
	free(q);
	free(out);
	free(h);
}

static double
divergence(const float *truth, const double *score, size_t T)
{
	double g = 0, p = 0, loss = 0;

	for (size_t j = 0; j < T; j++) {
		g += (double)truth[j];
		p += score[j];
	}
	for (size_t j = 0; j < T; j++)
		if (truth[j] > 0)
			loss += (double)truth[j] / g * log((double)truth[j] / g / (score[j] / p));
	return loss;
}

double
naive_student_loss(const struct naive_student *s, const double *theta, double *score)
{
	const struct kv_config *c = &s->m->cfg;
	const size_t heads = c->L * c->Hq, floats = s->shape->shape.n * c->d;
	double *x = zeros(floats), *mine = zeros(heads * s->T), loss = 0;

	memcpy(x, theta, floats * sizeof *x);
	for (size_t l = 0; l < c->L; l++)
		run_layer(s, theta, l, x, mine + l * c->Hq * s->T);
	for (size_t h = 0; h < heads; h++)
		loss += divergence(s->truth + h * s->T, mine + h * s->T, s->T) / (double)heads;
	if (score != NULL)
		memcpy(score, mine, heads * s->T * sizeof *score);
	free(mine);
	free(x);
	return loss;
}
