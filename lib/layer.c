/* SPDX-License-Identifier: MIT */
#include "lib/layer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device_memory.h"

#define ALIGN ((size_t)64) /* bytes; of what lies on a device one behind the other */

/* The tensors whose shape and origin are known.  Shape: one letter per axis, * for any size. */
static const struct {
	const char *name, *what, *axes, *shape, *brings;
} known[] = {
	{ "k", "the keys", "kv_head token dim", "GTD", "kv-prefill writes them, do not drop them on the way" },
	{ "v", "the values", "kv_head token dim", "GTD", "kv-prefill writes them, do not drop them on the way" },
	{ "q", "queries", "head query dim", "H*D", "run kv-prefill with --queries" },
	{ "q.response", "queries of a response", "head query dim", "H*D",
	    "run kv-prefill with --response, or kv-decode with -o" },
	{ "k.response", "keys of a response", "kv_head row dim", "G*D", "run kv-prefill with --response" },
	{ "q.lookahead", "lookahead queries", "head query dim", "H*D", "run kv-prefill with --lookahead MODULE" },
	{ "k.lookahead", "lookahead keys", "kv_head row dim", "G*D", "run kv-prefill with --lookahead MODULE" },
	{ "score", "scores", NULL, NULL, "put kv-score METHOD before it" },
	{ "budget", "budgets", NULL, NULL, "put kv-budget METHOD -b ENTRIES before it" },
};
#define N_KNOWN (sizeof known / sizeof *known)

static size_t
size_of(const struct kv_layer *l, char axis)
{
	switch (axis) {
	case 'G': return l->cfg->Hkv;
	case 'H': return l->cfg->Hq;
	case 'T': return l->T;
	case 'D': return l->cfg->D;
	default: return KV_ANY;
	}
}

static size_t
find_known(const char *name)
{
	size_t i = 0;

	while (i < N_KNOWN && strcmp(known[i].name, name) != 0)
		i++;
	return i;
}

static int
missing(const char *who, const char *name, size_t i, const struct kv_queries *queries, struct kv_err *e)
{
	char which[32];

	if (i == N_KNOWN)
		return kv_fail(
		    e, KV_ESHAPE, "%s needs tensor %s: give the file that has it as a further FILE", who, name);
	if (strcmp(name, "q") == 0 && queries != NULL)
		return kv_fail(e, KV_ESHAPE, "%s needs %s (tensor %s): %s %s", who, known[i].what, name,
		    known[i].brings, kv_queries_print(*queries, which));
	return kv_fail(e, KV_ESHAPE, "%s needs %s (tensor %s): %s, or give the file that has them as a further FILE",
	    who, known[i].what, name, known[i].brings);
}

int
kv_layer_need(const struct kv_layer *l, const char *who, const char *name, const struct kv_queries *queries,
    const struct kv_tensor **t, struct kv_err *e)
{
	const size_t i = find_known(name);
	size_t shape[KV_AXES_MAX];

	if ((*t = kv_step_find(l->step, name)) == NULL)
		return missing(who, name, i, queries, e);
	if (i == N_KNOWN || known[i].axes == NULL)
		return KV_OK;
	for (size_t a = 0; known[i].shape[a] != '\0'; a++)
		shape[a] = size_of(l, known[i].shape[a]);
	return kv_tensor_expect(*t, KVK_N_TYPES, known[i].axes, shape, e);
}

int
kv_layer_needs(
    const struct kv_layer *l, const char *who, const char *names, const struct kv_queries *queries, struct kv_err *e)
{
	const struct kv_tensor *t;
	char name[KV_NAME_MAX];
	int rc = KV_OK;

	for (size_t n; rc == KV_OK && names != NULL && *names != '\0'; names += n + (names[n] == ',')) {
		n = strcspn(names, ",");
		snprintf(name, sizeof name, "%.*s", (int)n, names);
		rc = kv_layer_need(l, who, name, queries, &t, e);
	}
	return rc;
}

static bool
layer_number(const char **s, size_t *to)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	*to = strtoul(*s, &end, 10);
	*s = end;
	return true;
}

int
kv_layers_parse(struct kv_layers *r, const char *text, struct kv_err *e)
{
	const char *s = text;
	bool first, last = false;

	*r = KV_LAYERS_ALL;
	first = layer_number(&s, &r->first);
	if (*s == '-') {
		s++;
		last = layer_number(&s, &r->last);
	} else
		r->last = r->first;
	if (*s != '\0' || (!first && !last) || r->first > r->last)
		return kv_fail(e, KV_EARG, "expected layers as A-B, A-, -B or A, counted from 0, got '%s'", text);
	return KV_OK;
}

int
kv_copy_rows(const struct kv_device *d, const struct kv_tensor *x, size_t from, size_t n, void *y, size_t at,
    size_t room, struct kv_err *e)
{
	const size_t H = x->shape[0], N = x->shape[1], D = x->shape[2], row = D * kvk_types[x->type].bytes;
	struct kvk_copy job = {
		.x_type = x->type, .x_stride = N, .y_type = x->type, .y_stride = room, .H = H, .n = n, .D = D
	};
	char *to = (char *)y + at * row;
	int status = 0;

	if (x->device != NULL) {
		job.x = (const char *)x->device + from * row;
		job.y = to;
		return kv_device_check(d, d->op->copy_rows(d->dev, &job), x->name, e);
	}
	for (size_t h = 0; h < H && status == 0; h++)
		status = d->op->put(
		    d->dev, to + h * room * row, (const char *)x->data + (h * N + from) * row, n * row);
	return kv_device_check(d, status, x->name, e);
}

static size_t
row_bytes(const struct kv_tensor *x)
{
	return x->shape[2] * kvk_types[x->type].bytes;
}

static void
pick_here(const struct kv_pick *p, const size_t *rows, size_t n)
{
	const size_t bytes = row_bytes(p->from);

	for (size_t i = 0; i < n; i++)
		memcpy((char *)p->to + i * bytes, (const char *)p->from->data + rows[i] * bytes, bytes);
}

/* What n rows of a tensor take of the device; 0: it does not lie there. */
static size_t
bytes_on_device(const struct kv_tensor *x, size_t n)
{
	return x->device != NULL ? (n * row_bytes(x) + ALIGN - 1) / ALIGN * ALIGN : 0;
}

/* Rows of what lies there one behind the other, in memory there. */
static int
gather(const struct kv_device *d, const struct kv_pick *picks, size_t n_picks, const size_t *rows, size_t n,
    char *on_device, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < n_picks && rc == KV_OK; i++) {
		const struct kv_tensor *x = picks[i].from;
		const struct kvk_copy job = { .x = x->device,
			.x_type = x->type,
			.rows = rows,
			.y = on_device,
			.y_type = x->type,
			.H = 1,
			.n = n,
			.D = x->shape[2] };

		if (x->device != NULL)
			rc = kv_device_check(d, d->op->copy_rows(d->dev, &job), x->name, e);
		on_device += bytes_on_device(x, n);
	}
	return rc;
}

static bool
is_arrival(const struct kv_device *d, const void *p)
{
	const uintptr_t at = (uintptr_t)p, from = (uintptr_t)d->arrivals;

	return d->arrivals != NULL && at >= from && at - from < d->arrivals_bytes;
}

/* All are on their way before the first is waited for. */
static int
bring(const struct kv_device *d, const struct kv_pick *picks, size_t n_picks, size_t n, const char *on_device,
    struct kv_err *e)
{
	bool fetches = false;
	int rc = KV_OK;

	for (size_t i = 0; i < n_picks && rc == KV_OK; i++) {
		const struct kv_tensor *x = picks[i].from;
		const bool fetch = is_arrival(d, picks[i].to);

		if (x->device != NULL)
			rc = (fetch ? kv_device_fetch : kv_device_get)(
			    d, picks[i].to, on_device, n * row_bytes(x), x->name, e);
		fetches = fetches || fetch;
		on_device += bytes_on_device(x, n);
	}
	if (fetches && rc == KV_OK)
		return kv_device_arrive(d, "copy to the host", e);
	if (fetches) /* nothing is on its way any more when memory is given back */
		d->op->arrive(d->dev);
	return rc;
}

int
kv_pick_rows(const struct kv_device *d, const struct kv_pick *picks, size_t n_picks, const size_t *rows, size_t n,
    struct kv_err *e)
{
	size_t bytes = 0;
	void *on_device;
	int rc;

	for (size_t i = 0; i < n_picks; i++) {
		bytes += bytes_on_device(picks[i].from, n);
		if (picks[i].from->device == NULL)
			pick_here(&picks[i], rows, n);
	}
	if (bytes == 0)
		return KV_OK;
	if ((on_device = kv_device_alloc(d, bytes, 1, e)) == NULL)
		return KV_EMEM;
	if ((rc = gather(d, picks, n_picks, rows, n, on_device, e)) == KV_OK)
		rc = bring(d, picks, n_picks, n, on_device, e);
	kv_device_free(d, on_device);
	return rc;
}
