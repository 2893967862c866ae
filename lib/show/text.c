/* SPDX-License-Identifier: MIT
 * The default view: a summary for people, one line per tensor. */
#include <math.h>
#include <string.h>

#include "lib/show/show.h"

static long long
number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *
string(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "?";
}

static void
say_model(struct kv_show *s, const json_t *m)
{
	static const char *const said[] = { "name", "architecture", "layers", "heads", "kv_heads", "head_dim",
		"vocabulary", "context", NULL };

	kv_say(s, "model    ");
	kv_say_string(s, string(m, "name"));
	kv_say(s, " (");
	kv_say_string(s, string(m, "architecture"));
	kv_say(s, "): %lld layers, %lld query heads, %lld KV heads of %lld, vocabulary %lld, context %lld\n       ",
	    number(m, "layers"), number(m, "heads"), number(m, "kv_heads"), number(m, "head_dim"),
	    number(m, "vocabulary"), number(m, "context"));
	kv_say_pairs(s, m, said);
	kv_say(s, "\n");
}

/* An argument nearly as a shell would need it. */
static void
say_argument(struct kv_show *s, const json_t *a)
{
	const char *text = json_string_value(a);
	const char *quote = text && (*text == '\0' || strpbrk(text, " \t\n'\"$`\\*?|&;<>()#~")) ? "'" : "";

	kv_say(s, " %s", quote);
	if (text)
		kv_say_string(s, text);
	else
		kv_say_value(s, a);
	kv_say(s, "%s", quote);
}

static void
say_history(struct kv_show *s, const json_t *history)
{
	static const char *const said[] = { "program", "version", "arguments", NULL };
	size_t i, j;
	json_t *entry, *arg;

	json_array_foreach ((json_t *)history, i, entry) {
		kv_say(s, "%-9s", i ? "" : "history");
		kv_say_string(s, string(entry, "program"));
		kv_say(s, " ");
		kv_say_string(s, string(entry, "version"));
		json_array_foreach (json_object_get(entry, "arguments"), j, arg)
			say_argument(s, arg);
		kv_say_pairs(s, entry, said);
		kv_say(s, "\n");
	}
}

static int
text_header(struct kv_show *s, const json_t *map)
{
	static const char *const said[] = { "kvstream", "model", "history", NULL };

	kv_say_string(s, s->file);
	kv_say(s, ": kvtools stream, version %lld", number(map, "kvstream"));
	kv_say_pairs(s, map, said);
	kv_say(s, "\n");
	say_model(s, json_object_get(map, "model"));
	say_history(s, json_object_get(map, "history"));
	return s->rc;
}

static int
text_sequence(struct kv_show *s, const json_t *map)
{
	static const char *const said[] = { "sequence", "tokens", NULL };

	kv_say(s, "\nsequence %zu  ", s->sequence);
	kv_say_count(s, s->n_tokens, 0);
	kv_say(s, " tokens");
	kv_say_pairs(s, map, said);
	kv_say(s, "\n%5s %-12s %-5s %15s%s  shape\n", "layer", "tensor", "type", "bytes",
	    s->o.stats ? "        min       mean        max" : "");
	return s->rc;
}

static bool
text_wants(const struct kv_show *s, const struct kv_tensor *t)
{
	return s->o.stats && kv_stats_can(t);
}

static void
say_shape(struct kv_show *s, const struct kv_tensor *t)
{
	kv_say(s, "  [");
	for (unsigned i = 0; i < t->n_axes; i++) {
		kv_say(s, "%s", i ? ", " : "");
		kv_say_string(s, t->axis[i]);
		kv_say(s, "%s%zu", t->axis[i][0] ? " " : "", t->shape[i]);
	}
	kv_say(s, "]");
}

/* A number in eleven columns; a dash for none. */
static void
say_column(struct kv_show *s, double x)
{
	if (isnan(x))
		kv_say(s, " %10s", "-");
	else
		kv_say(s, " %10.4g", x);
}

static int
text_tensor(struct kv_show *s, struct kv_tensor *t)
{
	struct kv_stats st = { .min = NAN, .mean = NAN, .max = NAN };

	if (t->data != NULL && (s->rc = kv_stats_of(t, &st, &s->err)) < 0)
		return s->rc;
	if (t->layer == KV_NO_LAYER)
		kv_say(s, "%5s ", "-");
	else
		kv_say(s, "%5d ", t->layer);
	kv_say_padded(s, t->name, 13);
	kv_say_padded(s, t->type_name, 5);
	kv_say_count(s, t->bytes, 16);
	if (s->o.stats) {
		say_column(s, st.min);
		say_column(s, st.mean);
		say_column(s, st.max);
	}
	say_shape(s, t);
	if (st.n_nan > 0)
		kv_say(s, "  nan %zu", st.n_nan);
	if (st.n_inf > 0)
		kv_say(s, "  inf %zu", st.n_inf);
	kv_say_pairs(s, t->attrs, NULL);
	kv_say(s, "\n");
	kv_show_hold(s, t);
	return s->rc;
}

/* "kept 384 of 4,500 entries (8.5 %)" */
static void
say_share(struct kv_show *s, size_t n, size_t of)
{
	kv_say(s, "kept ");
	kv_say_count(s, n, 0);
	kv_say(s, " of ");
	kv_say_count(s, of, 0);
	kv_say(s, " entries (%.1f %%)", of ? 100.0 * (double)n / (double)of : 100.0);
}

static int
text_layer(struct kv_show *s)
{
	struct kv_show_kept k;
	bool same = true;

	if (!kv_show_kept(s, &k))
		return s->rc;
	s->n_heads += k.Hkv;
	s->n_kept += k.n;
	for (size_t h = 1; h < k.Hkv; h++)
		same = same && k.offset[h + 1] - k.offset[h] == k.offset[1];
	kv_say(s, "%5s ", "");
	say_share(s, k.n, k.Hkv * s->T);
	if (same)
		kv_say(s, ", %d in each head", k.offset[1]);
	else
		kv_say(s, ", by head:");
	for (size_t h = 0; h < k.Hkv && !same; h++)
		kv_say(s, " %d", k.offset[h + 1] - k.offset[h]);
	kv_say(s, "\n");
	return s->rc;
}

static int
text_close(struct kv_show *s)
{
	if (s->n_heads == 0)
		return s->rc;
	kv_say(s, "  all ");
	say_share(s, s->n_kept, s->n_heads * s->T);
	kv_say(s, ", %.1f a head on average\n", (double)s->n_kept / (double)s->n_heads);
	return s->rc;
}

static int
text_other(struct kv_show *s, size_t bytes)
{
	kv_say(s, "%5s a record of %zu bytes that this version does not know\n", "?", bytes);
	return s->rc;
}

static void
say_total(struct kv_show *s, const char *before, size_t n, const char *what)
{
	kv_say(s, "%s", before);
	kv_say_count(s, n, 0);
	kv_say(s, " %s%s", what, n == 1 ? "" : "s");
}

static int
text_end(struct kv_show *s)
{
	say_total(s, "\ntotal    ", s->n_sequences, "sequence");
	say_total(s, ", ", s->n_tensors, "tensor");
	say_total(s, ", ", s->n_bytes, "byte");
	kv_say(s, "\n");
	return s->rc;
}

const struct kv_view kv_view_text = {
	.wants = text_wants,
	.header = text_header,
	.sequence = text_sequence,
	.tensor = text_tensor,
	.layer = text_layer,
	.close = text_close,
	.other = text_other,
	.end = text_end,
};
