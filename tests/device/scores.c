/* SPDX-License-Identifier: MIT
 * scores of a backend under test: every reduction against a naive double-precision loop, within half of the
 * contract's bound, for few rows (whose probabilities are kept) and many (which are computed twice). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"
#include "tests/lib/score_job.h"

/* A job and its arrays on the device under test. */
struct setup {
	struct score_job x; /* x.job is over those */
	void *q, *k, *behind;
	float *s;              /* [Hq][n] */
	double *p;             /* [Hq][n_q][T + n_behind] */
	double *want;          /* [Hq][n] */
};

static void
set_up(struct pair *p, struct setup *s, const struct score_sizes *z)
{
	struct kvk_scores *j = &s->x.job;
	size_t q_bytes, k_bytes;

	score_job_init(&s->x, z);
	q_bytes = z->D * kvk_types[z->q_type].bytes;
	k_bytes = z->D * kvk_types[z->k_type].bytes;
	j->q = s->q = pair_put(p, s->x.q, j->Hq * j->n_q * q_bytes);
	j->k = s->k = pair_put(p, s->x.k, j->Hkv * j->T * k_bytes);
	j->k_behind = s->behind = pair_put(p, s->x.behind, j->Hkv * j->n_behind * k_bytes);
	s->s = pair_put(p, NULL, j->Hq * j->n * sizeof *s->s);
	s->p = test_alloc(j->Hq * j->n_q * (j->T + j->n_behind), sizeof *s->p);
	s->want = test_alloc(j->Hq * j->n, sizeof *s->want);
}

static void
tear_down(struct pair *p, struct setup *s)
{
	pair_free(p, s->q);
	pair_free(p, s->k);
	pair_free(p, s->behind);
	pair_free(p, s->s);
	score_job_fini(&s->x);
	free(s->p);
	free(s->want);
}

/* s->p, of all heads; again where positions have changed. */
static void
probabilities(struct setup *s)
{
	const struct kvk_scores *j = &s->x.job;

	for (size_t h = 0; h < j->Hq; h++)
		score_probabilities(&s->x, h, s->p + h * j->n_q * (j->T + j->n_behind));
}

/* s->want */
static void
reduce(struct setup *s, enum kvk_reduce how)
{
	const struct kvk_scores *j = &s->x.job;

	for (size_t h = 0; h < j->Hq; h++)
		score_columns(&s->x, how, s->p + h * j->n_q * (j->T + j->n_behind), s->want + h * j->n);
}

/* One reduction. */
static void
near_one(struct pair *p, struct setup *s, enum kvk_reduce how)
{
	struct kvk_scores *j = &s->x.job;
	const size_t n = j->Hq * j->n;
	float *mean = pair_put(p, NULL, n * sizeof *mean);

	j->rows = how;
	j->mean = how == KVK_VAR ? mean : NULL;
	reduce(s, how);
	pair_ok(p, p->op->scores(p->dev, j, s->s));
	pair_near(p, "scores", s->s, s->want, n, 0.5e-7, 1e-5);
	if (how == KVK_VAR) {
		reduce(s, KVK_MEAN);
		pair_near(p, "the mean beside the variance", mean, s->want, n, 0.5e-7, 1e-5);
	}
	pair_free(p, mean);
}

/* All of them. */
static void
near_all(struct pair *p, struct setup *s)
{
	probabilities(s);
	for (int how = KVK_MEAN; how <= KVK_ENTROPY; how++)
		near_one(p, s, (enum kvk_reduce)how);
}

/* A job by one of them. */
static void
check_one(struct pair *p, const struct score_sizes *z, enum kvk_reduce how)
{
	struct setup s;

	set_up(p, &s, z);
	probabilities(&s);
	near_one(p, &s, how);
	tear_down(p, &s);
}

static void
check_table(const struct score_sizes *table, size_t n)
{
	struct setup s;
	struct pair p;

	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < n; i++) {
		set_up(&p, &s, &table[i]);
		near_all(&p, &s);
		tear_down(&p, &s);
	}
	pair_close(&p);
}

#define F32  KVK_F32
#define F16  KVK_F16
#define BF16 KVK_BF16

static void
few_rows(void **state)
{
	static const struct score_sizes table[] = {
		/* T, behind, n_q, first, step, n, G, Hkv, D */
		{ 1, 0, 1, 0, 1, 1, 1, 1, 8, F32, F32, 1, 0 },
		{ 31, 0, 31, 0, 1, 31, 3, 2, 64, F32, F16, 2, 0 }, /* all rows; a tile of rows has two heads */
		{ 97, 0, 32, 65, 1, 65, 7, 1, 64, F16, F16, 2, 0 }, /* a window; rows of seven heads */
		{ 129, 0, 8, 121, 1, 121, 4, 2, 128, F16, BF16, 2, 0 },
		{ 64, 33, 33, 64, 1, 64, 4, 1, 80, F32, BF16, 2, 0 }, /* rows behind the prompt see each other */
		{ 65, 70, 5, 64, 17, 65, 1, 3, 13, BF16, F32, 2, 0 }, /* no quads */
		{ 63, 2, 2, 0, 40, 60, 1, 1, 96, BF16, BF16, 2, 0 },
		{ 96, 0, 3, 0, 45, 96, 1, 1, 256, F32, F32, 1, 0 }, /* two chunks of dimensions */
		{ 65, 31, 31, 65, 1, 65, 8, 1, 256, BF16, F32, 1, 0 },
		{ 128, 0, 3, 0, 25, 128, 1, 1, 64, F32, F32, 1, 0 }, /* a tile of keys that nobody sees */
		{ 65, 0, 1, 64, 1, 65, 3, 1, 8, F32, F32, 3, 0 },
		{ 33, 0, 4, 40, 1, 20, 1, 1, 64, F32, F32, 1, 0 }, /* rows beyond all keys */
		{ 33, 0, 0, 0, 1, 33, 2, 1, 64, F32, F32, 1, 0 },  /* no rows: zeros */
		{ 33, 0, 3, 30, 1, 0, 2, 1, 64, F32, F32, 1, 0 },  /* no columns */
		{ 0, 5, 3, 0, 1, 0, 1, 1, 8, F32, F32, 1, 0 },     /* no keys but those behind */
	};

	(void)state;
	check_table(table, sizeof table / sizeof *table);
}

/* Every length at which a tile, a warp or a vector is just full, one reduction each; head sizes, groups, windows and
 * types in turn. */
static void
lengths(void **state)
{
	static const size_t tokens[] = { 0, 1, 26, 27, 28, 29, 30, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129,
		255, 256, 257 };
	static const size_t D[] = { 64, 80, 96, 128, 256 }, G[] = { 1, 3, 4, 7, 8 }, window[] = { 1, 8, 5, 32 };
	static const enum kvk_type types[] = { F32, F16, BF16 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 2 * sizeof tokens / sizeof *tokens; i++) {
		const size_t T = tokens[i / 2], a = i / 2 + 3 * i, W = T < window[i % 4] ? T : window[i % 4];
		const struct score_sizes z = { T, 0, W, T - W, 1, i % 3 > 0 ? T : T - W, G[a / 5 % 5], i % 2 + 1,
			D[a % 5], types[i % 3], types[i / 2 % 3], 1, 0 };

		check_one(&p, &z, (enum kvk_reduce)(i % 5));
	}
	pair_close(&p);
}

/* The same of more rows than that, most of them of the whole prompt. */
static void
many_lengths(void **state)
{
	static const struct score_sizes table[] = {
		{ 129, 0, 129, 0, 1, 129, 8, 1, 80, F16, F16, 2, 0 },
		{ 255, 0, 255, 0, 1, 255, 1, 1, 256, BF16, F16, 1, 0 },
		{ 256, 0, 256, 0, 1, 256, 1, 1, 96, F32, F16, 2, 0 },
		{ 257, 0, 257, 0, 1, 257, 1, 1, 128, F16, F16, 1, 0 },
		{ 257, 0, 9, 248, 1, 248, 8, 1, 256, F16, F16, 1, 0 },
	};
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		check_one(&p, &table[i], (enum kvk_reduce)i);
	pair_close(&p);
}

static void
many_rows(void **state)
{
	static const struct score_sizes table[] = {
		{ 130, 0, 130, 0, 1, 130, 1, 2, 64, F32, F32, 2, 0 }, /* all rows */
		{ 150, 0, 150, 0, 1, 150, 3, 1, 16, F16, F16, 2, 0 },
		{ 64, 129, 129, 64, 1, 64, 2, 1, 8, F32, F16, 3, 0 },
		{ 100, 0, 129, 0, 1, 70, 1, 1, 13, BF16, F32, 2, 0 },
		{ 70, 0, 129, 0, 1, 70, 1, 1, 144, F32, F32, 1, 0 }, /* two chunks of dimensions */
	};

	(void)state;
	check_table(table, sizeof table / sizeof *table);
}

/* Logits of many hundreds, which single precision does not hold well enough. */
static void
large_keys(void **state)
{
	static const struct score_sizes table[] = {
		{ 130, 0, 32, 98, 1, 98, 2, 1, 64, F32, F32, 14, 0 },
		{ 130, 0, 16, 114, 1, 114, 1, 1, 128, F32, F16, 4, 300 },
		{ 100, 0, 16, 84, 1, 84, 1, 1, 128, F32, F32, 4, 300 },
		{ 100, 0, 16, 84, 1, 84, 1, 1, 128, BF16, BF16, 4, 300 },
		{ 140, 0, 140, 0, 1, 140, 1, 1, 64, F16, F16, 4, 200 },
		{ 70, 0, 4, 66, 1, 70, 1, 1, 64, F16, F32, 1e-3f, 30000 },
	};

	(void)state;
	check_table(table, sizeof table / sizeof *table);
}

/* Rows in any order, and rows that see nothing; few and many. */
static void
positions(void **state)
{
	static const int32_t pos[] = { 40, -1, 3, 64, 0, 3 };
	static const size_t n_q[] = { 6, 131 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t c = 0; c < 2; c++) {
		const struct score_sizes z = { 65, 0, n_q[c], 0, 0, 65, 1, 1, 16, F32, F32, 2, 0 };
		struct setup s;

		set_up(&p, &s, &z);
		memcpy(s.x.pos, pos, sizeof pos);
		near_all(&p, &s);
		for (size_t i = 0; i < n_q[c]; i++)
			s.x.pos[i] = -5;
		near_all(&p, &s);
		tear_down(&p, &s);
	}
	pair_close(&p);
}

/* The first of several rows is not a number, whatever it is reduced by. */
static void
not_a_number(void **state)
{
	static const size_t n_q[] = { 3, 130 };
	const float none = NAN;
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t c = 0; c < 2; c++) {
		const struct score_sizes z = { 40, 0, n_q[c], 39, 0, 40, 1, 1, 16, F32, F32, 2, 0 };
		struct setup s;

		set_up(&p, &s, &z);
		pair_ok(&p, p.op->put(p.dev, s.q, &none, sizeof none));
		for (int how = KVK_MEAN; how <= KVK_ENTROPY; how++) {
			float *y;

			s.x.job.rows = (enum kvk_reduce)how;
			pair_ok(&p, p.op->scores(p.dev, &s.x.job, s.s));
			y = pair_get(&p, s.s, z.n * sizeof *y);
			for (size_t j = 0; j < z.n; j++)
				assert_true(isnan(y[j]));
			free(y);
		}
		tear_down(&p, &s);
	}
	pair_close(&p);
}

/* On a card with little memory KV heads come one or two at a time, each beyond its share or not (KEPT_SHARE of
 * kernels/cuda/scores.cu); the shim is such a card when it is told so. */
static void
little_memory(void **state)
{
	static const char *const memory[] = { "8M", "24M" }; /* of which a 64th is room for no head, and for two */
	static const struct score_sizes z = { 300, 0, 32, 268, 1, 268, 4, 3, 16, F16, F16, 2, 0 };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		setenv("KV_SHIM_MEMORY", memory[i], 1);
		check_table(&z, 1);
		unsetenv("KV_SHIM_MEMORY");
	}
}

/* A card whose blocks have 99 KiB of shared memory at most, as many have: too little for 128 dimensions of f32. */
static void
little_shared_memory(void **state)
{
	static const struct score_sizes table[] = {
		{ 70, 0, 5, 65, 1, 70, 3, 1, 128, F32, F32, 2, 0 },
		{ 70, 0, 130, 0, 1, 70, 1, 1, 128, F32, F32, 2, 0 },
	};

	(void)state;
	setenv("KV_SHIM_SHARED", "99K", 1);
	check_table(table, sizeof table / sizeof *table);
	unsetenv("KV_SHIM_SHARED");
}

/* Twice the same bytes. */
static void
repeatable(void **state)
{
	static const struct score_sizes table[] = {
		{ 90, 0, 20, 70, 1, 70, 2, 1, 32, F16, F16, 3, 0 },
		{ 130, 0, 130, 0, 1, 130, 1, 1, 32, F16, F16, 3, 0 },
	};
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 2; i++) {
		const size_t n = table[i].G * table[i].Hkv * table[i].n;
		struct setup s;
		float *y[2];

		set_up(&p, &s, &table[i]);
		for (int t = 0; t < 2; t++) {
			pair_ok(&p, p.op->scores(p.dev, &s.x.job, s.s));
			y[t] = pair_get(&p, s.s, n * sizeof **y);
		}
		test_same("again", y[1], y[0], n);
		free(y[0]);
		free(y[1]);
		tear_down(&p, &s);
	}
	pair_close(&p);
}

static void
refused(void **state)
{
	struct kvk_scores job = { .Hq = 3, .Hkv = 2, .D = 8, .T = 1, .n = 1 };
	struct pair p;
	float y[3];

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->scores(p.dev, &job, y), 0);
	assert_string_equal(p.op->error(p.dev), "scores: 3 query heads cannot share 2 KV heads");
	job.Hq = 2;
	job.n = 2;
	assert_int_not_equal(p.op->scores(p.dev, &job, y), 0);
	assert_string_equal(p.op->error(p.dev), "scores: 2 columns of 1 keys");
	job.n = 1;
	job.k_type = KVK_Q4_0;
	assert_int_not_equal(p.op->scores(p.dev, &job, y), 0);
	assert_string_equal(p.op->error(p.dev), "scores: queries and keys are f32, f16 or bf16");
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_rows),
		cmocka_unit_test(lengths),
		cmocka_unit_test(many_lengths),
		cmocka_unit_test(many_rows),
		cmocka_unit_test(large_keys),
		cmocka_unit_test(positions),
		cmocka_unit_test(not_a_number),
		cmocka_unit_test(little_memory),
		cmocka_unit_test(little_shared_memory),
		cmocka_unit_test(repeatable),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
