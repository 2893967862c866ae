/* SPDX-License-Identifier: MIT
 * A device's memory: copies of all lengths, conversion on the way to the host, what is refused. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

#define MIB ((size_t)1 << 20)

/* The host's bytes may change as soon as put() is back. */
static void
copies(void **state)
{
	static const size_t sizes[] = { 1, 3, 4096, 65535, 65536, 65537, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1,
		17 * MIB + 5, 53 * MIB + 3 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const size_t n = sizes[i];
		uint8_t *want = test_alloc(n, 1), *host = test_alloc(n, 1), *got;
		void *device = p.op->alloc(p.dev, n);

		assert_non_null(device);
		assert_int_equal((uintptr_t)device % 64, 0);
		for (size_t j = 0; j < n; j++)
			want[j] = (uint8_t)(j * 7 + j / 251 + i);
		memcpy(host, want, n);
		pair_ok(&p, p.op->put(p.dev, device, host, n));
		memset(host, 0, n);
		got = pair_get(&p, device, n);
		assert_memory_equal(got, want, n);
		free(got);
		free(host);
		free(want);
		pair_free(&p, device);
	}
	pair_ok(&p, p.op->put(p.dev, NULL, NULL, 0));
	pair_ok(&p, p.op->get(p.dev, NULL, NULL, 0));
	pair_ok(&p, p.op->wait(p.dev));
	pair_close(&p);
}

static size_t
threads_here(void)
{
	DIR *tasks = opendir("/proc/self/task");
	size_t n = 0;

	assert_non_null(tasks);
	while (readdir(tasks) != NULL)
		n++;
	closedir(tasks);
	return n;
}

/* Threads fill pinned memory where there is much to copy, as many as open() was told, and go with the device. */
static void
copying_threads(void **state)
{
	static const size_t threads[] = { 1, 2, 5 }, n = 61 * MIB + 77;
	uint32_t *want = test_alloc(n / 4, sizeof *want), *got;
	char why[256];
	struct pair p;

	(void)state;
	for (size_t i = 0; i < n / 4; i++)
		want[i] = (uint32_t)(i * 2654435761u);
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < 3; i++) {
		struct kvk_dev *dev;
		size_t before;
		void *device;

		assert_int_equal(p.op->open(&dev, 0, (int)threads[i], KVK_PRECISION_F32, why, sizeof why), 0);
		assert_non_null(device = p.op->alloc(dev, n));
		assert_int_equal(p.op->put(dev, device, want, MIB), 0);
		before = threads_here();
		assert_int_equal(p.op->put(dev, device, want, n / 4 * 4), 0);
		assert_true(threads_here() >= before + threads[i] - 1);
		got = test_alloc(n / 4, sizeof *got);
		assert_int_equal(p.op->get(dev, got, device, n / 4 * 4), 0);
		assert_memory_equal(got, want, n / 4 * 4);
		before = threads_here();
		p.op->close(dev);
		assert_true(threads_here() + threads[i] - 1 <= before);
		free(got);
	}
	pair_close(&p);
	free(want);
}

/* A kernel goes wrong: whatever comes next says that, and not that there is no memory. */
static void
card_that_failed(void **state)
{
	static const float host[64 * 64];
	struct kvk_weight *w;
	struct pair p;
	char text[256];
	float *x;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_equal(p.op->describe(0, text, sizeof text), 0);
	if (strstr(text, "shim") == NULL) {
		pair_close(&p);
		skip(); /* a real card would be of no use to the tests behind this one */
	}
	x = pair_put(&p, NULL, 4096);
	setenv("KV_SHIM_FAILED", "1", 1);
	assert_int_not_equal(p.op->silu_mul(p.dev, x, x, 64, x), 0);
	assert_string_equal(p.op->error(p.dev), "silu_mul: an illegal memory access was encountered");
	assert_int_not_equal(p.op->weight_open(p.dev, &w, host, KVK_F32, 64, 64, KVK_MANY_ROWS), 0);
	assert_non_null(strstr(p.op->error(p.dev), "illegal memory access"));
	assert_int_not_equal(p.op->get(p.dev, text, x, 64), 0);
	assert_non_null(strstr(p.op->error(p.dev), "illegal memory access"));
	assert_int_not_equal(p.op->put(p.dev, x, host, sizeof host / 8), 0);
	assert_non_null(strstr(p.op->error(p.dev), "illegal memory access"));
	assert_null(p.op->alloc(p.dev, 1 << 20));
	assert_int_not_equal(p.op->pool(p.dev, x, 1, 64, KVK_POOL_MAX, 3, x + 64), 0);
	assert_non_null(strstr(p.op->error(p.dev), "illegal memory access"));
	unsetenv("KV_SHIM_FAILED");
	pair_ok(&p, p.op->silu_mul(p.dev, x, x, 64, x));
	pair_free(&p, x);
	pair_close(&p);
}

/* Many small copies in a row, each of which the next may not overwrite. */
static void
many_small_copies(void **state)
{
	enum { N = 3000, EACH = 1000 };
	struct pair p;
	uint32_t host[EACH], *got;
	char *device;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	device = pair_put(&p, NULL, N * sizeof host);
	for (uint32_t i = 0; i < N; i++) {
		for (uint32_t j = 0; j < EACH; j++)
			host[j] = i * EACH + j;
		pair_ok(&p, p.op->put(p.dev, device + i * sizeof host, host, sizeof host));
	}
	got = pair_get(&p, device, N * sizeof host);
	for (uint32_t i = 0; i < N * EACH; i++)
		assert_int_equal(got[i], i);
	free(got);
	pair_free(&p, device);
	pair_close(&p);
}

/* Blocks do not overlap, however they come and go; a block that is freed and taken anew is written in order. */
static void
blocks(void **state)
{
	enum { N = 40 };
	static const size_t sizes[] = { 1, 100, 256, 257, 5000, 70000, 300000 };
	struct pair p;
	char *at[N] = { NULL };
	size_t bytes[N] = { 0 };
	uint8_t mark[N] = { 0 };

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t round = 0; round < 200; round++) {
		const size_t i = round * 17 % N, n = sizes[round * 5 % 7];
		uint8_t *fill = memset(test_alloc(n, 1), (int)round, n);

		pair_free(&p, at[i]);
		at[i] = p.op->alloc(p.dev, bytes[i] = n);
		assert_non_null(at[i]);
		mark[i] = (uint8_t)round;
		pair_ok(&p, p.op->put(p.dev, at[i], fill, n));
		free(fill);
	}
	for (size_t i = 0; i < N; i++) {
		uint8_t *got = at[i] != NULL ? pair_get(&p, at[i], bytes[i]) : NULL;

		for (size_t j = 0; got != NULL && j < bytes[i]; j++)
			assert_int_equal(got[j], mark[i]);
		free(got);
		pair_free(&p, at[i]);
	}
	pair_close(&p);
}

static void
views(void **state)
{
	struct pair p;
	float *x = test_floats(3000, 1, 4), *got;
	const float *view;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	view = p.op->view(p.dev, x, 3000 * sizeof *x);
	assert_non_null(view);
	got = pair_get(&p, view, 3000 * sizeof *x);
	assert_memory_equal(got, x, 3000 * sizeof *x);
	p.op->unview(p.dev, view);
	p.op->unview(p.dev, NULL);
	free(got);
	free(x);
	pair_close(&p);
}

/* Every pattern of a 16-bit type, or as many of f32, to every type, as the CPU does it; from the element `shift` of an
 * array on. */
static void
convert(struct pair *p, enum kvk_type from, enum kvk_type to, size_t n, size_t shift)
{
	const size_t in = kvk_types[from].bytes, out = kvk_types[to].bytes;
	float *scale = test_floats(n, 1, 3);
	uint8_t *src = test_alloc(n, in), *want = test_alloc(n, out), *got = test_alloc(n, out);
	char *device;

	for (size_t i = 0; i < n; i++) {
		const uint16_t h = (uint16_t)i;
		const float f = ldexpf(scale[i], (int)(i % 300) - 160);

		memcpy(src + i * in, from == KVK_F32 ? (const void *)&f : &h, in);
	}
	device = pair_put(p, NULL, (shift + n) * in);
	pair_ok(p, p->op->put(p->dev, device + shift * in, src, n * in));
	pair_ok(p, p->op->get_as(p->dev, got, to, device + shift * in, from, n));
	assert_int_equal(kvk_cpu.get_as(p->cpu, want, to, src, from, n), 0);
	for (size_t i = 0; i < n; i++) {
		uint32_t w = 0, g = 0;
		bool nan;

		memcpy(&w, want + i * out, out);
		memcpy(&g, got + i * out, out);
		nan = to == KVK_F32 ? (w & 0x7fffffff) > 0x7f800000 && (g & 0x7fffffff) > 0x7f800000
		    : to == KVK_F16 ? (w & 0x7fff) > 0x7c00 && (g & 0x7fff) > 0x7c00
				    : (w & 0x7fff) > 0x7f80 && (g & 0x7fff) > 0x7f80;
		if (w != g && !nan)
			fail_msg("%s to %s, element %zu: %08x, want %08x", kvk_types[from].name, kvk_types[to].name, i,
			    g, w);
	}
	pair_free(p, device);
	free(got);
	free(want);
	free(src);
	free(scale);
}

static void
conversions(void **state)
{
	static const enum kvk_type types[] = { KVK_F32, KVK_F16, KVK_BF16 };
	static const size_t lengths[] = { 0, 1, 26, 31, 32, 33, 63, 64, 65, 95, 97, 127, 128, 129, 255, 256, 257,
		5003 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
			convert(&p, types[i], types[j], 65536, i == 0 ? 0 : (size_t)j);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (size_t j = 0; j < 9; j++)
			convert(&p, types[j / 3], types[j % 3], lengths[i], (i + j) % 6);
	convert(&p, KVK_F32, KVK_F16, 2 * MIB + 77, 0); /* several pieces */
	pair_close(&p);
}

static void
refused(void **state)
{
	struct pair p;
	struct kvk_dev *dev;
	char why[256] = "";
	void *device;
	int32_t x;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	device = pair_put(&p, NULL, 64);
	assert_int_not_equal(p.op->get_as(p.dev, &x, KVK_F32, device, KVK_I32, 1), 0);
	assert_string_equal(p.op->error(p.dev), "get_as: types are f32, f16 and bf16");
	assert_null(p.op->alloc(p.dev, SIZE_MAX));
	assert_null(p.op->alloc(p.dev, (size_t)1 << 50));
	pair_ok(&p, p.op->get(p.dev, &x, device, sizeof x)); /* all is well afterwards */
	pair_free(&p, device);
	assert_true(p.op->room(p.dev) > 0);
	assert_int_equal(p.op->open(&dev, 1000, 0, KVK_PRECISION_F32, why, sizeof why), KVK_ENODEV);
	assert_null(dev);
	assert_non_null(strstr(why, "no number 1000"));
	assert_int_equal(p.op->open(&dev, 0, 0, KVK_PRECISION_I16, why, sizeof why), KVK_ENODEV);
	assert_string_equal(why, "precision i16 is the CPU's: use bf16 or f32, or --device cpu");
	assert_int_equal(p.op->describe(1000, why, sizeof why), KVK_ENODEV);
	assert_int_equal(p.op->describe(0, why, sizeof why), 0);
	assert_non_null(strstr(why, "precisions f32 bf16 (auto: bf16)"));
	assert_int_equal(p.op->precision(p.dev), KVK_PRECISION_F32);
	pair_close(&p);
	pair_open(&p, KVK_PRECISION_AUTO);
	assert_int_equal(p.op->precision(p.dev), KVK_PRECISION_BF16);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(copying_threads),
		cmocka_unit_test(card_that_failed),
		cmocka_unit_test(many_small_copies),
		cmocka_unit_test(blocks),
		cmocka_unit_test(views),
		cmocka_unit_test(conversions),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
