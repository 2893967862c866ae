/* SPDX-License-Identifier: MIT */
#include "lib/queries.h"

#include <errno.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = { [KV_QUERIES_NONE] = "none", [KV_QUERIES_LAST] = "last",
	[KV_QUERIES_WINDOW] = "window", [KV_QUERIES_PART] = "part", [KV_QUERIES_ALL] = "all" };
#define N_KINDS (sizeof kinds / sizeof *kinds)

static bool
has_n(enum kv_queries_kind kind)
{
	return kind == KV_QUERIES_WINDOW || kind == KV_QUERIES_PART;
}

/* "NAME:N" */
static bool
parse_n(struct kv_queries *q, const char *name, const char *text)
{
	const size_t n = strlen(name);
	char *end;

	if (strncmp(text, name, n) != 0 || text[n] != ':' || text[n + 1] < '0' || text[n + 1] > '9')
		return false;
	errno = 0;
	q->n = strtoul(text + n + 1, &end, 10);
	return *end == '\0' && errno == 0 && q->n > 0 && q->n <= INT32_MAX;
}

int
kv_queries_parse(struct kv_queries *q, const char *text, struct kv_err *e)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		*q = (struct kv_queries){ (enum kv_queries_kind)i, 0 };
		if (has_n(q->kind) ? parse_n(q, kinds[i], text) : strcmp(text, kinds[i]) == 0)
			return KV_OK;
	}
	*q = (struct kv_queries){ 0 };
	return kv_fail(e, KV_EARG, "expected window:N, part:N, last, all or none, got '%s'", text);
}

const char *
kv_queries_print(struct kv_queries q, char text[32])
{
	if (has_n(q.kind))
		snprintf(text, 32, "%s:%zu", kinds[q.kind], q.n);
	else
		snprintf(text, 32, "%s", kinds[q.kind]);
	return text;
}

const char *
kv_queries_region(struct kv_queries q)
{
	return kinds[q.kind == KV_QUERIES_PART ? KV_QUERIES_WINDOW : q.kind];
}

struct kv_queries
kv_queries_of(size_t n)
{
	if (n <= 1)
		return (struct kv_queries){ n == 0 ? KV_QUERIES_NONE : KV_QUERIES_LAST, 0 };
	if (n == SIZE_MAX)
		return (struct kv_queries){ KV_QUERIES_ALL, 0 };
	return (struct kv_queries){ KV_QUERIES_WINDOW, n };
}

size_t
kv_queries_rows(struct kv_queries q, size_t T)
{
	size_t n = q.n;

	switch (q.kind) {
	case KV_QUERIES_NONE: return 0;
	case KV_QUERIES_LAST: n = 1; break;
	case KV_QUERIES_WINDOW: break;
	case KV_QUERIES_PART: n = T / n > 1 ? T / n : 1; break;
	case KV_QUERIES_ALL: n = T; break;
	}
	return n < T ? n : T;
}

int
kv_queries_positions(const struct kv_tensor *q, size_t W, size_t first, int32_t *pos, struct kv_err *e)
{
	const size_t n = q->shape[1];

	for (size_t i = 0; i < W; i++) {
		const json_int_t at = kv_tensor_position(q, n - W + i, n);

		if (at < 0)
			return kv_fail(e, KV_ESHAPE,
			    "%s: attributes must tell the position of each of its %zu rows (first_position or "
			    "positions)",
			    q->name, n);
		if (at != (json_int_t)(first + i))
			return kv_fail(e, KV_ESHAPE, "%s: row %zu stands at position %lld, expected %zu", q->name,
			    n - W + i, (long long)at, first + i);
		if (pos != NULL)
			pos[i] = (int32_t)at;
	}
	return KV_OK;
}

/* Does q hold rows of the prompt, rather than of what comes behind it? */
static bool
is_of_prompt(const struct kv_tensor *q)
{
	const char *region = json_string_value(json_object_get(q->attrs, "region"));

	for (size_t i = KV_QUERIES_LAST; region != NULL && i < N_KINDS; i++)
		if (strcmp(region, kinds[i]) == 0)
			return true;
	return false;
}

int
kv_queries_match(
    const struct kv_tensor *q, size_t W, size_t T, struct kv_queries want, int32_t *pos, struct kv_err *e)
{
	char option[32];

	if (!is_of_prompt(q) || q->shape[1] < W)
		return kv_fail(e, KV_ESHAPE,
		    "q does not hold the queries of the last %zu prompt tokens: run kv-prefill with --queries %s", W,
		    kv_queries_print(want, option));
	return kv_queries_positions(q, W, T - W, pos, e);
}
