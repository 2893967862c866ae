/* SPDX-License-Identifier: MIT
 * The table of model formats. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/format.h"

extern const struct kv_format kv_format_gguf, kv_format_huggingface, kv_format_lookahead, kv_format_checkpoint,
    kv_format_safetensors;

/* The last one recognises what those before it do. */
const struct kv_format *const kv_formats[] = { &kv_format_gguf, &kv_format_huggingface, &kv_format_lookahead,
	&kv_format_checkpoint, &kv_format_safetensors, NULL };

const struct kv_format *
kv_format_probe(const char *path)
{
	for (size_t i = 0; kv_formats[i] != NULL; i++)
		if (kv_formats[i]->probe(path))
			return kv_formats[i];
	return NULL;
}

int
kv_model_open(struct kv_model *m, const char *path, bool with_weights, struct kv_err *e)
{
	const struct kv_format *f;
	struct stat st;

	if (stat(path, &st) < 0)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return kv_fail(e, KV_EIO, "%s: is not a regular file, and a model has to be one to be mapped", path);
	if ((f = kv_format_probe(path)) == NULL)
		return kv_fail(e, KV_EMODEL,
		    "%s: not a model: expected a GGUF file, or a folder with config.json and *.safetensors", path);
	if (f->open == NULL)
		return kv_fail(e, KV_EMODEL, "%s: not a model but %s", path, f->brief);
	return f->open(m, path, with_weights, e);
}
