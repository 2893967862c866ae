/* SPDX-License-Identifier: MIT
 * The summary as JSON Lines: an object per record, its kind under `record`. */
#include <math.h>

#include "lib/show/show.h"

/* {"record": kind, ...more}, the reference to more being stolen. */
static json_t *
record(const char *kind, json_t *more)
{
	json_t *o = json_pack("{s:s}", "record", kind);

	if (more == NULL || json_object_update_missing(o, more) < 0) {
		json_decref(o);
		o = NULL;
	}
	json_decref(more);
	return o;
}

static json_t *
number(double x)
{
	return isnan(x) ? json_null() : json_real(x);
}

static int
json_header(struct kv_show *s, const json_t *map)
{
	json_t *o = json_copy((json_t *)map);

	json_object_set_new(o, "file", json_string_nocheck(s->file));
	kv_say_json(s, record("header", o));
	return s->rc;
}

static int
json_sequence(struct kv_show *s, const json_t *map)
{
	kv_say_json(s, record("sequence", json_copy((json_t *)map)));
	return s->rc;
}

static bool
json_wants(const struct kv_show *s, const struct kv_tensor *t)
{
	return s->o.stats && kv_stats_can(t);
}

static json_t *
shape(const struct kv_tensor *t, bool names)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < t->n_axes; i++)
		json_array_append_new(a, names ? json_string(t->axis[i]) : json_integer((json_int_t)t->shape[i]));
	return a;
}

static json_t *
layer(int l)
{
	return l == KV_NO_LAYER ? json_null() : json_integer(l);
}

static int
json_tensor(struct kv_show *s, struct kv_tensor *t)
{
	json_t *o = json_pack("{s:I, s:s, s:o, s:s, s:o, s:o, s:I, s:O?}", "sequence", (json_int_t)s->sequence, "name",
	    t->name, "layer", layer(t->layer), "dtype", t->type_name, "shape", shape(t, false), "axes", shape(t, true),
	    "bytes", (json_int_t)t->bytes, "attrs", t->attrs);
	struct kv_stats st;

	if (t->data != NULL && (s->rc = kv_stats_of(t, &st, &s->err)) == KV_OK) {
		json_object_set_new(o, "min", number(st.min));
		json_object_set_new(o, "mean", number(st.mean));
		json_object_set_new(o, "max", number(st.max));
		json_object_set_new(o, "nan", json_integer((json_int_t)st.n_nan));
		json_object_set_new(o, "inf", json_integer((json_int_t)st.n_inf));
	}
	kv_say_json(s, record("tensor", o));
	kv_show_hold(s, t);
	return s->rc;
}

static int
json_layer(struct kv_show *s)
{
	struct kv_show_kept k;
	json_t *heads;

	if (!kv_show_kept(s, &k))
		return s->rc;
	heads = json_array();
	for (size_t h = 0; h < k.Hkv; h++)
		json_array_append_new(heads, json_integer(k.offset[h + 1] - k.offset[h]));
	kv_say_json(s, record("kept", json_pack("{s:I, s:o, s:o, s:I}", "sequence", (json_int_t)s->sequence, "layer",
					  layer(s->index.layer), "heads", heads, "of", (json_int_t)s->T)));
	return s->rc;
}

static int
json_close(struct kv_show *s)
{
	kv_say_json(s, record("close", json_pack("{s:I}", "sequence", (json_int_t)s->sequence)));
	return s->rc;
}

static int
json_other(struct kv_show *s, size_t bytes)
{
	kv_say_json(s, record("unknown", json_pack("{s:I}", "bytes", (json_int_t)bytes)));
	return s->rc;
}

static int
json_end(struct kv_show *s)
{
	kv_say_json(s, record("end", json_pack("{s:I, s:I, s:I}", "sequences", (json_int_t)s->n_sequences, "tensors",
					 (json_int_t)s->n_tensors, "bytes", (json_int_t)s->n_bytes)));
	return s->rc;
}

const struct kv_view kv_view_json = {
	.wants = json_wants,
	.header = json_header,
	.sequence = json_sequence,
	.tensor = json_tensor,
	.layer = json_layer,
	.close = json_close,
	.other = json_other,
	.end = json_end,
};
