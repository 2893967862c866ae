/* SPDX-License-Identifier: MIT */
#include "bin/filter.h"

#include <malloc.h>
#include <stdlib.h>

#include "lib/buf.h"

#define KEPT (1 << 30) /* bytes that are free and do not go back to the system */

struct run {
	const struct kv_filter *f;
	struct kv_io io;
	struct kv_config cfg;
	struct kv_layers layers;
};

static int
prepare(struct run *r)
{
	struct kv_err *e = &r->io.err;
	int rc;

	if ((rc = kv_config_from_json(&r->cfg, kv_pipe_model(r->io.pipe), e)) < 0)
		return kv_where(e, "%s", kv_pipe_name(r->io.pipe));
	if (r->f->layers != NULL && r->layers.last != SIZE_MAX && r->layers.last >= r->cfg.L)
		return kv_fail(e, KV_EARG, "--layers %s: the model has layers 0 to %zu", r->f->layers, r->cfg.L - 1);
	return kv_common.params.method != NULL ? kv_params_open(&kv_common.params, e) : KV_OK;
}

static bool
wants(const struct run *r, const struct kv_step *s)
{
	return s->layer != KV_NO_LAYER && (size_t)s->layer >= r->layers.first && (size_t)s->layer <= r->layers.last;
}

static struct kv_layer
layer_of(struct run *r, struct kv_step *s)
{
	return (struct kv_layer){
		.device = &r->io.device, .cfg = &r->cfg, .step = s, .layer = s->layer, .T = s->seq->T
	};
}

/* What a card could not do (for want of memory, mostly) is done again by the CPU, if auto had the choice: the step is
 * as it was. */
static int
run_method(struct run *r, struct kv_layer *l, size_t n)
{
	struct kv_err *e = &r->io.err, other = { 0 };
	int rc = r->f->run(r->f->ctx, l, n, e);

	if (rc >= 0)
		return rc;
	kv_step_where(r->io.pipe, l[0].step, e);
	if (!kv_device_can_fall_back(&r->io.device, e) || kv_pipe_fetch(r->io.pipe, &other) < 0 ||
	    (rc = kv_device_fall_back(&r->io.device, rc, e)) < 0)
		return rc;
	if ((rc = r->f->run(r->f->ctx, l, n, e)) < 0)
		kv_step_where(r->io.pipe, l[0].step, e);
	return rc;
}

/* l[0 .. n-1] are layers of one sequence. */
static int
run_layers(struct run *r, struct kv_layer *l, size_t n)
{
	int rc = KV_OK;

	for (size_t i = 0; i < n && rc == KV_OK; i++)
		if (kv_step_find(l[i].step, "index") != NULL) {
			rc = kv_fail(&r->io.err, KV_ESHAPE,
			    "this cache has been evicted already: only a whole one can be worked on");
			kv_step_where(r->io.pipe, l[i].step, &r->io.err);
			return rc;
		}
	if (n == 0)
		return KV_OK;
	rc = run_method(r, l, n);
	kv_progress("layer", (size_t)l[n - 1].layer + 1, r->cfg.L);
	return rc;
}

static int
one_by_one(struct run *r)
{
	struct kv_step *s;
	int rc;

	while ((rc = kv_next(&r->io, &s)) == KV_OK) {
		struct kv_layer l = layer_of(r, s);

		if (wants(r, s) && (rc = run_layers(r, &l, 1)) < 0)
			break;
	}
	return rc;
}

/* The sequence's steps are changed while they are held, and then handed out to be written. */
static int
run_held(struct run *r, struct kv_step *steps, size_t n)
{
	struct kv_layer *l = kv_alloc(n, sizeof *l, &r->io.err);
	struct kv_step *s;
	size_t n_layers = 0;
	int rc;

	if (l == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		if (wants(r, &steps[i]))
			l[n_layers++] = layer_of(r, &steps[i]);
	rc = run_layers(r, l, n_layers);
	for (size_t i = 0; i < n && rc == KV_OK; i++)
		rc = kv_next(&r->io, &s);
	free(l);
	return rc;
}

static int
all_at_once(struct run *r)
{
	struct kv_step *steps;
	size_t n;
	int rc;

	while ((rc = kv_hold(&r->io, &steps, &n)) == KV_OK)
		if ((rc = run_held(r, steps, n)) != KV_OK)
			break;
	return rc;
}

/* A layer's payloads are freed and the next layer's are as large: what was freed stays with the program instead of
 * going back to the system, page by page. */
static void
keep_memory(void)
{
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, KEPT);
}

int
kv_filter(char *const *files, const struct kv_filter *f)
{
	struct run r = { .f = f, .layers = KV_LAYERS_ALL };
	struct kv_err e = { 0 };
	int rc;

	if (f->layers != NULL && kv_layers_parse(&r.layers, f->layers, &e) < 0)
		kv_usage(NULL, "--layers: %s", e.text);
	keep_memory();
	kv_start(&r.io, files, false, f->uses, f->keeps, f->partly, f->on_device);
	if ((rc = r.io.status) == KV_OK)
		rc = prepare(&r);
	if (rc == KV_OK)
		rc = f->hold ? all_at_once(&r) : one_by_one(&r);
	kv_params_close(&kv_common.params);
	kv_config_fini(&r.cfg);
	return kv_finish(&r.io, rc);
}
