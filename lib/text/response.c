/* SPDX-License-Identifier: MIT */
#include "lib/text/response.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/file.h"

#define FILE_MAX ((size_t)1 << 32) /* bytes */

static const char *const kinds[] = {
	[KV_RESPONSE_FILE] = "file:",
	[KV_RESPONSE_FIELD] = "field:",
	[KV_RESPONSE_TOKENS] = "tokens:",
	[KV_RESPONSE_GENERATE] = "generate:",
};

static int
parse_most(struct kv_response *r, struct kv_err *e)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(r->rest, &end, 10);
	if (r->rest[0] < '0' || r->rest[0] > '9' || *end != '\0' || errno != 0 || n == 0 || n > INT32_MAX)
		return kv_fail(
		    e, KV_EARG, "generate: expected a number of tokens, 1 to %d, got '%s'", INT32_MAX, r->rest);
	r->most = n;
	return KV_OK;
}

int
kv_response_parse(struct kv_response *r, const char *spec, struct kv_err *e)
{
	*r = (struct kv_response){ 0 };
	for (size_t i = KV_RESPONSE_FILE; i < sizeof kinds / sizeof *kinds; i++)
		if (strncmp(spec, kinds[i], strlen(kinds[i])) == 0) {
			r->kind = (enum kv_response_kind)i;
			r->rest = spec + strlen(kinds[i]);
		}
	if (r->kind == KV_RESPONSE_NONE)
		return kv_fail(e, KV_EARG, "expected file:FILE, field:NAME, tokens:IDS or generate:N, got '%s'", spec);
	return r->kind == KV_RESPONSE_GENERATE ? parse_most(r, e) : KV_OK;
}

void
kv_response_fini(struct kv_response *r)
{
	kv_buf_fini(&r->text);
	kv_ids_fini(&r->ids);
	*r = (struct kv_response){ 0 };
}

int
kv_response_read(struct kv_response *r, struct kv_err *e)
{
	if (r->kind == KV_RESPONSE_FILE)
		return kv_file_read(r->rest, FILE_MAX, &r->text, e);
	if (r->kind == KV_RESPONSE_TOKENS)
		return kv_ids_parse(&r->ids, r->rest, e);
	return KV_OK;
}

bool
kv_response_is_text(const struct kv_response *r, const json_t *record)
{
	return r->kind == KV_RESPONSE_FILE ||
	       (r->kind == KV_RESPONSE_FIELD && json_is_string(json_object_get(record, r->rest)));
}

static int
add_given(const struct kv_response *r, const struct kv_behind *b, struct kv_ids *ids, struct kv_err *e)
{
	int rc = kv_ids_check(&r->ids, b->vocab, b->n_before, e);

	for (size_t i = 0; i < r->ids.n && rc == KV_OK; i++)
		rc = kv_ids_add(ids, r->ids.v[i], e);
	return rc;
}

int
kv_response_encode(const struct kv_response *r, const struct kv_behind *b, const json_t *record, const int32_t *stops,
    size_t n_stops, struct kv_ids *ids, struct kv_err *e)
{
	size_t first = ids->n;
	int rc = KV_OK;

	if (r->kind == KV_RESPONSE_FILE)
		rc = kv_behind_text(b, r->text.data != NULL ? r->text.data : "", r->text.n, ids, e);
	else if (r->kind == KV_RESPONSE_FIELD)
		rc = kv_behind_field(b, record, r->rest, ids, e);
	else if (r->kind == KV_RESPONSE_TOKENS)
		rc = add_given(r, b, ids, e);
	for (size_t i = 0; rc == KV_OK && i < n_stops; i++)
		if (ids->n > first && ids->v[ids->n - 1] == stops[i]) {
			ids->n--;
			break;
		}
	return rc;
}
