/* SPDX-License-Identifier: MIT */
#include "tests/lib/stat_layer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
must_work(int rc, const struct kv_err *e)
{
	if (rc != KV_OK)
		fail_msg("status %d: %s", rc, e->text);
}

void
stat_layer_init(struct stat_layer *x, struct kv_device *d, int layer, size_t T)
{
	*x = (struct stat_layer){ .view = { .name = "test", .device = d, .layer = layer, .T = T } };
}

static void
tensor(struct stat_layer *x, struct kv_tensor *t, const char *name, enum kvk_type type, const char *axes,
    const size_t *shape, const void *data)
{
	struct kv_err e = { 0 };

	must_work(kv_tensor_init(t, name, x->view.layer, type, axes, shape, &e), &e);
	t->data = data;
}

void
stat_layer_score(struct stat_layer *x, size_t H, size_t n, const float *score, size_t width, size_t n_recent)
{
	const struct kv_score_attrs a = { .method = "test",
		.pool = width > 1 ? KVK_POOL_MAX : KVK_POOL_NONE,
		.pool_width = width,
		.protect = { 0, n_recent, -1 },
		.n_tokens = x->view.T };
	struct kv_err e = { 0 };

	x->n_recent = n_recent;
	tensor(x, &x->score, "score", KVK_F32, "kv_head token", (size_t[]){ H, n }, score);
	x->score.attrs = json_object();
	must_work(kv_score_attrs_to_json(&a, x->score.attrs, &e), &e);
	x->view.score = &x->score;
}

void
stat_layer_budget(struct stat_layer *x, size_t H, const int32_t *budget)
{
	kv_tensor_fini(&x->budget);
	tensor(x, &x->budget, "budget", KVK_I32, "kv_head", &H, budget);
	x->budget.attrs = json_pack("{s:i, s:I}", "n_sink", 0, "n_recent", (json_int_t)x->n_recent);
	x->view.budget = &x->budget;
}

void
stat_layer_kept(struct stat_layer *x, size_t H, const int32_t *index, const int32_t *offset)
{
	const size_t bounds = H + 1, n = (size_t)offset[H];

	tensor(x, &x->index, "index", KVK_I32, "entry", &n, index);
	tensor(x, &x->offset, "offset", KVK_I32, "bound", &bounds, offset);
	x->view.index = &x->index;
	x->view.offset = &x->offset;
}

void
stat_layer_cache(struct stat_layer *x, size_t H, size_t D)
{
	tensor(x, &x->k, "k", KVK_F16, "kv_head token dim", (size_t[]){ H, x->view.T, D }, NULL);
	x->view.k = &x->k;
}

void
stat_layer_logits(struct stat_layer *x, size_t n, size_t V, const float *logits, const int32_t *response)
{
	tensor(x, &x->logits, "logits.response", KVK_F32, "row vocab", (size_t[]){ n, V }, logits);
	x->view.logits = &x->logits;
	x->view.response = response;
	x->view.n_response = n;
}

void
stat_layer_fini(struct stat_layer *x)
{
	kv_stat_view_fini(&x->view);
	kv_tensor_fini(&x->score);
	kv_tensor_fini(&x->budget);
	kv_tensor_fini(&x->index);
	kv_tensor_fini(&x->offset);
	kv_tensor_fini(&x->k);
	kv_tensor_fini(&x->logits);
}

struct kv_stat_cells
stat_measure(const char *name, struct stat_layer *a, struct stat_layer *b, const struct kv_stat_options *o)
{
	const struct kv_stat *q = kv_stat_find(name, strlen(name));
	struct kv_stat_cells c = { 0 };
	struct kv_err e = { 0 };

	assert_non_null(q);
	must_work(q->measure(&a->view, q->two ? &b->view : NULL, o, &c, &e), &e);
	return c;
}

double
stat_value(const char *name, struct stat_layer *a, struct stat_layer *b, const struct kv_stat_options *o)
{
	struct kv_stat_cells c = stat_measure(name, a, b, o);
	struct kv_moments m = { 0 };

	for (size_t i = 0; i < c.n; i++)
		kv_moments_add(&m, c.cell[i]);
	free(c.cell);
	return kv_moments_value(&m, kv_stat_find(name, strlen(name))->of_layer);
}

void
assert_near(double x, double y, const char *what)
{
	if (!(fabs(x - y) <= 1e-9 * fmax(1, fabs(y))))
		fail_msg("%s: %.17g, expected %.17g", what, x, y);
}
