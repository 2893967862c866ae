/* SPDX-License-Identifier: MIT
 * Hugging Face folders: config.json, *.safetensors, tokenizer.json. */
#include "formats/huggingface.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/format.h"
#include "formats/safetensors.h"
#include "lib/buf.h"
#include "lib/fingerprint.h"

#define MAX_JSON   ((size_t)256 << 20)
#define MAX_SHARDS 10000

static int
join(struct kv_buf *b, const char *folder, const char *name, struct kv_err *e)
{
	size_t n = strlen(folder);

	b->n = 0;
	return kv_buf_printf(b, e, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
}

static bool
has_file(const char *folder, const char *name)
{
	struct kv_buf path = { 0 };
	struct stat st;
	bool yes = join(&path, folder, name, NULL) == KV_OK && stat(path.data, &st) == 0 && S_ISREG(st.st_mode);

	kv_buf_fini(&path);
	return yes;
}

int
hf_read_json(const char *folder, const char *name, json_t **out, struct kv_err *e)
{
	struct kv_buf path = { 0 }, text = { 0 };
	json_error_t why;
	int rc;

	*out = NULL;
	if (!has_file(folder, name))
		return KV_OK;
	if ((rc = join(&path, folder, name, e)) < 0 || (rc = kv_file_read(path.data, MAX_JSON, &text, e)) < 0)
		goto done;
	*out = json_loadb(text.data ? text.data : "", text.n, 0, &why);
	if (*out == NULL) /* integers beyond 64 bits occur in tokenizer_config.json (model_max_length) */
		*out = json_loadb(text.data ? text.data : "", text.n, JSON_DECODE_INT_AS_REAL, &why);
	if (*out == NULL)
		rc = kv_fail(e, KV_EFORMAT, "%s: line %d: %s", path.data, why.line, why.text);
	else if (!json_is_object(*out))
		rc = kv_fail(e, KV_EFORMAT, "%s: expected a JSON object", path.data);
	if (rc < 0) {
		json_decref(*out);
		*out = NULL;
	}
done:
	kv_buf_fini(&text);
	kv_buf_fini(&path);
	return rc;
}

/* ---- weights ---- */

static int
by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the shards in a weight_map, each once, ascending; the names are borrowed from it. */
static int
list_shards(const json_t *map, const char ***names, size_t *n, struct kv_err *e)
{
	size_t all = 0, unique = 0;
	const char *tensor;
	json_t *shard;

	*n = 0;
	if ((*names = kv_alloc(json_object_size(map), sizeof **names, e)) == NULL)
		return KV_EMEM;
	json_object_foreach((json_t *)map, tensor, shard)
	{
		const char *name = json_string_value(shard);

		if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
			return kv_fail(e, KV_EFORMAT,
			    "model.safetensors.index.json: %s: expected the name of a file in the folder", tensor);
		(*names)[all++] = name;
	}
	if (all == 0)
		return kv_fail(e, KV_EFORMAT, "model.safetensors.index.json: weight_map is missing or empty");
	qsort(*names, all, sizeof **names, by_text);
	for (size_t i = 0; i < all; i++)
		if (i == 0 || strcmp((*names)[i], (*names)[unique - 1]) != 0)
			(*names)[unique++] = (*names)[i];
	if (unique > MAX_SHARDS)
		return kv_fail(e, KV_EFORMAT, "model.safetensors.index.json: more than %d files", MAX_SHARDS);
	*n = unique;
	return KV_OK;
}

/* Which files a folder's weights are in. */
struct shards {
	json_t *index;      /* owns the names; NULL for a single file */
	const char **names; /* [n], ascending */
	size_t n;
};

static void
shards_fini(struct shards *s)
{
	free(s->names);
	json_decref(s->index);
}

static int
find_shards(struct shards *s, const char *folder, struct kv_err *e)
{
	int rc;

	if (has_file(folder, "model.safetensors")) {
		if ((s->names = kv_alloc(1, sizeof *s->names, e)) == NULL)
			return KV_EMEM;
		s->names[s->n++] = "model.safetensors";
		return KV_OK;
	}
	if ((rc = hf_read_json(folder, "model.safetensors.index.json", &s->index, e)) < 0)
		return rc;
	if (s->index == NULL)
		return kv_fail(e, KV_EMODEL,
		    "%s: neither model.safetensors nor model.safetensors.index.json (other kinds of weight "
		    "files are not read)",
		    folder);
	if ((rc = list_shards(hf_get(s->index, "weight_map"), &s->names, &s->n, e)) < 0)
		kv_where(e, "%s", folder);
	return rc;
}

static int
open_maps(struct kv_model *m, const char *folder, const struct shards *s, struct kv_err *e)
{
	struct kv_buf path = { 0 };
	int rc = KV_OK;

	if ((m->maps = kv_alloc(s->n, sizeof *m->maps, e)) == NULL)
		return KV_EMEM;
	while (m->n_maps < s->n && rc == KV_OK)
		if ((rc = join(&path, folder, s->names[m->n_maps], e)) == KV_OK &&
		    (rc = kv_map_open(&m->maps[m->n_maps], path.data, e)) == KV_OK)
			m->n_maps++;
	kv_buf_fini(&path);
	return rc;
}

/* Calls fn for the tensors of all shards; faults name the shard. */
static int
each_tensor(const struct kv_map *maps, const char *folder, const struct shards *s, bool (*keep)(const char *name),
    safetensors_fn fn, void *ctx, struct kv_err *e)
{
	int rc;

	for (size_t i = 0; i < s->n; i++)
		if ((rc = safetensors_each(&maps[i], keep, fn, ctx, e)) < 0)
			return kv_where(e, "%s/%s", folder, s->names[i]), rc;
	return KV_OK;
}

static bool
is_output(const char *name)
{
	return strcmp(name, kv_roles[KV_OUT].hf) == 0;
}

static int
set_untied(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	(void)name, (void)w, (void)e;
	((struct kv_config *)ctx)->tied = false;
	return KV_OK;
}

/* Known tensors, and biases: those may not be overlooked, every result would be slightly wrong. */
static bool
is_weight(const char *name)
{
	size_t n = strlen(name), layer;
	enum kv_role role;

	return kv_role_find(name, false, &role, &layer) || (n > 5 && strcmp(name + n - 5, ".bias") == 0);
}

static int
set_weight(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	struct kv_model *m = ctx;
	enum kv_role role;
	size_t layer;

	if (!kv_role_find(name, false, &role, &layer))
		return kv_fail(e, KV_EMODEL, "tensor %s: not part of a %s model", name, m->cfg.arch->name);
	if (role == KV_OUT && m->cfg.tied)
		return KV_OK; /* the copy some programs save beside the embedding */
	return kv_model_set(m, layer, role, w, name, e);
}

static int
set_weights(struct kv_model *m, const char *folder, const struct shards *s, bool tied_known, struct kv_err *e)
{
	int rc;

	if (!tied_known) {
		m->cfg.tied = true;
		if ((rc = each_tensor(m->maps, folder, s, is_output, set_untied, &m->cfg, e)) < 0)
			return rc;
	}
	if ((rc = kv_model_alloc(m, e)) < 0 || (rc = each_tensor(m->maps, folder, s, is_weight, set_weight, m, e)) < 0)
		return rc;
	if ((rc = kv_model_complete(m, false, e)) < 0)
		kv_where(e, "%s", folder);
	return rc;
}

/* ---- the whole ---- */

static int
fingerprint(struct kv_model *m, const char *folder, struct kv_err *e)
{
	struct kv_buf path = { 0 }, text = { 0 };
	struct kv_fingerprint *f = NULL;
	int rc;

	if ((rc = join(&path, folder, "config.json", e)) < 0 || (rc = kv_file_read(path.data, MAX_JSON, &text, e)) < 0)
		goto done;
	if ((f = kv_fingerprint_new()) == NULL) {
		rc = kv_no_memory(e, sizeof f);
		goto done;
	}
	for (size_t i = 0; i < m->n_maps; i++)
		kv_fingerprint_add(f, m->maps[i].data, m->maps[i].bytes);
	kv_fingerprint_add(f, text.data, text.n);
	kv_fingerprint_take(f, m->cfg.fingerprint);
done:
	kv_buf_fini(&text);
	kv_buf_fini(&path);
	return rc;
}

/* The model's name: config.json's _name_or_path if it has one, else the folder's. */
static void
set_name(struct kv_config *c, const char *folder, const json_t *config)
{
	const char *name = json_string_value(hf_get(config, "_name_or_path")), *slash;
	size_t n;

	if (name == NULL || name[0] == '\0')
		name = folder;
	for (n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
		;
	slash = memrchr(name, '/', n);
	if (slash != NULL && n > 1) {
		n -= (size_t)(slash + 1 - name);
		name = slash + 1;
	}
	snprintf(c->name, sizeof c->name, "%.*s", (int)(n < sizeof c->name ? n : sizeof c->name - 1), name);
}

static int
read_config(const char *folder, json_t **config, struct kv_config *c, bool *tied_known, struct kv_err *e)
{
	int rc;

	if ((rc = hf_read_json(folder, "config.json", config, e)) < 0)
		return rc;
	if (*config == NULL)
		return kv_fail(e, KV_EMODEL, "%s: no config.json", folder);
	if ((rc = hf_config(*config, c, tied_known, e)) < 0)
		return kv_where(e, "%s/config.json", folder), rc;
	set_name(c, folder, *config);
	return KV_OK;
}

static int
huggingface_open(struct kv_model *m, const char *folder, bool with_weights, struct kv_err *e)
{
	struct shards s = { 0 };
	json_t *config = NULL;
	bool tied_known;
	int rc;

	if ((rc = read_config(folder, &config, &m->cfg, &tied_known, e)) < 0 || (rc = find_shards(&s, folder, e)) < 0 ||
	    (rc = open_maps(m, folder, &s, e)) < 0 || (rc = set_weights(m, folder, &s, tied_known, e)) < 0 ||
	    (rc = fingerprint(m, folder, e)) < 0 || (rc = hf_vocab(folder, config, &m->vocab, e)) < 0)
		goto done;
	if (!with_weights) { /* they had to be complete all the same */
		free(m->weights);
		m->weights = NULL;
	}
done:
	shards_fini(&s);
	json_decref(config);
	return rc;
}

static bool
huggingface_probe(const char *path)
{
	return has_file(path, "config.json");
}

/* ---- inspection ---- */

static int
huggingface_tensors(const char *folder, safetensors_fn fn, void *ctx, struct kv_err *e)
{
	struct kv_model m = { 0 };
	struct shards s = { 0 };
	int rc;

	if ((rc = find_shards(&s, folder, e)) == KV_OK && (rc = open_maps(&m, folder, &s, e)) == KV_OK)
		rc = each_tensor(m.maps, folder, &s, NULL, fn, ctx, e);
	kv_model_fini(&m);
	shards_fini(&s);
	return rc;
}

static int
huggingface_metadata(const char *folder, json_t **out, struct kv_err *e)
{
	static const char *const files[] = { "config.json", "generation_config.json", "tokenizer_config.json" };
	json_t *file;
	int rc;

	*out = json_pack("{s:s}", "format", "huggingface");
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		if ((rc = hf_read_json(folder, files[i], &file, e)) < 0) {
			json_decref(*out);
			*out = NULL;
			return rc;
		}
		if (file != NULL)
			json_object_set_new(*out, files[i], file);
	}
	return KV_OK;
}

const struct kv_format kv_format_huggingface = {
	.name = "huggingface",
	.brief = "a folder with config.json, tokenizer.json and *.safetensors",
	.probe = huggingface_probe,
	.open = huggingface_open,
	.tensors = huggingface_tensors,
	.metadata = huggingface_metadata,
};
