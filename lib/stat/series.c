/* SPDX-License-Identifier: MIT
 * From cells to a table: values of layers and sequences, then means, deviations and tests over the sequences. */
#include "lib/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

#define N_OF 3 /* A, B, both: what is measured; differences are made of these */

struct value {
	long sequence, layer, head; /* -1: over all */
	double x;
};
struct values {
	struct value *v; /* [n] */
	size_t n, cap;
};

/* One quantity of one stream, or of both. */
struct track {
	struct values values;
	/* of the sequence we are in */
	struct kv_moments cells;
	double layers_sum;
	size_t n_layers, n_without;
	struct kv_err why;    /* there was no value, the first time */
	struct kv_err reason; /* the same of a whole sequence, any, with its place */
};

struct slot {
	const struct kv_stat *q;
	struct track of[N_OF];
};

struct kv_stat_run {
	struct slot *slot; /* [n] */
	size_t n;
	bool chosen, two;
	enum kv_stat_per per;
	struct kv_stat_options o;
	long sequence;
	struct kv_stat_cells cells;
	struct kv_err warning;
	struct kv_stat_row *rows; /* [n_rows] */
	size_t n_rows, rows_cap;
	double *differences; /* room for the tests */
};

/* ---- which quantities */

static int
choose(struct kv_stat_run *r, const struct kv_stat *q, struct kv_err *e)
{
	struct slot *p;

	if (q->two && !r->two)
		return kv_fail(e, KV_EARG, "%s compares two streams: give two FILEs", q->name);
	if (r->per > q->finest)
		return kv_fail(e, KV_EARG, "%s is measured per %s at the finest", q->name,
		    q->finest == KV_STAT_LAYER ? "layer" : "sequence");
	for (size_t i = 0; i < r->n; i++)
		if (r->slot[i].q == q)
			return KV_OK;
	if ((p = realloc(r->slot, (r->n + 1) * sizeof *p)) == NULL)
		return kv_no_memory(e, (r->n + 1) * sizeof *p);
	r->slot = p;
	r->slot[r->n++] = (struct slot){ .q = q };
	return KV_OK;
}

static int
choose_by_name(struct kv_stat_run *r, const char *names, struct kv_err *e)
{
	int rc = KV_OK;

	for (const char *p = names; rc == KV_OK; p++) {
		const size_t n = strcspn(p, ",");
		const struct kv_stat *q = kv_stat_find(p, n);

		if (q == NULL)
			return kv_fail(
			    e, KV_EARG, "there is no quantity '%.*s': --list says which there are", (int)n, p);
		rc = choose(r, q, e);
		p += n;
		if (*p == '\0')
			break;
	}
	return rc;
}

int
kv_stat_run_new(struct kv_stat_run **out, const char *chosen, bool two, enum kv_stat_per per,
    const struct kv_stat_options *o, struct kv_err *e)
{
	struct kv_stat_run *r = *out = kv_alloc(1, sizeof *r, e);
	int rc = KV_OK;

	if (r == NULL)
		return KV_EMEM;
	r->chosen = chosen != NULL;
	r->two = two;
	r->per = per;
	r->o = *o;
	if (chosen != NULL)
		rc = choose_by_name(r, chosen, e);
	else
		for (const struct kv_stat *q = kv_stat_list; rc == KV_OK && q->name != NULL; q++)
			if ((two || !q->two) && per <= q->finest)
				rc = choose(r, q, e);
	if (rc < 0) {
		kv_stat_run_free(r);
		*out = NULL;
	}
	return rc;
}

void
kv_stat_run_free(struct kv_stat_run *r)
{
	if (r == NULL)
		return;
	for (size_t i = 0; i < r->n; i++)
		for (size_t of = 0; of < N_OF; of++)
			free(r->slot[i].of[of].values.v);
	free(r->differences);
	free(r->rows);
	free(r->cells.cell);
	free(r->slot);
	free(r);
}

/* ---- one layer */

static int
add_value(struct values *s, const struct value *v, struct kv_err *e)
{
	if (isnan(v->x))
		return KV_OK; /* nothing to tell, as of a correlation of one point */
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		struct value *p = realloc(s->v, cap * sizeof *p);

		if (p == NULL)
			return kv_no_memory(e, cap * sizeof *p);
		s->v = p;
		s->cap = cap;
	}
	s->v[s->n++] = *v;
	return KV_OK;
}

/* The cells of a layer into the sums, and into the values if those are as fine. */
static int
add_cells(struct kv_stat_run *r, const struct kv_stat *q, struct track *t, int layer, struct kv_err *e)
{
	struct value v = { r->sequence, layer, -1, 0 };
	struct kv_moments of_layer = { 0 };
	int rc = KV_OK;

	for (size_t h = 0; h < r->cells.n && rc == KV_OK; h++) {
		kv_moments_add(&of_layer, r->cells.cell[h]);
		kv_moments_add(&t->cells, r->cells.cell[h]);
		v.head = (long)h;
		v.x = kv_cell_value(r->cells.cell[h]);
		if (r->per == KV_STAT_HEAD)
			rc = add_value(&t->values, &v, e);
	}
	v.head = -1;
	v.x = kv_moments_value(&of_layer, q->of_layer);
	if (r->per == KV_STAT_LAYER && rc == KV_OK)
		rc = add_value(&t->values, &v, e);
	if (!isnan(v.x))
		t->layers_sum += v.x;
	t->n_layers++;
	return rc;
}

/* Put the place in front of a fault or a reason. */
static int
where(const struct kv_stat_run *r, const struct kv_stat *q, const struct kv_stat_view *a, const struct kv_stat_view *b,
    bool with_layer, struct kv_err *e)
{
	kv_where(e, "%s", q->name);
	if (with_layer && a->layer != KV_NO_LAYER)
		kv_where(e, "sequence %ld, layer %d", r->sequence, a->layer);
	else
		kv_where(e, "sequence %ld", r->sequence);
	return kv_where(e, "%s%s%s", a->name, b != NULL ? " and " : "", b != NULL ? b->name : "");
}

static int
measure(struct kv_stat_run *r, const struct kv_stat *q, struct track *t, struct kv_stat_view *a, struct kv_stat_view *b,
    struct kv_err *e)
{
	struct kv_err why = { 0 };
	int rc;

	if ((q->finest == KV_STAT_SEQUENCE) != (a->layer == KV_NO_LAYER))
		return KV_OK;
	if ((rc = q->measure(a, b, &r->o, &r->cells, &why)) == KV_OK)
		return add_cells(r, q, t, a->layer, e);
	if (rc < 0) {
		*e = why;
		return where(r, q, a, b, true, e);
	}
	if (t->n_without++ == 0)
		t->why = why;
	return KV_OK;
}

/* ---- one sequence */

static int
close_track(struct kv_stat_run *r, const struct kv_stat *q, struct track *t, const struct kv_stat_view *a,
    const struct kv_stat_view *b, struct kv_err *e)
{
	struct value v = { r->sequence, -1, -1, 0 };
	int rc = KV_OK;

	if (t->n_layers == 0) {
		t->reason = t->why;
		if (t->reason.code == 0)
			kv_fail(&t->reason, KV_EFAIL, "there is no layer");
		t->reason.code = KV_EFAIL;
		where(r, q, a, b, false, &t->reason);
		if (r->chosen) {
			*e = t->reason;
			return e->code;
		}
	}
	if (t->n_layers > 0 && t->n_without > 0) {
		r->warning = t->why;
		kv_where(&r->warning, "%zu layer%s without", t->n_without, t->n_without > 1 ? "s" : "");
		where(r, q, a, b, false, &r->warning);
	}
	if (t->n_layers > 0 && r->per <= KV_STAT_SEQUENCE) {
		v.x = q->of_sequence == KV_STAT_MEAN ? t->layers_sum / (double)t->n_layers
						     : kv_moments_value(&t->cells, q->of_sequence);
		rc = add_value(&t->values, &v, e);
	}
	*t = (struct track){ .values = t->values, .reason = t->reason };
	return rc;
}

int
kv_stat_step(struct kv_stat_run *r, struct kv_stat_view *a, struct kv_stat_view *b, struct kv_err *e)
{
	int rc = KV_OK;

	r->warning.code = 0;
	for (size_t i = 0; i < r->n && rc == KV_OK; i++) {
		const struct kv_stat *q = r->slot[i].q;
		struct {
			struct track *t;
			struct kv_stat_view *a, *b;
		} todo[] = {
			{ &r->slot[i].of[KV_STAT_OF_A], q->two ? NULL : a, NULL },
			{ &r->slot[i].of[KV_STAT_OF_B], q->two ? NULL : b, NULL },
			{ &r->slot[i].of[KV_STAT_OF_BOTH], q->two ? a : NULL, b },
		};

		for (size_t of = 0; of < N_OF && rc == KV_OK; of++) {
			if (todo[of].a == NULL)
				continue;
			rc = measure(r, q, todo[of].t, todo[of].a, todo[of].b, e);
			if (rc == KV_OK && a->layer == KV_NO_LAYER)
				rc = close_track(r, q, todo[of].t, todo[of].a, todo[of].b, e);
		}
	}
	if (a->layer == KV_NO_LAYER)
		r->sequence++;
	return rc;
}

const char *
kv_stat_warning(const struct kv_stat_run *r)
{
	return r->warning.code != 0 ? r->warning.text : NULL;
}

const char *
kv_stat_reason(const struct kv_stat_run *r, size_t i)
{
	return i < r->n * N_OF ? r->slot[i / N_OF].of[i % N_OF].reason.text : NULL;
}

/* ---- over the sequences */

static int
by_place(const struct value *x, const struct value *y)
{
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->head != y->head)
		return x->head < y->head ? -1 : 1;
	return 0;
}

static int
by_place_and_sequence(const void *a, const void *b)
{
	const struct value *x = a, *y = b;
	int order = by_place(x, y);

	return order != 0 ? order : (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* B - A wherever both were measured; both are sorted. */
static int
subtract(const struct values *a, const struct values *b, struct values *out, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0, j = 0; i < a->n && j < b->n && rc == KV_OK;) {
		const int order = by_place_and_sequence(&a->v[i], &b->v[j]);
		struct value d = a->v[i];

		if (order == 0) {
			d.x = b->v[j].x - a->v[i].x;
			rc = add_value(out, &d, e);
		}
		i += order <= 0;
		j += order >= 0;
	}
	return rc;
}

static void
summarise(struct kv_stat_run *r, const struct value *v, size_t n, struct kv_stat_row *row)
{
	double square = 0;

	row->n = n;
	row->mean = 0;
	for (size_t i = 0; i < n; i++) {
		row->mean += v[i].x / (double)n;
		r->differences[i] = v[i].x;
	}
	for (size_t i = 0; i < n; i++)
		square += (v[i].x - row->mean) * (v[i].x - row->mean);
	row->sd = n < 2 ? NAN : sqrt(square / (double)(n - 1));
	row->sign = row->wilcoxon = NAN;
	if (row->of == KV_STAT_OF_DIFFERENCE && r->per != KV_STAT_SEQUENCE) {
		row->sign = kv_sign_test(r->differences, n);
		row->wilcoxon = kv_wilcoxon(r->differences, n);
	}
}

static int
add_rows(struct kv_stat_run *r, const struct kv_stat *q, enum kv_stat_of of, const struct values *s, struct kv_err *e)
{
	double *room = realloc(r->differences, (s->n + 1) * sizeof *room);
	struct kv_stat_row *p;

	if (room == NULL)
		return kv_no_memory(e, (s->n + 1) * sizeof *room);
	r->differences = room;
	for (size_t i = 0, end; i < s->n; i = end) {
		for (end = i + 1; end < s->n && r->per != KV_STAT_SEQUENCE && by_place(&s->v[i], &s->v[end]) == 0;)
			end++;
		if (r->n_rows == r->rows_cap) {
			r->rows_cap = r->rows_cap ? 2 * r->rows_cap : 64;
			if ((p = realloc(r->rows, r->rows_cap * sizeof *p)) == NULL)
				return kv_no_memory(e, r->rows_cap * sizeof *p);
			r->rows = p;
		}
		p = &r->rows[r->n_rows++];
		*p = (struct kv_stat_row){ .q = q, .of = of, .sequence = -1 };
		p->layer = s->v[i].layer;
		p->head = s->v[i].head;
		if (r->per == KV_STAT_SEQUENCE)
			p->sequence = s->v[i].sequence;
		summarise(r, s->v + i, end - i, p);
	}
	return KV_OK;
}

static int
rows_of(struct kv_stat_run *r, struct slot *s, struct kv_err *e)
{
	struct values d = { 0 };
	int rc = KV_OK;

	for (size_t of = 0; of < N_OF && rc == KV_OK; of++) {
		struct values *v = &s->of[of].values;

		if (v->n > 0)
			qsort(v->v, v->n, sizeof *v->v, by_place_and_sequence);
		rc = add_rows(r, s->q, of, v, e);
	}
	if (rc == KV_OK)
		rc = subtract(&s->of[KV_STAT_OF_A].values, &s->of[KV_STAT_OF_B].values, &d, e);
	if (rc == KV_OK)
		rc = add_rows(r, s->q, KV_STAT_OF_DIFFERENCE, &d, e);
	free(d.v);
	return rc;
}

int
kv_stat_rows(struct kv_stat_run *r, const struct kv_stat_row **rows, size_t *n, struct kv_err *e)
{
	int rc = KV_OK;

	r->n_rows = 0;
	for (size_t i = 0; i < r->n && rc == KV_OK; i++)
		rc = rows_of(r, &r->slot[i], e);
	*rows = r->rows;
	*n = r->n_rows;
	if (rc < 0 || r->n_rows > 0)
		return rc;
	if (r->sequence == 0)
		return kv_fail(e, KV_EFAIL, "no sequence to measure");
	return kv_fail(e, KV_EFAIL,
	    "nothing to measure: needed are score (kv-score METHOD), budget (kv-budget METHOD), index (kv-evict), "
	    "k (kv-prefill) or logits.response (kv-decode -o FILE)");
}
