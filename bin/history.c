/* SPDX-License-Identifier: MIT
 * Our entry in a stream's history. */
#include "bin/command.h"

#include <stdlib.h>
#include <string.h>

struct recipe {
	char **word;
	int n;
	bool has_method;
};

/* The METHOD, and the options that decide what the output says, spelled one way: "--window=16". */
static int
add_word(void *ctx, const struct kv_opt *o, const char *text, struct kv_err *e)
{
	struct recipe *r = ctx;
	struct kv_buf b = { 0 };
	char **word;
	int rc;

	if (o == NULL ? kv_command.tool->methods == NULL || r->has_method : !kv_decides_contents(o))
		return KV_OK;
	if ((word = realloc(r->word, ((size_t)r->n + 1) * sizeof *word)) == NULL)
		return kv_no_memory(e, ((size_t)r->n + 1) * sizeof *word);
	r->word = word;
	r->has_method = r->has_method || o == NULL;
	if (o == NULL)
		rc = kv_buf_printf(&b, e, "%s", text);
	else
		rc = kv_buf_printf(&b, e, "--%s%s%s", o->name, text != NULL ? "=" : "", text != NULL ? text : "");
	if (rc == KV_OK)
		r->word[r->n++] = b.data;
	return rc;
}

json_t *
kv_history(void)
{
	struct recipe r = { 0 };
	json_t *entry = NULL;

	if (kv_opt_walk(kv_command.tables, kv_command.argc, kv_command.argv, add_word, &r, NULL) == KV_OK)
		entry = kv_history_entry(kv_command.tool->name, KV_VERSION, r.n, r.word);
	while (r.n > 0)
		free(r.word[--r.n]);
	free(r.word);
	return entry;
}

int
kv_history_precision(json_t *entry, struct kv_device *d, struct kv_err *e)
{
	const char *name = kvk_precisions[kv_device_precision(d)];

	return json_object_set_new(entry, "precision", json_string(name)) == 0 ? KV_OK : kv_no_memory(e, strlen(name));
}
