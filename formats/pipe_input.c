/* SPDX-License-Identifier: MIT */
#include "formats/pipe_inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- FILE:tensor=newname */

/* Where the renamings begin, NULL if the operand has none: a file of the whole name comes first. */
static const char *
find_renamings(const char *operand)
{
	const char *colon = strrchr(operand, ':');
	struct stat st;

	if (colon == NULL || strchr(colon, '=') == NULL || strchr(colon, '/') != NULL || stat(operand, &st) == 0)
		return NULL;
	return colon + 1;
}

static int
copy_name(char *to, const char *from, size_t n, const char *list, struct kv_err *e)
{
	if (!kv_name_is_valid(from, n) || memchr(from, '=', n) != NULL)
		return kv_fail(e, KV_EARG, "expected FILE:tensor=newname, found ':%s'", list);
	memcpy(to, from, n);
	to[n] = '\0';
	return KV_OK;
}

/* "score=score.b,budget=old" */
static int
read_renamings(struct kv_input *in, const char *list, struct kv_err *e)
{
	size_t n = 1, equals, end;
	int rc;

	for (const char *c = list; (c = strchr(c, ',')) != NULL; c++)
		n++;
	if ((in->renamings = kv_alloc(n, sizeof *in->renamings, e)) == NULL)
		return KV_EMEM;
	for (const char *at = list; in->n_renamings < n; at += end + 1) {
		struct kv_renaming *r = &in->renamings[in->n_renamings++];

		end = strcspn(at, ",");
		equals = strcspn(at, "=,");
		if (at[equals] != '=')
			return kv_fail(e, KV_EARG, "expected FILE:tensor=newname, found ':%s'", list);
		if ((rc = copy_name(r->from, at, equals, list, e)) < 0 ||
		    (rc = copy_name(r->to, at + equals + 1, end - equals - 1, list, e)) < 0)
			return rc;
	}
	return KV_OK;
}

/* The record's own bytes say the new name too; what else they say stays. */
static int
rename_head(struct kv_input *in, const char *name, struct kv_err *e)
{
	struct kv_record *h = &in->head;
	struct kv_buf raw = { 0 };
	int rc;

	strcpy(h->tensor.name, name);
	if (json_object_set_new(h->map, "tensor", json_string_nocheck(name)) < 0)
		return kv_no_memory(e, strlen(name));
	if ((rc = kv_pack_encode(&raw, h->map, e)) < 0) {
		kv_buf_fini(&raw);
		return rc;
	}
	kv_buf_fini(&h->raw);
	h->raw = raw;
	return KV_OK;
}

static int
apply_renamings(struct kv_input *in, struct kv_err *e)
{
	for (size_t i = 0; i < in->n_renamings; i++) {
		struct kv_renaming *r = &in->renamings[i];

		if (strcmp(r->from, in->head.tensor.name) == 0) {
			r->met = true;
			return rename_head(in, r->to, e);
		}
	}
	return KV_OK;
}

int
kv_input_ended(const struct kv_input *in, struct kv_err *e)
{
	for (size_t i = 0; i < in->n_renamings; i++)
		if (!in->renamings[i].met)
			return kv_fail(e, KV_EFORMAT, "%s: no tensor %s, which was to be renamed",
			    kv_reader_name(in->reader), in->renamings[i].from);
	return KV_OK;
}

/* ---- records */

int
kv_input_open(struct kv_input *in, const char *operand, struct kv_err *e)
{
	const char *renamings = find_renamings(operand);
	char *path;
	int rc = KV_OK;

	*in = (struct kv_input){ 0 };
	path = renamings != NULL ? strndup(operand, (size_t)(renamings - operand) - 1) : strdup(operand);
	if (path == NULL)
		return kv_no_memory(e, strlen(operand));
	if (renamings != NULL && (rc = read_renamings(in, renamings, e)) < 0)
		kv_where(e, "%s", path);
	if (rc == KV_OK)
		rc = kv_reader_open(&in->reader, path, e);
	free(path);
	return rc;
}

void
kv_input_close(struct kv_input *in)
{
	kv_input_consume(in);
	kv_reader_free(in->reader);
	free(in->renamings);
	*in = (struct kv_input){ 0 };
}

int
kv_input_fetch(struct kv_input *in, struct kv_err *e)
{
	int rc;

	if (in->has_head)
		return KV_OK;
	if ((rc = kv_reader_next(in->reader, &in->head, e)) == KV_END)
		return kv_fail(e, KV_EFORMAT, "%s: read beyond its end", kv_reader_name(in->reader));
	if (rc < 0)
		return rc;
	in->has_head = true;
	if (in->head.kind == KV_RECORD_TENSOR && apply_renamings(in, e) < 0)
		return kv_where(e, "%s", kv_reader_name(in->reader));
	return KV_OK;
}

void
kv_input_consume(struct kv_input *in)
{
	kv_record_fini(&in->head);
	in->has_head = false;
}

int
kv_input_where(const struct kv_input *in, size_t sequence, int layer, const char *tensor, struct kv_err *e)
{
	const char *name = kv_reader_name(in->reader), *sep = tensor ? ", " : "";

	tensor = tensor ? tensor : "";
	if (layer == KV_NO_LAYER)
		return kv_where(e, "%s: sequence %zu%s%s", name, sequence, sep, tensor);
	return kv_where(e, "%s: sequence %zu, layer %d%s%s", name, sequence, layer, sep, tensor);
}
