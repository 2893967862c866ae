/* SPDX-License-Identifier: MIT
 * Model files: one row per format, recognised by content.
 */
#ifndef KV_FORMAT_H
#define KV_FORMAT_H

#include "lib/model/model.h"

struct kv_format {
	const char *name;  /* "gguf", "huggingface" */
	const char *brief; /* one line */
	/* Is this one?  Looks at the first bytes of a file, or at the names in a folder. */
	bool (*probe)(const char *path);
	/* Fill *m (zeroed by the caller, who calls kv_model_fini in any case).  with_weights false: configuration and
	 * vocabulary only (kv-score has no use for weights).  NULL: no model, but a file that goes with one. */
	int (*open)(struct kv_model *m, const char *path, bool with_weights, struct kv_err *e);
	/* One line per tensor in the file, for kv-show: fn is called in file order. */
	int (*tensors)(const char *path,
	    int (*fn)(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e),
	    void *ctx, struct kv_err *e);
	/* The file's metadata as JSON (large arrays shortened), new reference. */
	int (*metadata)(const char *path, json_t **out, struct kv_err *e);
};
extern const struct kv_format *const kv_formats[]; /* ends with NULL; formats.c */

const struct kv_format *kv_format_probe(const char *path); /* NULL if nothing recognises it */

/* Open a model whatever its format.  Fails: KV_EIO, KV_EMODEL ("not a model file: ..."), each naming path. */
int kv_model_open(struct kv_model *m, const char *path, bool with_weights, struct kv_err *e);

#endif
