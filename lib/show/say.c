/* SPDX-License-Identifier: MIT
 * Numbers, strings and JSON values as text: shortened for people, whole for programs, escaped for both. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/show/show.h"

#define ITEMS_MAX 8  /* of an array shown whole */
#define ITEMS_CUT 4  /* shown of a longer one, and then its last */
#define TEXT_MAX  64 /* bytes of a string shown whole */
#define TEXT_CUT  48

void
kv_say(struct kv_show *s, const char *fmt, ...)
{
	char text[512]; /* fmt's own words and numbers; strings of any length go through kv_say_bytes() */
	va_list ap;
	int n;

	if (s->rc < 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	s->rc = kv_buf_add(&s->out, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1, &s->err);
}

void
kv_say_bytes(struct kv_show *s, const char *bytes, size_t n)
{
	if (s->rc == KV_OK)
		s->rc = kv_escape(&s->out, bytes, n, &s->err);
}

void
kv_say_string(struct kv_show *s, const char *text)
{
	kv_say_bytes(s, text, strlen(text));
}

void
kv_say_padded(struct kv_show *s, const char *text, size_t columns)
{
	size_t from = s->out.n, w;

	kv_say_string(s, text);
	w = s->rc < 0 ? 0 : kv_display_width(s->out.data + from, s->out.n - from);
	kv_say(s, "%*s", w < columns ? (int)(columns - w) : 0, "");
}

void
kv_say_count(struct kv_show *s, size_t n, int columns)
{
	char digits[32], text[48];
	int len = snprintf(digits, sizeof digits, "%zu", n), at = 0;

	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			text[at++] = ',';
		text[at++] = digits[i];
	}
	text[at] = '\0';
	kv_say(s, "%*s", columns, text);
}

static void
say_text(struct kv_show *s, const char *text, size_t n)
{
	size_t cut = n;

	if (n > TEXT_MAX) /* not within a character: continuation bytes are 10xxxxxx */
		for (cut = TEXT_CUT; cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80; cut--)
			;
	kv_say(s, "\"");
	kv_say_bytes(s, text, cut);
	kv_say(s, "\"");
	if (cut < n)
		kv_say(s, "... (%zu bytes)", n);
}

static void
say_array(struct kv_show *s, const json_t *a)
{
	size_t n = json_array_size(a), head = n > ITEMS_MAX ? ITEMS_CUT : n;

	kv_say(s, "[");
	for (size_t i = 0; i < head; i++) {
		kv_say(s, "%s", i ? ", " : "");
		kv_say_value(s, json_array_get(a, i));
	}
	if (head < n) {
		kv_say(s, ", ... ");
		kv_say_value(s, json_array_get(a, n - 1));
	}
	kv_say(s, "]");
	if (head < n)
		kv_say(s, " (%zu)", n);
}

static bool
listed(const char *const *list, const char *name)
{
	while (list != NULL && *list != NULL)
		if (strcmp(*list++, name) == 0)
			return true;
	return false;
}

static void
say_members(struct kv_show *s, const json_t *object, const char *const *skip, const char *before)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)object, key, value) {
		if (listed(skip, key))
			continue;
		kv_say(s, "%s", before);
		kv_say_string(s, key);
		kv_say(s, "=");
		kv_say_value(s, value);
		before = " ";
	}
}

void
kv_say_value(struct kv_show *s, const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		kv_say(s, "{");
		say_members(s, v, NULL, "");
		kv_say(s, "}");
		break;
	case JSON_ARRAY: say_array(s, v); break;
	case JSON_STRING: say_text(s, json_string_value(v), json_string_length(v)); break;
	case JSON_INTEGER: kv_say(s, "%lld", (long long)json_integer_value(v)); break;
	case JSON_REAL: kv_say(s, "%.9g", json_real_value(v)); break;
	case JSON_TRUE: kv_say(s, "true"); break;
	case JSON_FALSE: kv_say(s, "false"); break;
	case JSON_NULL: kv_say(s, "null"); break;
	}
}

void
kv_say_pairs(struct kv_show *s, const json_t *object, const char *const *skip)
{
	say_members(s, object, skip, "  ");
}

static void
say_json_text(struct kv_show *s, const char *text, size_t n)
{
	if (s->rc == KV_OK)
		s->rc = kv_escape_json(&s->out, text, n, &s->err);
}

/* jansson would print DEL and C1 as they are, and nothing at all of strings that are no UTF-8, as arguments in a
 * history can be. */
static void
say_json(struct kv_show *s, const json_t *v)
{
	const char *key, *between = "";
	json_t *item;
	size_t i;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		kv_say(s, "{");
		json_object_foreach ((json_t *)v, key, item) {
			kv_say(s, "%s", between);
			say_json_text(s, key, strlen(key));
			kv_say(s, ":");
			say_json(s, item);
			between = ",";
		}
		kv_say(s, "}");
		break;
	case JSON_ARRAY:
		kv_say(s, "[");
		json_array_foreach (v, i, item) {
			kv_say(s, "%s", i ? "," : "");
			say_json(s, item);
		}
		kv_say(s, "]");
		break;
	case JSON_STRING: say_json_text(s, json_string_value(v), json_string_length(v)); break;
	default: kv_say_value(s, v); break;
	}
}

void
kv_say_json(struct kv_show *s, json_t *object)
{
	if (object)
		say_json(s, object);
	else if (s->rc == KV_OK)
		s->rc = kv_no_memory(&s->err, 0);
	kv_say(s, "\n");
	json_decref(object);
}
