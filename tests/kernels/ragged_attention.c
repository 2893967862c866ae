/* SPDX-License-Identifier: MIT
 * attention: against a naive double-precision loop, and the promises about rows, chunks and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

struct sizes {
	size_t n, past[3]; /* new rows; entries before them, per head: the first H count */
	size_t G, H, D;
	enum kvk_type type;
};

/* A cache of all heads one after the other, a gap of one entry between them. */
struct setup {
	struct sizes z;
	size_t Hq, start[3], len[3], q_at[12];
	double *k_values, *v_values;
	struct kvk_ragged cache;
	float *q;
};

static void
set_up(struct setup *s, struct sizes z)
{
	size_t entries = 0;

	*s = (struct setup){ .z = z, .Hq = z.G * z.H };
	for (size_t g = 0; g < z.H; g++) {
		s->start[g] = entries;
		s->len[g] = z.past[g] + z.n;
		entries += s->len[g] + 1;
	}
	for (size_t h = 0; h < s->Hq; h++)
		s->q_at[h] = h * (z.n + 2);
	s->q = test_floats(s->Hq * (z.n + 2) * z.D, 2, 1);
	s->cache = (struct kvk_ragged){ .type = z.type, .H = z.H, .D = z.D, .start = s->start, .len = s->len };
	s->cache.k = test_typed(entries * z.D, 2, 2, z.type, &s->k_values);
	s->cache.v = test_typed(entries * z.D, 1, 3, z.type, &s->v_values);
}

static void
tear_down(struct setup *s)
{
	free(s->q);
	free(s->cache.k);
	free(s->cache.v);
	free(s->k_values);
	free(s->v_values);
}

/* Row i of head h by the definition. */
static void
naive(const struct setup *s, size_t i, size_t h, double scale, double *y)
{
	const size_t D = s->z.D, g = h / s->z.G, sees = s->len[g] - s->z.n + i + 1;
	const float *q = s->q + (s->q_at[h] + i) * D;
	double *p = test_alloc(sees, sizeof *p), max = -INFINITY, sum = 0;

	for (size_t e = 0; e < sees; e++) {
		for (size_t d = 0; d < D; d++)
			p[e] += (double)q[d] * s->k_values[(s->start[g] + e) * D + d];
		p[e] *= scale;
		max = fmax(max, p[e]);
	}
	for (size_t d = 0; d < D; d++)
		y[d] = 0;
	for (size_t e = 0; e < sees; e++) {
		p[e] = exp(p[e] - max);
		sum += p[e];
		for (size_t d = 0; d < D; d++)
			y[d] += p[e] * s->v_values[(s->start[g] + e) * D + d];
	}
	for (size_t d = 0; d < D; d++)
		y[d] /= sum;
	free(p);
}

static float *
run(const struct setup *s, int threads)
{
	struct kvk_dev *dev = test_dev(threads);
	float *y = test_alloc(s->z.n * s->Hq * s->z.D, sizeof *y);

	assert_int_equal(kvk_cpu.attention(dev, s->q, s->q_at, s->z.n, s->Hq, &s->cache, 0.25f, y), 0);
	kvk_cpu.close(dev);
	return y;
}

/* Logits of at most 2 * 2 * sqrt(D) here: their rounding moves a weight by less than 1e-5. */
static void
compare(struct sizes z)
{
	struct setup s;
	float *y, *other;
	double want[80];

	set_up(&s, z);
	y = run(&s, 1);
	for (size_t i = 0; i < z.n; i++)
		for (size_t h = 0; h < s.Hq; h++) {
			naive(&s, i, h, 0.25, want);
			test_near("attention", y + (i * s.Hq + h) * z.D, want, z.D, 1e-5, 0);
		}
	other = run(&s, 2);
	test_same("2 threads", other, y, z.n * s.Hq * z.D);
	free(other);
	free(y);
	tear_down(&s);
}

static void
sizes_and_types(void **state)
{
	static const struct sizes table[] = {
		{ 1, { 0 }, 1, 1, 8, KVK_F32 },
		{ 1, { 300, 5, 127 }, 3, 3, 64, KVK_F32 },
		{ 1, { 128, 0, 129 }, 4, 3, 64, KVK_F16 },
		{ 2, { 31, 400 }, 1, 2, 64, KVK_BF16 },
		{ 5, { 77, 3 }, 3, 2, 80, KVK_F16 },
		{ 31, { 0, 0 }, 3, 2, 64, KVK_F32 },
		{ 33, { 0, 100 }, 4, 2, 8, KVK_F32 },
		{ 64, { 0 }, 1, 1, 80, KVK_F32 },
		{ 65, { 0, 64 }, 3, 2, 64, KVK_F32 },
		{ 130, { 0 }, 3, 1, 64, KVK_F32 },
		{ 130, { 1, 200 }, 1, 2, 33, KVK_F32 },
		{ 200, { 70 }, 1, 1, 13, KVK_F16 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(table[i]);
}

static void
no_rows(void **state)
{
	struct setup s;

	(void)state;
	set_up(&s, (struct sizes){ 0, { 3, 0 }, 2, 2, 8, KVK_F32 });
	free(run(&s, 1));
	tear_down(&s);
}

/* The first rows of a call, computed with fewer rows behind them, are the same bytes. */
static void
prefix(void **state)
{
	static const struct sizes z = { 200, { 70, 0 }, 3, 2, 64, KVK_F32 };
	struct setup s;
	float *all;

	(void)state;
	set_up(&s, z);
	all = run(&s, 2);
	for (size_t n = 1; n < z.n; n += n < 70 ? 7 : 31) {
		float *y;

		s.z.n = n;
		for (size_t g = 0; g < z.H; g++)
			s.len[g] = z.past[g] + n;
		y = run(&s, 1);
		test_same("prefix", y, all, n * s.Hq * z.D);
		free(y);
	}
	free(all);
	tear_down(&s);
}

/* Chunks of KVK_ROW_TILE rows give the bytes of one call. */
static void
chunks(void **state)
{
	static const struct sizes z = { 130, { 0, 0 }, 3, 2, 64, KVK_F32 };
	struct setup s;
	float *all;

	(void)state;
	set_up(&s, z);
	all = run(&s, 1);
	for (size_t i = 0; i < z.n; i += KVK_ROW_TILE) {
		const size_t n = z.n - i < KVK_ROW_TILE ? z.n - i : KVK_ROW_TILE;
		float *y;

		s.z.n = n;
		for (size_t g = 0; g < z.H; g++)
			s.len[g] = i + n;
		y = run(&s, 2);
		test_same("chunk", y, all + i * s.Hq * z.D, n * s.Hq * z.D);
		free(y);
		for (size_t h = 0; h < s.Hq; h++)
			s.q_at[h] += n;
	}
	free(all);
	tear_down(&s);
}

/* A head with fewer entries than new rows. */
static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	struct setup s;
	float y[64];

	(void)state;
	set_up(&s, (struct sizes){ 2, { 1 }, 1, 1, 8, KVK_F32 });
	s.len[0] = 1;
	assert_int_not_equal(kvk_cpu.attention(dev, s.q, s.q_at, 2, 1, &s.cache, 1, y), 0);
	assert_non_null(strstr(kvk_cpu.error(dev), "head 0 has 1 entries"));
	tear_down(&s);
	kvk_cpu.close(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_types),
		cmocka_unit_test(no_rows),
		cmocka_unit_test(prefix),
		cmocka_unit_test(chunks),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
