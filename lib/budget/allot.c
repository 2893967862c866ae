/* SPDX-License-Identifier: MIT
 * From what may be spent to a budget for every head: the edges of METHODS 1.9 and the exact sums, once for all
 * allocators.  All sums of entries are below 2^62: heads and tokens are below 2^31 each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

/* One layer on its way. */
struct allotment {
	struct kv_budget_layer l;
	struct kv_score_attrs attrs;
	size_t n;     /* scored columns */
	size_t fixed; /* protected entries of a head, at most T */
	size_t sum;   /* entries to spend, protected ones included */
	size_t total; /* of these, history entries; 0 when sum does not even cover the protected */
	float *raw; /* NULL where the scores themselves serve */
	size_t *B;  /* [H] the result */
	uint8_t *keep;
	struct kv_tensor budget, protect;
};

static void
allotment_fini(struct allotment *a)
{
	kv_tensor_fini(&a->protect);
	kv_tensor_fini(&a->budget);
	free(a->B);
	free(a->raw);
}

/* The row that the parameters belong to: `about` is its first member. */
static const struct kv_budget_method *
method(const struct kv_budgeting *x)
{
	return (const struct kv_budget_method *)x->p->method;
}

static bool
grants(const struct kv_grant *g)
{
	return g->entries != 0 || g->ratio != 0;
}

bool
kv_budget_needs_all(const struct kv_budgeting *x)
{
	const struct kv_budget_method *m = method(x);

	return m->all_layers || ((m->layers != NULL || m->global != NULL) && !grants(&x->grant));
}

/* ---- reading */

/* Are the scored columns just the candidates? */
static bool
are_candidates(const struct allotment *a)
{
	return a->l.n_sink == 0 && a->n == a->l.room;
}

/* to [H][room]: the scored columns that are candidates. */
static void
take_candidates(const struct allotment *a, const float *from, float *to)
{
	const size_t first = a->l.n_sink < a->l.at->T ? a->l.n_sink : a->l.at->T, room = a->l.room;
	const size_t scored = a->n > first ? (a->n - first < room ? a->n - first : room) : 0;

	for (size_t h = 0; h < a->l.H; h++) {
		if (scored > 0)
			memcpy(to + h * room, from + h * a->n + first, scored * sizeof *to);
		for (size_t i = scored; i < room; i++)
			to[h * room + i] = -INFINITY;
	}
}

int
kv_budget_pooled(const struct kv_budget_layer *l, float *pooled, struct kv_err *e)
{
	struct allotment a = { .l = *l, .n = l->scores->shape[1] };
	float *all;
	int rc;

	if (are_candidates(&a))
		return kv_pooled(l->at->device, l->score, l->scores->data, l->H, a.n, pooled, e);
	if ((all = kv_alloc_unset(l->H * a.n + 1, sizeof *all, e)) == NULL)
		return KV_EMEM;
	if ((rc = kv_pooled(l->at->device, l->score, l->scores->data, l->H, a.n, all, e)) == KV_OK)
		take_candidates(&a, all, pooled);
	free(all);
	return rc;
}

/* Heads, and what the scores say. */
static int
read_scores(struct allotment *a, const char *needs, struct kv_err *e)
{
	const struct kv_layer *at = a->l.at;
	int rc;

	a->l.H = at->cfg->Hkv;
	if (at->cfg->Hkv == 0 || at->T == 0 || (double)at->T > KV_COUNT_MAX)
		return kv_fail(
		    e, KV_ESHAPE, "cannot allot a layer of %zu KV heads and %zu tokens", at->cfg->Hkv, at->T);
	if (needs != NULL && (rc = kv_layer_needs(at, "kv-budget", needs, NULL, e)) < 0)
		return rc;
	if ((a->l.scores = kv_step_find(at->step, "score")) == NULL)
		return KV_OK;
	a->l.score = &a->attrs;
	return kv_score_read(a->l.scores, at->cfg->Hkv, at->T, &a->attrs, &a->l.H, &a->n, e);
}

/* What may be spent, from the user's grant or from the stream, and what is protected: for a grant as the scores say,
 * else as the earlier budget does, which has resolved it. */
static int
read_grant(struct allotment *a, const struct kv_grant *g, bool free_total, struct kv_err *e)
{
	const struct kv_tensor *earlier = kv_step_find(a->l.at->step, "budget");
	const size_t T = a->l.at->T;
	struct kv_protection protect = { .recent_share = -1 };
	struct kv_budget_view v;
	size_t C = T;
	int rc;

	if (free_total || grants(g)) {
		if (!free_total && (rc = kv_grant_capacity(g, T, &C, e)) < 0)
			return rc;
		if (a->l.score != NULL)
			protect = a->attrs.protect;
		kv_protection_resolve(&protect, C);
		a->l.n_sink = protect.n_sink;
		a->l.n_recent = protect.n_recent;
		a->sum = a->l.H * (C < T ? C : T);
		return KV_OK;
	}
	if (earlier == NULL)
		return kv_fail(
		    e, KV_EARG, "how many entries? give -b ENTRIES or -r RATIO, here or to an earlier kv-budget");
	if ((rc = kv_budget_read(earlier, a->l.at->cfg->Hkv, &v, e)) < 0)
		return rc;
	if (a->l.score != NULL && v.H != a->l.H)
		return kv_fail(e, KV_ESHAPE, "budget: %zu heads, but the scores have %zu", v.H, a->l.H);
	a->l.H = v.H;
	a->l.given = v.B;
	a->l.n_sink = v.n_sink;
	a->l.n_recent = v.n_recent;
	for (size_t h = 0; h < v.H; h++)
		a->sum += (size_t)v.B[h] < T ? (size_t)v.B[h] : T;
	return KV_OK;
}

static int
read_layer(struct allotment *a, const struct kv_budgeting *x, struct kv_err *e)
{
	const struct kv_budget_method *m = method(x);
	const size_t T = a->l.at->T;
	int rc;

	if ((rc = read_scores(a, m->needs, e)) < 0 || (rc = read_grant(a, &x->grant, m->free_total, e)) < 0)
		return rc;
	/* both counts are below 2^31, see kv_score_attrs_from_json */
	a->fixed = a->l.n_sink + a->l.n_recent < T ? a->l.n_sink + a->l.n_recent : T;
	a->l.room = T - a->fixed;
	a->total = a->sum > a->l.H * a->fixed ? a->sum - a->l.H * a->fixed : 0;
	if ((a->B = kv_alloc(a->l.H, sizeof *a->B, e)) == NULL)
		return KV_EMEM;
	if (a->l.scores != NULL && are_candidates(a)) {
		a->l.raw = a->l.scores->data;
	} else if (a->l.scores != NULL) {
		if ((a->raw = kv_alloc_unset(a->l.H * a->l.room + 1, sizeof *a->raw, e)) == NULL)
			return KV_EMEM;
		take_candidates(a, a->l.scores->data, a->raw);
		a->l.raw = a->raw;
	}
	if ((rc = kv_tensor_new(&a->budget, "budget", a->l.at->layer, KVK_I32,
		 a->l.H == a->l.at->cfg->Hkv ? "kv_head" : "head", &a->l.H, e)) < 0)
		return rc;
	a->l.attrs = a->budget.attrs = json_object();
	return a->l.attrs != NULL ? KV_OK : kv_no_memory(e, sizeof *a);
}

/* ---- layers */

/* One entry each to those with less than most[i], in turn, lower index first, until `rest` is gone. */
static void
hand_out(size_t rest, size_t *b, const size_t *most, size_t n)
{
	for (bool any = true; rest > 0 && any;) {
		any = false;
		for (size_t i = 0; i < n && rest > 0; i++)
			if (b[i] < most[i]) {
				b[i]++;
				rest--;
				any = true;
			}
	}
}

static bool
is_inexact(const struct kv_budgeting *x)
{
	return method(x)->inexact != NULL && method(x)->inexact(x->p);
}

static int
overspent(const struct kv_budgeting *x, const char *what, size_t sum, size_t most, struct kv_err *e)
{
	return kv_fail(
	    e, KV_EFAIL, "%s: %zu entries for the %s, where %zu may be spent", x->p->method->name, sum, what, most);
}

/* The prompt as layers() and global() see it; *total: history entries of all layers, 0: nothing to decide.  With one
 * layer at hand, all are like it. */
static struct kv_budget_prompt
see_prompt(const struct allotment *a, const struct kv_budget_layer *layer, size_t n, size_t *total)
{
	struct kv_budget_prompt all = {
		.cfg = a->l.at->cfg, .L = a->l.L, .H = a->l.H, .T = a->l.at->T, .layer = n == a->l.L ? layer : NULL
	};
	size_t sum = 0, fixed = 0;

	for (size_t i = 0; i < n; i++) {
		sum += a[i].sum;
		fixed += a[i].l.H * a[i].fixed;
		all.room = a[i].l.room > all.room ? a[i].l.room : all.room;
	}
	*total = sum > fixed ? sum - fixed : 0;
	if (all.layer == NULL)
		*total *= all.L;
	all.base = *total / (all.L * all.H);
	return all;
}

/* a[].total from the method's layers(). */
static int
allot_layers(const struct kv_budgeting *x, struct allotment *a, const struct kv_budget_prompt *all, size_t n,
    size_t total, struct kv_err *e)
{
	const size_t L = all->L, H = all->H;
	size_t *base_l = kv_alloc(3 * L, sizeof *base_l, e), *t = base_l + L, *most = t + L, sum = 0, spent = 0;
	int rc = KV_EMEM;

	if (base_l == NULL || (rc = method(x)->layers(all, x->p, base_l, e)) < 0)
		goto done;
	for (size_t i = 0; i < L; i++) {
		const size_t room = a[n == L ? i : 0].l.room;

		most[i] = H * room;
		sum += base_l[i];
		t[i] = H * (base_l[i] < room ? base_l[i] : room);
		spent += t[i];
	}
	if (spent > total && !is_inexact(x)) {
		rc = overspent(x, "layers", spent, total, e);
		goto done;
	}
	if (sum == L * all->base && !is_inexact(x))
		hand_out(total - spent, t, most, L);
	for (size_t i = 0; i < n; i++) {
		a[i].total = t[a[i].l.i];
		a[i].sum = H * a[i].fixed + a[i].total;
	}
done:
	free(base_l);
	return rc;
}

/* a[].B from the method's global(). */
static int
allot_all(const struct kv_budgeting *x, struct allotment *a, const struct kv_budget_prompt *all, size_t n, size_t total,
    struct kv_err *e)
{
	const size_t L = all->L, H = all->H;
	size_t *b = kv_alloc(2 * L * H, sizeof *b, e), *most = b + L * H, sum = 0;
	int rc = KV_EMEM;

	if (b == NULL || (rc = method(x)->global(all, x->p, b, e)) < 0)
		goto done;
	for (size_t i = 0; i < L * H; i++) {
		most[i] = a[n == L ? i / H : 0].l.room;
		b[i] = b[i] < most[i] ? b[i] : most[i];
		sum += b[i];
	}
	if (sum > total && !is_inexact(x)) {
		rc = overspent(x, "heads of all layers", sum, total, e);
		goto done;
	}
	if (sum == L * H * all->base && !is_inexact(x))
		hand_out(total - sum, b, most, L * H);
	for (size_t i = 0; i < n; i++)
		for (size_t h = 0; h < H; h++)
			a[i].B[h] = a[i].fixed + b[a[i].l.i * H + h];
done:
	free(b);
	return rc;
}

/* ---- heads */

static int
allot_heads(const struct kv_budgeting *x, struct allotment *a, struct kv_err *e)
{
	const struct kv_budget_method *m = method(x);
	const size_t H = a->l.H, room = a->l.room;
	size_t *most, sum = 0;
	int rc;

	if (a->sum <= H * a->fixed || a->sum >= H * (a->fixed + room)) {
		kv_spread(a->sum, H, a->B);
		return KV_OK;
	}
	a->l.base = a->total / H;
	if (m->heads == NULL || a->l.base == 0) {
		kv_spread(a->total, H, a->B);
	} else {
		if ((rc = m->heads(&a->l, x->p, a->B, e)) < 0)
			return rc;
		if ((most = kv_alloc(H, sizeof *most, e)) == NULL)
			return KV_EMEM;
		for (size_t h = 0; h < H; h++) {
			most[h] = room;
			a->B[h] = a->B[h] < room ? a->B[h] : room;
			sum += a->B[h];
		}
		if (sum == H * a->l.base && !is_inexact(x))
			hand_out(a->total - sum, a->B, most, H);
		free(most);
		if (sum > H * a->l.base && !is_inexact(x))
			return overspent(x, "heads", sum, H * a->l.base, e);
	}
	for (size_t h = 0; h < H; h++)
		a->B[h] += a->fixed;
	return KV_OK;
}

/* keep and B from the method's sets().  When B has nothing beyond keep, nothing else is protected. */
static int
allot_sets(const struct kv_budgeting *x, struct allotment *a, struct kv_err *e)
{
	const struct kv_budget_method *m = method(x);
	const size_t H = a->l.H, T = a->l.at->T, shape[] = { H, T };
	size_t sum = 0, beyond = 0;
	int rc;

	if (!m->free_total && a->l.given == NULL && (a->sum <= H * a->fixed || a->sum >= H * T)) {
		kv_spread(a->sum, H, a->B);
		return KV_OK;
	}
	a->l.base = a->total / H;
	if ((rc = kv_tensor_new(&a->protect, "protect", a->l.at->layer, KVK_U8,
		 H == a->l.at->cfg->Hkv ? "kv_head token" : "head token", shape, e)) < 0 ||
	    (rc = m->sets(&a->l, x->p, a->protect.owned, a->B, e)) < 0)
		return rc;
	a->keep = a->protect.owned;
	for (size_t h = 0; h < H; h++) {
		size_t n = 0;

		for (size_t t = 0; t < T; t++)
			n += a->keep[h * T + t] != 0;
		if (n > a->B[h] || a->B[h] > T)
			return kv_fail(e, KV_EFAIL, "%s: head %zu keeps %zu of %zu entries, and a set of %zu",
			    x->p->method->name, h, a->B[h], T, n);
		beyond += a->B[h] - n;
		sum += a->B[h];
	}
	if (!m->free_total && sum > a->sum)
		return overspent(x, "heads", sum, a->sum, e);
	if (beyond == 0)
		a->l.n_sink = a->l.n_recent = a->fixed = 0;
	return KV_OK;
}

/* ---- a prompt */

static int
describe(const struct kv_budgeting *x, struct allotment *a, struct kv_err *e)
{
	const size_t H = a->l.H;
	size_t sum = 0;
	json_t *o;

	for (size_t h = 0; h < H; h++) {
		((int32_t *)a->budget.owned)[h] = (int32_t)a->B[h];
		sum += a->B[h];
	}
	o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "method", x->p->method->name, "capacity", (json_int_t)(sum / H),
	    "base", (json_int_t)(sum > H * a->fixed ? sum / H - a->fixed : 0), "n_sink", (json_int_t)a->l.n_sink,
	    "n_recent", (json_int_t)a->l.n_recent, "total", (json_int_t)sum);
	if (o == NULL || json_object_update(a->budget.attrs, o) < 0) {
		json_decref(o);
		return kv_no_memory(e, sizeof *a);
	}
	json_decref(o);
	return kv_params_describe(x->p, a->budget.attrs, e);
}

static int
put(const struct kv_budgeting *x, struct allotment *a, struct kv_err *e)
{
	struct kv_step *step = a->l.at->step;
	int rc;

	if ((rc = describe(x, a, e)) < 0 || (rc = kv_step_put(step, &a->budget, e)) < 0)
		return rc;
	if (a->keep != NULL)
		return kv_step_put(step, &a->protect, e);
	kv_step_remove(step, "protect");
	return KV_OK;
}

/* Layers that come one by one must be alike, or the sums over layers would not be what was granted. */
static int
check_alike(struct kv_budgeting *x, const struct allotment *a, struct kv_err *e)
{
	const size_t sequence = a->l.at->step->seq->number;

	if (x->started && x->sequence == sequence && (x->H != a->l.H || x->fixed != a->fixed))
		return kv_fail(e, KV_ESHAPE,
		    "this layer has %zu heads that protect %zu tokens each, an earlier one %zu and %zu: grant the "
		    "entries to kv-budget uniform, and let %s spend them",
		    a->l.H, a->fixed, x->H, x->fixed, x->p->method->name);
	x->started = true;
	x->sequence = sequence;
	x->H = a->l.H;
	x->fixed = a->fixed;
	return KV_OK;
}

/* What the layers may spend becomes what the method gives them; *done: the heads are decided as well. */
static int
over_layers(struct kv_budgeting *x, struct allotment *a, size_t n, bool *done, struct kv_err *e)
{
	const struct kv_budget_method *m = method(x);
	struct kv_budget_prompt all;
	struct kv_budget_layer *layer;
	size_t total;
	int rc = KV_OK;

	if (m->layers == NULL && m->global == NULL)
		return KV_OK;
	if (n != a->l.L && (rc = check_alike(x, a, e)) < 0)
		return rc;
	if ((layer = kv_alloc(n, sizeof *layer, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		if (a[i].l.H != a->l.H) {
			rc = kv_fail(
			    e, KV_ESHAPE, "layers of %zu and %zu heads cannot share entries", a->l.H, a[i].l.H);
			goto done;
		}
		layer[i] = a[i].l;
	}
	all = see_prompt(a, layer, n, &total);
	if (all.base == 0 || all.base >= all.room)
		goto done;
	*done = m->global != NULL;
	rc = (m->global != NULL ? allot_all : allot_layers)(x, a, &all, n, total, e);
done:
	free(layer);
	return rc;
}

int
kv_budget_layers(struct kv_budgeting *x, const struct kv_layer *l, size_t n, struct kv_err *e)
{
	const struct kv_budget_method *m = method(x);
	const bool held = kv_budget_needs_all(x);
	struct allotment *a = kv_alloc(n, sizeof *a, e);
	bool done = false;
	int rc = KV_OK;

	if (a == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n && rc == KV_OK; i++) {
		a[i].l.at = &l[i];
		a[i].l.i = held ? i : (size_t)l[i].layer;
		a[i].l.L = held ? n : l[i].cfg->L;
		rc = read_layer(&a[i], x, e);
	}
	if (rc == KV_OK)
		rc = over_layers(x, a, n, &done, e);
	for (size_t i = 0; i < n && rc == KV_OK && !done; i++)
		rc = m->sets != NULL ? allot_sets(x, &a[i], e) : allot_heads(x, &a[i], e);
	for (size_t i = 0; i < n && rc == KV_OK; i++)
		rc = put(x, &a[i], e);
	for (size_t i = 0; i < n; i++)
		allotment_fini(&a[i]);
	free(a);
	return rc;
}
