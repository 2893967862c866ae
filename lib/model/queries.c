/* SPDX-License-Identifier: MIT */
#include "lib/model/queries.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = { [KV_QUERIES_NONE] = "none", [KV_QUERIES_LAST] = "last",
	[KV_QUERIES_WINDOW] = "window", [KV_QUERIES_ALL] = "all" };
#define N_KINDS (sizeof kinds / sizeof *kinds)

int
kv_queries_parse(struct kv_queries *q, const char *text, struct kv_err *e)
{
	char *end;

	*q = (struct kv_queries){ 0 };
	if (strncmp(text, "window:", 7) == 0 && text[7] >= '0' && text[7] <= '9') {
		errno = 0;
		*q = (struct kv_queries){ KV_QUERIES_WINDOW, strtoul(text + 7, &end, 10) };
		if (*end == '\0' && errno == 0 && q->n > 0 && q->n <= INT32_MAX)
			return KV_OK;
	}
	for (size_t i = 0; i < N_KINDS; i++)
		if (i != KV_QUERIES_WINDOW && strcmp(text, kinds[i]) == 0) {
			*q = (struct kv_queries){ (enum kv_queries_kind)i, 0 };
			return KV_OK;
		}
	return kv_fail(e, KV_EARG, "expected window:N, last, all or none, got '%s'", text);
}

const char *
kv_queries_print(struct kv_queries q, char text[32])
{
	if (q.kind == KV_QUERIES_WINDOW)
		snprintf(text, 32, "window:%zu", q.n);
	else
		snprintf(text, 32, "%s", kinds[q.kind]);
	return text;
}

const char *
kv_queries_region(struct kv_queries q)
{
	return kinds[q.kind];
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
	const size_t n = q.kind == KV_QUERIES_NONE ? 0 : q.kind == KV_QUERIES_LAST ? 1 : q.n;

	return q.kind == KV_QUERIES_ALL || n > T ? T : n;
}

int
kv_queries_positions(const struct kv_tensor *q, size_t W, size_t first, int32_t *pos, struct kv_err *e)
{
	const size_t n = q->shape[1];

	for (size_t i = 0; i < W; i++) {
		const json_int_t at = kv_tensor_position(q, n - W + i, n);

		if (at < 0)
			return kv_fail(e, KV_ESHAPE,
			    "%s: attributes must tell the position of each of its %zu rows (first_position or positions)",
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
kv_queries_match(const struct kv_tensor *q, size_t W, size_t T, int32_t *pos, struct kv_err *e)
{
	char option[32];

	if (!is_of_prompt(q) || q->shape[1] < W)
		return kv_fail(e, KV_ESHAPE,
		    "q does not hold the queries of the last %zu prompt tokens: run kv-prefill with --queries %s", W,
		    kv_queries_print(kv_queries_of(W), option));
	return kv_queries_positions(q, W, T - W, pos, e);
}
