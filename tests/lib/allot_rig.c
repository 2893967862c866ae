/* SPDX-License-Identifier: MIT */
#include "tests/lib/allot_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void
must(int rc, const struct kv_err *e)
{
	if (rc < 0)
		fail_msg("%s", e->text);
}

void
allot_put(struct allot_rig *x, size_t l, const char *name, enum kvk_type type, const char *axes, const size_t *shape,
    const void *data, json_t *attrs)
{
	struct kv_tensor t;
	struct kv_err e = { 0 };

	must(kv_tensor_init(&t, name, x->step[l].layer, type, axes, shape, &e), &e);
	t.data = data;
	t.attrs = attrs;
	must(kv_step_put(&x->step[l], &t, &e), &e);
}

void
allot_init(struct allot_rig *x, size_t L, size_t H, size_t T)
{
	struct kv_err e = { 0 };

	assert_in_range(L, 1, ALLOT_LAYERS_MAX);
	*x = (struct allot_rig){ .cfg = { .L = L, .Hq = H, .Hkv = H }, .seq = { .T = T } };
	must(kv_device_open(&x->device, "cpu", 1, &e), &e);
	for (size_t l = 0; l < L; l++) {
		x->step[l] = (struct kv_step){ .seq = &x->seq, .layer = (int)l };
		x->layer[l] = (struct kv_layer){
			.device = &x->device, .cfg = &x->cfg, .step = &x->step[l], .layer = (int)l, .T = T
		};
	}
}

void
allot_fini(struct allot_rig *x)
{
	for (size_t l = 0; l < x->cfg.L; l++)
		kv_step_clear(&x->step[l]);
	kv_device_close(&x->device);
}

void
allot_put_score(struct allot_rig *x, size_t l, const float *score, size_t n, struct kv_protection protect,
    const struct kv_score_attrs *pool)
{
	struct kv_score_attrs a = { .method = "test", .pool_width = 1 };
	const size_t shape[] = { x->cfg.Hkv, n };
	json_t *attrs = json_object();
	struct kv_err e = { 0 };

	if (pool != NULL)
		a = *pool;
	a.protect = protect;
	a.n_tokens = x->seq.T;
	must(kv_score_attrs_to_json(&a, attrs, &e), &e);
	allot_put(x, l, "score", KVK_F32, "kv_head token", shape, score, attrs);
}

void
allot_put_budget(struct allot_rig *x, size_t l, const int32_t *B, size_t n_sink, size_t n_recent)
{
	allot_put(x, l, "budget", KVK_I32, "kv_head", &x->cfg.Hkv, B,
	    json_pack("{s:I, s:I}", "n_sink", (json_int_t)n_sink, "n_recent", (json_int_t)n_recent));
}

void
allot_params(struct kv_params *p, const struct kv_budget_method *m, ...)
{
	struct kv_err e = { 0 };
	const char *name;
	va_list ap;

	kv_params_init(p, &m->about);
	va_start(ap, m);
	while ((name = va_arg(ap, const char *)) != NULL)
		must(kv_params_set(p, name, va_arg(ap, const char *), &e), &e);
	va_end(ap);
	must(kv_params_check(p, &e), &e);
	must(kv_params_open(p, &e), &e);
}

int
allot_try(struct kv_params *p, struct allot_rig *x, size_t C, struct kv_err *e)
{
	struct kv_budgeting how = { .p = p, .grant = { C, 0 } };
	int rc = KV_OK;

	if (kv_budget_needs_all(&how))
		return kv_budget_layers(&how, x->layer, x->cfg.L, e);
	for (size_t l = 0; l < x->cfg.L && rc == KV_OK; l++)
		rc = kv_budget_layers(&how, &x->layer[l], 1, e);
	return rc;
}

void
allot_run(struct kv_params *p, struct allot_rig *x, size_t C)
{
	struct kv_err e = { 0 };

	must(allot_try(p, x, C, &e), &e);
}

static const struct kv_tensor *
budget(const struct allot_rig *x, size_t l)
{
	const struct kv_tensor *t = kv_step_find(&x->step[l], "budget");

	assert_non_null(t);
	return t;
}

const int32_t *
allot_budget(const struct allot_rig *x, size_t l)
{
	return budget(x, l)->data;
}

const uint8_t *
allot_protect(const struct allot_rig *x, size_t l)
{
	const struct kv_tensor *t = kv_step_find(&x->step[l], "protect");

	return t != NULL ? t->data : NULL;
}

const json_t *
allot_attr(const struct allot_rig *x, size_t l, const char *key)
{
	return json_object_get(budget(x, l)->attrs, key);
}

json_int_t
allot_count(const struct allot_rig *x, size_t l, const char *key)
{
	assert_true(json_is_integer(allot_attr(x, l, key)));
	return json_integer_value(allot_attr(x, l, key));
}

void
assert_allotted(const json_t *list, const struct allot_rig *x, size_t l, size_t fixed, const char *where)
{
	const int32_t *B = allot_budget(x, l);

	if (json_array_size(list) != budget(x, l)->shape[0])
		fail_msg("%s: layer %zu has %zu heads", where, l, budget(x, l)->shape[0]);
	for (size_t h = 0; h < json_array_size(list); h++)
		if (json_integer_value(json_array_get(list, h)) + (json_int_t)fixed != B[h])
			fail_msg("%s: layer %zu, head %zu: %d and %zu more, got %d", where, l, h,
			    (int)json_integer_value(json_array_get(list, h)), fixed, (int)B[h]);
}

/* ---- files */

static char file_name[256];

static void
remove_file(void)
{
	unlink(file_name);
}

const char *
allot_file(const char *text)
{
	const char *folder = getenv("TMPDIR");
	FILE *f;

	if (file_name[0] == 0) {
		snprintf(file_name, sizeof file_name, "%s/kv_allot.%ld", folder != NULL ? folder : "/tmp", (long)getpid());
		atexit(remove_file);
	}
	f = fopen(file_name, "w");
	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0 && fclose(f) == 0, 1);
	return file_name;
}
