/* SPDX-License-Identifier: MIT
 * scores: every reduction against a naive double-precision loop, within the bound of METHODS and of the contract. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

struct sizes {
	size_t T, behind, n_q, first; /* row i stands at position first + i * step */
	size_t step, n, G, Hkv, D;
	enum kvk_type q_type, k_type;
	float size; /* of the elements of q and k: logits are of the order of size^2 * D / 12 */
};

struct setup {
	struct kvk_scores job;
	void *q, *k, *behind;
	double *q_values, *k_values, *behind_values;
	int32_t *pos;
};

static void
set_up(struct setup *s, const struct sizes *z)
{
	*s = (struct setup){ 0 };
	s->q = test_typed(z->G * z->Hkv * z->n_q * z->D, z->size, 1, z->q_type, &s->q_values);
	s->k = test_typed(z->Hkv * z->T * z->D, z->size, 2, z->k_type, &s->k_values);
	s->behind = test_typed(z->Hkv * z->behind * z->D, z->size, 3, z->k_type, &s->behind_values);
	s->pos = test_alloc(z->n_q, sizeof *s->pos);
	for (size_t i = 0; i < z->n_q; i++)
		s->pos[i] = (int32_t)(z->first + i * z->step);
	s->job = (struct kvk_scores){ .q = s->q,
		.q_type = z->q_type,
		.q_pos = s->pos,
		.n_q = z->n_q,
		.Hq = z->G * z->Hkv,
		.Hkv = z->Hkv,
		.D = z->D,
		.k = s->k,
		.k_type = z->k_type,
		.T = z->T,
		.scale = 0.25f,
		.n = z->n,
		.k_behind = z->behind ? s->behind : NULL,
		.n_behind = z->behind };
}

static void
tear_down(struct setup *s)
{
	free(s->q);
	free(s->k);
	free(s->behind);
	free(s->q_values);
	free(s->k_values);
	free(s->behind_values);
	free(s->pos);
}

static const double *
key(const struct setup *s, size_t g, size_t j)
{
	const struct kvk_scores *b = &s->job;

	return j < b->T ? s->k_values + (g * b->T + j) * b->D : s->behind_values + (g * b->n_behind + j - b->T) * b->D;
}

/* Row i of head h joins y [n]; for the variance, y [n] and the mean of the columns in mean [n]. */
static void
naive_row(const struct setup *s, size_t h, size_t i, const double *mean, double *y)
{
	const struct kvk_scores *b = &s->job;
	const double *q = s->q_values + (h * b->n_q + i) * b->D;
	double *p = test_alloc(b->T + b->n_behind, sizeof *p), max = -INFINITY, sum = 0;
	size_t sees = 0;

	for (size_t j = 0; j < b->T + b->n_behind && (int32_t)j <= b->q_pos[i]; j++, sees++) {
		for (size_t d = 0; d < b->D; d++)
			p[j] += q[d] * key(s, h / (b->Hq / b->Hkv), j)[d];
		p[j] *= (double)b->scale;
		max = fmax(max, p[j]);
	}
	for (size_t j = 0; j < sees; j++)
		sum += p[j] = exp(p[j] - max);
	for (size_t j = 0; j < b->n; j++) {
		const double x = j < sees ? p[j] / sum : 0;

		switch (b->rows) {
		case KVK_MEAN: y[j] += x / (double)b->n_q; break;
		case KVK_SUM: y[j] += x; break;
		case KVK_MAX: y[j] = fmax(y[j], x); break;
		case KVK_VAR: y[j] += b->n_q > 1 ? (x - mean[j]) * (x - mean[j]) / (double)(b->n_q - 1) : 0; break;
		case KVK_ENTROPY: y[j] -= x * log(x + 1e-10); break;
		}
	}
	free(p);
}

/* y [n] of head h. */
static void
naive(struct setup *s, size_t h, double *y)
{
	const enum kvk_reduce how = s->job.rows;
	double *mean = test_alloc(s->job.n, sizeof *mean);

	s->job.rows = KVK_MEAN;
	for (size_t i = 0; how == KVK_VAR && i < s->job.n_q; i++)
		naive_row(s, h, i, NULL, mean);
	s->job.rows = how;
	memset(y, 0, s->job.n * sizeof *y);
	for (size_t i = 0; i < s->job.n_q; i++)
		naive_row(s, h, i, mean, y);
	free(mean);
}

static float *
run(const struct setup *s, int threads)
{
	struct kvk_dev *dev = test_dev(threads);
	float *y = test_alloc(s->job.Hq * s->job.n, sizeof *y);

	assert_int_equal(kvk_cpu.scores(dev, &s->job, y), 0);
	kvk_cpu.close(dev);
	return y;
}

/* The variance's own mean is the mean. */
static void
mean_of_variance(struct setup *s)
{
	const size_t n = s->job.Hq * s->job.n;
	float *mean = test_alloc(n, sizeof *mean), *want, *y;

	s->job.rows = KVK_MEAN;
	want = run(s, 1);
	s->job.rows = KVK_VAR;
	s->job.mean = mean;
	y = run(s, 2);
	s->job.mean = NULL;
	for (size_t i = 0; i < n; i++)
		assert_true(fabsf(mean[i] - want[i]) <= 1e-6f * want[i] + 1e-30f);
	free(y);
	free(want);
	free(mean);
}

static void
compare(const struct sizes *z)
{
	struct setup s;
	double *want = test_alloc(z->n, sizeof *want);

	set_up(&s, z);
	for (int how = KVK_MEAN; how <= KVK_ENTROPY; how++) {
		float *y, *other;

		s.job.rows = (enum kvk_reduce)how;
		y = run(&s, 1);
		other = run(&s, 2);
		test_same("2 threads", other, y, s.job.Hq * z->n);
		for (size_t h = 0; h < s.job.Hq; h++) {
			naive(&s, h, want);
			test_near("scores", y + h * z->n, want, z->n, 0.5e-7, 1e-5); /* half of the contract's bound */
		}
		free(y);
		free(other);
	}
	mean_of_variance(&s);
	free(want);
	tear_down(&s);
}

static void
cases(void **state)
{
	static const struct sizes table[] = {
		/* T, behind, n_q, first, step, n, G, Hkv, D */
		{ 1, 0, 1, 0, 1, 1, 1, 1, 8, KVK_F32, KVK_F32, 1 },
		{ 31, 0, 31, 0, 1, 31, 3, 2, 64, KVK_F32, KVK_F16, 2 },    /* all rows */
		{ 130, 0, 130, 0, 1, 130, 1, 2, 64, KVK_F32, KVK_F32, 2 }, /* all rows, several tiles */
		{ 130, 0, 32, 98, 1, 98, 3, 2, 64, KVK_F16, KVK_F16, 2 },  /* a window */
		{ 64, 33, 33, 64, 1, 64, 4, 1, 80, KVK_F32, KVK_BF16, 2 }, /* rows behind the prompt see each other */
		{ 65, 70, 5, 64, 17, 65, 1, 3, 13, KVK_BF16, KVK_F32, 2 },
		{ 65, 0, 1, 64, 1, 65, 3, 1, 8, KVK_F32, KVK_F32, 3 },
		{ 33, 0, 4, 40, 1, 20, 1, 1, 64, KVK_F32, KVK_F32, 1 },      /* rows beyond all keys */
		{ 33, 0, 0, 0, 1, 33, 2, 1, 64, KVK_F32, KVK_F32, 1 },       /* no rows: zeros */
		{ 33, 0, 3, 30, 1, 0, 2, 1, 64, KVK_F32, KVK_F32, 1 },       /* no columns */
		{ 200, 0, 32, 168, 1, 168, 2, 1, 64, KVK_F32, KVK_F32, 14 }, /* logits of several hundred */
		{ 200, 0, 32, 168, 1, 168, 2, 1, 64, KVK_F32, KVK_F16, 5 },  /* at the limit of single precision: rows differ */
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&table[i]);
}

/* So many keys and heads that a tile has room for a few rows of one KV head only. */
static void
narrow_tiles(void **state)
{
	static const struct sizes z = { 30000, 0, 9, 29990, 1, 29990, 16, 2, 4, KVK_F32, KVK_F16, 2 };
	struct setup s;
	double *want = test_alloc(z.n, sizeof *want);
	float *y;

	(void)state;
	set_up(&s, &z);
	s.job.rows = KVK_SUM;
	y = run(&s, 2);
	for (size_t h = 0; h < s.job.Hq; h += 5) {
		naive(&s, h, want);
		test_near("scores", y + h * z.n, want, z.n, 0.5e-7, 1e-5);
	}
	free(y);
	free(want);
	tear_down(&s);
}

/* Rows in any order, and rows that see nothing. */
static void
positions(void **state)
{
	static const int32_t pos[] = { 40, -1, 3, 64, 0, 3 };
	static const struct sizes z = { 65, 0, 6, 0, 1, 65, 1, 1, 16, KVK_F32, KVK_F32, 2 };
	struct setup s;
	double want[65] = { 0 };
	float *y;

	(void)state;
	set_up(&s, &z);
	memcpy(s.pos, pos, sizeof pos);
	y = run(&s, 1);
	naive(&s, 0, want);
	test_near("scores", y, want, 65, 0.5e-7, 1e-5);
	free(y);
	for (size_t i = 0; i < 6; i++)
		s.pos[i] = -5;
	y = run(&s, 1);
	for (size_t j = 0; j < 65; j++)
		assert_true(y[j] == 0);
	free(y);
	tear_down(&s);
}

static void
refused(void **state)
{
	struct kvk_scores job = { .Hq = 3, .Hkv = 2, .D = 8, .T = 1, .n = 1 };
	struct kvk_dev *dev = test_dev(1);
	float y[3];

	(void)state;
	assert_int_not_equal(kvk_cpu.scores(dev, &job, y), 0);
	job.Hq = 2;
	job.n = 2;
	assert_int_not_equal(kvk_cpu.scores(dev, &job, y), 0);
	assert_string_equal(kvk_cpu.error(dev), "scores: 2 columns of 1 keys");
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cases),
		cmocka_unit_test(narrow_tiles),
		cmocka_unit_test(positions),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
