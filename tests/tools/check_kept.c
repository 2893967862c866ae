/* SPDX-License-Identifier: MIT
 * check_kept [--most | --uniform] [--skip A-B] FILE - is an evicted stream, `budget` still in it, what its budgets say?
 * Of every layer: the budgets sum to their attribute `total`; every head has exactly its budget, capped at the prompt
 * (--most: at most that; --uniform: all heads have the same set, of the average head's size rounded down); positions
 * ascend; the protected ones are among them as far as the head's size allows, last ones first (METHODS 1.9).  Layers
 * A-B have everything.  Prints the entries kept in all layers of all sequences.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pipe.h"
#include "lib/budget/budget.h"

struct wish {
	bool most, uniform, skips;
	struct kv_layers skip;
};

/* One head of a layer, or of the layer's only set. */
struct head {
	const int32_t *at;
	size_t n, T, n_sink, n_recent;
	const uint8_t *protect; /* [T], NULL: none */
};

static bool
has(const struct head *h, size_t position)
{
	for (size_t i = 0; i < h->n; i++)
		if ((size_t)h->at[i] == position)
			return true;
	return false;
}

static int
check_head(const struct head *h, struct kv_err *e)
{
	const size_t r = h->n_recent < h->n ? h->n_recent : h->n, s = h->n_sink < h->n - r ? h->n_sink : h->n - r;
	size_t marked = 0;

	for (size_t i = 0; i < h->n; i++)
		if (h->at[i] < 0 || (size_t)h->at[i] >= h->T || (i > 0 && h->at[i] <= h->at[i - 1]))
			return kv_fail(e, KV_EFAIL, "entry %zu stands at %d", i, (int)h->at[i]);
	for (size_t i = 0; i < h->T; i++) {
		const bool mark = h->protect != NULL && h->protect[i] != 0, fixed = i < s || i >= h->T - r;

		marked += mark || fixed;
		if ((fixed || (mark && marked <= h->n)) && !has(h, i))
			return kv_fail(e, KV_EFAIL, "position %zu is protected and not kept", i);
	}
	return KV_OK;
}

/* How many entries head h must have. */
static size_t
size_of(const struct kv_budget_view *v, size_t h, size_t T, bool average)
{
	size_t sum = 0;

	if (!average)
		return (size_t)v->B[h] < T ? (size_t)v->B[h] : T;
	for (size_t i = 0; i < v->H; i++)
		sum += (size_t)v->B[i] < T ? (size_t)v->B[i] : T;
	return sum / v->H;
}

static int
check_layer(const struct kv_step *s, size_t Hkv, const struct wish *w, size_t *entries, struct kv_err *e)
{
	const struct kv_tensor *budget = kv_step_find(s, "budget"), *protect = kv_step_find(s, "protect");
	const struct kv_tensor *index = kv_step_find(s, "index"), *offset = kv_step_find(s, "offset");
	const bool skip = w->skips && (size_t)s->layer >= w->skip.first && (size_t)s->layer <= w->skip.last;
	const int32_t *first = offset != NULL ? offset->data : NULL;
	struct kv_budget_view v;
	int rc;

	if (budget == NULL || index == NULL || offset == NULL || json_object_get(budget->attrs, "total") == NULL)
		return kv_fail(e, KV_ESHAPE, "expected budget with a total, index and offset");
	if ((rc = kv_budget_read(budget, Hkv, &v, e)) < 0)
		return rc;
	if (offset->shape[0] != v.H + 1 || first[0] != 0 || (size_t)first[v.H] != index->shape[0])
		return kv_fail(e, KV_EFAIL, "offsets of %zu heads, up to %d of %zu entries", offset->shape[0] - 1,
		    (int)first[v.H], index->shape[0]);
	for (size_t h = 0; h < v.H; h++) {
		const size_t want = skip ? s->seq->T : size_of(&v, h, s->seq->T, w->uniform);
		const struct head x = { (const int32_t *)index->data + first[h], (size_t)(first[h + 1] - first[h]),
			s->seq->T, v.n_sink, v.n_recent,
			protect != NULL && !w->uniform ? (const uint8_t *)protect->data + h * s->seq->T : NULL };

		if (x.n > want || (x.n < want && (skip || !w->most)))
			return kv_fail(e, KV_EFAIL, "head %zu has %zu entries, expected %zu", h, x.n, want);
		if (w->uniform &&
		    (first[1] - first[0] != (int32_t)x.n || memcmp(index->data, x.at, x.n * sizeof *x.at) != 0))
			return kv_fail(e, KV_EFAIL, "heads 0 and %zu have different sets", h);
		if ((rc = check_head(&x, e)) < 0)
			return kv_where(e, "head %zu", h);
		*entries += x.n;
	}
	return KV_OK;
}

static int
parse(int argc, char **argv, struct wish *w, int *file, struct kv_err *e)
{
	int i = 1, rc = KV_OK;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0 && rc == KV_OK; i++) {
		w->most = w->most || strcmp(argv[i], "--most") == 0;
		w->uniform = w->uniform || strcmp(argv[i], "--uniform") == 0;
		if (strcmp(argv[i], "--skip") == 0 && i + 1 < argc) {
			w->skips = true;
			rc = kv_layers_parse(&w->skip, argv[++i], e);
		}
	}
	*file = i;
	return rc;
}

int
main(int argc, char **argv)
{
	struct kv_pipe_options o = { .no_output = true, .uses = "budget,protect,index,offset" };
	struct wish w = { 0 };
	struct kv_step *s;
	struct kv_pipe *p = NULL;
	struct kv_err e = { 0 };
	size_t entries = 0, Hkv = 0;
	int file, rc;

	if ((rc = parse(argc, argv, &w, &file, &e)) == KV_OK) {
		o.files = argv + file;
		rc = kv_pipe_open(&p, &o, &e);
	}
	if (rc == KV_OK)
		Hkv = (size_t)json_integer_value(json_object_get(kv_pipe_model(p), "kv_heads"));
	while (rc == KV_OK && (rc = kv_pipe_next(p, &s, &e)) == KV_OK)
		if (s->layer != KV_NO_LAYER && (rc = check_layer(s, Hkv, &w, &entries, &e)) < 0)
			kv_step_where(p, s, &e);
	if (p != NULL)
		rc = kv_pipe_finish(p, rc, &e);
	if (rc < 0) {
		fprintf(stderr, "check_kept: %s\n", e.text);
		return 1;
	}
	printf("%zu\n", entries);
	return 0;
}
