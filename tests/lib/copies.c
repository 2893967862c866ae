/* SPDX-License-Identifier: MIT */
#include "tests/lib/copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/tensor.h"
#include "tests/lib/kernels.h"

/* Rows of a list go backwards, with some that follow each other. */
static size_t
listed(size_t i, size_t n)
{
	return (n - 1 - i) / 3 * 3 + i % 3;
}

/* One element, by itself. */
static void
element(const struct kvk_copy *j, size_t from, size_t to)
{
	const size_t in = kvk_types[j->x_type].bytes, out = kvk_types[j->y_type].bytes;
	const struct kv_tensor x = { .type = j->x_type, .data = j->x };
	char *y = (char *)j->y + to * out;
	float f;
	uint16_t h;

	if (j->x_type == j->y_type) {
		memcpy(y, (const char *)j->x + from * in, in);
		return;
	}
	f = (float)kv_tensor_get(&x, from);
	h = j->y_type == KVK_F16 ? kv_f32_to_f16(f) : kv_f32_to_bf16(f);
	memcpy(y, j->y_type == KVK_F32 ? (const void *)&f : &h, out);
}

static void
naive(const struct kvk_copy *j)
{
	for (size_t h = 0; h < j->H; h++)
		for (size_t i = 0; i < j->n; i++)
			for (size_t d = 0; d < j->D; d++)
				element(j, (j->rows != NULL ? j->rows[h * j->n + i] : h * j->x_stride + i) * j->D + d,
				    (h * j->y_stride + i) * j->D + d);
}

/* x [rows][D] of numbers that the type has, or any bytes where it is no float. */
static void *
source(size_t rows, size_t D, enum kvk_type type)
{
	double *values;
	void *x;

	if (type <= KVK_BF16) {
		x = test_typed(rows * D, 3, rows + D, type, &values);
		free(values);
		return x;
	}
	x = test_alloc(rows * D, kvk_types[type].bytes);
	for (size_t i = 0; i < rows * D * kvk_types[type].bytes; i++)
		((uint8_t *)x)[i] = (uint8_t)(i * 7 + i / 251);
	return x;
}

/* Both strides beyond n by some rows; x and y begin `shift` elements behind where memory does. */
static void
one(copies_fn *run, void *ctx, struct kvk_copy job, size_t x_more, size_t y_more, bool list, size_t shift)
{
	const size_t in = kvk_types[job.x_type].bytes, out = kvk_types[job.y_type].bytes;
	const size_t x_rows = job.H * (job.n + x_more), y_rows = job.H * (job.n + y_more);
	const size_t x_bytes = (x_rows * job.D + shift) * in, y_bytes = (y_rows * job.D + shift) * out;
	char *x = source(x_rows + 1 + shift, job.D, job.x_type);
	char *y = test_alloc(y_bytes, 1), *want = test_alloc(y_bytes, 1);
	size_t *rows = test_alloc(job.H * job.n, sizeof *rows);

	for (size_t i = 0; i < job.H * job.n; i++)
		rows[i] = listed(i, job.H * job.n) % (x_rows > 0 ? x_rows : 1);
	memset(y, 0x55, y_bytes);
	memset(want, 0x55, y_bytes);
	job.x = x + shift * in;
	job.x_stride = list ? 0 : job.n + x_more;
	job.rows = list ? rows : NULL;
	job.y_stride = job.n + y_more;
	job.y = want + shift * out;
	naive(&job);
	job.y = y + shift * out;
	run(ctx, &job, x_bytes - shift * in, y_bytes - shift * out);
	for (size_t i = 0; i < y_bytes; i++)
		if (y[i] != want[i])
			fail_msg("%s to %s, %zu heads of %zu rows of %zu, %zu and %zu between%s: byte %zu differs",
			    kvk_types[job.x_type].name, kvk_types[job.y_type].name, job.H, job.n, job.D, x_more, y_more,
			    list ? ", a list" : "", i);
	free(rows);
	free(want);
	free(y);
	free(x);
}

static void
types(copies_fn *run, void *ctx, enum kvk_type from, enum kvk_type to)
{
	static const size_t D[] = { 1, 3, 8, 64, 80, 128, 300 }, n[] = { 0, 1, 33, 97 };

	for (size_t i = 0; i < sizeof D / sizeof *D; i++)
		for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
			const struct kvk_copy job = { .x_type = from, .y_type = to, .H = 3, .n = n[k], .D = D[i] };

			one(run, ctx, job, k % 2, k / 2, false, 0);
			one(run, ctx, job, 2, 1, true, i % 2);
		}
	one(run, ctx, (struct kvk_copy){ .x_type = from, .y_type = to, .H = 1, .n = 40000, .D = 2 }, 0, 0, false, 1);
	one(run, ctx, (struct kvk_copy){ .x_type = from, .y_type = to, .H = 2, .n = 700, .D = 64 }, 300, 5, false, 0);
}

/* Rows of a list around what a warp or a block takes, of keys as they are and as they are written. */
static void
lengths(copies_fn *run, void *ctx)
{
	static const size_t n[] = { 26, 27, 28, 29, 30, 31, 32, 63, 64, 65, 95, 96, 127, 128, 129, 255, 256, 257 };
	static const size_t D[] = { 64, 80, 96, 128, 256 };

	for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
		const struct kvk_copy job = { .x_type = KVK_F16, .y_type = i % 2 ? KVK_F16 : KVK_F32, .H = 2, .n = n[i],
			.D = D[i % 5] };

		one(run, ctx, job, 1, 0, true, 0);
	}
}

void
copies_all(copies_fn *run, void *ctx)
{
	lengths(run, ctx);
	for (enum kvk_type from = KVK_F32; from <= KVK_BF16; from++)
		for (enum kvk_type to = KVK_F32; to <= KVK_BF16; to++)
			types(run, ctx, from, to);
	types(run, ctx, KVK_I32, KVK_I32);
	types(run, ctx, KVK_U8, KVK_U8);
}
