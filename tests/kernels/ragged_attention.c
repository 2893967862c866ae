/* SPDX-License-Identifier: MIT
 * attention: against a naive double-precision loop, and the promises about rows, chunks and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/attention_i16.h"
#include "tests/lib/kernels.h"

struct sizes {
	size_t n, past[3]; /* new rows; entries before them, per head: the first H count */
	size_t G, H, D;
	enum kvk_type type;
	enum kvk_precision precision;
};

/* A cache of all heads one after the other, a gap of one entry between them. */
struct setup {
	struct sizes z;
	size_t Hq, start[3], len[3], q_at[32];
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
	struct kvk_dev *dev = test_dev_of(threads, s->z.precision);
	float *y = test_alloc(s->z.n * s->Hq * s->z.D, sizeof *y);

	assert_int_equal(kvk_cpu.attention(dev, s->q, s->q_at, s->z.n, s->Hq, &s->cache, 0.25f, y), 0);
	kvk_cpu.close(dev);
	return y;
}

/* f32: logits of at most 2 * 2 * sqrt(D) here, whose rounding moves a weight by less than 1e-5.  The others: errors
 * seen are a third of these bounds, and i16's are to stay well below those of bf16. */
static const double bound[] = { [KVK_PRECISION_F32] = 2e-5, [KVK_PRECISION_BF16] = 4e-2, [KVK_PRECISION_I16] = 3e-3 };

static void
compare(struct sizes z)
{
	struct setup s;
	float *y, *other;
	double want[256];

	set_up(&s, z);
	y = run(&s, 1);
	for (size_t i = 0; i < z.n; i++)
		for (size_t h = 0; h < s.Hq; h++) {
			naive(&s, i, h, 0.25, want);
			test_near(
			    kvk_precisions[z.precision], y + (i * s.Hq + h) * z.D, want, z.D, bound[z.precision], 0);
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
		{ 1, { 0 }, 1, 1, 8, KVK_F32, 0 },
		{ 1, { 300, 5, 127 }, 3, 3, 64, KVK_F32, 0 },
		{ 1, { 128, 0, 129 }, 4, 3, 64, KVK_F16, 0 },
		{ 1, { 1500, 30, 511 }, 3, 3, 64, KVK_F16, 0 },
		{ 2, { 512, 1022, 700 }, 4, 3, 128, KVK_BF16, 0 },
		{ 1, { 26, 33 }, 7, 2, 80, KVK_F16, 0 },
		{ 3, { 600 }, 8, 1, 96, KVK_F16, 0 },
		{ 2, { 31, 400 }, 1, 2, 64, KVK_BF16, 0 },
		{ 5, { 77, 3 }, 3, 2, 80, KVK_F16, 0 },
		{ 31, { 0, 0 }, 3, 2, 64, KVK_F32, 0 },
		{ 33, { 0, 100 }, 4, 2, 8, KVK_F32, 0 },
		{ 64, { 0 }, 1, 1, 80, KVK_F32, 0 },
		{ 65, { 0, 64 }, 3, 2, 64, KVK_F32, 0 },
		{ 50, { 70 }, 7, 1, 256, KVK_F16, 0 },
		{ 130, { 0 }, 3, 1, 64, KVK_F32, 0 },
		{ 130, { 1, 200 }, 1, 2, 33, KVK_F32, 0 },
		{ 200, { 70 }, 1, 1, 13, KVK_F16, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(table[i]);
}

static void
other_precisions(void **state)
{
	static const size_t past[] = { 0, 1, 26, 62, 126, 254 }, D[] = { 64, 8, 20, 80, 96, 128, 256 },
			    G[] = { 1, 3, 4, 7, 8 };

	(void)state;
	for (size_t i = 0; i < 35; i++)
		for (enum kvk_precision p = KVK_PRECISION_BF16; p <= KVK_PRECISION_I16; p++)
			compare((struct sizes){
			    i % 9, { past[i % 6], past[i % 4] + 3 }, G[i % 5], 2, D[i % 7], KVK_F32, p });
	compare((struct sizes){ 130, { 3 }, 3, 1, 64, KVK_F32, KVK_PRECISION_I16 });
	compare((struct sizes){ 65, { 64, 0 }, 3, 2, 80, KVK_F32, KVK_PRECISION_I16 });
}

static void
no_rows(void **state)
{
	struct setup s;

	(void)state;
	set_up(&s, (struct sizes){ 0, { 3, 0 }, 2, 2, 8, KVK_F32, 0 });
	free(run(&s, 1));
	tear_down(&s);
}

/* The first rows of a call, computed with fewer rows behind them, are the same bytes. */
static void
check_prefix(struct sizes z)
{
	struct setup s;
	float *all;

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

static void
prefix(void **state)
{
	(void)state;
	check_prefix((struct sizes){ 200, { 70, 0 }, 3, 2, 64, KVK_F32, KVK_PRECISION_F32 });
	check_prefix((struct sizes){ 200, { 70, 0 }, 3, 2, 64, KVK_F32, KVK_PRECISION_I16 });
	check_prefix((struct sizes){ 60, { 500, 30 }, 3, 2, 64, KVK_F16, KVK_PRECISION_I16 });
	check_prefix((struct sizes){ 40, { 1000 }, 8, 1, 20, KVK_F32, KVK_PRECISION_I16 });
}

/* Chunks of KVK_ROW_TILE rows give the bytes of one call. */
static void
check_chunks(struct sizes z)
{
	struct setup s;
	float *all;

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

static void
chunks(void **state)
{
	(void)state;
	for (enum kvk_precision p = KVK_PRECISION_F32; p <= KVK_PRECISION_I16; p++)
		check_chunks((struct sizes){ 130, { 0, 0 }, 3, 2, 64, KVK_F32, p });
}

/* A NaN or an infinity reaches the rows that see it, and no others. */
static void
not_finite(void **state)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };

	(void)state;
	for (size_t k = 0; k < 9; k++) {
		struct setup s;
		float *y, *good, *place;

		set_up(&s, (struct sizes){ 40, { 100 }, 3, 1, 64, KVK_F32, KVK_PRECISION_I16 });
		good = run(&s, 1);
		place = k / 3 == 0 ? (float *)s.cache.k + 120 * 64 + 7 : (float *)s.cache.v + 120 * 64 + 7;
		if (k / 3 == 2)
			place = s.q + (s.q_at[1] + 20) * 64 + 9;
		*place = bad[k % 3];
		y = run(&s, 1);
		for (size_t i = 0; i < 40; i++)
			for (size_t h = 0; h < 3; h++) {
				const bool hit = k / 3 == 2 ? h == 1 && i == 20 : i >= 20;
				const float *row = y + (i * 3 + h) * 64;

				if (!hit)
					test_same("beside it", row, good + (i * 3 + h) * 64, 64);
				for (size_t d = 0; d < 64; d++)
					assert_int_equal(isfinite(row[d]), !hit);
			}
		free(good);
		free(y);
		tear_down(&s);
	}
}

/* Memory of a block and of a band, of the widest rows. */
struct fixed {
	int16_t k[128 * I16_BLOCK], v[128 * I16_BLOCK + 32], q[I16_BAND * 128], p[I16_BAND * I16_BLOCK], work[8 * 128];
	float k_scale[I16_BLOCK], v_scale[I16_BLOCK], s[I16_BAND * I16_BLOCK], o[I16_BAND * 128];
	float c[I16_BAND], m[I16_BAND], l[I16_BAND], unit[I16_BAND];
	size_t bad;
} __attribute__((aligned(64)));

static struct fixed *
meet(const struct i16_ops *op, const float *x, size_t D, size_t n, size_t rows, const size_t *sees)
{
	struct fixed *f = aligned_alloc(64, sizeof *f);
	const struct i16_block block = { f->k, f->k_scale, f->v, f->v_scale, &f->bad };
	const struct i16_band band = { .n = rows, .Dv = I16_WIDTH(D), .sees = sees, .q = f->q, .c = f->c, .m = f->m,
		.l = f->l, .o = f->o, .s = f->s, .p = f->p, .unit = f->unit };

	memset(f, 0, sizeof *f);
	op->pack(x, x + I16_BLOCK * D, n, D, f->work, &block);
	for (size_t i = 0; i < I16_BAND * I16_WIDTH(D); i++)
		f->q[i] = (int16_t)(i * 7919 % 9001) - 4500;
	for (size_t i = 0; i < I16_BAND; i++) {
		f->c[i] = 1e-4f * (float)(i + 1);
		f->m[i] = i == 3 ? 2.5f : -INFINITY;
	}
	op->meet(&band, &block);
	return f;
}

/* Every instruction set gives the bytes of plain C. */
static void
instruction_sets(void **state)
{
	static const size_t D[] = { 64, 8, 20, 80, 128 }, n[] = { 128, 1, 17, 100, 127 };

	(void)state;
	if (!cpu_attention_avx2.works())
		skip();
	for (size_t i = 0; i < 25; i++) {
		const size_t d = D[i % 5], m = n[i / 5], rows = i % 6 + 1;
		float *x = test_floats(2 * I16_BLOCK * d, 2, i);
		size_t sees[I16_BAND];
		struct fixed *a, *b;

		for (size_t r = 0; r < rows; r++)
			sees[r] = m + r >= rows ? m + r + 1 - rows : 0;
		a = meet(&cpu_attention_portable, x, d, m, rows, sees);
		b = meet(&cpu_attention_avx2, x, d, m, rows, sees);
		assert_memory_equal(a->k, b->k, sizeof a->k);
		assert_memory_equal(a->v, b->v, sizeof a->v);
		test_same("o", b->o, a->o, rows * I16_WIDTH(d));
		test_same("l", b->l, a->l, rows);
		test_same("m", b->m, a->m, rows);
		free(a);
		free(b);
		free(x);
	}
}

/* A head with fewer entries than new rows. */
static void
refused(void **state)
{
	struct kvk_dev *dev = test_dev(1);
	struct setup s;
	float y[64];

	(void)state;
	set_up(&s, (struct sizes){ 2, { 1 }, 1, 1, 8, KVK_F32, 0 });
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
		cmocka_unit_test(other_precisions),
		cmocka_unit_test(no_rows),
		cmocka_unit_test(prefix),
		cmocka_unit_test(chunks),
		cmocka_unit_test(not_finite),
		cmocka_unit_test(instruction_sets),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
