/* SPDX-License-Identifier: MIT
 * A model on a device: vectors as f32, the tables at both ends, working memory, weights opened layer by layer. */
#include "lib/model/engine.h"

#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/device_memory.h"
#include "lib/model/engine_inside.h"
#include "lib/tensor.h"

#define OPS         "weight_open weight_close rows linear rms_norm silu_mul heads attention finite"
#define LINE_FLOATS 16 /* vectors start on 64-byte lines of the device block */

static bool
is_layer_matrix(enum kv_role role)
{
	return kv_roles[role].per_layer && !kv_roles[role].vector;
}

float *
kv_engine_work(struct kv_engine *x, enum kv_work which, size_t a, size_t b, struct kv_err *e)
{
	size_t floats;

	if (!kv_mul(a, b, &floats)) {
		kv_no_memory(e, SIZE_MAX);
		return NULL;
	}
	if (floats > x->work[which].floats || x->work[which].p == NULL) {
		kv_device_free(x->d, x->work[which].p);
		x->work[which].p = kv_device_alloc(x->d, floats, sizeof(float), e);
		x->work[which].floats = x->work[which].p != NULL ? floats : 0;
	}
	return x->work[which].p;
}

/* A host block with every vector of the model, or only its size when host is NULL; x->vector gets offsets into
 * `base`. */
static size_t
gather_vectors(struct kv_engine *x, float *host, const float *base)
{
	const struct kv_matrix *w;
	size_t at = 0;

	for (size_t i = 0; i < x->m->cfg.L * KV_N_ROLES; i++) {
		enum kv_role role = i % KV_N_ROLES;

		if (!kv_roles[role].vector || (!kv_roles[role].per_layer && i >= KV_N_ROLES))
			continue;
		w = kv_model_weight(x->m, i / KV_N_ROLES, role);
		if (w->data == NULL)
			continue;
		if (host != NULL) {
			struct kv_tensor t = { .type = w->type, .data = w->data };

			for (size_t j = 0; j < w->cols; j++)
				host[at + j] = (float)kv_tensor_get(&t, j);
			x->vector[i] = base + at;
		}
		at += (w->cols + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
	}
	return at;
}

static int
put_vectors(struct kv_engine *x, struct kv_err *e)
{
	size_t floats = gather_vectors(x, NULL, NULL);
	float *host = kv_alloc(floats, sizeof *host, e);
	int rc = KV_EMEM;

	if (host == NULL || (x->vectors = kv_device_alloc(x->d, floats, sizeof *host, e)) == NULL)
		goto done;
	gather_vectors(x, host, x->vectors);
	rc = x->d->op->put(x->d->dev, x->vectors, host, floats * sizeof *host);
	rc = kv_device_check(x->d, rc, "norm weights", e);
done:
	free(host);
	return rc;
}

static int
put_rope(struct kv_engine *x, struct kv_err *e)
{
	const struct kv_config *c = &x->m->cfg;
	size_t n = c->rope_dim / 2;
	float *inv_freq = kv_device_alloc(x->d, n, sizeof *inv_freq, e);

	x->rope = (struct kvk_rope){ .inv_freq = inv_freq, .dim = c->rope_dim, .interleaved = c->rope_interleaved };
	if (inv_freq == NULL)
		return KV_EMEM;
	return kv_device_check(
	    x->d, x->d->op->put(x->d->dev, inv_freq, c->inv_freq, n * sizeof *inv_freq), "rotary frequencies", e);
}

static int
open_weight(
    struct kv_engine *x, size_t layer, enum kv_role role, enum kvk_use use, struct kvk_weight **w, struct kv_err *e)
{
	const struct kv_matrix *m = kv_model_weight(x->m, layer, role);

	if (m->data == NULL)
		return kv_fail(e, KV_EMODEL, "the model was opened without its weights");
	return kv_device_check(
	    x->d, x->d->op->weight_open(x->d->dev, w, m->data, m->type, m->rows, m->cols, use), "weights", e);
}

/* The embedding and output tables: used by few rows, so that they stay as they are. */
static int
open_tables(struct kv_engine *x, struct kv_err *e)
{
	int rc = open_weight(x, 0, KV_EMBED, KVK_FEW_ROWS, &x->embed, e);

	if (rc < 0 || x->m->cfg.tied) {
		x->out = x->embed;
		return rc;
	}
	return open_weight(x, 0, KV_OUT, KVK_FEW_ROWS, &x->out, e);
}

void
kv_engine_close_layer(struct kv_engine *x, struct kv_layer_weights *w)
{
	for (size_t role = 0; role < KV_N_ROLES; role++)
		if (w->w[role] != NULL)
			x->d->op->weight_close(x->d->dev, w->w[role]);
	*w = (struct kv_layer_weights){ 0 };
}

int
kv_engine_open_layer(struct kv_engine *x, size_t layer, enum kvk_use use, struct kv_layer_weights *w, struct kv_err *e)
{
	int rc;

	*w = (struct kv_layer_weights){ 0 };
	for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
		if (!is_layer_matrix(role))
			continue;
		if ((rc = open_weight(x, layer, role, use, &w->w[role], e)) < 0) {
			w->w[role] = NULL;
			kv_engine_close_layer(x, w);
			return kv_where(e, "layer %zu", layer);
		}
	}
	return KV_OK;
}

/* Do the matrices of all layers, as products of many rows want them, take at most half of the room there is? */
static bool
worth_keeping(const struct kv_engine *x)
{
	const size_t room = x->d->op->room(x->d->dev);
	const size_t size = x->d->op->precision(x->d->dev) == KVK_PRECISION_F32 ? sizeof(float) : sizeof(uint16_t);
	size_t bytes = 0;

	if (room == 0)
		return false;
	for (size_t i = 0; i < x->m->cfg.L * KV_N_ROLES; i++) {
		const struct kv_matrix *w = kv_model_weight(x->m, i / KV_N_ROLES, i % KV_N_ROLES);

		if (is_layer_matrix(i % KV_N_ROLES))
			bytes += w->rows * w->cols * size;
	}
	return bytes <= room / 2;
}

/* Closes the weights for many rows but those in use. */
static void
close_idle(struct kv_engine *x)
{
	for (size_t l = 0; x->many != NULL && l < x->m->cfg.L; l++)
		if (!x->many[l].in_use)
			kv_engine_close_layer(x, &x->many[l]);
}

static bool
can_make_room(const struct kv_engine *x, const struct kv_err *e)
{
	return x->keeps && e != NULL && e->device == x->d;
}

/* For what did not fit beside the weights that were kept: from now on they come layer by layer.  The fault is
 * forgotten. */
static void
make_room(struct kv_engine *x, struct kv_err *e)
{
	x->keeps = false;
	x->keeps_none = true;
	close_idle(x);
	*e = (struct kv_err){ 0 };
}

int
kv_engine_take_layer(struct kv_engine *x, size_t layer, struct kv_err *e)
{
	struct kv_layer_weights *w = &x->many[layer];
	int rc = KV_OK;

	if (layer == 0 && !x->keeps && !x->keeps_none)
		x->keeps = worth_keeping(x);
	if (w->w[KV_Q] == NULL)
		rc = kv_engine_open_layer(x, layer, KVK_MANY_ROWS, w, e);
	if (rc < 0 && can_make_room(x, e)) {
		make_room(x, e);
		rc = kv_engine_open_layer(x, layer, KVK_MANY_ROWS, w, e);
	}
	w->in_use = rc == KV_OK;
	return rc;
}

void
kv_engine_give_layer(struct kv_engine *x, size_t layer)
{
	x->many[layer].in_use = false;
	if (!x->keeps)
		kv_engine_close_layer(x, &x->many[layer]);
}

static void
close_resident(struct kv_engine *x)
{
	for (size_t l = 0; x->resident != NULL && l < x->m->cfg.L; l++)
		kv_engine_close_layer(x, &x->resident[l]);
	free(x->resident);
	x->resident = NULL;
}

int
kv_engine_make_resident(struct kv_engine *x, struct kv_err *e)
{
	int rc;

	if (x->resident != NULL)
		return KV_OK;
	if ((x->resident = kv_alloc(x->m->cfg.L, sizeof *x->resident, e)) == NULL)
		return KV_EMEM;
	for (size_t l = 0; l < x->m->cfg.L; l++) {
		if ((rc = kv_engine_open_layer(x, l, KVK_FEW_ROWS, &x->resident[l], e)) < 0) {
			close_resident(x);
			return rc;
		}
	}
	return KV_OK;
}

/* ---- coming and going */

/* What it has on the device from the beginning. */
static int
enter(struct kv_engine *x, struct kv_err *e)
{
	int rc;

	if ((rc = put_rope(x, e)) < 0 || (rc = put_vectors(x, e)) < 0)
		return rc;
	return open_tables(x, e);
}

/* Gives back everything there. */
static void
leave(struct kv_engine *x)
{
	for (size_t i = 0; i < KV_N_WORK; i++) {
		kv_device_free(x->d, x->work[i].p);
		x->work[i].p = NULL;
		x->work[i].floats = 0;
	}
	close_resident(x);
	close_idle(x);
	x->keeps = false;
	if (x->out != NULL && x->out != x->embed)
		x->d->op->weight_close(x->d->dev, x->out);
	if (x->embed != NULL)
		x->d->op->weight_close(x->d->dev, x->embed);
	x->out = x->embed = NULL;
	kv_device_free(x->d, x->vectors);
	x->vectors = NULL;
	kv_device_free(x->d, (void *)x->rope.inv_freq);
	x->rope.inv_freq = NULL;
}

static int
all_leave(struct kv_engine *x, struct kv_err *e)
{
	int rc = KV_OK;

	for (struct kv_cache *c = x->caches; c != NULL && rc == KV_OK; c = kv_cache_next(c))
		rc = kv_cache_leave(c, e);
	if (rc < 0)
		return rc;
	for (struct kv_adapters *a = x->adapters; a != NULL; a = a->next)
		kv_adapters_leave(a);
	leave(x);
	return KV_OK;
}

static int
all_enter(struct kv_engine *x, struct kv_err *e)
{
	int rc = enter(x, e);

	for (struct kv_cache *c = x->caches; c != NULL && rc == KV_OK; c = kv_cache_next(c))
		rc = kv_cache_enter(c, e);
	for (struct kv_adapters *a = x->adapters; a != NULL && rc == KV_OK; a = a->next)
		rc = kv_adapters_enter(a, e);
	return rc;
}

bool
kv_engine_can_fall_back(const struct kv_engine *x, const struct kv_err *e)
{
	return !x->shows && (can_make_room(x, e) || kv_device_can_fall_back(x->d, e));
}

int
kv_engine_fall_back(struct kv_engine *x, int rc, struct kv_err *e)
{
	struct kv_err other = { 0 };

	if (!kv_engine_can_fall_back(x, e))
		return rc;
	if (can_make_room(x, e)) {
		make_room(x, e);
		return KV_OK;
	}
	if (all_leave(x, &other) < 0 || (rc = kv_device_fall_back(x->d, rc, e)) < 0)
		return rc;
	return all_enter(x, e);
}

int
kv_engine_new(struct kv_engine **out, const struct kv_model *m, struct kv_device *d, struct kv_err *e)
{
	const struct kv_config *c = &m->cfg;
	struct kv_engine *x;
	int rc;

	*out = NULL;
	if ((rc = kv_device_ready(d, OPS, e)) < 0)
		return rc;
	if ((x = kv_alloc(1, sizeof *x, e)) == NULL)
		return KV_EMEM;
	x->m = m;
	x->d = d;
	x->vector = kv_alloc(c->L * KV_N_ROLES, sizeof *x->vector, e);
	x->k_at = kv_alloc(c->Hq, sizeof *x->k_at, e);
	x->q_at = kv_alloc(c->Hq, sizeof *x->q_at, e);
	x->many = kv_alloc(c->L, sizeof *x->many, e);
	rc = x->vector == NULL || x->k_at == NULL || x->q_at == NULL || x->many == NULL ? KV_EMEM : KV_OK;
	if (rc == KV_OK && (rc = enter(x, e)) < 0)
		rc = kv_engine_fall_back(x, rc, e);
	if (rc < 0) {
		kv_engine_free(x);
		return rc;
	}
	*out = x;
	return KV_OK;
}

void
kv_engine_free(struct kv_engine *x)
{
	if (x == NULL)
		return;
	leave(x);
	free(x->many);
	free(x->q_at);
	free(x->k_at);
	free(x->vector);
	free(x);
}
