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

struct sizes {
	size_t T, behind, n_q, first; /* row i stands at position first + i * step */
	size_t step, n, G, Hkv, D;
	enum kvk_type q_type, k_type;
	float size; /* of the elements of q and k: logits are of the order of size^2 * D / 12 */
	float bias; /* of every seventh element of all keys, up to so much: a large common part */
};

struct setup {
	struct kvk_scores job; /* its arrays on the device under test */
	double *q, *k, *behind;
	int32_t *pos;
	double *want, *mean; /* [Hq][n] */
	float *s;            /* on the device */
};

/* n rows of D elements of a type, and what they are as doubles. */
static void *
rows(struct pair *p, size_t n, size_t D, const struct sizes *z, float bias, uint64_t seed, enum kvk_type type,
    double **values)
{
	float *x = test_floats(n * D, z->size, seed), *common = test_floats(D, bias, 77);
	uint8_t *y = test_alloc(n * D, kvk_types[type].bytes);
	void *device;

	for (size_t i = 0; i < n * D; i++)
		x[i] += i % D % 7 == 0 ? common[i % D] : 0;
	assert_int_equal(kvk_cpu.get_as(p->cpu, y, type, x, KVK_F32, n * D), 0);
	*values = test_alloc(n * D, sizeof **values);
	for (size_t i = 0; i < n * D; i++) {
		uint16_t h;

		memcpy(&h, y + i * kvk_types[type].bytes, sizeof h);
		(*values)[i] = type == KVK_F32 ? (double)x[i] : type == KVK_F16 ? test_f16(h) : test_bf16(h);
	}
	device = pair_put(p, y, n * D * kvk_types[type].bytes);
	free(y);
	free(common);
	free(x);
	return device;
}

static void
set_up(struct pair *p, struct setup *s, const struct sizes *z)
{
	const size_t Hq = z->G * z->Hkv;

	*s = (struct setup){ 0 };
	s->pos = test_alloc(z->n_q, sizeof *s->pos);
	for (size_t i = 0; i < z->n_q; i++)
		s->pos[i] = (int32_t)(z->first + i * z->step);
	s->job = (struct kvk_scores){ .q = rows(p, Hq * z->n_q, z->D, z, 0, 1, z->q_type, &s->q),
		.q_type = z->q_type,
		.q_pos = s->pos,
		.n_q = z->n_q,
		.Hq = Hq,
		.Hkv = z->Hkv,
		.D = z->D,
		.k = rows(p, z->Hkv * z->T, z->D, z, z->bias, 2, z->k_type, &s->k),
		.k_type = z->k_type,
		.T = z->T,
		.k_behind = rows(p, z->Hkv * z->behind, z->D, z, z->bias, 3, z->k_type, &s->behind),
		.n_behind = z->behind,
		.scale = 0.25f,
		.n = z->n };
	s->want = test_alloc(Hq * z->n, sizeof *s->want);
	s->mean = test_alloc(Hq * z->n, sizeof *s->mean);
	s->s = pair_put(p, NULL, Hq * z->n * sizeof *s->s);
}

static void
tear_down(struct pair *p, struct setup *s)
{
	pair_free(p, (void *)(uintptr_t)s->job.q);
	pair_free(p, (void *)(uintptr_t)s->job.k);
	pair_free(p, (void *)(uintptr_t)s->job.k_behind);
	pair_free(p, s->s);
	free(s->q);
	free(s->k);
	free(s->behind);
	free(s->pos);
	free(s->want);
	free(s->mean);
}

static const double *
key(const struct setup *s, size_t g, size_t j)
{
	const struct kvk_scores *b = &s->job;

	return j < b->T ? s->k + (g * b->T + j) * b->D : s->behind + (g * b->n_behind + j - b->T) * b->D;
}

/* x [n_q][T + n_behind]: the probabilities of head h, zero where a row does not see. */
static void
probabilities(const struct setup *s, size_t h, double *x)
{
	const struct kvk_scores *b = &s->job;
	const size_t all = b->T + b->n_behind;

	for (size_t i = 0; i < b->n_q; i++, x += all) {
		const double *q = s->q + (h * b->n_q + i) * b->D;
		double max = -INFINITY, sum = 0;
		size_t sees = 0;

		for (size_t j = 0; j < all && (int32_t)j <= b->q_pos[i]; j++, sees++) {
			x[j] = 0;
			for (size_t d = 0; d < b->D; d++)
				x[j] += q[d] * key(s, h / (b->Hq / b->Hkv), j)[d];
			x[j] *= (double)b->scale;
			max = fmax(max, x[j]);
		}
		for (size_t j = 0; j < sees; j++)
			sum += x[j] = exp(x[j] - max);
		for (size_t j = 0; j < all; j++)
			x[j] = j < sees ? x[j] / sum : 0;
	}
}

/* A column of n_q probabilities, `all` apart. */
static double
column(enum kvk_reduce how, const double *x, size_t n_q, size_t all)
{
	double sum = 0, max = 0, entropy = 0, squares = 0;

	for (size_t i = 0; i < n_q; i++) {
		sum += x[i * all];
		max = fmax(max, x[i * all]);
		entropy -= x[i * all] * log(x[i * all] + 1e-10);
	}
	for (size_t i = 0; i < n_q; i++)
		squares += (x[i * all] - sum / (double)n_q) * (x[i * all] - sum / (double)n_q);
	switch (how) {
	case KVK_MEAN: return n_q > 0 ? sum / (double)n_q : 0;
	case KVK_SUM: return sum;
	case KVK_MAX: return max;
	case KVK_VAR: return n_q > 1 ? squares / (double)(n_q - 1) : 0;
	default: return entropy;
	}
}

/* x: of all heads. */
static void
reduce(struct setup *s, enum kvk_reduce how, const double *x, double *want)
{
	const struct kvk_scores *b = &s->job;
	const size_t all = b->T + b->n_behind;

	for (size_t h = 0; h < b->Hq; h++)
		for (size_t j = 0; j < b->n; j++)
			want[h * b->n + j] = column(how, x + h * b->n_q * all + j, b->n_q, all);
}

static void
near_naive(struct pair *p, struct setup *s, const double *x)
{
	const size_t n = s->job.Hq * s->job.n;
	float *mean = pair_put(p, NULL, n * sizeof *mean);

	for (int how = KVK_MEAN; how <= KVK_ENTROPY; how++) {
		s->job.rows = (enum kvk_reduce)how;
		s->job.mean = how == KVK_VAR ? mean : NULL;
		reduce(s, s->job.rows, x, s->want);
		pair_ok(p, p->op->scores(p->dev, &s->job, s->s));
		pair_near(p, "scores", s->s, s->want, n, 0.5e-7, 1e-5);
	}
	reduce(s, KVK_MEAN, x, s->want);
	pair_near(p, "the mean beside the variance", mean, s->want, n, 0.5e-7, 1e-5);
	pair_free(p, mean);
}

static void
compare(struct pair *p, const struct sizes *z)
{
	struct setup s;
	double *x;

	set_up(p, &s, z);
	x = test_alloc(s.job.Hq * z->n_q * (z->T + z->behind), sizeof *x);
	for (size_t h = 0; h < s.job.Hq; h++)
		probabilities(&s, h, x + h * z->n_q * (z->T + z->behind));
	near_naive(p, &s, x);
	free(x);
	tear_down(p, &s);
}

#define F32  KVK_F32
#define F16  KVK_F16
#define BF16 KVK_BF16

static void
few_rows(void **state)
{
	static const struct sizes table[] = {
		/* T, behind, n_q, first, step, n, G, Hkv, D */
		{ 1, 0, 1, 0, 1, 1, 1, 1, 8, F32, F32, 1, 0 },
		{ 31, 0, 31, 0, 1, 31, 3, 2, 64, F32, F16, 2, 0 }, /* all rows; a tile of rows has two heads */
		{ 97, 0, 32, 65, 1, 65, 7, 1, 64, F16, F16, 2, 0 }, /* a window; rows of seven heads */
		{ 129, 0, 8, 121, 1, 121, 4, 2, 128, F16, BF16, 2, 0 },
		{ 64, 33, 33, 64, 1, 64, 4, 1, 80, F32, BF16, 2, 0 }, /* rows behind the prompt see each other */
		{ 65, 70, 5, 64, 17, 65, 1, 3, 13, BF16, F32, 2, 0 }, /* no quads */
		{ 63, 2, 2, 0, 40, 60, 1, 1, 96, BF16, BF16, 2, 0 },
		{ 96, 0, 3, 0, 45, 96, 1, 1, 256, F32, F32, 1, 0 }, /* two chunks of dimensions */
		{ 128, 0, 3, 0, 25, 128, 1, 1, 64, F32, F32, 1, 0 }, /* a tile of keys that nobody sees */
		{ 65, 0, 1, 64, 1, 65, 3, 1, 8, F32, F32, 3, 0 },
		{ 33, 0, 4, 40, 1, 20, 1, 1, 64, F32, F32, 1, 0 }, /* rows beyond all keys */
		{ 33, 0, 0, 0, 1, 33, 2, 1, 64, F32, F32, 1, 0 },  /* no rows: zeros */
		{ 33, 0, 3, 30, 1, 0, 2, 1, 64, F32, F32, 1, 0 },  /* no columns */
		{ 0, 5, 3, 0, 1, 0, 1, 1, 8, F32, F32, 1, 0 },     /* no keys but those behind */
	};
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&p, &table[i]);
	pair_close(&p);
}

static void
many_rows(void **state)
{
	static const struct sizes table[] = {
		{ 130, 0, 130, 0, 1, 130, 1, 2, 64, F32, F32, 2, 0 }, /* all rows */
		{ 150, 0, 150, 0, 1, 150, 3, 1, 16, F16, F16, 2, 0 },
		{ 64, 129, 129, 64, 1, 64, 2, 1, 8, F32, F16, 3, 0 },
		{ 100, 0, 129, 0, 1, 70, 1, 1, 13, BF16, F32, 2, 0 },
		{ 70, 0, 129, 0, 1, 70, 1, 1, 144, F32, F32, 1, 0 }, /* two chunks of dimensions */
	};
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&p, &table[i]);
	pair_close(&p);
}

/* Logits of many hundreds, which single precision does not hold well enough. */
static void
large_keys(void **state)
{
	static const struct sizes table[] = {
		{ 130, 0, 32, 98, 1, 98, 2, 1, 64, F32, F32, 14, 0 },
		{ 130, 0, 16, 114, 1, 114, 1, 1, 128, F32, F16, 4, 300 },
		{ 100, 0, 16, 84, 1, 84, 1, 1, 128, F32, F32, 4, 300 },
		{ 100, 0, 16, 84, 1, 84, 1, 1, 128, BF16, BF16, 4, 300 },
		{ 140, 0, 140, 0, 1, 140, 1, 1, 64, F16, F16, 4, 200 },
		{ 70, 0, 4, 66, 1, 70, 1, 1, 64, F16, F32, 1e-3f, 30000 },
	};
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&p, &table[i]);
	pair_close(&p);
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
		const struct sizes z = { 65, 0, n_q[c], 0, 0, 65, 1, 1, 16, F32, F32, 2, 0 };
		struct setup s;
		double *x = test_alloc(n_q[c] * 65, sizeof *x);

		set_up(&p, &s, &z);
		memcpy(s.pos, pos, sizeof pos);
		probabilities(&s, 0, x);
		near_naive(&p, &s, x);
		for (size_t i = 0; i < n_q[c]; i++)
			s.pos[i] = -5;
		probabilities(&s, 0, x);
		near_naive(&p, &s, x);
		free(x);
		tear_down(&p, &s);
	}
	pair_close(&p);
}

/* Twice the same bytes. */
static void
repeatable(void **state)
{
	static const struct sizes table[] = {
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
			pair_ok(&p, p.op->scores(p.dev, &s.job, s.s));
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
		cmocka_unit_test(many_rows),
		cmocka_unit_test(large_keys),
		cmocka_unit_test(positions),
		cmocka_unit_test(repeatable),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
