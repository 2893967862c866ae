/* SPDX-License-Identifier: MIT
 * select: exactly what the CPU keeps, whatever the floats are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

enum kind {
	PLAIN,
	COARSE, /* few different values, so that ties are everywhere, and all special ones */
	BITS,   /* any 32 bits */
	SAME,   /* one value */
	N_KINDS
};

static float *
values(size_t n, enum kind kind, uint64_t seed)
{
	static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f, -0x1p-149f };
	float *x = test_floats(n, 1, seed);

	for (size_t i = 0; i < n; i++) {
		const int step = (int)(x[i] * 6);
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof bits);
		bits = bits * 2654435761u ^ (uint32_t)i * 40503u;
		if (kind == COARSE)
			x[i] = step == 5 ? odd[i % 8] : (float)step * 0.125f;
		else if (kind == BITS)
			memcpy(&x[i], &bits, sizeof bits);
		else if (kind == SAME)
			x[i] = 0.25f;
	}
	return x;
}

/* The same job, its arrays on the device under test. */
static void
compare(struct pair *p, const struct kvk_select *j)
{
	const size_t kept = j->offset[j->H];
	int32_t *want = test_alloc(kept, sizeof *want), *got;
	struct kvk_select d = *j;
	void *rank = pair_put(p, j->rank, j->H * j->n * sizeof(float));
	void *tie = j->tie != NULL ? pair_put(p, j->tie, j->H * j->n * sizeof(float)) : NULL;
	void *protect = j->protect != NULL ? pair_put(p, j->protect, j->H * j->T) : NULL;
	void *index = pair_put(p, NULL, kept * sizeof *want);

	d.rank = rank;
	d.tie = tie;
	d.protect = protect;
	assert_int_equal(kvk_cpu.select(p->cpu, j, want), 0);
	pair_ok(p, p->op->select(p->dev, &d, index));
	got = pair_get(p, index, kept * sizeof *got);
	for (size_t i = 0; i < kept; i++)
		if (got[i] != want[i])
			fail_msg("%zu of %zu: entry %zu: got %d, want %d (H %zu, n %zu, sinks %zu, recent %zu)", kept,
			    j->H * j->T, i, got[i], want[i], j->H, j->n, j->n_sink, j->n_recent);
	free(got);
	free(want);
	pair_free(p, index);
	pair_free(p, protect);
	pair_free(p, tie);
	pair_free(p, rank);
}

/* Three heads that keep different shares. */
static void
one_size(struct pair *p, size_t T, size_t n, size_t sink, size_t recent, enum kind kind, uint64_t seed)
{
	enum { H = 3 };
	const size_t shares[] = { 0, 1, T / 3, T - 1, T, T / 2, recent < T ? recent : T };
	float *rank = values(H * n, kind, seed), *tie = values(H * n, kind == PLAIN ? PLAIN : COARSE, seed + 1);
	uint8_t *protect = test_alloc(H * T, 1);

	for (size_t i = 0; i < H * T; i++)
		protect[i] = i * 2654435761u % 7 == 0;
	for (size_t v = seed % 3; v < 7; v += 3) {
		const size_t keep[H] = { shares[v], shares[(v + 2) % 7], shares[(v + 5) % 7] };
		const size_t offset[H + 1] = { 0, keep[0], keep[0] + keep[1], keep[0] + keep[1] + keep[2] };
		const struct kvk_select j = { .rank = rank,
			.tie = v % 2 ? tie : NULL,
			.protect = (v + seed) % 4 == 0 ? protect : NULL,
			.H = H,
			.n = n,
			.T = T,
			.n_sink = sink,
			.n_recent = recent,
			.offset = offset };

		compare(p, &j);
	}
	free(protect);
	free(tie);
	free(rank);
}

static void
sizes(void **state)
{
	static const size_t tokens[] = { 1, 2, 26, 27, 28, 29, 30, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129,
		255, 256, 257, 1500, 4097, 8192, 8193 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
		const size_t T = tokens[i], w = T < 32 ? T : 32;
		const enum kind kind = (enum kind)(i % N_KINDS);

		one_size(&p, T, T, 0, 0, kind, i);
		one_size(&p, T, T - w, 0, 32, COARSE, i + 100);
		one_size(&p, T, T, 4, 7, BITS, i + 200);
		one_size(&p, T, i % 2 ? T / 2 : 0, 200, 200, kind, i + 301);
	}
	pair_close(&p);
}

/* More entries than the most blocks of a head take in one go each. */
static void
a_long_head(void **state)
{
	const size_t T = 140001, offset[] = { 0, 128, 70000 }, all[] = { 0, T, T };
	struct kvk_select j = { .H = 2, .n = T - 5, .T = T, .n_sink = 4, .n_recent = 32, .offset = offset };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (int kind = 0; kind < N_KINDS; kind++) {
		float *rank = values(2 * j.n, (enum kind)kind, 9), *tie = values(2 * j.n, BITS, 10);

		j.rank = rank;
		j.tie = kind % 2 ? tie : NULL;
		compare(&p, &j);
		free(tie);
		free(rank);
	}
	j.rank = values(2 * j.n, PLAIN, 11);
	j.tie = NULL;
	j.offset = all;
	compare(&p, &j);
	free((void *)(uintptr_t)j.rank);
	pair_close(&p);
}

static void
nothing(void **state)
{
	const size_t offset[] = { 0, 0, 0 };
	struct kvk_select j = { .H = 2, .n = 0, .T = 0, .n_sink = 4, .n_recent = 32, .offset = offset };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	compare(&p, &j);
	j.T = j.n = 5;
	j.rank = (const float[10]){ 0 };
	compare(&p, &j);
	j.H = 0;
	compare(&p, &j);
	pair_close(&p);
}

static void
refused(void **state)
{
	const size_t offset[] = { 0, 3 }, falling[] = { 1, 0 };
	struct kvk_select j = { .H = 1, .n = 2, .T = 2, .offset = offset };
	struct pair p;
	void *rank, *index;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	j.rank = rank = pair_put(&p, NULL, 8);
	index = pair_put(&p, NULL, 12);
	assert_int_not_equal(p.op->select(p.dev, &j, index), 0);
	assert_string_equal(p.op->error(p.dev), "select: head 0 has places 0 to 3 for entries of 2");
	j.offset = falling;
	assert_int_not_equal(p.op->select(p.dev, &j, index), 0);
	j.T = (size_t)INT32_MAX + 1;
	assert_int_not_equal(p.op->select(p.dev, &j, index), 0);
	pair_free(&p, index);
	pair_free(&p, rank);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(a_long_head),
		cmocka_unit_test(nothing),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
