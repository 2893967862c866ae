/* SPDX-License-Identifier: MIT */
#include "lib/text/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/file.h"

#define FILE_MAX ((size_t)1 << 32) /* bytes of one input file */

static void
prompt_fini(struct kv_prompt *p)
{
	free(p->from);
	free(p->id);
	free(p->text);
	kv_ids_fini(&p->ids);
	json_decref(p->attributes);
}

void
kv_prompts_fini(struct kv_prompts *p)
{
	for (size_t i = 0; i < p->n; i++)
		prompt_fini(&p->v[i]);
	free(p->v);
	*p = (struct kv_prompts){ 0 };
}

/* A new empty prompt at the end, with its number as id; NULL without memory. */
static struct kv_prompt *
push(struct kv_prompts *p, struct kv_err *e)
{
	struct kv_prompt *x;
	char id[32];

	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 8;
		struct kv_prompt *v = reallocarray(p->v, cap, sizeof *v);

		if (v == NULL) {
			kv_no_memory(e, cap * sizeof *v);
			return NULL;
		}
		p->v = v;
		p->cap = cap;
	}
	x = &p->v[p->n];
	*x = (struct kv_prompt){ 0 };
	snprintf(id, sizeof id, "%zu", p->n);
	if ((x->id = strdup(id)) == NULL) {
		kv_no_memory(e, sizeof id);
		return NULL;
	}
	p->n++;
	return x;
}

/* Where the newest prompt is from.  line: 0 for all of the file. */
static int
set_from(struct kv_prompts *p, const char *path, size_t line, struct kv_err *e)
{
	const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
	struct kv_buf b = { 0 };
	int rc = line > 0 ? kv_buf_printf(&b, e, "%s:%zu", name, line) : kv_buf_printf(&b, e, "%s", name);

	if (rc == KV_OK)
		p->v[p->n - 1].from = b.data;
	return rc;
}

int
kv_prompts_add_text(struct kv_prompts *p, const char *text, size_t bytes, struct kv_err *e)
{
	struct kv_prompt *x = push(p, e);

	if (x == NULL || (x->text = kv_alloc(bytes + 1, 1, e)) == NULL)
		return KV_EMEM;
	memcpy(x->text, text, bytes);
	x->bytes = bytes;
	return KV_OK;
}

int
kv_prompts_add_file(struct kv_prompts *p, const char *path, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	int rc = kv_file_read(path, FILE_MAX, &b, e);

	if (rc == KV_OK)
		rc = kv_prompts_add_text(p, b.data != NULL ? b.data : "", b.n, e);
	if (rc == KV_OK)
		rc = set_from(p, path, 0, e);
	kv_buf_fini(&b);
	return rc;
}

int
kv_prompts_add_tokens(struct kv_prompts *p, const char *list, struct kv_err *e)
{
	struct kv_prompt *x = push(p, e);

	return x != NULL ? kv_ids_parse(&x->ids, list, e) : KV_EMEM;
}

int
kv_prompts_add_tokens_file(struct kv_prompts *p, const char *path, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	int rc = kv_file_read(path, FILE_MAX, &b, e);

	if (rc == KV_OK && b.data != NULL && strlen(b.data) != b.n)
		rc = kv_fail(e, KV_EFORMAT, "a NUL byte among token ids");
	if (rc == KV_OK)
		rc = kv_prompts_add_tokens(p, b.data != NULL ? b.data : "", e);
	if (rc == KV_OK)
		rc = set_from(p, path, 0, e);
	if (rc < 0 && rc != KV_EIO)
		kv_where(e, "%s", path);
	kv_buf_fini(&b);
	return rc;
}

/* ---- JSON Lines */

static int
take_prompt(struct kv_prompt *x, const json_t *v, const char *field, struct kv_err *e)
{
	int rc;

	if (v == NULL)
		return kv_fail(e, KV_EFORMAT, "no field '%s' (--field names the one with the prompt)", field);
	if (json_is_array(v))
		return (rc = kv_ids_from_json(&x->ids, v, e)) < 0 ? kv_where(e, "field '%s'", field) : rc;
	if (!json_is_string(v))
		return kv_fail(e, KV_EFORMAT, "field '%s' is neither text nor a list of token ids", field);
	x->bytes = json_string_length(v);
	if ((x->text = kv_alloc(x->bytes + 1, 1, e)) == NULL)
		return KV_EMEM;
	memcpy(x->text, json_string_value(v), x->bytes);
	return KV_OK;
}

static int
take_id(struct kv_prompt *x, const json_t *v, const char *field, struct kv_err *e)
{
	char number[32], *id = NULL;

	if (json_is_string(v) && strlen(json_string_value(v)) != json_string_length(v))
		return kv_fail(e, KV_EFORMAT, "field '%s', the id, has a NUL in it", field);
	if (json_is_string(v))
		id = strdup(json_string_value(v));
	else if (json_is_integer(v)) {
		snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
		id = strdup(number);
	} else
		return kv_fail(e, KV_EFORMAT, "field '%s' is %s, expected text or a whole number for the id", field,
		    v == NULL ? "missing" : "something else");
	if (id == NULL)
		return kv_no_memory(e, 1);
	free(x->id);
	x->id = id;
	return KV_OK;
}

static int
add_line(struct kv_prompts *p, const char *line, size_t n, const char *field, const char *id_field, struct kv_err *e)
{
	struct kv_prompt *x;
	json_error_t why;
	int rc;

	if ((x = push(p, e)) == NULL)
		return KV_EMEM;
	x->attributes = json_loadb(line, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
	if (x->attributes == NULL)
		return kv_fail(e, KV_EFORMAT, "not JSON: %s, byte %d", why.text, why.position);
	if (!json_is_object(x->attributes))
		return kv_fail(e, KV_EFORMAT, "expected a JSON object");
	if ((rc = take_prompt(x, json_object_get(x->attributes, field), field, e)) < 0 || id_field == NULL)
		return rc;
	return take_id(x, json_object_get(x->attributes, id_field), id_field, e);
}

int
kv_prompts_add_jsonl(struct kv_prompts *p, const char *path, const char *field, const char *id_field, struct kv_err *e)
{
	struct kv_buf b = { 0 };
	size_t number = 1, before = p->n;
	int rc = kv_file_read(path, FILE_MAX, &b, e);

	if (rc < 0)
		goto done;
	for (const char *line = b.data, *stop = line + b.n, *end; line != NULL && line < stop;
	     line = end + 1, number++) {
		if ((end = memchr(line, '\n', (size_t)(stop - line))) == NULL)
			end = stop;
		if (line + strspn(line, " \t\r") >= end)
			continue;
		if ((rc = add_line(p, line, (size_t)(end - line), field, id_field, e)) < 0 ||
		    (rc = set_from(p, path, number, e)) < 0) {
			kv_where(e, "%s:%zu", path, number);
			goto done;
		}
	}
	if (p->n == before)
		rc = kv_fail(e, KV_EFORMAT, "%s: no prompt in it", path);
done:
	kv_buf_fini(&b);
	return rc;
}

/* ---- ids */

static int
encode_one(struct kv_prompt *x, const struct kv_prompt_coding *c, struct kv_err *e)
{
	int rc = KV_OK;

	/* an empty turn has no text to ask about, though its markup would be tokens */
	if (x->text != NULL && x->bytes > 0) {
		if (c->chat != NULL)
			rc = kv_chat_encode(
			    c->chat, c->tokenizer, c->system, x->text, x->bytes, true, false, c->flags, &x->ids, e);
		else
			rc = kv_encode(c->tokenizer, x->text, x->bytes, c->flags, &x->ids, e);
	}
	if (rc < 0)
		return rc;
	if (x->ids.n == 0)
		return kv_fail(e, KV_EARG, "the prompt is empty");
	if (c->context > 0 && x->ids.n > c->context)
		return kv_fail(e, KV_EARG, "the prompt has %zu tokens, the model's context ends at %zu: shorten it",
		    x->ids.n, c->context);
	return kv_ids_check(&x->ids, c->vocab, 0, e);
}

/* "prompt 3: ", "prompt 3 (report.txt): ", "prompt 3 (id x): ", "prompt 3 (all.jsonl:4, id x): " */
static int
where(const struct kv_prompt *x, size_t i, struct kv_err *e)
{
	const char *from = x->from != NULL ? x->from : "";
	char number[32];

	snprintf(number, sizeof number, "%zu", i);
	if (strcmp(number, x->id) != 0)
		return kv_where(e, "prompt %zu (%s%sid %s)", i, from, *from ? ", " : "", x->id);
	return *from ? kv_where(e, "prompt %zu (%s)", i, from) : kv_where(e, "prompt %zu", i);
}

int
kv_prompts_encode(struct kv_prompts *p, const struct kv_prompt_coding *c, struct kv_err *e)
{
	for (size_t i = 0; i < p->n; i++)
		if (encode_one(&p->v[i], c, e) < 0)
			return where(&p->v[i], i, e);
	return KV_OK;
}
