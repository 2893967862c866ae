/* SPDX-License-Identifier: MIT */
#include "lib/layer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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
kv_rows_copy(const struct kv_device *d, const struct kv_tensor *x, size_t from, size_t n, void *y, size_t at,
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

/* From the device, by way of memory there. */
static int
pick_there(
    const struct kv_device *d, const struct kv_tensor *x, const size_t *rows, size_t n, void *y, struct kv_err *e)
{
	const size_t D = x->shape[2], bytes = D * kvk_types[x->type].bytes;
	void *picked = kv_device_alloc(d, n, bytes, e);
	const struct kvk_copy job = {
		.x = x->device, .x_type = x->type, .rows = rows, .y = picked, .y_type = x->type, .H = 1, .n = n, .D = D
	};
	int rc;

	if (picked == NULL)
		return KV_EMEM;
	if ((rc = kv_device_check(d, d->op->copy_rows(d->dev, &job), x->name, e)) == KV_OK)
		rc = kv_device_get(d, y, picked, n * bytes, x->name, e);
	kv_device_free(d, picked);
	return rc;
}

int
kv_rows_pick(
    const struct kv_device *d, const struct kv_tensor *x, const size_t *rows, size_t n, void *y, struct kv_err *e)
{
	const size_t bytes = x->shape[2] * kvk_types[x->type].bytes;

	if (x->device != NULL && n > 0)
		return pick_there(d, x, rows, n, y, e);
	for (size_t i = 0; i < n; i++)
		memcpy((char *)y + i * bytes, (const char *)x->data + rows[i] * bytes, bytes);
	return KV_OK;
}
