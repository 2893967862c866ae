/* SPDX-License-Identifier: MIT */
#include "lib/layer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

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

void
kv_rows_copy(const struct kv_tensor *x, size_t from, size_t n, void *y, size_t at, size_t room)
{
	const size_t row = x->shape[2] * kvk_types[x->type].bytes;

	for (size_t h = 0; n > 0 && h < x->shape[0]; h++)
		memcpy(
		    (char *)y + (h * room + at) * row, (const char *)x->data + (h * x->shape[1] + from) * row, n * row);
}

int
kv_rows_copy_there(const struct kv_device *d, const struct kv_tensor *x, size_t from, size_t n, void *y, size_t at,
    size_t room, struct kv_err *e)
{
	const size_t H = x->shape[0], each = n == room ? H : 1; /* heads of one call */
	const size_t bytes = x->shape[2] * kvk_types[x->type].bytes;
	size_t *rows = kv_alloc(H * n, sizeof *rows, e);
	const void *view = NULL;
	int rc = KV_EMEM;

	if (rows == NULL || (view = kv_device_view_tensor(d, x, e)) == NULL)
		goto done;
	for (size_t i = 0; i < H * n; i++)
		rows[i] = i / n * x->shape[1] + from + i % n;
	rc = KV_OK;
	for (size_t h = 0; h < H && rc == KV_OK; h += each)
		rc = kv_device_check(d,
		    d->op->gather(d->dev, view, bytes, rows + h * n, each * n, (char *)y + (h * room + at) * bytes),
		    "gather", e);
done:
	kv_device_unview_tensor(d, x, view);
	free(rows);
	return rc;
}
