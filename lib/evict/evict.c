/* SPDX-License-Identifier: MIT
 * One layer's eviction: read the budgets, select, gather K and V, describe the result. */
#include "lib/evict/renumber.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"
#include "lib/device_memory.h"

#define BLOCK 16 /* scores */
#define ALIGN ((size_t)64) /* bytes; of tensors that share a piece of memory */

/* What has been read of a layer's inputs, and what replaces them. */
struct plan {
	const struct kv_layer *l;
	const struct kv_evicting *how;
	const struct kv_tensor *from_k, *from_v;
	struct kv_score_attrs attrs;
	struct kv_selection s;
	size_t *offset; /* [H + 1] as the budgets say */
	size_t *kept;   /* [H + 1] as it comes out */
	bool skip;      /* the budgets do not count here */
	bool all;       /* every head keeps its whole prompt */
	struct kv_tensor index, bounds, k, v;
	void *k_rows, *v_rows; /* the data of k and v, to be written */
};

static void
plan_fini(struct plan *p)
{
	kv_tensor_fini(&p->v);
	kv_tensor_fini(&p->k);
	kv_tensor_fini(&p->bounds);
	kv_tensor_fini(&p->index);
	free(p->kept);
	free(p->offset);
}

static bool
has_rules(const struct kv_rules *r)
{
	return r->by_score || r->share > 0;
}

static bool
is_skipped(const struct kv_evicting *how, int layer)
{
	for (size_t i = 0; i < how->n_skip; i++)
		if ((size_t)layer >= how->skip[i].first && (size_t)layer <= how->skip[i].last)
			return true;
	return false;
}

static int
read_cache(struct plan *p, struct kv_err *e)
{
	int rc;

	if ((rc = kv_layer_need(p->l, "kv-evict", "k", NULL, &p->from_k, e)) < 0 ||
	    (rc = kv_layer_need(p->l, "kv-evict", "v", NULL, &p->from_v, e)) < 0)
		return rc;
	return kv_tensor_expect(p->from_v, p->from_k->type, "kv_head token dim", p->from_k->shape, e);
}

/* Heads, budgets and what they protect; without a budget, where none is needed, KV heads that keep everything. */
static int
find_budget(const struct plan *p, struct kv_budget_view *v, struct kv_err *e)
{
	const struct kv_tensor *budget;
	int rc;

	if (p->skip && kv_step_find(p->l->step, "budget") == NULL) {
		*v = (struct kv_budget_view){ .H = p->l->cfg->Hkv };
		return KV_OK;
	}
	if ((rc = kv_layer_need(p->l, "kv-evict", "budget", NULL, &budget, e)) < 0)
		return rc;
	return kv_budget_read(budget, p->l->cfg->Hkv, v, e);
}

/* offset, what is protected, and whether there is anything to decide. */
static int
read_budget(struct plan *p, struct kv_err *e)
{
	struct kv_budget_view v;
	const size_t T = p->l->T;
	int rc;

	if ((rc = find_budget(p, &v, e)) < 0)
		return rc;
	if ((double)v.H * (double)T > KV_COUNT_MAX)
		return kv_fail(
		    e, KV_ESHAPE, "k: %zu heads of %zu tokens are more than %.0f entries", v.H, T, KV_COUNT_MAX);
	p->offset = kv_alloc(v.H + 1, sizeof *p->offset, e);
	p->kept = kv_alloc(v.H + 1, sizeof *p->kept, e);
	if (p->offset == NULL || p->kept == NULL)
		return KV_EMEM;
	for (size_t h = 0; h < v.H; h++)
		p->offset[h + 1] = p->offset[h] + (!p->skip && (size_t)v.B[h] < T ? (size_t)v.B[h] : T);
	p->all = p->offset[v.H] == v.H * T && (p->skip || !has_rules(&p->how->rules));
	p->s.H = v.H;
	p->s.T = T;
	p->s.n_sink = p->how->sink.given ? p->how->sink.n : v.n_sink;
	p->s.n_recent = p->how->recent.given ? p->how->recent.n : v.n_recent;
	p->s.offset = p->offset;
	p->s.kept = p->kept;
	return KV_OK;
}

static int
read_protect(struct plan *p, struct kv_err *e)
{
	const struct kv_tensor *t = kv_step_find(p->l->step, "protect");
	const size_t shape[] = { p->s.H, p->s.T };
	int rc;

	if (t == NULL)
		return KV_OK;
	if ((rc = kv_tensor_expect(
		 t, KVK_U8, strcmp(t->axis[0], "head") == 0 ? "head token" : "kv_head token", shape, e)) == KV_OK)
		p->s.protect = t->data;
	return rc;
}

/* The inner loop's length is known, so that it becomes vectors. */
static size_t
count_nan(const float *x, size_t n)
{
	size_t i = 0, count = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		uint32_t found = 0;

		for (size_t j = 0; j < BLOCK; j++)
			found += isnan(x[i + j]) != 0;
		count += found;
	}
	for (; i < n; i++)
		count += isnan(x[i]) != 0;
	return count;
}

static int
read_score(struct plan *p, size_t *n_nan, struct kv_err *e)
{
	const struct kv_tensor *score;
	size_t H;
	int rc;

	if (p->all && kv_step_find(p->l->step, "score") == NULL)
		return KV_OK;
	if ((rc = kv_layer_need(p->l, "kv-evict", "score", NULL, &score, e)) < 0) {
		kv_where(e, has_rules(&p->how->rules) ? "a threshold or share is one of scores"
						      : "the budget is smaller than the prompt");
		return rc;
	}
	if ((rc = kv_score_read(score, p->l->cfg->Hkv, p->s.T, &p->attrs, &H, &p->s.n, e)) < 0)
		return rc;
	if (H != p->s.H)
		return kv_fail(e, KV_ESHAPE, "score: %zu heads, but the budget has %zu", H, p->s.H);
	p->s.raw = score->data;
	p->s.score = &p->attrs;
	*n_nan = count_nan(p->s.raw, H * p->s.n);
	return KV_OK;
}

/* The rows of [KV heads * T] that stay: head h of the budget reads KV head h / G. */
static size_t *
kept_rows(const struct plan *p, size_t G, struct kv_err *e)
{
	const int32_t *index = p->index.data;
	size_t *rows = kv_alloc_unset(p->kept[p->s.H] + 1, sizeof *rows, e);

	for (size_t h = 0; rows != NULL && h < p->s.H; h++)
		for (size_t i = p->kept[h]; i < p->kept[h + 1]; i++)
			rows[i] = h / G * p->s.T + (size_t)index[i];
	return rows;
}

/* One of k and v as it will be, without its data. */
static int
describe(const struct plan *p, const struct kv_tensor *from, struct kv_tensor *to, struct kv_err *e)
{
	const size_t shape[] = { p->kept[p->s.H], from->shape[2] };
	int rc = kv_tensor_init(to, from->name, from->layer, from->type, "entry dim", shape, e);

	if (rc == KV_OK)
		to->attrs = json_deep_copy(from->attrs);
	return rc;
}

/* Where both go: to the memory that copies from a device reach first, if they lie on one; else to their own. */
static int
take_room(struct plan *p, struct kv_err *e)
{
	const size_t k_bytes = (p->k.bytes + ALIGN - 1) / ALIGN * ALIGN;
	char *room = NULL;

	if (p->from_k->device != NULL || p->from_v->device != NULL)
		room = kv_device_arrivals(p->l->device, k_bytes + p->v.bytes);
	if (room != NULL) {
		p->k_rows = room;
		p->v_rows = room + k_bytes;
	} else if ((p->k_rows = p->k.owned = kv_alloc_unset(p->k.bytes, 1, e)) == NULL ||
		   (p->v_rows = p->v.owned = kv_alloc_unset(p->v.bytes, 1, e)) == NULL)
		return KV_EMEM;
	p->k.data = p->k_rows;
	p->v.data = p->v_rows;
	return KV_OK;
}

/* k and v, compacted. */
static int
compact(struct plan *p, struct kv_err *e)
{
	size_t *rows;
	int rc;

	if ((rc = describe(p, p->from_k, &p->k, e)) < 0 || (rc = describe(p, p->from_v, &p->v, e)) < 0 ||
	    (rc = take_room(p, e)) < 0)
		return rc;
	if ((rows = kept_rows(p, p->s.H / p->from_k->shape[0], e)) == NULL)
		return KV_EMEM;
	rc = kv_pick_rows(p->l->device, (const struct kv_pick[]){ { p->from_k, p->k_rows }, { p->from_v, p->v_rows } },
	    2, rows, p->kept[p->s.H], e);
	free(rows);
	return rc;
}

/* index [offset[H]] and kept. */
static int
decide(const struct plan *p, int32_t *index, struct kv_err *e)
{
	if (!p->all)
		return kv_evict_select(p->l->device, &p->s, index, e);
	for (size_t i = 0; i < p->offset[p->s.H]; i++)
		index[i] = (int32_t)(i % p->s.T);
	memcpy(p->kept, p->offset, (p->s.H + 1) * sizeof *p->kept);
	return KV_OK;
}

static int
make_index(struct plan *p, struct kv_err *e)
{
	const size_t n_bounds = p->s.H + 1;
	int32_t *index = kv_alloc(p->offset[p->s.H] + 1, sizeof *index, e);
	int rc = KV_EMEM;

	if (index == NULL || (rc = decide(p, index, e)) < 0 ||
	    (rc = kv_tensor_new(&p->index, "index", p->l->layer, KVK_I32, "entry", &p->kept[p->s.H], e)) < 0 ||
	    (rc = kv_tensor_new(&p->bounds, "offset", p->l->layer, KVK_I32, "bound", &n_bounds, e)) < 0)
		goto done;
	if (p->index.bytes > 0)
		memcpy(p->index.owned, index, p->index.bytes);
	for (size_t h = 0; h <= p->s.H; h++)
		((int32_t *)p->bounds.owned)[h] = (int32_t)p->kept[h];
	if ((p->index.attrs = json_pack("{s:I}", "next_position", (json_int_t)p->l->T)) == NULL)
		rc = kv_no_memory(e, 1);
done:
	free(index);
	return rc;
}

/* Entries to contiguous positions; index goes on to say where they come from. */
static int
renumber(struct plan *p, struct kv_err *e)
{
	size_t n;
	int rc;

	if (!p->how->renumber)
		return KV_OK;
	if ((rc = kv_renumber_check(p->kept, p->s.H, &n, e)) < 0 ||
	    (rc = kv_renumber(p->l, &p->k, p->k_rows, p->index.data, p->kept, p->s.H, e)) < 0)
		return rc;
	if (json_object_set_new(p->index.attrs, "next_position", json_integer((json_int_t)n)) < 0 ||
	    json_object_set_new(p->index.attrs, "renumbered", json_true()) < 0)
		return kv_no_memory(e, 1);
	return KV_OK;
}

/* The results into the step, all or none as far as memory allows: the new names first. */
static int
put_all(struct plan *p, struct kv_err *e)
{
	struct kv_step *step = p->l->step;
	int rc;

	if ((rc = kv_step_put(step, &p->index, e)) < 0 || (rc = kv_step_put(step, &p->bounds, e)) < 0 ||
	    (rc = kv_step_put(step, &p->k, e)) < 0)
		return rc;
	return kv_step_put(step, &p->v, e);
}

int
kv_evict_layer(const struct kv_layer *l, const struct kv_evicting *how, size_t *n_nan, struct kv_err *e)
{
	struct plan p = {
		.l = l, .how = how, .skip = is_skipped(how, l->layer), .s = { .tie = how->tie, .rules = how->rules }
	};
	int rc;

	*n_nan = 0;
	if ((rc = read_cache(&p, e)) < 0 || (rc = read_budget(&p, e)) < 0 || (rc = read_protect(&p, e)) < 0 ||
	    (rc = read_score(&p, n_nan, e)) < 0 || (rc = make_index(&p, e)) < 0 ||
	    (rc = compact(&p, e)) < 0 || (rc = renumber(&p, e)) < 0)
		goto done;
	rc = put_all(&p, e);
done:
	plan_fini(&p);
	return rc;
}
