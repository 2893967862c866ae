/* SPDX-License-Identifier: MIT
 * Devices by name, and what is asked of a backend's table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "kernels/lack.h"
#include "lib/device_memory.h"

static void
names(void **state)
{
	static const char *const wrong[] = { "", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999" };
	struct kv_device d;
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_device_open(&d, "cpu", 1, &e), KV_OK);
	assert_string_equal(d.op->name, "cpu");
	assert_null(d.library);
	kv_device_close(&d);
	kv_device_close(&d);
	kv_device_close(NULL);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(kv_device_open(&d, wrong[i], 0, &e), KV_EARG);
		assert_non_null(strstr(e.text, "unknown device '"));
		assert_false(kv_device_is_name(wrong[i]));
	}
	assert_false(kv_device_is_name("cuda:1024"));
	assert_false(kv_device_is_name("cuda:99999999999999999999"));
	assert_true(kv_device_is_name("cuda:1023"));
	assert_true(kv_device_is_name("cuda"));
	assert_true(kv_device_is_name("auto"));
	assert_true(kv_device_is_name("cpu"));
	assert_int_equal(kv_device_open(&d, "cpu", 100000, &e), KV_EARG);
}

/* With or without CUDA, auto finds something, and knows why it was the CPU. */
static void
automatic(void **state)
{
	struct kv_device d;
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_device_open(&d, NULL, 2, &e), KV_OK);
	kv_device_close(&d);
	assert_int_equal(kv_device_open(&d, "auto", 0, &e), KV_OK);
	assert_string_equal(e.text, "");
	assert_int_equal(d.library == NULL, d.fallback[0] != '\0');
	if (d.library == NULL)
		assert_memory_equal(d.fallback, "cuda: ", 6);
	kv_device_close(&d);
	assert_int_equal(kv_device_open(&d, "cpu", 0, &e), KV_OK);
	assert_string_equal(d.fallback, "");
	kv_device_close(&d);
}

/* Opened when it is needed, once. */
static void
planned(void **state)
{
	struct kv_device d;
	struct kv_err e = { 0 };
	struct kvk_dev *dev;

	(void)state;
	kv_device_plan(&d, "cpu", 1);
	kv_device_close(&d);
	assert_null(d.op);
	assert_int_equal(kv_device_ready(&d, "linear rows", &e), KV_OK);
	dev = d.dev;
	assert_non_null(dev);
	assert_int_equal(kv_device_ready(&d, "", &e), KV_OK);
	assert_int_equal(kv_device_ready(&d, "pool", &e), KV_OK);
	assert_ptr_equal(d.dev, dev);
	kv_device_close(&d);
	assert_int_equal(kv_device_ready(&d, "pool", &e), KV_OK); /* the plan stays */
	kv_device_close(&d);
	kv_device_plan(&d, "gpu", 1);
	assert_int_equal(kv_device_ready(&d, "pool", &e), KV_EARG);
}

/* The one CPU is number 0, and what says so is what ends a list of devices. */
static void
no_second_cpu(void **state)
{
	struct kvk_dev *dev;
	char text[128] = "", why[128] = "";

	(void)state;
	assert_int_equal(kvk_cpu.describe(0, text, sizeof text), 0);
	assert_int_equal(kvk_cpu.describe(1, text, sizeof text), KVK_ENODEV);
	assert_int_equal(kvk_cpu.open(&dev, 1, 1, KVK_PRECISION_F32, why, sizeof why), KVK_ENODEV);
	assert_null(dev);
	assert_string_equal(why, "there is one CPU device, number 0, not 1");
	assert_string_equal(text, why);
}

static void
cuda(void **state)
{
	struct kv_device d;
	struct kv_err e = { 0 };
	int rc = kv_device_open(&d, "cuda", 0, &e);

	(void)state;
	if (rc == KV_OK) {
		assert_string_equal(d.op->name, "cuda");
		kv_device_close(&d);
		skip();
	}
	assert_int_equal(rc, KV_EDEV);
	assert_memory_equal(e.text, "cuda: ", 6);
	assert_true(strlen(e.text) > 6);
}

static void
tables(void **state)
{
	struct kvk_backend t = kvk_cpu;
	struct kv_device d = { .op = &t };
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_device_check_table(&t, &e), KV_OK);
	t.scores = NULL;
	assert_int_equal(kv_device_check_table(&t, &e), KV_OK); /* nobody has asked for them yet */
	assert_int_equal(kv_device_ready(&d, "select reduce_heads", &e), KV_OK);
	assert_int_equal(kv_device_ready(&d, "select scores reduce_heads", &e), KV_EDEV);
	assert_string_equal(e.text, "cpu: the device lacks the operation 'scores': use --device cpu");
	t.alloc = NULL;
	assert_int_equal(kv_device_check_table(&t, &e), KV_EDEV);
	assert_string_equal(e.text, "cpu: backend lacks the function 'alloc'");
	t = kvk_cpu;
	t.abi = KVK_ABI + 1;
	assert_int_equal(kv_device_check_table(&t, &e), KV_EDEV);
	assert_memory_equal(e.text, "backend has interface version ", 30);
}

#define FIRST_FUNCTION (offsetof(struct kvk_backend, chunk_rows) + sizeof(size_t))

/* A table that has everything: what a device whose memory is the host's has no need of stands for nothing here. */
static struct kvk_backend
full_table(void)
{
	struct kvk_backend t = kvk_cpu;
	const size_t bytes = sizeof t.wait;

	for (char *at = (char *)&t + FIRST_FUNCTION; at < (char *)(&t + 1); at += bytes)
		if (memcmp(at, &(void (*)(void)){ NULL }, bytes) == 0)
			memcpy(at, &t.wait, bytes); /* nobody calls it */
	return t;
}

/* Each pointer of the table is missed when it is not there, whatever names and offsets say. */
static void
every_operation(void **state)
{
	char ops[2048] = "";

	(void)state;
	for (size_t i = 0, n = 0; i < KVK_N_OPS; i++)
		n += (size_t)snprintf(ops + n, sizeof ops - n, "%s%s", i > 0 ? " " : "", kvk_ops[i].name);
	for (size_t at = FIRST_FUNCTION; at < sizeof(struct kvk_backend); at += sizeof(void (*)(void))) {
		struct kvk_backend t = full_table();
		struct kv_device d = { .op = &t };
		struct kv_err e = { 0 };

		memset((char *)&t + at, 0, sizeof(void (*)(void)));
		if (kv_device_check_table(&t, &e) == KV_OK)
			assert_int_equal(kv_device_ready(&d, ops, &e), KV_EDEV);
		else
			assert_int_equal(e.code, KV_EDEV);
	}
}

static void
memory_and_errors(void **state)
{
	struct kv_device d;
	struct kv_err e = { 0 };
	const int32_t host[4] = { 1, 2, 3, 4 };
	int32_t back[4];
	void *p;

	(void)state;
	assert_int_equal(kv_device_open(&d, "cpu", 1, &e), KV_OK);
	p = kv_device_alloc(&d, 4, sizeof *host, &e);
	assert_non_null(p);
	assert_int_equal((uintptr_t)p % 64, 0);
	assert_int_equal(kv_device_check(&d, d.op->put(d.dev, p, host, sizeof host), "put", &e), KV_OK);
	assert_int_equal(kv_device_check(&d, d.op->get(d.dev, back, p, sizeof back), "get", &e), KV_OK);
	assert_memory_equal(back, host, sizeof host);
	kv_device_free(&d, p);
	kv_device_free(&d, NULL);
	assert_null(kv_device_alloc(&d, SIZE_MAX / 2, 3, &e));
	assert_int_equal(e.code, KV_EMEM);
	assert_null(kv_device_alloc(&d, SIZE_MAX - 8, 1, &e));
	assert_int_equal(
	    kv_device_check(&d, d.op->pool(d.dev, NULL, 0, 0, KVK_POOL_MAX, 2, NULL), "pooling", &e), KV_EDEV);
	assert_string_equal(e.text, "cpu: pooling: pool: width 2 is not odd");
	for (int i = 0; i < 2; i++) { /* an operation is named once, whatever begins as it does */
		kv_device_check(&d, d.op->pool(d.dev, NULL, 0, 0, KVK_POOL_MAX, 2, NULL), i == 0 ? "pool" : "po", &e);
		assert_string_equal(e.text, i == 0 ? "cpu: pool: width 2 is not odd" : "cpu: po: pool: width 2 is not odd");
	}
	kv_device_close(&d);
}

static void *
no_room(struct kvk_dev *dev, size_t bytes)
{
	(void)dev;
	(void)bytes;
	return NULL;
}

static size_t
some_room(struct kvk_dev *dev)
{
	(void)dev;
	return 2500000;
}

/* What counts as a card: a table from a library. */
static struct kv_device
full_card(const char *name, enum kvk_precision precision)
{
	static struct kvk_backend t;
	struct kv_device d = { .op = &t, .name = name, .threads = 1, .library = dlopen(NULL, RTLD_NOW) };
	char why[64];

	t = kvk_cpu;
	t.name = "card";
	t.alloc = no_room;
	t.room = some_room;
	assert_int_equal(kvk_cpu.open(&d.dev, 0, 1, precision, why, sizeof why), 0);
	return d;
}

/* Small amounts are told too. */
static void
lacks(void **state)
{
	struct kv_device d = full_card("cuda", KVK_PRECISION_F32);
	char text[KVK_LACK_TEXT];
	struct kv_err e = { 0 };

	(void)state;
	assert_null(kv_device_alloc(&d, 20480, 1, &e));
	assert_non_null(strstr(e.text, "card: out of device memory (20.5 KB wanted, 2.5 MB free)"));
	assert_string_equal(kvk_lack(text, 1000, 999), "out of device memory (1.0 KB wanted, 999 bytes free)");
	assert_string_equal(kvk_lack(text, 999999, 1000000), "out of device memory (1000.0 KB wanted, 1.0 MB free)");
	assert_string_equal(kvk_lack(text, SIZE_MAX, 0),
	    "out of device memory (18446744073709.6 MB wanted, 0 bytes free)");
	kv_device_close(&d);
}

static char told[KV_ERR_TEXT];

static void
tell(const char *why)
{
	snprintf(told, sizeof told, "%s", why);
}

/* Want of memory on a card that auto chose: the CPU takes its place, once. */
static void
falls_back(void **state)
{
	struct kv_device d = full_card("auto", KVK_PRECISION_BF16);
	struct kv_err e = { 0 };
	void *p;

	(void)state;
	d.unfit = tell;
	assert_int_equal(kv_device_precision(&d), KVK_PRECISION_BF16);
	assert_null(kv_device_alloc(&d, 1500000, 1, &e));
	assert_int_equal(e.code, KV_EMEM);
	assert_string_equal(e.text, "card: out of device memory (1.5 MB wanted, 2.5 MB free)");
	kv_where(&e, "layer 3");
	assert_true(kv_device_can_fall_back(&d, &e));
	assert_int_equal(kv_device_fall_back(&d, KV_EMEM, &e), KV_OK);
	assert_string_equal(told, "layer 3: card: out of device memory (1.5 MB wanted, 2.5 MB free)");
	assert_string_equal(d.fallback, told);
	assert_int_equal(e.code, 0);
	assert_ptr_equal(d.op, &kvk_cpu);
	assert_int_equal(d.op->precision(d.dev), KVK_PRECISION_BF16); /* as it was told */
	assert_non_null(p = kv_device_alloc(&d, 8, 1, &e));
	kv_device_free(&d, p);
	assert_null(kv_device_alloc(&d, SIZE_MAX - 8, 1, &e));
	assert_int_equal(kv_device_fall_back(&d, KV_EMEM, &e), KV_EMEM); /* whose memory is the host's */
	kv_device_close(&d);
}

/* Not a card that was asked for by name, not when others use its memory, not for another's fault or the host's. */
static void
stands(void **state)
{
	struct kv_device d = full_card("cuda:0", KVK_PRECISION_F32), other;
	struct kv_err e = { 0 };

	(void)state;
	assert_null(kv_device_alloc(&d, 9, 1, &e));
	assert_int_equal(kv_device_fall_back(&d, e.code, &e), KV_EMEM);
	assert_int_equal(e.code, KV_EMEM);
	assert_ptr_equal(e.device, &d);
	kv_device_close(&d);
	d = full_card(NULL, KVK_PRECISION_F32);
	d.lent = true;
	assert_null(kv_device_alloc(&d, 9, 1, &e));
	assert_int_equal(kv_device_fall_back(&d, e.code, &e), KV_EMEM);
	d.lent = false;
	other = d;
	assert_int_equal(kv_device_fall_back(&other, e.code, &e), KV_EMEM);
	kv_no_memory(&e, 9);
	assert_int_equal(kv_device_fall_back(&d, e.code, &e), KV_EMEM);
	assert_int_equal(kv_device_fall_back(&d, KV_EDEV, NULL), KV_EDEV);
	kv_device_close(&d);
}

static int
lost(struct kvk_dev *dev)
{
	(void)dev;
	return 1;
}

static const char *
why_lost(struct kvk_dev *dev)
{
	(void)dev;
	return "the card: an illegal memory access";
}

/* A card that failed before gives no memory either: that is what is said. */
static void
memory_of_a_lost_card(void **state)
{
	struct kv_device d = full_card("auto", KVK_PRECISION_F32);
	struct kvk_backend t = *d.op;
	struct kv_err e = { 0 };

	(void)state;
	t.wait = lost;
	t.error = why_lost;
	d.op = &t;
	assert_null(kv_device_alloc(&d, 1500000, 1, &e));
	assert_string_equal(e.text, "card: the card: an illegal memory access");
	assert_true(kv_device_can_fall_back(&d, &e));
	kv_device_close(&d);
}

/* Rows 1 and 2 of 4 per head, then all of them, as f16. */
static void
rows_of_heads(void **state)
{
	enum { H = 3, N = 4, D = 2 };
	float src[H * N * D], some[H * 2 * D];
	uint16_t half[H * N * D];
	struct kv_device d;
	struct kv_err e = { 0 };

	(void)state;
	for (int i = 0; i < H * N * D; i++)
		src[i] = (float)i;
	assert_int_equal(kv_device_open(&d, "cpu", 1, &e), KV_OK);
	assert_int_equal(kv_device_get_rows(&d, some, KVK_F32, src + D, H, N, 2, D, &e), KV_OK);
	for (int h = 0; h < H; h++)
		for (int i = 0; i < 2 * D; i++)
			assert_true(some[h * 2 * D + i] == (float)((h * N + 1) * D + i));
	assert_int_equal(kv_device_get_rows(&d, half, KVK_F16, src, H, N, N, D, &e), KV_OK);
	assert_int_equal(half[0], 0);
	assert_int_equal(half[H * N * D - 1], 0x4dc0); /* 23 */
	assert_int_equal(kv_device_get_rows(&d, NULL, KVK_F32, NULL, H, N, 0, D, &e), KV_OK);
	assert_int_equal(kv_device_get_rows(&d, half, KVK_F16, src, 0, N, N, D, &e), KV_OK);
	kv_device_close(&d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(automatic),
		cmocka_unit_test(planned),
		cmocka_unit_test(no_second_cpu),
		cmocka_unit_test(cuda),
		cmocka_unit_test(tables),
		cmocka_unit_test(every_operation),
		cmocka_unit_test(memory_and_errors),
		cmocka_unit_test(lacks),
		cmocka_unit_test(falls_back),
		cmocka_unit_test(stands),
		cmocka_unit_test(memory_of_a_lost_card),
		cmocka_unit_test(rows_of_heads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
