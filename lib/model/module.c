/* SPDX-License-Identifier: MIT */
#include "lib/model/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/hash.h"

const char *const kv_lookahead_targets[KV_N_LOOKAHEAD_TARGETS] = { "none", "qkv", "all" };

int
kv_lookahead_targets_find(const char *name)
{
	for (int i = 0; i < KV_N_LOOKAHEAD_TARGETS; i++)
		if (strcmp(kv_lookahead_targets[i], name) == 0)
			return i;
	return -1;
}

/* From which set of targets on a matrix has an adapter; and does the last layer's reach a score? */
static const struct {
	enum kv_lookahead_targets from;
	bool last;
} adapted[KV_N_ROLES] = {
	[KV_Q] = { KV_LOOKAHEAD_QKV, true },
	[KV_K] = { KV_LOOKAHEAD_QKV, true },
	[KV_V] = { KV_LOOKAHEAD_QKV, false },
	[KV_O] = { KV_LOOKAHEAD_ALL, false },
	[KV_GATE] = { KV_LOOKAHEAD_ALL, false },
	[KV_UP] = { KV_LOOKAHEAD_ALL, false },
	[KV_DOWN] = { KV_LOOKAHEAD_ALL, false },
};

bool
kv_lookahead_has(const struct kv_lookahead_shape *s, const struct kv_config *c, size_t layer, enum kv_role role)
{
	return s->rank > 0 && adapted[role].from != KV_LOOKAHEAD_NONE && s->targets >= adapted[role].from &&
	       (layer + 1 < c->L || adapted[role].last);
}

const struct kv_adapter *
kv_lookahead_adapter(const struct kv_lookahead *m, size_t layer, enum kv_role role)
{
	const struct kv_adapter *a = &m->adapter[layer * KV_N_ROLES + role];

	return a->a != NULL ? a : NULL;
}

double
kv_lookahead_scale(const struct kv_lookahead *m)
{
	return m->shape.rank > 0 ? m->shape.alpha / (double)m->shape.rank : 0;
}

size_t
kv_lookahead_parameters(const struct kv_config *c, const struct kv_lookahead_shape *s)
{
	size_t n = s->n * c->d, in, out;

	for (size_t i = 0; i < c->L * KV_N_ROLES; i++) {
		if (kv_lookahead_has(s, c, i / KV_N_ROLES, i % KV_N_ROLES)) {
			kv_role_shape(c, i % KV_N_ROLES, &out, &in);
			n += s->rank * (in + out);
		}
	}
	return n;
}

size_t
kv_config_parameters(const struct kv_config *c)
{
	size_t n = 0, rows, cols;

	for (enum kv_role role = 0; role < KV_N_ROLES && c->arch != NULL; role++) {
		if (!kv_role_needed(c, role))
			continue;
		kv_role_shape(c, role, &rows, &cols);
		n += rows * cols * (kv_roles[role].per_layer ? c->L : 1);
	}
	return n;
}

int
kv_lookahead_check_shape(struct kv_lookahead_shape *s, struct kv_err *e)
{
	if (s->n < 1 || s->n > KV_LOOKAHEAD_MAX)
		return kv_fail(e, KV_EARG, "%zu lookahead tokens: expected 1 to %d", s->n, KV_LOOKAHEAD_MAX);
	if (s->rank > KV_LOOKAHEAD_MAX)
		return kv_fail(e, KV_EARG, "a rank of %zu: expected 0 to %d", s->rank, KV_LOOKAHEAD_MAX);
	if (!isfinite(s->alpha))
		return kv_fail(e, KV_EARG, "an alpha of %g: expected a finite number", s->alpha);
	if ((unsigned)s->targets >= KV_N_LOOKAHEAD_TARGETS)
		return kv_fail(e, KV_EARG, "no such set of adapted matrices");
	if (s->rank == 0)
		s->targets = KV_LOOKAHEAD_NONE;
	if (s->targets == KV_LOOKAHEAD_NONE)
		s->rank = 0;
	return KV_OK;
}

/* Where each adapter lies in the block of parameters. */
static void
place(struct kv_lookahead *m, const struct kv_config *c)
{
	float *at = m->parameters;

	m->p = at;
	at += m->shape.n * m->d;
	for (size_t i = 0; i < m->L * KV_N_ROLES; i++) {
		struct kv_adapter *a = &m->adapter[i];

		if (!kv_lookahead_has(&m->shape, c, i / KV_N_ROLES, i % KV_N_ROLES))
			continue;
		kv_role_shape(c, i % KV_N_ROLES, &a->out, &a->in);
		a->a = at;
		a->b = at + m->shape.rank * a->in;
		at = a->b + a->out * m->shape.rank;
	}
}

int
kv_lookahead_new(
    struct kv_lookahead **out, const struct kv_config *c, const struct kv_lookahead_shape *s, struct kv_err *e)
{
	struct kv_lookahead_shape shape = *s;
	struct kv_lookahead *m;
	int rc = kv_lookahead_check_shape(&shape, e);

	*out = NULL;
	if (rc < 0)
		return rc;
	if ((m = kv_alloc(1, sizeof *m, e)) == NULL)
		return KV_EMEM;
	m->shape = shape;
	m->L = c->L;
	m->d = c->d;
	m->base_parameters = kv_config_parameters(c);
	m->n_parameters = kv_lookahead_parameters(c, &shape);
	memcpy(m->base, c->fingerprint, sizeof m->base);
	memcpy(m->base_name, c->name, sizeof m->base_name);
	if ((m->parameters = kv_alloc(m->n_parameters, sizeof(float), e)) == NULL ||
	    (m->adapter = kv_alloc(c->L * KV_N_ROLES, sizeof *m->adapter, e)) == NULL) {
		kv_lookahead_free(m);
		return KV_EMEM;
	}
	if ((m->training = json_object()) == NULL) {
		kv_lookahead_free(m);
		return kv_no_memory(e, sizeof *m);
	}
	place(m, c);
	*out = m;
	return KV_OK;
}

void
kv_lookahead_free(struct kv_lookahead *m)
{
	if (m == NULL)
		return;
	json_decref(m->training);
	free(m->adapter);
	free(m->parameters);
	free(m);
}

/* ---- start values */

/* In (0, 1), one of 2^52 values. */
static double
uniform(uint64_t bits)
{
	return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* x [n] ~ N(0, sigma) by Box and Muller's transform; part: a number of its own for each such array. */
static void
gaussian(float *x, size_t n, uint64_t seed, uint64_t part, double sigma)
{
	const double turn = 6.283185307179586477;

	for (size_t i = 0; i < n; i++) {
		const double u = uniform(kv_hash_slot(seed, part, 0, i)), v = uniform(kv_hash_slot(seed, part, 1, i));

		x[i] = (float)(sigma * sqrt(-2 * log(u)) * cos(turn * v));
	}
}

void
kv_lookahead_init(struct kv_lookahead *m, uint64_t seed, double sigma)
{
	gaussian(m->p, m->shape.n * m->d, seed, 0, sigma);
	for (size_t i = 0; i < m->L * KV_N_ROLES; i++) {
		const struct kv_adapter *a = &m->adapter[i];

		if (a->a == NULL)
			continue;
		gaussian(a->a, m->shape.rank * a->in, seed, 1 + i, 1 / sqrt((double)a->in));
		memset(a->b, 0, a->out * m->shape.rank * sizeof *a->b);
	}
}

/* ---- is it this model's? */

static int
check_finite(const struct kv_lookahead *m, struct kv_err *e)
{
	for (size_t i = 0; i < m->n_parameters; i++)
		if (!isfinite(m->parameters[i]))
			return kv_fail(e, KV_EMODEL, "number %zu of the module is %g: is the file damaged?", i,
			    (double)m->parameters[i]);
	return KV_OK;
}

int
kv_lookahead_made_for(
    const char *base, const char *base_name, size_t L, size_t d, const struct kv_config *c, struct kv_err *e)
{
	if (base[0] != '\0' && c->fingerprint[0] != '\0' && strcmp(base, c->fingerprint) != 0)
		return kv_fail(e, KV_EMODEL,
		    "made for another model (%.60s, fingerprint %.40s) than %s, whose fingerprint is %s: train one for "
		    "this file",
		    base_name, base, c->name, c->fingerprint);
	if (L != c->L || d != c->d)
		return kv_fail(e, KV_EMODEL,
		    "made for a model of %zu layers and embeddings of %zu, but %s has %zu and %zu", L, d, c->name, c->L,
		    c->d);
	return KV_OK;
}

int
kv_lookahead_fits(const struct kv_lookahead *m, const struct kv_config *c, struct kv_err *e)
{
	int rc = kv_lookahead_made_for(m->base, m->base_name, m->L, m->d, c, e);

	if (rc < 0)
		return rc;
	if (m->n_parameters != kv_lookahead_parameters(c, &m->shape))
		return kv_fail(e, KV_EMODEL, "the module has %zu numbers, one for %s needs %zu", m->n_parameters,
		    c->name, kv_lookahead_parameters(c, &m->shape));
	return check_finite(m, e);
}
