/* SPDX-License-Identifier: MIT
 * A layer's cache as a stream's step has it: whole or evicted, and everything that must be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/layer_cache.h"
#include "lib/step.h"

enum { HKV = 2, D = 4, T = 5 };

static struct kv_err err;
static struct kv_sequence seq = { .n_tokens = T + 2, .T = T };
static struct kv_step step;
static struct kv_device device;
static struct kv_config cfg = { .L = 1, .Hq = 8, .Hkv = HKV, .D = D };

static void *
put(const char *name, enum kvk_type type, const char *axes, const size_t *shape)
{
	struct kv_tensor t;
	void *data;

	assert_int_equal(kv_tensor_new(&t, name, 0, type, axes, shape, &err), KV_OK);
	data = t.owned;
	if (strcmp(name, "index") == 0)
		t.attrs = json_pack("{s:i}", "next_position", 40);
	assert_int_equal(kv_step_put(&step, &t, &err), KV_OK);
	return data;
}

static void
put_whole(size_t tokens, size_t dim)
{
	const size_t shape[] = { HKV, tokens, dim };

	put("k", KVK_F16, "kv_head token dim", shape);
	put("v", KVK_F16, "kv_head token dim", shape);
}

/* Head 0 keeps 3 entries, head 1 keeps 1. */
static void
put_evicted(void)
{
	static const int32_t positions[] = { 2, 7, 39, 0 }, bounds[] = { 0, 3, 4 };
	const size_t shape[] = { 4, D }, n_bounds = HKV + 1;

	put("k", KVK_F32, "entry dim", shape);
	put("v", KVK_F32, "entry dim", shape);
	memcpy(put("index", KVK_I32, "entry", shape), positions, sizeof positions);
	memcpy(put("offset", KVK_I32, "bound", &n_bounds), bounds, sizeof bounds);
}

static int
begin(void **state)
{
	(void)state;
	step = (struct kv_step){ .seq = &seq, .layer = 0 };
	return kv_device_open(&device, "cpu", 1, &err);
}

static int
end(void **state)
{
	(void)state;
	kv_step_clear(&step);
	kv_device_close(&device);
	return 0;
}

static void
whole(void **state)
{
	struct kv_layer_cache x;

	(void)state;
	put_whole(T, D);
	assert_int_equal(kv_layer_cache_read(&x, &step, &cfg, &device, &err), KV_OK);
	assert_false(x.evicted);
	assert_int_equal(x.next_position, T);
	assert_int_equal(x.offset[1], T);
	assert_int_equal(x.offset[2], 2 * T);
	kv_layer_cache_fini(&x);
}

static void
evicted(void **state)
{
	struct kv_layer_cache x;

	(void)state;
	put_evicted();
	assert_int_equal(kv_layer_cache_read(&x, &step, &cfg, &device, &err), KV_OK);
	assert_true(x.evicted);
	assert_int_equal(x.next_position, 40);
	assert_int_equal(x.H, HKV);
	assert_int_equal(x.offset[1], 3);
	assert_int_equal(x.offset[2], 4);
	kv_layer_cache_fini(&x);
}

/* Four heads for two KV heads. */
static void
evicted_per_query_head(void **state)
{
	static const int32_t positions[] = { 2, 7, 39, 0 }, bounds[] = { 0, 3, 3, 3, 4 };
	const size_t shape[] = { 4, D }, n_bounds = 5;
	struct kv_layer_cache x;

	(void)state;
	put("k", KVK_F32, "entry dim", shape);
	put("v", KVK_F32, "entry dim", shape);
	memcpy(put("index", KVK_I32, "entry", shape), positions, sizeof positions);
	memcpy(put("offset", KVK_I32, "bound", &n_bounds), bounds, sizeof bounds);
	assert_int_equal(kv_layer_cache_read(&x, &step, &cfg, &device, &err), KV_OK);
	assert_int_equal(x.H, 4);
	assert_int_equal(x.offset[3], 3);
	assert_int_equal(x.offset[4], 4);
	kv_layer_cache_fini(&x);
}

static void
refused(int code, const char *says)
{
	struct kv_layer_cache x;

	assert_int_equal(kv_layer_cache_read(&x, &step, &cfg, &device, &err), code);
	if (strstr(err.text, says) == NULL)
		fail_msg("'%s' does not say '%s'", err.text, says);
	assert_null(x.offset);
}

/* Element i of an evicted step's tensor becomes value. */
static void
spoil(const char *name, size_t i, int32_t value)
{
	((int32_t *)kv_step_find(&step, name)->owned)[i] = value;
}

static void
missing(void **state)
{
	(void)state;
	refused(KV_EFORMAT, "no k: kv-prefill writes it");
	put_whole(T, D);
	kv_step_remove(&step, "v");
	refused(KV_EFORMAT, "no v: kv-prefill writes it");
	kv_step_clear(&step);
	put_evicted();
	kv_step_remove(&step, "offset");
	refused(KV_EFORMAT, "offset is missing");
	kv_step_remove(&step, "index");
	refused(KV_EFORMAT, "index is missing");
}

static void
wrong_sizes(void **state)
{
	(void)state;
	put_whole(T + 1, D);
	refused(KV_ESHAPE, "");
	kv_step_clear(&step);
	put_whole(T, D + 1);
	refused(KV_ESHAPE, "");
	kv_step_clear(&step);
	put_whole(T, D);
	put("v", KVK_F32, "kv_head token dim", (const size_t[]){ HKV, T, D }); /* of another type than k */
	refused(KV_ESHAPE, "");
	for (size_t bounds = 0; bounds < 12; bounds++) { /* of 2, 4 and 8 heads are 3, 5 and 9 */
		if (bounds == 3 || bounds == 5 || bounds == 9)
			continue;
		kv_step_clear(&step);
		put_evicted();
		put("offset", KVK_I32, "bound", &bounds);
		refused(KV_ESHAPE, "expected 3 (a head of entries per KV head) or 9 (per query head)");
	}
}

static void
broken_index(void **state)
{
	static const struct {
		const char *name;
		size_t i;
		int32_t value;
		int code;
		const char *says;
	} t[] = {
		{ "offset", 0, 1, KV_EFORMAT, "offset 0 is 1" },
		{ "offset", 1, -1, KV_EFORMAT, "offset 1 is -1" },
		{ "offset", 1, 5, KV_EFORMAT, "offset 2 is 4" },
		{ "offset", 2, 3, KV_ESHAPE, "offset ends at 3, k has 4" },
		{ "offset", 2, INT32_MAX, KV_ESHAPE, "k has 4" },
		{ "index", 0, -1, KV_EFORMAT, "head 0: -1" },
		{ "index", 1, 2, KV_EFORMAT, "head 0: 2" },
		{ "index", 2, 40, KV_EFORMAT, "head 0: 40" },
		{ "index", 3, 41, KV_EFORMAT, "head 1: 41" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		put_evicted();
		spoil(t[i].name, t[i].i, t[i].value);
		refused(t[i].code, t[i].says);
		kv_step_clear(&step);
	}
}

/* Two heads of two entries each, which have moved to positions 0 and 1. */
static void
put_renumbered(int next_position)
{
	static const int32_t positions[] = { 0, T - 1, 2, 3 }, bounds[] = { 0, 2, 4 };
	const size_t shape[] = { 4, D }, n_bounds = HKV + 1;

	put("k", KVK_F32, "entry dim", shape);
	put("v", KVK_F32, "entry dim", shape);
	memcpy(put("index", KVK_I32, "entry", shape), positions, sizeof positions);
	memcpy(put("offset", KVK_I32, "bound", &n_bounds), bounds, sizeof bounds);
	json_object_update_new(kv_step_find(&step, "index")->attrs,
	    json_pack("{s:i, s:b}", "next_position", next_position, "renumbered", 1));
}

/* True positions may lie behind the next one then, but not behind the prompt. */
static void
renumbered(void **state)
{
	struct kv_layer_cache x;

	(void)state;
	put_renumbered(2);
	assert_int_equal(kv_layer_cache_read(&x, &step, &cfg, &device, &err), KV_OK);
	assert_int_equal(x.next_position, 2);
	kv_layer_cache_fini(&x);
	spoil("index", 1, T);
	refused(KV_EFORMAT, "head 0: 5");
	kv_step_clear(&step);
	put_renumbered(3);
	refused(KV_EFORMAT, "head 0 has 2 renumbered entries, and the next position is 3");
}

static void
not_finite(void **state)
{
	(void)state;
	put_whole(T, D);
	((uint16_t *)kv_step_find(&step, "v")->owned)[7] = 0x7c00; /* infinity in f16 */
	refused(KV_EFAIL, "v has values that are not finite");
	kv_step_clear(&step);
	put_evicted();
	((uint32_t *)kv_step_find(&step, "k")->owned)[3] = 0xffc00000; /* a NaN */
	refused(KV_EFAIL, "k has values that are not finite");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whole, begin, end),
		cmocka_unit_test_setup_teardown(evicted, begin, end),
		cmocka_unit_test_setup_teardown(evicted_per_query_head, begin, end),
		cmocka_unit_test_setup_teardown(missing, begin, end),
		cmocka_unit_test_setup_teardown(wrong_sizes, begin, end),
		cmocka_unit_test_setup_teardown(broken_index, begin, end),
		cmocka_unit_test_setup_teardown(renumbered, begin, end),
		cmocka_unit_test_setup_teardown(not_finite, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
