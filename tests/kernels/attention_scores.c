/* SPDX-License-Identifier: MIT
 * scores: every reduction against a naive double-precision loop, within the bound of METHODS and of the contract. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/score_job.h"

/* want [n] of head h. */
static void
naive(const struct score_job *s, size_t h, double *want)
{
	double *p = test_alloc(s->job.n_q * (s->job.T + s->job.n_behind), sizeof *p);

	score_probabilities(s, h, p);
	score_columns(s, s->job.rows, p, want);
	free(p);
}

static float *
run(const struct score_job *s, int threads)
{
	struct kvk_dev *dev = test_dev(threads);
	float *y = test_alloc(s->job.Hq * s->job.n, sizeof *y);

	assert_int_equal(kvk_cpu.scores(dev, &s->job, y), 0);
	kvk_cpu.close(dev);
	return y;
}

/* The variance's own mean is the mean. */
static void
mean_of_variance(struct score_job *s)
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
compare(const struct score_sizes *z)
{
	struct score_job s;
	double *want = test_alloc(z->n, sizeof *want);

	score_job_init(&s, z);
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
	score_job_fini(&s);
}

static void
cases(void **state)
{
	static const struct score_sizes table[] = {
		/* T, behind, n_q, first, step, n, G, Hkv, D */
		{ 1, 0, 1, 0, 1, 1, 1, 1, 8, KVK_F32, KVK_F32, 1, 0 },
		{ 31, 0, 31, 0, 1, 31, 3, 2, 64, KVK_F32, KVK_F16, 2, 0 },    /* all rows */
		{ 130, 0, 130, 0, 1, 130, 1, 2, 64, KVK_F32, KVK_F32, 2, 0 }, /* all rows, several tiles */
		{ 130, 0, 32, 98, 1, 98, 3, 2, 64, KVK_F16, KVK_F16, 2, 0 },  /* a window */
		{ 64, 33, 33, 64, 1, 64, 4, 1, 80, KVK_F32, KVK_BF16, 2, 0 }, /* rows behind it see each other */
		{ 65, 70, 5, 64, 17, 65, 1, 3, 13, KVK_BF16, KVK_F32, 2, 0 },
		{ 65, 0, 1, 64, 1, 65, 3, 1, 8, KVK_F32, KVK_F32, 3, 0 },
		{ 33, 0, 4, 40, 1, 20, 1, 1, 64, KVK_F32, KVK_F32, 1, 0 },      /* rows beyond all keys */
		{ 33, 0, 0, 0, 1, 33, 2, 1, 64, KVK_F32, KVK_F32, 1, 0 },       /* no rows: zeros */
		{ 33, 0, 3, 30, 1, 0, 2, 1, 64, KVK_F32, KVK_F32, 1, 0 },       /* no columns */
		{ 200, 0, 32, 168, 1, 168, 2, 1, 64, KVK_F32, KVK_F32, 14, 0 }, /* logits of several hundred */
		{ 200, 0, 32, 168, 1, 168, 2, 1, 64, KVK_F32, KVK_F16, 5, 0 },  /* limit of single precision */
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&table[i]);
}

/* So many keys and heads that a tile has room for a few rows of one KV head only. */
static void
narrow_tiles(void **state)
{
	static const struct score_sizes z = { 30000, 0, 9, 29990, 1, 29990, 16, 2, 4, KVK_F32, KVK_F16, 2, 0 };
	struct score_job s;
	double *want = test_alloc(z.n, sizeof *want);
	float *y;

	(void)state;
	score_job_init(&s, &z);
	s.job.rows = KVK_SUM;
	y = run(&s, 2);
	for (size_t h = 0; h < s.job.Hq; h += 5) {
		naive(&s, h, want);
		test_near("scores", y + h * z.n, want, z.n, 0.5e-7, 1e-5);
	}
	free(y);
	free(want);
	score_job_fini(&s);
}

/* Rows in any order, and rows that see nothing. */
static void
positions(void **state)
{
	static const int32_t pos[] = { 40, -1, 3, 64, 0, 3 };
	static const struct score_sizes z = { 65, 0, 6, 0, 1, 65, 1, 1, 16, KVK_F32, KVK_F32, 2, 0 };
	struct score_job s;
	double want[65];
	float *y;

	(void)state;
	score_job_init(&s, &z);
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
	score_job_fini(&s);
}

/* The first of several rows is not a number, whatever it is reduced by. */
static void
not_a_number(void **state)
{
	static const struct score_sizes z = { 40, 0, 3, 39, 0, 40, 1, 1, 16, KVK_F32, KVK_F32, 2, 0 };
	struct score_job s;

	(void)state;
	score_job_init(&s, &z);
	((float *)s.q)[0] = NAN;
	for (int how = KVK_MEAN; how <= KVK_ENTROPY; how++) {
		float *y;

		s.job.rows = (enum kvk_reduce)how;
		y = run(&s, 1);
		for (size_t j = 0; j < z.n; j++)
			assert_true(isnan(y[j]));
		free(y);
	}
	score_job_fini(&s);
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
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
