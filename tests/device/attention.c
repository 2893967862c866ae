/* SPDX-License-Identifier: MIT
 * attention of the backend under test: against a naive double-precision loop, and the promises about rows and
 * chunks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

#define MAX_H 280

struct sizes {
	size_t n, past[2]; /* new rows; entries before them, of the first two heads; others have none */
	size_t G, H, D;
	enum kvk_type type;
	enum kvk_precision precision;
};

/* A cache of all heads one after the other, a gap of one entry (NaN) between them. */
struct setup {
	struct sizes z;
	float scale;
	size_t Hq, entries, start[MAX_H], len[MAX_H], q_at[MAX_H];
	double *k_values, *v_values;
	void *k, *v;
	float *q;
	struct pair p;
	struct kvk_ragged cache;
	float *q_device;
};

static void
set_up(struct setup *s, struct sizes z)
{
	size_t bytes = kvk_types[z.type].bytes * z.D;

	*s = (struct setup){ .z = z, .Hq = z.G * z.H, .scale = 0.25f };
	pair_open(&s->p, z.precision);
	for (size_t g = 0; g < z.H; g++) {
		s->start[g] = s->entries;
		s->len[g] = (g < 2 ? z.past[g] : 0) + z.n;
		s->entries += s->len[g] + 1;
	}
	for (size_t h = 0; h < s->Hq; h++)
		s->q_at[h] = h * (z.n + 2) + 1;
	s->q = test_floats((s->Hq * (z.n + 2) + 1) * z.D, 2, 1);
	s->k = test_typed(s->entries * z.D, 2, 2, z.type, &s->k_values);
	s->v = test_typed(s->entries * z.D, 1, 3, z.type, &s->v_values);
	for (size_t g = 0; g < z.H; g++) {
		memset((char *)s->k + (s->start[g] + s->len[g]) * bytes, 0xff, bytes);
		memset((char *)s->v + (s->start[g] + s->len[g]) * bytes, 0xff, bytes);
	}
	s->cache = (struct kvk_ragged){ .type = z.type, .H = z.H, .D = z.D, .start = s->start, .len = s->len };
	s->cache.k = pair_put(&s->p, s->k, s->entries * bytes);
	s->cache.v = pair_put(&s->p, s->v, s->entries * bytes);
	s->q_device = pair_put(&s->p, s->q, (s->Hq * (z.n + 2) + 1) * z.D * sizeof(float));
}

static void
tear_down(struct setup *s)
{
	pair_free(&s->p, s->q_device);
	pair_free(&s->p, s->cache.k);
	pair_free(&s->p, s->cache.v);
	pair_close(&s->p);
	free(s->q);
	free(s->k);
	free(s->v);
	free(s->k_values);
	free(s->v_values);
}

/* Row i of head h by the definition. */
static void
naive(const struct setup *s, size_t i, size_t h, double *y)
{
	const size_t D = s->z.D, g = h / s->z.G, sees = s->len[g] - s->z.n + i + 1;
	const float *q = s->q + (s->q_at[h] + i) * D;
	double *p = test_alloc(sees, sizeof *p), max = -INFINITY, sum = 0;

	for (size_t e = 0; e < sees; e++) {
		for (size_t d = 0; d < D; d++)
			p[e] += (double)q[d] * s->k_values[(s->start[g] + e) * D + d];
		p[e] *= (double)s->scale;
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
run(struct setup *s)
{
	const size_t bytes = s->z.n * s->Hq * s->z.D * sizeof(float);
	float *device = pair_put(&s->p, NULL, bytes), *y;

	pair_ok(&s->p, s->p.op->attention(s->p.dev, s->q_device, s->q_at, s->z.n, s->Hq, &s->cache, s->scale, device));
	y = pair_get(&s->p, device, bytes);
	pair_free(&s->p, device);
	return y;
}

/* f32: logits of at most 2 * 2 * sqrt(D) here, whose rounding moves a weight by less than 1e-5.  bf16: the CPU's
 * bound; an f16 cache is eight times finer. */
static double
bound(struct sizes z)
{
	if (z.precision == KVK_PRECISION_F32)
		return 2e-5;
	return z.type == KVK_F16 ? 6e-3 : 4e-2;
}

static void
compare_scaled(struct sizes z, float scale)
{
	struct setup s;
	float *y;
	double want[256];

	set_up(&s, z);
	s.scale = scale;
	y = run(&s);
	for (size_t i = 0; i < z.n; i += z.n > 100 && i % 64 == 1 ? 7 : 1)
		for (size_t h = 0; h < s.Hq; h++) {
			naive(&s, i, h, want);
			test_near(kvk_precisions[z.precision], y + (i * s.Hq + h) * z.D, want, z.D, bound(z), 0);
		}
	free(y);
	tear_down(&s);
}

static void
compare(struct sizes z)
{
	compare_scaled(z, 0.25f);
}

static const struct sizes decoding[] = {
	{ 1, { 0 }, 1, 1, 8, KVK_F32, 0 },
	{ 1, { 31, 32 }, 3, 2, 64, KVK_F32, 0 },
	{ 1, { 62, 0 }, 4, 2, 64, KVK_F16, 0 },
	{ 1, { 600, 511 }, 3, 2, 64, KVK_F16, 0 },
	{ 2, { 1100, 30 }, 4, 2, 128, KVK_BF16, 0 },
	{ 1, { 26, 33 }, 7, 2, 80, KVK_F16, 0 },
	{ 2, { 129 }, 8, 1, 96, KVK_F16, 0 },
	{ 2, { 31, 255 }, 1, 2, 256, KVK_BF16, 0 },
	{ 5, { 77, 3 }, 3, 2, 80, KVK_F32, 0 },
	{ 1, { 3100 }, 1, 1, 8, KVK_F32, 0 },
	{ 1, { 40 }, 1, 1, 33, KVK_F16, 0 },
};

static const struct sizes prefilling[] = {
	{ 17, { 0 }, 1, 1, 8, KVK_F32, 0 },
	{ 31, { 0, 0 }, 3, 2, 64, KVK_F32, 0 },
	{ 33, { 0, 100 }, 4, 2, 8, KVK_F32, 0 },
	{ 64, { 0 }, 1, 1, 80, KVK_F32, 0 },
	{ 65, { 0, 64 }, 3, 2, 64, KVK_F16, 0 },
	{ 27, { 70 }, 7, 1, 256, KVK_F16, 0 },
	{ 95, { 1 }, 8, 1, 96, KVK_BF16, 0 },
	{ 129, { 0 }, 1, 1, 128, KVK_F32, 0 },
	{ 40, { 1, 500 }, 1, 2, 33, KVK_F32, 0 },
	{ 20, { 70 }, 1, 1, 13, KVK_BF16, 0 },
	{ 257, { 300 }, 1, 1, 64, KVK_F32, 0 },
};

#define ALL(table, p) all(table, sizeof(table) / sizeof *(table), p)

static void
all(const struct sizes *table, size_t n, enum kvk_precision precision)
{
	for (size_t i = 0; i < n; i++) {
		struct sizes z = table[i];

		z.precision = precision;
		compare(z);
	}
}

static void
few_rows_f32(void **state)
{
	(void)state;
	ALL(decoding, KVK_PRECISION_F32);
}

static void
few_rows_bf16(void **state)
{
	(void)state;
	ALL(decoding, KVK_PRECISION_BF16);
}

static void
many_rows_f32(void **state)
{
	(void)state;
	ALL(prefilling, KVK_PRECISION_F32);
}

static void
many_rows_bf16(void **state)
{
	(void)state;
	ALL(prefilling, KVK_PRECISION_BF16);
}

/* All lengths at which a tile, a step or a warp may begin or end: so many entries for one row, and so many rows. */
static void
every_length(enum kvk_precision p)
{
	static const size_t lengths[] = { 1, 26, 27, 28, 29, 30, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255,
		256, 257 };
	static const size_t D[] = { 64, 80, 96, 128, 256 }, G[] = { 1, 3, 4, 7, 8 };
	static const enum kvk_type types[] = { KVK_F32, KVK_F16, KVK_BF16 };

	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		compare((struct sizes){ 1, { lengths[i] - 1 }, G[i % 5], 1, D[(i + i / 5) % 5], types[i % 3], p });
		compare(
		    (struct sizes){ lengths[i], { 0 }, G[(i + 2) % 5], 1, D[(i + i / 5) % 5], types[(i + 1) % 3], p });
	}
}

static void
lengths_f32(void **state)
{
	(void)state;
	every_length(KVK_PRECISION_F32);
}

static void
lengths_bf16(void **state)
{
	(void)state;
	every_length(KVK_PRECISION_BF16);
}

static void
scales(void **state)
{
	static const float scale[] = { 0, -0.25f, 1e-6f };

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (enum kvk_precision p = KVK_PRECISION_F32; p <= KVK_PRECISION_BF16; p++)
			compare_scaled((struct sizes){ 20, { 50 }, 1, 1, 64, KVK_F16, p }, scale[i]);
}

static void
no_rows(void **state)
{
	struct setup s;

	(void)state;
	set_up(&s, (struct sizes){ 0, { 3, 0 }, 2, 2, 8, KVK_F32, KVK_PRECISION_F32 });
	free(run(&s));
	tear_down(&s);
}

/* The first rows of a call, computed with fewer rows behind them, are the same bytes. */
static void
check_prefix(struct sizes z)
{
	static const size_t fewer[] = { 1, 4, 6, 22, 70 };
	struct setup s;
	float *whole;

	set_up(&s, z);
	whole = run(&s);
	for (size_t i = 0; i < sizeof fewer / sizeof *fewer && fewer[i] < z.n; i++) {
		float *y;

		s.z.n = fewer[i];
		for (size_t g = 0; g < z.H; g++)
			s.len[g] = z.past[g] + fewer[i];
		y = run(&s);
		test_same("prefix", y, whole, fewer[i] * s.Hq * z.D);
		free(y);
	}
	free(whole);
	tear_down(&s);
}

static void
prefix(void **state)
{
	(void)state;
	for (enum kvk_precision p = KVK_PRECISION_F32; p <= KVK_PRECISION_BF16; p++) {
		check_prefix((struct sizes){ 90, { 970, 0 }, 3, 2, 64, KVK_F32, p });
		check_prefix((struct sizes){ 24, { 1015 }, 8, 1, 20, KVK_F16, p });
	}
}

/* Chunks of KVK_ROW_TILE rows give the bytes of one call; so does the last one of a few rows. */
static void
check_chunks(struct sizes z)
{
	struct setup s;
	float *whole;

	set_up(&s, z);
	whole = run(&s);
	for (size_t i = 0; i < z.n; i += KVK_ROW_TILE) {
		const size_t n = z.n - i < KVK_ROW_TILE ? z.n - i : KVK_ROW_TILE;
		float *y;

		s.z.n = n;
		for (size_t g = 0; g < z.H; g++)
			s.len[g] = i + n;
		y = run(&s);
		test_same("chunk", y, whole + i * s.Hq * z.D, n * s.Hq * z.D);
		free(y);
		for (size_t h = 0; h < s.Hq; h++)
			s.q_at[h] += n;
	}
	free(whole);
	tear_down(&s);
}

static void
chunks(void **state)
{
	(void)state;
	for (enum kvk_precision p = KVK_PRECISION_F32; p <= KVK_PRECISION_BF16; p++) {
		check_chunks((struct sizes){ 130, { 0, 0 }, 3, 2, 64, KVK_F32, p });
		check_chunks((struct sizes){ 130, { 0 }, 1, 1, 256, KVK_F16, p });
	}
}

/* Heads enough that a block does all pieces of its tile, against one head, whose pieces are shared. */
static void
check_alone(struct sizes z)
{
	struct setup s;
	float *every, *one;

	set_up(&s, z);
	every = run(&s);
	s.Hq = s.cache.H = 1;
	one = run(&s);
	for (size_t i = 0; i < z.n; i++)
		test_same("one head", one + i * z.D, every + i * z.H * z.D, z.D);
	free(one);
	free(every);
	tear_down(&s);
}

static void
tiles_alone(void **state)
{
	(void)state;
	for (enum kvk_precision p = KVK_PRECISION_F32; p <= KVK_PRECISION_BF16; p++) {
		check_alone((struct sizes){ 1, { 1030, 0 }, 1, 270, 8, KVK_F16, p });
		check_alone((struct sizes){ 17, { 512, 0 }, 1, 140, 8, KVK_F16, p });
		check_alone((struct sizes){ 17, { 1100, 0 }, 1, 140, 128, KVK_F16, p });
		check_alone((struct sizes){ 20, { 2000, 0 }, 1, 140, 33, KVK_BF16, p });
		check_alone((struct sizes){ 18, { 510, 0 }, 1, 140, 96, KVK_F16, p });
		check_alone((struct sizes){ 17, { 600, 0 }, 1, 140, 256, KVK_F16, p });
	}
}

static void
expect_refused(struct setup *s, const char *text)
{
	float y[64];

	assert_int_not_equal(
	    s->p.op->attention(s->p.dev, s->q_device, s->q_at, s->z.n, s->Hq, &s->cache, 1, y), 0);
	assert_non_null(strstr(s->p.op->error(s->p.dev), text));
}

static void
refused(void **state)
{
	struct setup s;

	(void)state;
	set_up(&s, (struct sizes){ 2, { 1, 1 }, 1, 2, 8, KVK_F32, KVK_PRECISION_F32 });
	s.len[1] = 1;
	expect_refused(&s, "head 1 has 1 entries, fewer than the 2 new rows");
	s.Hq = 3;
	expect_refused(&s, "3 query heads cannot share a cache of 2 heads");
	s.cache.type = KVK_I32;
	expect_refused(&s, "f32, f16 or bf16");
	tear_down(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_rows_f32),
		cmocka_unit_test(few_rows_bf16),
		cmocka_unit_test(many_rows_f32),
		cmocka_unit_test(many_rows_bf16),
		cmocka_unit_test(lengths_f32),
		cmocka_unit_test(lengths_bf16),
		cmocka_unit_test(scales),
		cmocka_unit_test(no_rows),
		cmocka_unit_test(prefix),
		cmocka_unit_test(chunks),
		cmocka_unit_test(tiles_alone),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
