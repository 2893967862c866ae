/* SPDX-License-Identifier: MIT
 * Weights on a device: every type expanded as the CPU does it, bit for bit, whatever was there before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"
#include "tests/lib/quantise.h"

struct sizes {
	enum kvk_type type;
	size_t rows, cols;
};

static const size_t lengths[] = { 1, 26, 31, 32, 33, 63, 65, 80, 95, 97, 127, 128, 129, 255, 257 };
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

/* At an odd address. */
static uint8_t *
matrix(const struct sizes *z, uint64_t seed, uint8_t **memory)
{
	const size_t n = z->rows * z->cols, bytes = n / kvk_types[z->type].block * kvk_types[z->type].bytes;
	float *x = test_floats(n, 1, seed);
	uint8_t *q = test_alloc(bytes, 1);

	*memory = test_alloc(bytes + 1, 1);
	quantise(z->type, x, n, q);
	memcpy(*memory + 1, q, bytes);
	free(q);
	free(x);
	return *memory + 1;
}

static float *
rows_of(const struct kvk_backend *op, struct kvk_dev *dev, const struct kvk_weight *w, const struct sizes *z,
    const int32_t *ids, size_t n)
{
	float *y = test_alloc(n * z->cols, sizeof *y), *device = op->alloc(dev, n * z->cols * sizeof *y + 1);

	assert_non_null(device);
	assert_int_equal(op->rows(dev, w, ids, n, device), 0);
	assert_int_equal(op->get(dev, y, device, n * z->cols * sizeof *y), 0);
	op->free(dev, device);
	return y;
}

static void
check(struct pair *p, const struct sizes *z, enum kvk_use use, uint64_t seed)
{
	struct kvk_weight *w, *w_cpu;
	uint8_t *memory, *bytes = matrix(z, seed, &memory);
	int32_t *ids = test_alloc(z->rows + 2, sizeof *ids);
	float *want, *got;

	for (size_t i = 0; i < z->rows + 2; i++)
		ids[i] = (int32_t)((i * 7 + 3) % z->rows);
	pair_ok(p, p->op->weight_open(p->dev, &w, bytes, z->type, z->rows, z->cols, use));
	assert_int_equal(kvk_cpu.weight_open(p->cpu, &w_cpu, bytes, z->type, z->rows, z->cols, KVK_FEW_ROWS), 0);
	got = rows_of(p->op, p->dev, w, z, ids, z->rows + 2);
	want = rows_of(&kvk_cpu, p->cpu, w_cpu, z, ids, z->rows + 2);
	if (use == KVK_MANY_ROWS && p->op->precision(p->dev) == KVK_PRECISION_BF16) {
		uint16_t *narrow = test_alloc((z->rows + 2) * z->cols, sizeof *narrow);

		assert_int_equal(kvk_cpu.get_as(p->cpu, narrow, KVK_BF16, want, KVK_F32, (z->rows + 2) * z->cols), 0);
		assert_int_equal(kvk_cpu.get_as(p->cpu, want, KVK_F32, narrow, KVK_BF16, (z->rows + 2) * z->cols), 0);
		free(narrow);
	}
	test_same(kvk_types[z->type].name, got, want, (z->rows + 2) * z->cols);
	p->op->weight_close(p->dev, w);
	kvk_cpu.weight_close(p->cpu, w_cpu);
	free(got);
	free(want);
	free(ids);
	free(memory);
}

static void
every_type(void **state)
{
	for (int precision = 0; precision < 2; precision++) {
		struct pair p;

		(void)state;
		pair_open(&p, precision ? KVK_PRECISION_BF16 : KVK_PRECISION_F32);
		for (int t = 0; t < KVK_N_TYPES; t++)
			for (int use = 0; use < 2 && !kvk_types[t].integer; use++) {
				const struct sizes z = { (enum kvk_type)t, 5, 512 };

				check(&p, &z, use ? KVK_FEW_ROWS : KVK_MANY_ROWS, 1);
				for (size_t i = 0; i < N_LENGTHS && kvk_types[t].block == 1; i++)
					check(&p, &(struct sizes){ (enum kvk_type)t, 3, lengths[i] },
					    use ? KVK_FEW_ROWS : KVK_MANY_ROWS, 2);
			}
		pair_close(&p);
	}
}

/* More than the pieces in which a matrix is copied, all of them at once. */
static void
large(void **state)
{
	static const struct sizes z[] = { { KVK_Q8_0, 70, 65536 }, { KVK_F32, 1100, 1000 }, { KVK_Q6_K, 45, 131072 } };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	check(&p, &z[0], KVK_MANY_ROWS, 3);
	check(&p, &z[1], KVK_FEW_ROWS, 4);
	check(&p, &z[2], KVK_MANY_ROWS, 5);
	pair_close(&p);
}

/* Some rows of a matrix of many pieces, which several threads bring. */
static void
some_rows(struct pair *p, const struct sizes *z, enum kvk_use use)
{
	const size_t row = z->cols * kvk_types[z->type].bytes / kvk_types[z->type].block;
	uint8_t *memory, *bytes = matrix(z, 9, &memory);
	float *want = test_alloc(z->cols, sizeof *want), *got;
	struct kvk_weight *w;
	int32_t ids[40];

	for (size_t i = 0; i < 40; i++)
		ids[i] = (int32_t)(i * (z->rows - 1) / 39);
	pair_ok(p, p->op->weight_open(p->dev, &w, bytes, z->type, z->rows, z->cols, use));
	got = rows_of(p->op, p->dev, w, z, ids, 40);
	for (size_t i = 0; i < 40; i++) {
		dequantise(z->type, bytes + (size_t)ids[i] * row, z->cols, want);
		test_same("a row", got + i * z->cols, want, z->cols);
	}
	p->op->weight_close(p->dev, w);
	free(got);
	free(want);
	free(memory);
}

static void
many_pieces(void **state)
{
	static const struct sizes plain = { KVK_F32, 15000, 1000 }, expanded = { KVK_F16, 10700, 1008 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	some_rows(&p, &plain, KVK_FEW_ROWS);
	some_rows(&p, &expanded, KVK_MANY_ROWS);
	some_rows(&p, &expanded, KVK_FEW_ROWS);
	pair_close(&p);
}

/* Layers that follow each other: the next is opened while work on the last is still queued, and takes its place when
 * that is closed; others are closed without having been used. */
static void
one_after_another(void **state)
{
	enum { N = 12 };
	static const struct sizes z = { KVK_Q8_0, 64, 96 };
	struct kvk_weight *w[2] = { NULL }, *unused;
	uint8_t *memory[N], *bytes[N];
	int32_t ids[64];
	struct pair p;
	float *y;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	y = pair_put(&p, NULL, N * z.rows * z.cols * sizeof *y);
	for (int i = 0; i < 64; i++)
		ids[i] = i;
	for (size_t i = 0; i < N; i++)
		bytes[i] = matrix(&z, 100 + i, &memory[i]);
	pair_ok(&p, p.op->weight_open(p.dev, &w[0], bytes[0], z.type, z.rows, z.cols, KVK_MANY_ROWS));
	for (size_t i = 0; i < N; i++) {
		pair_ok(&p, p.op->rows(p.dev, w[i % 2], ids, z.rows, y + i * z.rows * z.cols));
		if (i + 1 < N)
			pair_ok(&p, p.op->weight_open(p.dev, &w[(i + 1) % 2], bytes[i + 1], z.type, z.rows, z.cols,
					KVK_MANY_ROWS));
		pair_ok(&p, p.op->weight_open(p.dev, &unused, bytes[0], z.type, z.rows, z.cols, KVK_MANY_ROWS));
		p.op->weight_close(p.dev, w[i % 2]);
		p.op->weight_close(p.dev, unused);
	}
	for (size_t i = 0; i < N; i++) {
		float *want = test_alloc(z.rows * z.cols, sizeof *want),
		      *got = pair_get(&p, y + i * z.rows * z.cols, z.rows * z.cols * sizeof *got);

		dequantise(z.type, bytes[i], z.rows * z.cols, want);
		test_same("rows of a layer", got, want, z.rows * z.cols);
		free(got);
		free(want);
		free(memory[i]);
	}
	pair_free(&p, y);
	pair_close(&p);
}

static void
refused(void **state)
{
	struct kvk_weight *w;
	const int32_t ids[] = { 0, 2, -1 };
	const float x[4] = { 0 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_not_equal(p.op->weight_open(p.dev, &w, x, KVK_Q4_0, 1, 33, KVK_FEW_ROWS), 0);
	assert_null(w);
	assert_string_equal(p.op->error(p.dev), "weight_open: rows of 33 elements are no whole blocks of q4_0 (32 elements)");
	assert_int_not_equal(p.op->weight_open(p.dev, &w, x, KVK_I32, 1, 4, KVK_FEW_ROWS), 0);
	assert_string_equal(p.op->error(p.dev), "weight_open: a matrix cannot be of type i32");
	assert_int_not_equal(p.op->weight_open(p.dev, &w, x, KVK_F16, SIZE_MAX / 4, 16, KVK_MANY_ROWS), 0);
	assert_non_null(strstr(p.op->error(p.dev), "too large"));
	pair_ok(&p, p.op->weight_open(p.dev, &w, x, KVK_F32, 2, 2, KVK_FEW_ROWS));
	assert_int_not_equal(p.op->rows(p.dev, w, ids, 2, NULL), 0);
	assert_string_equal(p.op->error(p.dev), "rows: row 2 of a matrix of 2 rows");
	assert_int_not_equal(p.op->rows(p.dev, w, ids + 2, 1, NULL), 0);
	pair_ok(&p, p.op->rows(p.dev, w, ids, 0, NULL));
	p.op->weight_close(p.dev, w);
	p.op->weight_close(p.dev, NULL);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type),
		cmocka_unit_test(large),
		cmocka_unit_test(many_pieces),
		cmocka_unit_test(one_after_another),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
