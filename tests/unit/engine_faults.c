/* SPDX-License-Identifier: MIT
 * The n-th call of the device fails, and the n-th allocation of the host, for every n: the engine says so, and leaves
 * nothing behind (which the sanitizers see).  Where auto chose the device, the CPU does what was to be done. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/device_memory.h"
#include "lib/model/respond.h"
#include "tests/lib/rig.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer) || !defined __GLIBC__
#define HOST_CAN_FAIL 0 /* the sanitizer has its own allocator */
#else
#define HOST_CAN_FAIL 1
#endif

static struct {
	bool armed, failed;
	size_t left; /* calls before the one that fails */
} device, host, full; /* full: allocations of the device, this one and all behind it */

#if HOST_CAN_FAIL
/* glibc lets a program bring its own allocator and still reach the one it replaces.  calloc alone is ours: the
 * libraries below take their memory by malloc. */
void *__libc_calloc(size_t n, size_t size);

void *
calloc(size_t n, size_t size)
{
	if (!host.armed || host.left-- > 0)
		return __libc_calloc(n, size);
	host.armed = false;
	host.failed = true;
	errno = ENOMEM;
	return NULL;
}
#endif

static bool
fails(void)
{
	if (!device.armed || device.left-- > 0)
		return false;
	device.armed = false;
	return device.failed = true;
}

/* ---- the CPU's table, with calls that can fail */

static void *
alloc(struct kvk_dev *dev, size_t bytes)
{
	if (full.armed && (full.left == 0 || full.left-- == 0)) {
		full.left = 0;
		device.failed = true;
		return NULL;
	}
	return fails() ? NULL : kvk_cpu.alloc(dev, bytes);
}

static int
put(struct kvk_dev *dev, void *dst, const void *src, size_t bytes)
{
	return fails() ? 1 : kvk_cpu.put(dev, dst, src, bytes);
}

static int
get(struct kvk_dev *dev, void *dst, const void *src, size_t bytes)
{
	return fails() ? 1 : kvk_cpu.get(dev, dst, src, bytes);
}

static int
get_as(struct kvk_dev *dev, void *dst, enum kvk_type to, const void *src, enum kvk_type from, size_t n)
{
	return fails() ? 1 : kvk_cpu.get_as(dev, dst, to, src, from, n);
}

static int
copy_rows(struct kvk_dev *dev, const struct kvk_copy *job)
{
	return fails() ? 1 : kvk_cpu.copy_rows(dev, job);
}

static int
finite(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first)
{
	return fails() ? 1 : kvk_cpu.finite(dev, x, type, n, first);
}

static int
weight_open(struct kvk_dev *dev, struct kvk_weight **w, const void *p, enum kvk_type type, size_t rows, size_t cols,
    enum kvk_use use)
{
	return fails() ? 1 : kvk_cpu.weight_open(dev, w, p, type, rows, cols, use);
}

static int
rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y)
{
	return fails() ? 1 : kvk_cpu.rows(dev, w, ids, n, y);
}

static int
linear(struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	return fails() ? 1 : kvk_cpu.linear(dev, w, x, n, bias, add, y);
}

static int
rms_norm(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y)
{
	return fails() ? 1 : kvk_cpu.rms_norm(dev, x, w, eps, n, d, y);
}

static int
silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y)
{
	return fails() ? 1 : kvk_cpu.silu_mul(dev, gate, up, n, y);
}

static int
heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type type, const size_t *at)
{
	return fails() ? 1 : kvk_cpu.heads(dev, x, n, H, D, norm, eps, rope, pos, y, type, at);
}

static int
attention(struct kvk_dev *dev, const float *q, const size_t *q_at, size_t n, size_t Hq, const struct kvk_ragged *cache,
    float scale, float *y)
{
	return fails() ? 1 : kvk_cpu.attention(dev, q, q_at, n, Hq, cache, scale, y);
}

/* ---- what is tried */

enum { T = 5, BEHIND = 2, VOCAB = 40 };
static const struct tiny_spec spec = { .arch = "qwen2",
	.L = 2,
	.Hq = 4,
	.Hkv = 2,
	.D = 8,
	.d = 16,
	.ff = 24,
	.vocab = VOCAB,
	.tied = false,
	.context = 64,
	.seed = 6 };

/* NULL: nobody looks at the layers of a prefill. */
static kv_layer_fn watcher;

static int
look(void *ctx, const struct kv_layer_view *view, struct kv_err *e)
{
	float x[4 * T * 8];

	return kv_device_get_rows(ctx, x, KVK_F32, view->k, 2, view->stride, view->n, 8, e);
}

/* A prompt with rows behind it, one with lookahead tokens, a response, and a turn on a cache of four heads. */
static int
work(const struct kv_model *m, struct kv_device *d, float *logits, struct kv_err *e)
{
	static const int32_t tokens[T + BEHIND] = { 1, 2, 3, 4, 5, 6, 7 };
	static const size_t offset[] = { 0, 2, 3, 3, 5 };
	static const struct kv_lookahead_shape shape = { BEHIND, 2, 4, KV_LOOKAHEAD_ALL };
	const struct kv_prefill_input in = { tokens, T, tokens + T, BEHIND, NULL };
	struct kv_prefill_input ahead = { .tokens = tokens, .T = T };
	const struct kv_respond respond = { .tokens = tokens, .T = T, .type = KVK_F16, .most = 2 };
	float kv[5 * 8] = { 0.5f };
	struct kv_engine *x = NULL;
	struct kv_lookahead *module = NULL;
	struct kv_adapters *adapters = NULL;
	double sigma;
	struct kv_cache *c = NULL;
	struct kv_ids ids = { 0 };
	enum kv_stop why;
	int rc;

	if ((rc = kv_engine_new(&x, m, d, e)) < 0 || (rc = kv_prefill(x, &in, watcher, d, logits, e)) < 0 ||
	    (rc = kv_embedding_sigma(x, &sigma, e)) < 0 || (rc = kv_lookahead_new(&module, &m->cfg, &shape, e)) < 0)
		goto done;
	kv_lookahead_init(module, 1, sigma);
	if ((rc = kv_adapters_new(&adapters, x, module, e)) < 0)
		goto done;
	ahead.lookahead = adapters;
	if ((rc = kv_prefill(x, &ahead, watcher, d, logits, e)) < 0 ||
	    (rc = kv_respond(x, &respond, &ids, &why, e)) < 0 || (rc = kv_cache_new(&c, x, KVK_F32, 4, e)) < 0)
		goto done;
	rc = kv_cache_set(c, 1, 4, KVK_F32, kv, kv, offset, e);
	while (rc < 0 && (rc = kv_engine_fall_back(x, rc, e)) == KV_OK)
		rc = kv_cache_set(c, 1, 4, KVK_F32, kv, kv, offset, e);
	if (rc < 0)
		goto done;
	kv_cache_seek(c, 9);
	rc = kv_extend(c, tokens, 3, logits + VOCAB, 1, NULL, e);
done:
	kv_ids_fini(&ids);
	kv_cache_free(c);
	kv_adapters_free(adapters);
	kv_lookahead_free(module);
	kv_engine_free(x);
	return rc;
}

static struct kvk_backend
faulty_table(void)
{
	struct kvk_backend t = kvk_cpu;

	t.alloc = alloc, t.put = put, t.get = get, t.get_as = get_as, t.weight_open = weight_open, t.rows = rows;
	t.copy_rows = copy_rows, t.finite = finite;
	t.linear = linear, t.rms_norm = rms_norm, t.silu_mul = silu_mul, t.heads = heads, t.attention = attention;
	return t;
}

/* Fails every call once; returns how many there were. */
static size_t
each_fails(bool of_device)
{
	struct kvk_backend t = faulty_table();
	struct kv_device d = { .op = &t };
	struct kv_model m = { 0 };
	float good[2 * VOCAB], logits[2 * VOCAB];
	char why[64];
	size_t n = 0;
	int rc;

	watcher = look;
	assert_int_equal(kvk_cpu.open(&d.dev, 0, 1, KVK_PRECISION_F32, why, sizeof why), 0);
	assert_int_equal(tiny_model(&m, &spec, &(struct kv_err){ 0 }), KV_OK);
	assert_int_equal(work(&m, &d, good, &(struct kv_err){ 0 }), KV_OK);
	for (;; n++) {
		struct kv_err e = { 0 };

		host.failed = device.failed = false;
		host.left = device.left = n;
		host.armed = !of_device;
		device.armed = of_device;
		rc = work(&m, &d, logits, &e);
		host.armed = device.armed = false;
		if (!(of_device ? device.failed : host.failed))
			break;
		if (rc != e.code || (rc != KV_EMEM && rc != KV_EDEV) || e.text[0] == '\0')
			fail_msg("call %zu failed: status %d, fault %d, '%s'", n, rc, e.code, e.text);
	}
	assert_int_equal(rc, KV_OK);
	assert_memory_equal(logits, good, sizeof good);
	kv_model_fini(&m);
	kvk_cpu.close(d.dev);
	return n;
}

static void
every_call_of_the_device_fails_once(void **state)
{
	(void)state;
	assert_true(each_fails(true) > 200);
}

static void
every_allocation_fails_once(void **state)
{
	(void)state;
	if (!HOST_CAN_FAIL)
		skip();
	assert_true(each_fails(false) > 10);
}

/* From the n-th call on the device gives no memory (stays), or the n-th call fails; auto chose it.  Returns how often
 * the CPU took over, which is always. */
static size_t
each_gives_way(bool stays)
{
	struct kvk_backend t = faulty_table();
	struct kv_model m = { 0 };
	float good[2 * VOCAB], logits[2 * VOCAB];
	char why[64];

	watcher = NULL;
	assert_int_equal(tiny_model(&m, &spec, &(struct kv_err){ 0 }), KV_OK);
	for (size_t n = 0;; n++) {
		struct kv_device d = { .op = &t, .name = "auto", .threads = 1, .library = dlopen(NULL, RTLD_NOW) };
		struct kv_err e = { 0 };

		assert_int_equal(kvk_cpu.open(&d.dev, 0, 1, KVK_PRECISION_F32, why, sizeof why), 0);
		device.failed = false;
		if (n == 0)
			assert_int_equal(work(&m, &d, good, &e), KV_OK);
		device.left = n;
		device.armed = !stays;
		full.armed = stays;
		full.left = n;
		if (work(&m, &d, logits, &e) != KV_OK)
			fail_msg("call %zu failed, and it was not done again: %s", n, e.text);
		device.armed = full.armed = false;
		assert_memory_equal(logits, good, sizeof good);
		assert_int_equal(device.failed, d.fallback[0] != '\0');
		assert_int_equal(device.failed, d.library == NULL);
		kv_device_close(&d);
		if (!device.failed) {
			kv_model_fini(&m);
			return n;
		}
	}
}

static void
what_a_card_cannot_do_the_cpu_does(void **state)
{
	(void)state;
	assert_true(each_gives_way(false) > 200);
	assert_true(each_gives_way(true) > 20);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_of_the_device_fails_once),
		cmocka_unit_test(every_allocation_fails_once),
		cmocka_unit_test(what_a_card_cannot_do_the_cpu_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
