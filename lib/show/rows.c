/* SPDX-License-Identifier: MIT
 * One tensor's values, tab-separated.
 *
 * A row is one point of all axes but `dim`, whose elements stand side by side; without `dim` a row has one value.  In
 * front: the position, the sequence and the layer (unless one was chosen), the head (unless one was chosen), other
 * axes.  Positions are true ones: of what was evicted they come from `index`, of queries from the attributes. */
#include <string.h>

#include "lib/show/show.h"

#define FLUSH_BYTES (1 << 16)

/* What an axis means. */
enum role { POSITION, HEAD, DIM, PLAIN };

struct rows {
	const struct kv_tensor *t;
	enum role role[KV_AXES_MAX];
	int first;                /* the axis whose index (or true position) leads a row; -1: a tensor without axes */
	size_t n, width;          /* rows, values of a row */
	bool positioned;          /* rows have positions of their own, told by the attributes */
	struct kv_show_kept kept; /* of an evicted tensor [entry](, dim) */
	bool ragged;
};

static enum role
role_of(const char *axis)
{
	static const struct {
		const char *axis;
		enum role role;
	} roles[] = { { "token", POSITION }, { "entry", POSITION }, { "query", POSITION }, { "row", POSITION },
		{ "kv_head", HEAD }, { "head", HEAD }, { "dim", DIM } };

	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
		if (strcmp(roles[i].axis, axis) == 0)
			return roles[i].role;
	return PLAIN;
}

static bool
rows_wants(const struct kv_show *s, const struct kv_tensor *t)
{
	return strcmp(t->name, s->o.tensor) == 0 || strcmp(t->name, "index") == 0 || strcmp(t->name, "offset") == 0;
}

static int
rows_tensor(struct kv_show *s, struct kv_tensor *t)
{
	if (strcmp(t->name, s->o.tensor) == 0 && !kv_stats_can(t))
		s->rc =
		    kv_fail(&s->err, KV_EFORMAT, "%s: type %s, which this version cannot print", t->name, t->type_name);
	kv_show_hold(s, t);
	if (s->rc == KV_OK && strcmp(t->name, s->o.tensor) == 0) {
		kv_tensor_fini(&s->value);
		s->value = *t;
		*t = (struct kv_tensor){ 0 };
	}
	return s->rc;
}

static const struct kv_tensor *
wanted(const struct kv_show *s)
{
	if (strcmp(s->o.tensor, "index") == 0)
		return &s->index;
	return strcmp(s->o.tensor, "offset") == 0 ? &s->offset : &s->value;
}

static void
plan(struct rows *r, struct kv_show *s, const struct kv_tensor *t)
{
	*r = (struct rows){ .t = t, .first = -1, .n = 1, .width = 1 };
	for (unsigned i = 0; i < t->n_axes; i++) {
		r->role[i] = role_of(t->axis[i]);
		if (r->role[i] == DIM && (i == 0 || i + 1 < t->n_axes))
			r->role[i] = PLAIN;
		if (r->role[i] == DIM) {
			r->width = t->shape[i];
			continue;
		}
		r->n *= t->shape[i];
		if (r->first < 0 || r->role[r->first] != POSITION)
			r->first = (int)i;
		if (r->role[i] == POSITION && kv_tensor_position(t, 0, t->shape[i]) >= 0)
			r->positioned = true;
	}
	if (t->n_axes > 0 && strcmp(t->axis[0], "entry") == 0 && kv_show_kept(s, &r->kept))
		r->ragged = r->kept.n == t->shape[0];
}

/* Is this axis a column of its own, behind the first? */
static bool
has_column(const struct kv_show *s, const struct rows *r, unsigned axis)
{
	return (int)axis != r->first && r->role[axis] != DIM && (r->role[axis] != HEAD || s->o.head == KV_SHOW_ALL);
}

static void
say_axis(struct kv_show *s, const struct rows *r, unsigned axis)
{
	if (r->role[axis] == HEAD)
		kv_say(s, "head");
	else if (r->role[axis] == POSITION && (r->ragged || r->positioned || strcmp(r->t->axis[axis], "token") == 0))
		kv_say(s, "position");
	else if (r->t->axis[axis][0])
		kv_say_string(s, r->t->axis[axis]);
	else
		kv_say(s, "axis%u", axis);
}

static void
say_names(struct kv_show *s, const struct rows *r)
{
	if (r->first >= 0)
		say_axis(s, r, (unsigned)r->first);
	else
		kv_say(s, "element");
	kv_say(s, "%s%s%s", s->o.sequence == KV_SHOW_ALL ? "\tsequence" : "",
	    s->o.layer == KV_SHOW_ALL ? "\tlayer" : "", r->ragged && s->o.head == KV_SHOW_ALL ? "\thead" : "");
	for (unsigned i = 0; i < r->t->n_axes; i++)
		if (has_column(s, r, i)) {
			kv_say(s, "\t");
			say_axis(s, r, i);
		}
	for (size_t j = 0; j < r->width; j++)
		if (r->width == 1) {
			kv_say(s, "\t");
			kv_say_string(s, r->t->name);
		} else
			kv_say(s, "\tdim%zu", j);
	kv_say(s, "\n");
}

/* Digits that bring every value of the type back. */
static int
digits(enum kvk_type type)
{
	static const int n[KVK_N_TYPES] = {
		[KVK_F32] = 9, [KVK_F16] = 5, [KVK_BF16] = 4, [KVK_I32] = 10, [KVK_U8] = 3
	};

	return n[type];
}

/* Row i at index `at` of the axes; head: of an evicted tensor. */
static void
say_row(struct kv_show *s, const struct rows *r, size_t i, const size_t *at, size_t head)
{
	size_t first = r->first < 0 ? 0 : at[r->first];

	if (r->ragged)
		kv_say(s, "%d", r->kept.index[i]);
	else if (r->positioned)
		kv_say(s, "%lld", (long long)kv_tensor_position(r->t, first, r->t->shape[r->first]));
	else
		kv_say(s, "%zu", first);
	if (s->o.sequence == KV_SHOW_ALL)
		kv_say(s, "\t%zu", s->sequence);
	if (s->o.layer == KV_SHOW_ALL)
		kv_say(s, "\t%d", r->t->layer);
	if (r->ragged && s->o.head == KV_SHOW_ALL)
		kv_say(s, "\t%zu", head);
	for (unsigned a = 0; a < r->t->n_axes; a++)
		if (has_column(s, r, a))
			kv_say(s, "\t%zu", at[a]);
	for (size_t j = 0; j < r->width; j++)
		kv_say(s, "\t%.*g", digits(r->t->type), kv_tensor_get(r->t, i * r->width + j));
	kv_say(s, "\n");
	s->n_rows++;
}

static bool
is_chosen(const struct kv_show *s, const struct rows *r, const size_t *at, size_t head)
{
	if (s->o.head == KV_SHOW_ALL)
		return true;
	for (unsigned a = 0; a < r->t->n_axes; a++)
		if (r->role[a] == HEAD)
			return at[a] == s->o.head;
	return !r->ragged || head == s->o.head;
}

/* The next index of the axes, the last of them running fastest; dim stays. */
static void
step(const struct rows *r, size_t *at)
{
	for (unsigned a = r->t->n_axes; a-- > 0;) {
		if (r->role[a] == DIM)
			continue;
		if (++at[a] < r->t->shape[a])
			return;
		at[a] = 0;
	}
}

static int
rows_layer(struct kv_show *s)
{
	const struct kv_tensor *t = wanted(s);
	size_t at[KV_AXES_MAX] = { 0 }, head = 0;
	struct rows r;

	if (t->data == NULL)
		return s->rc;
	plan(&r, s, t);
	if (s->o.column_names && !s->named)
		say_names(s, &r);
	s->named = true;
	for (size_t i = 0; i < r.n && s->rc == KV_OK; i++, step(&r, at)) {
		while (r.ragged && i >= (size_t)r.kept.offset[head + 1])
			head++;
		if (is_chosen(s, &r, at, head))
			say_row(s, &r, i, at, head);
		kv_show_flush(s, FLUSH_BYTES);
	}
	return s->rc;
}

static int
rows_nothing(struct kv_show *s)
{
	return s->rc;
}

static int
rows_map(struct kv_show *s, const json_t *map)
{
	(void)map;
	return s->rc;
}

static int
rows_other(struct kv_show *s, size_t bytes)
{
	(void)bytes;
	return s->rc;
}

static int
rows_end(struct kv_show *s)
{
	if (s->n_rows == 0)
		s->rc = kv_fail(&s->err, KV_EARG, "no such values: kv-show FILE lists what is there");
	return s->rc;
}

const struct kv_view kv_view_rows = {
	.wants = rows_wants,
	.header = rows_map,
	.sequence = rows_map,
	.tensor = rows_tensor,
	.layer = rows_layer,
	.close = rows_nothing,
	.other = rows_other,
	.end = rows_end,
};
