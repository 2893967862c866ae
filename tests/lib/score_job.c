/* SPDX-License-Identifier: MIT */
#include "tests/lib/score_job.h"

#include <math.h>
#include <stdlib.h>

#include "tests/lib/kernels.h"

/* n rows of D elements, every seventh of them with the bias of its column. */
static void *
rows(size_t n, const struct score_sizes *z, float bias, uint64_t seed, enum kvk_type type, double **values)
{
	float *x = test_floats(n * z->D, z->size, seed), *common = test_floats(z->D, bias, 77);
	void *y;

	for (size_t i = 0; i < n * z->D; i++)
		x[i] += i % z->D % 7 == 0 ? common[i % z->D] : 0;
	y = test_as(x, n * z->D, type, values);
	free(common);
	free(x);
	return y;
}

void
score_job_init(struct score_job *x, const struct score_sizes *z)
{
	*x = (struct score_job){ 0 };
	x->q = rows(z->G * z->Hkv * z->n_q, z, 0, 1, z->q_type, &x->q_values);
	x->k = rows(z->Hkv * z->T, z, z->bias, 2, z->k_type, &x->k_values);
	x->behind = rows(z->Hkv * z->behind, z, z->bias, 3, z->k_type, &x->behind_values);
	x->pos = test_alloc(z->n_q, sizeof *x->pos);
	for (size_t i = 0; i < z->n_q; i++)
		x->pos[i] = (int32_t)(z->first + i * z->step);
	x->job = (struct kvk_scores){ .q = x->q,
		.q_type = z->q_type,
		.q_pos = x->pos,
		.n_q = z->n_q,
		.Hq = z->G * z->Hkv,
		.Hkv = z->Hkv,
		.D = z->D,
		.k = x->k,
		.k_type = z->k_type,
		.T = z->T,
		.k_behind = z->behind > 0 ? x->behind : NULL,
		.n_behind = z->behind,
		.scale = 0.25f,
		.n = z->n };
}

void
score_job_fini(struct score_job *x)
{
	free(x->q);
	free(x->k);
	free(x->behind);
	free(x->q_values);
	free(x->k_values);
	free(x->behind_values);
	free(x->pos);
}

/* Key j of KV head g. */
static const double *
key(const struct score_job *x, size_t g, size_t j)
{
	const struct kvk_scores *b = &x->job;

	return j < b->T ? x->k_values + (g * b->T + j) * b->D : x->behind_values + (g * b->n_behind + j - b->T) * b->D;
}

void
score_probabilities(const struct score_job *x, size_t h, double *p)
{
	const struct kvk_scores *b = &x->job;
	const size_t all = b->T + b->n_behind;

	for (size_t i = 0; i < b->n_q; i++, p += all) {
		const double *q = x->q_values + (h * b->n_q + i) * b->D;
		double max = -INFINITY, sum = 0;
		size_t sees = 0;

		for (size_t j = 0; j < all && (int32_t)j <= b->q_pos[i]; j++, sees++) {
			const double *k = key(x, h / (b->Hq / b->Hkv), j);

			p[j] = 0;
			for (size_t d = 0; d < b->D; d++)
				p[j] += q[d] * k[d];
			p[j] *= (double)b->scale;
			max = fmax(max, p[j]);
		}
		for (size_t j = 0; j < sees; j++)
			sum += p[j] = exp(p[j] - max);
		for (size_t j = 0; j < all; j++)
			p[j] = j < sees ? p[j] / sum : 0;
	}
}

/* A column of n_q probabilities, `all` apart. */
static double
column(enum kvk_reduce how, const double *p, size_t n_q, size_t all)
{
	double sum = 0, max = 0, entropy = 0, squares = 0;

	for (size_t i = 0; i < n_q; i++) {
		sum += p[i * all];
		max = fmax(max, p[i * all]);
		entropy -= p[i * all] * log(p[i * all] + 1e-10);
	}
	for (size_t i = 0; i < n_q; i++)
		squares += (p[i * all] - sum / (double)n_q) * (p[i * all] - sum / (double)n_q);
	switch (how) {
	case KVK_MEAN: return n_q > 0 ? sum / (double)n_q : 0;
	case KVK_SUM: return sum;
	case KVK_MAX: return max;
	case KVK_VAR: return n_q > 1 ? squares / (double)(n_q - 1) : 0;
	default: return entropy;
	}
}

void
score_columns(const struct score_job *x, enum kvk_reduce how, const double *p, double *want)
{
	for (size_t j = 0; j < x->job.n; j++)
		want[j] = column(how, p + j, x->job.n_q, x->job.T + x->job.n_behind);
}
