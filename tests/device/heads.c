/* SPDX-License-Identifier: MIT
 * heads and its way back: norm, rotation of both pair orders, half order of the result, placement and type; against the
 * definition in double precision, and the angles' bits against the CPU's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/naive_ops.h"
#include "tests/lib/pair.h"

static const struct head_sizes table[] = {
	{ 0, 2, 8, 8, 0, 0, 0, KVK_F32 },
	{ 1, 1, 8, 8, 0, 1, 0, KVK_F32 },
	{ 1, 3, 64, 64, 100000, 0, 0, KVK_F32 },
	{ 2, 2, 128, 128, 3000000, 0, 1, KVK_F32 },
	{ 31, 3, 64, 64, 7, 1, 0, KVK_F16 },
	{ 33, 4, 80, 80, 9, 0, 1, KVK_BF16 },
	{ 26, 7, 96, 48, 1, 0, 1, KVK_F32 },
	{ 3, 1, 256, 32, 0, 1, 1, KVK_BF16 },
	{ 33, 3, 64, 0, 0, 0, 0, KVK_F16 },
	{ 32, 2, 13, 0, 0, 0, 1, KVK_F32 },
	{ 260, 9, 16, 16, 5, 1, 0, KVK_BF16 },
	{ 2, 131, 8, 8, 5, 0, 1, KVK_F32 },
};
#define N_SIZES (sizeof table / sizeof *table)

static void
forward_case(struct pair *p, const struct head_sizes *z)
{
	const size_t elements = z->n * z->H * z->D, rows = z->H * (z->n + 1) + 1, bytes = kvk_types[z->type].bytes;
	float *x = test_floats(elements, 2, 1), *norm = test_floats(z->D, 1, 2), *freq = naive_frequencies(z->dim), *y;
	void *dx = pair_put(p, x, elements * sizeof *x), *dnorm = pair_put(p, norm, z->D * sizeof *norm),
	     *dfreq = pair_put(p, freq, z->dim / 2 * sizeof *freq), *zeros = test_alloc(rows * z->D, bytes),
	     *dy = pair_put(p, zeros, rows * z->D * bytes), *raw;
	const struct kvk_rope rope = { dfreq, z->dim, z->interleaved };
	size_t *at = test_alloc(z->H, sizeof *at);

	for (size_t h = 0; h < z->H; h++)
		at[h] = 1 + h * (z->n + 1);
	pair_ok(p,
	    p->op->heads(p->dev, dx, z->n, z->H, z->D, z->norm ? dnorm : NULL, NAIVE_EPS, z->dim ? &rope : NULL,
		z->pos, dy, z->type, at));
	raw = pair_get(p, dy, rows * z->D * bytes);
	y = test_alloc(rows * z->D, sizeof *y);
	assert_int_equal(kvk_cpu.get_as(p->cpu, y, KVK_F32, raw, z->type, rows * z->D), 0);
	naive_heads_near(z, x, norm, freq, y);
	free(raw);
	free(zeros);
	free(y);
	free(at);
	pair_free(p, dy);
	pair_free(p, dfreq);
	pair_free(p, dnorm);
	pair_free(p, dx);
	free(freq);
	free(norm);
	free(x);
}

static void
forward(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < N_SIZES; i++)
		forward_case(&p, &table[i]);
	pair_close(&p);
}

/* (1, 0) turned by angles of all sizes is their cosine and sine: within a rounding of the truth. */
static void
angles(void **state)
{
	static const size_t positions[] = { 0, 1, 3, 1000, 65535, 131071, 1000003, 2147483647 };
	enum { PAIRS = 64, D = 2 * PAIRS };
	float x[D] = { 0 }, *freq = naive_frequencies(D), y[D];
	const size_t at[] = { 0 };
	struct pair p;
	void *dx, *dfreq, *dy;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < PAIRS; i++)
		x[i] = 1;
	freq[1] = 1.57079637f; /* nearly quarter turns */
	freq[2] = 3.14159274f;
	freq[3] = 0.785398185f;
	dx = pair_put(&p, x, sizeof x);
	dfreq = pair_put(&p, freq, PAIRS * sizeof *freq);
	dy = pair_put(&p, NULL, sizeof y);
	for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
		const struct kvk_rope rope = { dfreq, D, 0 };

		pair_ok(&p, p.op->heads(p.dev, dx, 1, 1, D, NULL, 0, &rope, positions[i], dy, KVK_F32, at));
		pair_ok(&p, p.op->get(p.dev, y, dy, sizeof y));
		for (size_t k = 0; k < PAIRS; k++) {
			const double angle = (double)positions[i] * (double)freq[k],
				     want[] = { cos(angle), sin(angle) };

			test_near("cosine", &y[k], &want[0], 1, 1e-13, 0x1.1p-24);
			test_near("sine", &y[PAIRS + k], &want[1], 1, 1e-13, 0x1.1p-24);
		}
	}
	pair_free(&p, dy);
	pair_free(&p, dfreq);
	pair_free(&p, dx);
	free(freq);
	pair_close(&p);
}

/* Against the CPU's, which has tests of its own against differences. */
static void
back_case(struct pair *p, const struct head_sizes *z)
{
	const size_t elements = z->n * z->H * z->D;
	float *x = test_floats(elements, 2, 1), *norm = test_floats(z->D, 1, 2), *freq = naive_frequencies(z->dim);
	float *dy = test_floats(elements, 1, 3), *want = test_alloc(elements, sizeof *want);
	double *wide = test_alloc(elements, sizeof *wide);
	void *dx = pair_put(p, x, elements * sizeof *x), *dnorm = pair_put(p, norm, z->D * sizeof *norm),
	     *dfreq = pair_put(p, freq, z->dim / 2 * sizeof *freq), *grad = pair_put(p, dy, elements * sizeof *dy),
	     *out = pair_put(p, NULL, elements * sizeof *dy);
	const struct kvk_rope rope = { dfreq, z->dim, z->interleaved }, cpu_rope = { freq, z->dim, z->interleaved };
	struct kvk_heads_back j = { .x = z->norm ? x : NULL,
		.dy = dy,
		.n = z->n,
		.H = z->H,
		.D = z->D,
		.norm = z->norm ? norm : NULL,
		.eps = NAIVE_EPS,
		.rope = z->dim ? &cpu_rope : NULL,
		.pos = z->pos };

	assert_int_equal(kvk_cpu.heads_back(p->cpu, &j, want), 0);
	j.x = z->norm ? dx : NULL;
	j.dy = grad;
	j.norm = z->norm ? dnorm : NULL;
	j.rope = z->dim ? &rope : NULL;
	pair_ok(p, p->op->heads_back(p->dev, &j, out));
	for (size_t i = 0; i < elements; i++)
		wide[i] = (double)want[i];
	pair_near(p, "heads_back", out, wide, elements, 1e-6, 1e-6);
	pair_free(p, out);
	pair_free(p, grad);
	pair_free(p, dfreq);
	pair_free(p, dnorm);
	pair_free(p, dx);
	free(wide);
	free(want);
	free(dy);
	free(freq);
	free(norm);
	free(x);
}

static void
ways_back(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < N_SIZES; i++)
		back_case(&p, &table[i]);
	pair_close(&p);
}

static void
refused(void **state)
{
	const size_t at[] = { 0 };
	struct kvk_rope rope = { NULL, 10, 0 };
	struct kvk_heads_back j = { .n = 1, .H = 1, .D = 8, .rope = &rope };
	struct pair p;
	void *x;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	x = pair_put(&p, NULL, 64);
	rope.inv_freq = x;
	assert_int_not_equal(p.op->heads(p.dev, x, 1, 1, 8, NULL, 0, &rope, 0, x, KVK_F32, at), 0);
	assert_string_equal(p.op->error(p.dev), "heads: 10 of 8 elements cannot be rotated");
	assert_int_not_equal(p.op->heads_back(p.dev, &j, x), 0);
	assert_string_equal(p.op->error(p.dev), "heads_back: 10 of 8 elements cannot be rotated");
	assert_int_not_equal(p.op->heads(p.dev, x, 1, 1, 8, NULL, 0, NULL, 0, x, KVK_I32, at), 0);
	assert_string_equal(p.op->error(p.dev), "heads: rows are stored as f32, f16 or bf16");
	pair_free(&p, x);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forward),
		cmocka_unit_test(angles),
		cmocka_unit_test(ways_back),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
