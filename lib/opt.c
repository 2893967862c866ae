/* SPDX-License-Identifier: MIT */
#include "lib/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 28 /* where the text of a help line begins */

static const struct kv_opt *
find_long(const struct kv_opt *const *tables, const char *name, size_t n)
{
	for (; *tables != NULL; tables++)
		for (const struct kv_opt *o = *tables; o->name != NULL; o++)
			if (strncmp(o->name, name, n) == 0 && o->name[n] == '\0')
				return o;
	return NULL;
}

static const struct kv_opt *
find_letter(const struct kv_opt *const *tables, char letter)
{
	for (; *tables != NULL; tables++)
		for (const struct kv_opt *o = *tables; o->name != NULL; o++)
			if (o->letter != 0 && o->letter == letter)
				return o;
	return NULL;
}

/* The place of s in "raw|position", -1 if it is none of them. */
static int
find_choice(const char *choices, const char *s)
{
	size_t n = strlen(s), m;
	int i = 0;

	for (const char *p = choices; n > 0; p += m + 1, i++) {
		m = strcspn(p, "|");
		if (m == n && strncmp(p, s, n) == 0)
			return i;
		if (p[m] == '\0')
			break;
	}
	return -1;
}

static double
largest(enum kv_opt_kind kind)
{
	switch (kind) {
	case KV_UINT: return UINT32_MAX;
	case KV_SIZE: return (double)INT64_MAX;
	default: return (double)UINT64_MAX;
	}
}

static int
set_whole(const struct kv_opt *o, const char *s, struct kv_err *e)
{
	bool ranged = o->max > o->min;
	double min = ranged ? o->min : 0, max = ranged ? o->max : largest(o->kind);
	unsigned long long v;
	int word = o->choices != NULL ? find_choice(o->choices, s) : -1;
	char *end;

	if (o->kind == KV_SIZE && word >= 0) {
		*(size_t *)o->to = SIZE_MAX - (size_t)word;
		return KV_OK;
	}
	errno = 0;
	v = strtoull(s, &end, 10);
	/* strtoull takes spaces and signs; a count has neither */
	if (!isdigit((unsigned char)*s) || *end != '\0' || errno == ERANGE || (double)v < min || (double)v > max ||
	    (o->kind == KV_SIZE && v > INT64_MAX))
		return kv_fail(e, KV_EARG, "--%s: expected a whole number from %.0f to %llu%s%s, got '%s'", o->name,
		    min, max < 0x1p64 ? (unsigned long long)max - (max == 0x1p63) : (unsigned long long)UINT64_MAX,
		    o->choices != NULL ? " or " : "", o->choices != NULL ? o->choices : "", s);
	if (o->kind == KV_UINT)
		*(unsigned *)o->to = (unsigned)v;
	else if (o->kind == KV_SIZE)
		*(size_t *)o->to = (size_t)v;
	else
		*(uint64_t *)o->to = v;
	return KV_OK;
}

static int
set_double(const struct kv_opt *o, const char *s, struct kv_err *e)
{
	bool ranged = o->max > o->min;
	char *end;
	double v = strtod(s, &end);

	if (end == s || isspace((unsigned char)*s) || *end != '\0' || !isfinite(v))
		return kv_fail(e, KV_EARG, "--%s: expected a number, got '%s'", o->name, s);
	if (ranged && (v < o->min || v > o->max))
		return kv_fail(
		    e, KV_EARG, "--%s: expected a number from %g to %g, got '%s'", o->name, o->min, o->max, s);
	*(double *)o->to = v;
	return KV_OK;
}

static int
set_string(const struct kv_opt *o, const char *s, struct kv_err *e)
{
	if (o->choices != NULL && find_choice(o->choices, s) < 0)
		return kv_fail(e, KV_EARG, "--%s: expected one of %s, got '%s'", o->name, o->choices, s);
	*(const char **)o->to = s;
	return KV_OK;
}

static int
add_string(const struct kv_opt *o, const char *s, struct kv_err *e)
{
	struct kv_strings *l = o->to;
	const char **v = realloc(l->v, (l->n + 1) * sizeof *v);

	if (v == NULL)
		return kv_no_memory(e, (l->n + 1) * sizeof *v);
	l->v = v;
	l->v[l->n++] = s;
	return KV_OK;
}

int
kv_opt_set(const struct kv_opt *o, const char *value, struct kv_err *e)
{
	switch (o->kind) {
	case KV_FLAG: *(bool *)o->to = true; return KV_OK;
	case KV_UINT:
	case KV_SIZE:
	case KV_U64: return set_whole(o, value, e);
	case KV_DOUBLE: return set_double(o, value, e);
	case KV_STRING: return set_string(o, value, e);
	case KV_LIST: return add_string(o, value, e);
	}
	return kv_fail(e, KV_EARG, "--%s: no such kind of option", o->name);
}

/* Who gets to see the options and operands of a command line, in order. */
struct walk {
	const struct kv_opt *const *tables;
	int argc;
	char *const *argv;
	kv_opt_fn fn;
	void *ctx;
};

/* "--name", "--name=value", "--name value"; *i is moved over a value of its own. */
static int
walk_long(const struct walk *w, int *i, struct kv_err *e)
{
	const char *name = w->argv[*i] + 2, *eq = strchr(name, '=');
	size_t n = eq != NULL ? (size_t)(eq - name) : strlen(name);
	const struct kv_opt *o = find_long(w->tables, name, n);

	if (o == NULL)
		return kv_fail(e, KV_EARG, "unknown option '--%.*s'", (int)n, name);
	if (o->kind == KV_FLAG)
		return eq == NULL ? w->fn(w->ctx, o, NULL, e) : kv_fail(e, KV_EARG, "--%s takes no value", o->name);
	if (eq != NULL)
		return w->fn(w->ctx, o, eq + 1, e);
	if (*i + 1 >= w->argc)
		return kv_fail(e, KV_EARG, "--%s: expected %s behind it", o->name, o->arg);
	return w->fn(w->ctx, o, w->argv[++*i], e);
}

/* "-qv", "-w32", "-w 32", "-qw32". */
static int
walk_short(const struct walk *w, int *i, struct kv_err *e)
{
	const struct kv_opt *o;
	int rc;

	for (const char *p = w->argv[*i] + 1; *p != '\0'; p++) {
		if ((o = find_letter(w->tables, *p)) == NULL)
			return kv_fail(e, KV_EARG, "unknown option '-%c'", *p);
		if (o->kind == KV_FLAG) {
			if ((rc = w->fn(w->ctx, o, NULL, e)) < 0)
				return rc;
			continue;
		}
		if (p[1] != '\0')
			return w->fn(w->ctx, o, p + 1, e);
		if (*i + 1 >= w->argc)
			return kv_fail(e, KV_EARG, "-%c: expected %s behind it", *p, o->arg);
		return w->fn(w->ctx, o, w->argv[++*i], e);
	}
	return KV_OK;
}

int
kv_opt_walk(const struct kv_opt *const *tables, int argc, char *const *argv, kv_opt_fn fn, void *ctx, struct kv_err *e)
{
	const struct walk w = { tables, argc, argv, fn, ctx };
	bool options = true;
	int rc = KV_OK;

	for (int i = 1; i < argc && rc == KV_OK; i++) {
		char *a = argv[i];

		if (!options || a[0] != '-' || a[1] == '\0')
			rc = fn(ctx, NULL, a, e);
		else if (strcmp(a, "--") == 0)
			options = false;
		else if (a[1] == '-')
			rc = walk_long(&w, &i, e);
		else
			rc = walk_short(&w, &i, e);
	}
	return rc;
}

struct operands {
	char **argv;
	int n;
};

static int
set_or_keep(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	struct operands *kept = ctx;

	if (o != NULL)
		return kv_opt_set(o, text, e);
	kept->argv[kept->n++] = (char *)text; /* never behind the argument that is read */
	return KV_OK;
}

int
kv_opt_parse(const struct kv_opt *const *tables, int *argc, char **argv, struct kv_err *e)
{
	struct operands kept = { argv, 1 };
	int rc = kv_opt_walk(tables, *argc, argv, set_or_keep, &kept, e);

	if (rc < 0)
		return rc;
	*argc = kept.n;
	argv[kept.n] = NULL;
	return KV_OK;
}

/* A number that its own range would refuse says that there is no default. */
static bool
is_unset(const struct kv_opt *o)
{
	double v;

	switch (o->kind) {
	case KV_UINT: v = *(unsigned *)o->to; break;
	case KV_SIZE:
		if (o->choices != NULL && *(size_t *)o->to > INT64_MAX + 1ull)
			return false;
		v = (double)*(size_t *)o->to;
		break;
	case KV_U64: v = (double)*(uint64_t *)o->to; break;
	case KV_DOUBLE: v = *(double *)o->to; break;
	default: return false;
	}
	return o->max > o->min && (v < o->min || v > o->max);
}

/* The word that stands for a number, as kv_opt_set() stores it; false when v is a number. */
static bool
word_of(const struct kv_opt *o, size_t v, const char **word, int *length)
{
	const char *p = o->choices;

	for (size_t skip = SIZE_MAX - v; p != NULL && skip > 0; skip--)
		p = (p = strchr(p, '|')) != NULL ? p + 1 : NULL;
	*word = p;
	*length = p != NULL ? (int)strcspn(p, "|") : 0;
	return p != NULL;
}

static int
help_default(const struct kv_opt *o, struct kv_buf *out, struct kv_err *e)
{
	const char *s;
	int n;

	if (is_unset(o))
		return KV_OK;
	switch (o->kind) {
	case KV_UINT: return kv_buf_printf(out, e, " (default %u)", *(unsigned *)o->to);
	case KV_SIZE:
		if (*(size_t *)o->to > INT64_MAX && word_of(o, *(size_t *)o->to, &s, &n))
			return kv_buf_printf(out, e, " (default %.*s)", n, s);
		return *(size_t *)o->to > INT64_MAX ? KV_OK : kv_buf_printf(out, e, " (default %zu)", *(size_t *)o->to);
	case KV_U64: return kv_buf_printf(out, e, " (default %llu)", (unsigned long long)*(uint64_t *)o->to);
	case KV_DOUBLE: return kv_buf_printf(out, e, " (default %g)", *(double *)o->to);
	case KV_STRING:
		s = *(const char **)o->to;
		return s != NULL && *s != '\0' ? kv_buf_printf(out, e, " (default %s)", s) : KV_OK;
	default: return KV_OK;
	}
}

int
kv_opt_help(const struct kv_opt *table, struct kv_buf *out, struct kv_err *e)
{
	int rc = KV_OK;

	for (const struct kv_opt *o = table; rc == KV_OK && o->name != NULL; o++) {
		struct kv_buf left = { 0 };

		if (o->letter != 0)
			rc = kv_buf_printf(&left, e, "  -%c, --%s", o->letter, o->name);
		else
			rc = kv_buf_printf(&left, e, "      --%s", o->name);
		if (rc == KV_OK && o->arg != NULL)
			rc = kv_buf_printf(&left, e, " %s", o->arg);
		if (rc == KV_OK)
			rc = kv_buf_printf(out, e, "%-*s  %s", HELP_COLUMN - 2, left.data, o->help);
		if (rc == KV_OK && o->choices != NULL)
			rc = kv_buf_printf(out, e, "%s%s", o->kind == KV_SIZE ? "; or " : ": ", o->choices);
		if (rc == KV_OK)
			rc = help_default(o, out, e);
		if (rc == KV_OK)
			rc = kv_buf_add(out, "\n", 1, e);
		kv_buf_fini(&left);
	}
	return rc;
}

void
kv_opt_fini(const struct kv_opt *const *tables)
{
	for (; *tables != NULL; tables++)
		for (const struct kv_opt *o = *tables; o->name != NULL; o++)
			if (o->kind == KV_LIST) {
				free(((struct kv_strings *)o->to)->v);
				*(struct kv_strings *)o->to = (struct kv_strings){ 0 };
			}
}
