/* SPDX-License-Identifier: MIT
 * Attention behind a prompt and its way back, of the backend under test: against the formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

static const double scale = 0.3;

struct sizes {
	size_t n, T, Hq, Hkv, D;
	enum kvk_type type;
};

/* One job on the host: inputs, and what is wanted. */
struct data {
	struct sizes z;
	size_t q, kv, s; /* elements of q and y; of keys or values behind; of s */
	void *k, *v;     /* the prompt's */
	double *k_values, *v_values;
	float *x_q, *x_k, *x_v, *dy, *ds;
	double *y, *want_s, *dq, *dk, *dv;
};

static void
fill(struct data *d, struct sizes z, bool with_dy)
{
	*d = (struct data){ .z = z, .q = z.Hq * z.n * z.D, .kv = z.Hkv * z.n * z.D, .s = z.Hq * z.T };
	d->k = test_typed(z.Hkv * z.T * z.D, 1, 1, z.type, &d->k_values);
	d->v = test_typed(z.Hkv * z.T * z.D, 1, 2, z.type, &d->v_values);
	d->x_q = test_floats(d->q, 1, 3);
	d->x_k = test_floats(d->kv, 1, 4);
	d->x_v = test_floats(d->kv, 1, 5);
	d->dy = test_floats(d->q, with_dy ? 1 : 0, 6);
	d->ds = test_floats(d->s, 1, 7);
	d->y = test_alloc(d->q, sizeof(double));
	d->want_s = test_alloc(d->s, sizeof(double));
	d->dq = test_alloc(d->q, sizeof(double));
	d->dk = test_alloc(d->kv, sizeof(double));
	d->dv = test_alloc(d->kv, sizeof(double));
}

static void
clear(struct data *d)
{
	void *all[] = { d->k, d->v, d->k_values, d->v_values, d->x_q, d->x_k, d->x_v, d->dy, d->ds, d->y, d->want_s,
		d->dq, d->dk, d->dv };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* Element e of key j of head h, or of its value. */
static double
element(const struct data *d, const double *prompt, const float *behind, size_t h, size_t j, size_t e)
{
	const struct sizes *z = &d->z;
	const size_t g = h / (z->Hq / z->Hkv);

	return j < z->T ? prompt[(g * z->T + j) * z->D + e] : (double)behind[(g * z->n + j - z->T) * z->D + e];
}

/* p: the weights of row i of head h over the keys that it sees. */
static void
weigh(const struct data *d, size_t h, size_t i, double *p)
{
	const struct sizes *z = &d->z;
	double top = -INFINITY, sum = 0;

	for (size_t j = 0; j <= z->T + i; j++) {
		p[j] = 0;
		for (size_t e = 0; e < z->D; e++)
			p[j] += scale * (double)d->x_q[(h * z->n + i) * z->D + e] *
			        element(d, d->k_values, d->x_k, h, j, e);
		top = fmax(top, p[j]);
	}
	for (size_t j = 0; j <= z->T + i; j++)
		sum += p[j] = exp(p[j] - top);
	for (size_t j = 0; j <= z->T + i; j++)
		p[j] /= sum;
}

/* What row i of head h adds to everything; g [T + n]: work. */
static void
add_row(struct data *d, size_t h, size_t i, const double *p, double *g)
{
	const struct sizes *z = &d->z;
	const size_t kv = h / (z->Hq / z->Hkv) * z->n, q = (h * z->n + i) * z->D, y = (i * z->Hq + h) * z->D;
	double sum = 0;

	for (size_t j = 0; j <= z->T + i; j++) {
		g[j] = j < z->T ? (double)d->ds[h * z->T + j] / (double)z->n : 0;
		for (size_t e = 0; e < z->D; e++) {
			const double v = element(d, d->v_values, d->x_v, h, j, e);

			g[j] += (double)d->dy[y + e] * v;
			d->y[y + e] += p[j] * v;
		}
		sum += p[j] * g[j];
		if (j < z->T)
			d->want_s[h * z->T + j] += p[j] / (double)z->n;
	}
	for (size_t j = 0; j <= z->T + i; j++)
		for (size_t e = 0; e < z->D; e++) {
			const double dl = scale * p[j] * (g[j] - sum);

			d->dq[q + e] += dl * element(d, d->k_values, d->x_k, h, j, e);
			if (j < z->T)
				continue;
			d->dk[(kv + j - z->T) * z->D + e] += dl * (double)d->x_q[q + e];
			d->dv[(kv + j - z->T) * z->D + e] += p[j] * (double)d->dy[y + e];
		}
}

static void
want(struct data *d)
{
	const struct sizes *z = &d->z;
	double *p = test_alloc(z->T + z->n, sizeof *p), *g = test_alloc(z->T + z->n, sizeof *g);

	for (size_t h = 0; h < z->Hq; h++)
		for (size_t i = 0; i < z->n; i++) {
			weigh(d, h, i, p);
			add_row(d, h, i, p, g);
		}
	free(g);
	free(p);
}

static float *
put(struct pair *p, const float *x, size_t n)
{
	return pair_put(p, x, n * sizeof *x);
}

static void
compare(struct sizes z, bool with_dy)
{
	struct data d;
	struct pair p;
	struct kvk_behind job = { .type = z.type, .n = z.n, .T = z.T, .Hq = z.Hq, .Hkv = z.Hkv, .D = z.D,
		.scale = 0.3f };
	const size_t bytes = z.Hkv * z.T * z.D * kvk_types[z.type].bytes;
	float *q, *k, *v, *dy, *ds, *y, *s, *dq, *dk, *dv;
	void *prompt_k, *prompt_v;

	fill(&d, z, with_dy);
	want(&d);
	pair_open(&p, KVK_PRECISION_F32);
	job.q = q = put(&p, d.x_q, d.q);
	job.k_behind = k = put(&p, d.x_k, d.kv);
	job.v_behind = v = put(&p, d.x_v, d.kv);
	job.k = prompt_k = pair_put(&p, d.k, bytes);
	job.v = prompt_v = pair_put(&p, d.v, bytes);
	dy = put(&p, d.dy, d.q);
	ds = put(&p, d.ds, d.s);
	y = put(&p, NULL, d.q);
	s = put(&p, NULL, d.s);
	dq = put(&p, NULL, d.q);
	dk = put(&p, NULL, d.kv);
	dv = put(&p, NULL, d.kv);
	pair_ok(&p, p.op->behind(p.dev, &job, with_dy ? y : NULL, with_dy ? NULL : s));
	if (with_dy) { /* both at once, too */
		pair_near(&p, "y", y, d.y, d.q, 2e-6, 1e-5);
		pair_ok(&p, p.op->behind(p.dev, &job, y, s));
		pair_near(&p, "y", y, d.y, d.q, 2e-6, 1e-5);
	}
	pair_near(&p, "s", s, d.want_s, d.s, 1e-7, 1e-5);
	pair_ok(&p, p.op->behind_back(p.dev, &job, with_dy ? dy : NULL, ds, dq, dk, with_dy ? dv : NULL));
	pair_near(&p, "dq", dq, d.dq, d.q, 2e-6, 2e-5);
	pair_near(&p, "dk", dk, d.dk, d.kv, 2e-6, 2e-5);
	if (with_dy)
		pair_near(&p, "dv", dv, d.dv, d.kv, 2e-6, 2e-5);
	for (size_t i = 0; i < 12; i++)
		pair_free(&p, (void *[]){ q, k, v, prompt_k, prompt_v, dy, ds, y, s, dq, dk, dv }[i]);
	pair_close(&p);
	clear(&d);
}

static void
forth_and_back(void **state)
{
	static const struct sizes table[] = {
		{ 1, 1, 1, 1, 1, KVK_F32 },
		{ 2, 0, 1, 1, 4, KVK_F32 },
		{ 3, 5, 2, 1, 7, KVK_F16 },
		{ 8, 95, 1, 1, 8, KVK_F32 },
		{ 9, 97, 2, 2, 3, KVK_BF16 },
		{ 32, 64, 3, 1, 64, KVK_F16 },
		{ 33, 129, 4, 1, 80, KVK_F32 },
		{ 4, 700, 2, 1, 128, KVK_BF16 },
		{ 2, 31, 1, 1, 256, KVK_F32 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		compare(table[i], true);
		compare(table[i], false);
	}
}

/* Of prompts, and of rows behind them. */
static void
lengths(void **state)
{
	static const size_t n[] = { 1, 26, 27, 28, 29, 30, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 256,
		257 };
	static const size_t D[] = { 64, 80, 96, 128, 256 }, G[] = { 1, 3, 4, 7, 8 };
	static const enum kvk_type types[] = { KVK_F32, KVK_F16, KVK_BF16 };

	(void)state;
	for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
		const size_t g = G[i % 5], d = D[(i + i / 5) % 5];

		compare((struct sizes){ 2, n[i], g, 1, d, types[i % 3] }, i % 2 == 0);
		compare((struct sizes){ n[i], 3, 2, 1, 8, types[i % 3] }, i % 2 == 1);
	}
}

static void
refused(void **state)
{
	struct kvk_behind job = { .type = KVK_I32, .n = 1, .T = 1, .Hq = 3, .Hkv = 2, .D = 1 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->behind(p.dev, &job, NULL, NULL), 0);
	assert_non_null(strstr(p.op->error(p.dev), "f32, f16 or bf16"));
	job.type = KVK_F32;
	assert_int_not_equal(p.op->behind_back(p.dev, &job, NULL, NULL, NULL, NULL, NULL), 0);
	assert_non_null(strstr(p.op->error(p.dev), "3 query heads cannot share 2 KV heads"));
	job.n = 0;
	pair_ok(&p, p.op->behind(p.dev, &job, NULL, NULL));
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forth_and_back),
		cmocka_unit_test(lengths),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
