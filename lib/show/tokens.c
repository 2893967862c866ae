/* SPDX-License-Identifier: MIT
 * Which tokens the heads keep.
 *
 * Of many heads: the text, and under each token how many of the heads keep it.  Of one head: the text that it keeps,
 * with a dot for every token that it dropped.  Tokens that are parts of one character are shown as that character. */
#include <stdlib.h>
#include <string.h>

#include "lib/show/show.h"

#define FLUSH_BYTES (1 << 16)
#define MARGIN      9 /* columns in front of the text: a position and a bar */

/* A line of the view being filled. */
struct line {
	struct kv_buf text, marks;
	size_t width; /* columns that text takes */
	size_t from;  /* position of its first token */
};

static bool
tokens_wants(const struct kv_show *s, const struct kv_tensor *t)
{
	(void)s;
	return strcmp(t->name, "index") == 0 || strcmp(t->name, "offset") == 0;
}

static int
tokens_tensor(struct kv_show *s, struct kv_tensor *t)
{
	if (strcmp(t->name, "k") == 0 && t->n_axes == 3)
		s->n_full = t->shape[0];
	kv_show_hold(s, t);
	return s->rc;
}

/* A layer that was not evicted holds its whole prompt. */
static void
count_full(struct kv_show *s)
{
	size_t heads = s->o.head == KV_SHOW_ALL ? s->n_full : s->o.head < s->n_full;

	s->n_heads += heads;
	s->n_kept += heads * s->T;
	for (size_t p = 0; p < s->T; p++)
		s->kept[p] += (uint32_t)heads;
}

static int
tokens_layer(struct kv_show *s)
{
	struct kv_show_kept k;

	if (!kv_show_kept(s, &k)) {
		if (s->rc == KV_OK)
			count_full(s);
		return s->rc;
	}
	for (size_t h = 0; h < k.Hkv; h++) {
		if (s->o.head != KV_SHOW_ALL && s->o.head != h)
			continue;
		s->n_heads++;
		s->n_kept += (size_t)(k.offset[h + 1] - k.offset[h]);
		for (int32_t i = k.offset[h]; i < k.offset[h + 1]; i++) {
			if ((size_t)k.index[i] >= s->T)
				return s->rc = kv_fail(&s->err, KV_EFORMAT,
					   "index: position %d, but the prompt has %zu tokens", k.index[i], s->T);
			s->kept[k.index[i]]++;
		}
	}
	return s->rc;
}

/* The token's own bytes, or " ID" without a tokenizer. */
static void
add_token(struct kv_show *s, size_t position, struct kv_buf *out)
{
	int32_t id = s->tokens[position];

	if (s->rc < 0)
		return;
	if (s->tokenizer == NULL)
		s->rc = kv_buf_printf(out, &s->err, " %d", id);
	else if ((size_t)id >= kv_tokenizer_vocab(s->tokenizer)->n)
		s->rc = kv_fail(&s->err, KV_EMODEL, "token %zu has id %d, beyond the model's vocabulary", position, id);
	else
		s->rc = kv_decode_token(s->tokenizer, id, true, out, &s->err);
}

static int
tokens_json(struct kv_show *s)
{
	struct kv_buf bytes = { 0 }, text = { 0 };

	for (size_t p = 0; p < s->T && s->rc == KV_OK; p++) {
		json_t *o = json_pack("{s:I, s:I, s:i, s:I, s:I}", "sequence", (json_int_t)s->sequence, "position",
		    (json_int_t)p, "token", (int)s->tokens[p], "kept", (json_int_t)s->kept[p], "of",
		    (json_int_t)s->n_heads);

		bytes.n = text.n = 0;
		add_token(s, p, &bytes);
		if (s->tokenizer && s->rc == KV_OK && (s->rc = kv_escape(&text, bytes.data, bytes.n, &s->err)) == KV_OK)
			json_object_set_new(o, "text", json_stringn(text.data, text.n));
		kv_say_json(s, o);
		kv_show_flush(s, FLUSH_BYTES);
	}
	kv_buf_fini(&bytes);
	kv_buf_fini(&text);
	return s->rc;
}

/* Was one head chosen? */
static bool
is_one(const struct kv_show *s)
{
	return s->o.layer != KV_SHOW_ALL && s->o.head != KV_SHOW_ALL;
}

static void
say_heading(struct kv_show *s)
{
	size_t all = 0, none = 0;

	for (size_t p = 0; p < s->T; p++) {
		all += s->kept[p] == s->n_heads;
		none += s->kept[p] == 0;
	}
	kv_say(s, "sequence %zu: %zu tokens; ", s->sequence, s->T);
	if (s->n_heads == 0)
		kv_say(s, "no keys in this stream\n");
	else if (is_one(s))
		kv_say(s, "layer %zu, head %zu keeps %zu (%.1f %%)\n", s->o.layer, s->o.head, s->n_kept,
		    100.0 * (double)s->n_kept / (double)(s->T ? s->T : 1));
	else
		kv_say(s,
		    "%zu heads keep %.1f each (%.1f %%); kept by all %zu, by none %zu\n"
		    "marks: # all heads, 9..1 tenths of them, . fewer, blank none\n",
		    s->n_heads, (double)s->n_kept / (double)s->n_heads,
		    100.0 * (double)s->n_kept / (double)(s->n_heads * (s->T ? s->T : 1)), all, none);
}

static void
end_line(struct kv_show *s, struct line *l, size_t next)
{
	size_t n = l->marks.n;

	if (s->rc == KV_OK && l->text.n > 0) {
		kv_say(s, "%7zu |", l->from);
		s->rc = kv_buf_add(&s->out, l->text.data, l->text.n, &s->err);
		while (n > 0 && l->marks.data[n - 1] == ' ')
			n--;
		if (n > 0)
			kv_say(s, "\n%7s |", "");
		if (n > 0 && s->rc == KV_OK)
			s->rc = kv_buf_add(&s->out, l->marks.data, n, &s->err);
		kv_say(s, "\n");
	}
	l->text.n = l->marks.n = l->width = 0;
	l->from = next;
	kv_show_flush(s, FLUSH_BYTES);
}

static char
mark(size_t kept, size_t of)
{
	static const char tenths[] = ".123456789";

	return kept == 0 ? ' ' : kept >= of ? '#' : tenths[kept * 10 / of];
}

/* One character's worth of tokens, from .. next - 1, escaped text of them in cell. */
static void
add_cell(struct kv_show *s, struct line *l, const struct kv_buf *cell, size_t from, size_t next, size_t kept)
{
	bool one = is_one(s), newline = cell->n >= 2 && memcmp(cell->data + cell->n - 2, "\\n", 2) == 0;
	size_t width = one && kept == 0 ? next - from : kv_display_width(cell->data, cell->n), blanks;

	if (l->width > 0 && l->width + width + MARGIN > s->o.width)
		end_line(s, l, from);
	if (one) {
		for (size_t p = from; p < next && kept == 0 && s->rc == KV_OK; p++)
			s->rc = kv_buf_printf(&l->text, &s->err, "\u00b7");
		if (kept > 0 && s->rc == KV_OK)
			s->rc = kv_buf_add(&l->text, cell->data, cell->n, &s->err);
	} else if (s->rc == KV_OK && (s->rc = kv_buf_add(&l->text, cell->data, cell->n, &s->err)) == KV_OK) {
		blanks = strspn(cell->data, " ");
		blanks = blanks < width ? blanks : 0;
		s->rc = kv_buf_printf(&l->marks, &s->err, "%*s%c%*s", (int)blanks, "", mark(kept, s->n_heads),
		    width > blanks ? (int)(width - blanks - 1) : 0, "");
	}
	l->width += width;
	if (newline && !one)
		end_line(s, l, next);
}

static int
tokens_text(struct kv_show *s)
{
	struct kv_buf bytes = { 0 }, cell = { 0 };
	struct line l = { 0 };
	size_t from = 0, kept = 0;

	say_heading(s);
	for (size_t p = 0; p < s->T && s->rc == KV_OK; p++) {
		add_token(s, p, &bytes);
		kept = s->kept[p] > kept ? s->kept[p] : kept;
		if (p + 1 < s->T && kv_utf8_ready(bytes.data, bytes.n) < bytes.n)
			continue;
		if (s->rc == KV_OK && (s->rc = kv_escape(&cell, bytes.data, bytes.n, &s->err)) == KV_OK)
			add_cell(s, &l, &cell, from, p + 1, kept);
		bytes.n = cell.n = kept = 0;
		from = p + 1;
	}
	end_line(s, &l, 0);
	kv_buf_fini(&bytes);
	kv_buf_fini(&cell);
	kv_buf_fini(&l.text);
	kv_buf_fini(&l.marks);
	return s->rc;
}

static int
tokens_close(struct kv_show *s)
{
	if (s->rc == KV_OK && s->n_heads == 0 && (s->o.layer != KV_SHOW_ALL || s->o.head != KV_SHOW_ALL))
		s->rc = kv_fail(&s->err, KV_EARG, "no keys of this layer and head; kv-show FILE lists what is there");
	if (s->rc < 0)
		return s->rc;
	return s->o.json ? tokens_json(s) : tokens_text(s);
}

static int
tokens_map(struct kv_show *s, const json_t *map)
{
	(void)map;
	return s->rc;
}

static int
tokens_other(struct kv_show *s, size_t bytes)
{
	(void)bytes;
	return s->rc;
}

static int
tokens_end(struct kv_show *s)
{
	return s->rc;
}

const struct kv_view kv_view_tokens = {
	.wants = tokens_wants,
	.header = tokens_map,
	.sequence = tokens_map,
	.tensor = tokens_tensor,
	.layer = tokens_layer,
	.close = tokens_close,
	.other = tokens_other,
	.end = tokens_end,
};
