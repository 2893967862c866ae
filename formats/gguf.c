/* SPDX-License-Identifier: MIT
 * GGUF files as models: keys become the configuration, tensors the weights. */
#include "formats/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/format.h"
#include "lib/buf.h"
#include "lib/fingerprint.h"
#include "lib/tensor.h"

/* ---- configuration ---- */

static const struct gguf_value *
find(const struct gguf *g, const struct kv_config *c, const char *key, char full[GGUF_NAME_MAX])
{
	snprintf(full, GGUF_NAME_MAX, "%s.%s", c->arch->name, key);
	return gguf_find(g, full);
}

/* A size that may stand once or once per layer: all must be equal, as every layer here has the same shape. */
static int
get_size(const struct gguf *g, const struct kv_config *c, const char *key, size_t *out, bool required, struct kv_err *e)
{
	char full[GGUF_NAME_MAX];
	const struct gguf_value *v = find(g, c, key, full);
	uint64_t first, n;

	if (v == NULL)
		return required ? kv_fail(e, KV_EMODEL, "key %s is missing", full) : KV_OK;
	if (!gguf_uint(v, 0, &first))
		return kv_fail(e, KV_EMODEL, "key %s: expected a whole number, found %s%s", full,
		    v->is_array ? "a list of " : "", gguf_type_name(v->type));
	for (uint64_t i = 1; i < v->n; i++)
		if (!gguf_uint(v, i, &n) || n != first)
			return kv_fail(
			    e, KV_EMODEL, "key %s: differs from layer to layer, which is not supported", full);
	*out = (size_t)first;
	return KV_OK;
}

static int
get_real(const struct gguf *g, const struct kv_config *c, const char *key, double *out, bool required, struct kv_err *e)
{
	char full[GGUF_NAME_MAX];
	const struct gguf_value *v = find(g, c, key, full);

	if (v == NULL)
		return required ? kv_fail(e, KV_EMODEL, "key %s is missing", full) : KV_OK;
	if (v->is_array || !gguf_real(v, 0, out))
		return kv_fail(e, KV_EMODEL, "key %s: expected a number", full);
	return KV_OK;
}

/* Copies a string value, "" when absent or not a string; control bytes become '?'. */
static void
get_text(const struct gguf_value *v, char *out, size_t cap)
{
	const unsigned char *at = v != NULL ? v->data : NULL;
	const char *s;
	size_t n;

	out[0] = '\0';
	if (v == NULL || v->type != GGUF_STRING || v->is_array)
		return;
	s = gguf_string(&at, &n);
	snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), s);
	for (; *out != '\0'; out++)
		if ((unsigned char)*out < ' ' || *out == 127)
			*out = '?';
}

static int
set_arch(const struct gguf *g, struct kv_config *c, struct kv_err *e)
{
	char name[64], known[128] = "";

	get_text(gguf_find(g, "general.architecture"), name, sizeof name);
	get_text(gguf_find(g, "general.name"), c->name, sizeof c->name);
	if (name[0] == '\0')
		return kv_fail(e, KV_EMODEL, "key general.architecture is missing: not a language model");
	if ((c->arch = kv_arch_find(name)) != NULL)
		return KV_OK;
	for (const struct kv_arch *a = kv_archs; a->name != NULL; a++)
		snprintf(known + strlen(known), sizeof known - strlen(known), " %s", a->name);
	return kv_fail(e, KV_EMODEL, "architecture '%s' is not known (known:%s)", name, known);
}

static int
set_sizes(const struct gguf *g, struct kv_config *c, struct kv_err *e)
{
	static const struct {
		const char *key;
		size_t at;
		bool required;
	} sizes[] = {
		{ "block_count", offsetof(struct kv_config, L), true },
		{ "embedding_length", offsetof(struct kv_config, d), true },
		{ "feed_forward_length", offsetof(struct kv_config, ff), true },
		{ "attention.head_count", offsetof(struct kv_config, Hq), true },
		{ "attention.head_count_kv", offsetof(struct kv_config, Hkv), false },
		{ "attention.key_length", offsetof(struct kv_config, D), false },
		{ "rope.dimension_count", offsetof(struct kv_config, rope_dim), false },
		{ "context_length", offsetof(struct kv_config, context), false },
	};
	const struct gguf_tensor *embed = gguf_find_tensor(g, kv_roles[KV_EMBED].gguf);
	int rc;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if ((rc = get_size(g, c, sizes[i].key, (size_t *)((char *)c + sizes[i].at), sizes[i].required, e)) < 0)
			return rc;
	if (embed == NULL)
		return kv_fail(e, KV_EMODEL, "tensor %s is missing", kv_roles[KV_EMBED].gguf);
	c->vocab = embed->dims[1];
	c->tied = gguf_find_tensor(g, kv_roles[KV_OUT].gguf) == NULL;
	if (c->Hkv == 0)
		c->Hkv = c->Hq;
	if (c->D == 0 && c->Hq != 0) {
		if (c->d % c->Hq != 0)
			return kv_fail(e, KV_EMODEL, "embedding size %zu is not a multiple of %zu heads", c->d, c->Hq);
		c->D = c->d / c->Hq;
	}
	if (c->rope_dim == 0)
		c->rope_dim = c->D;
	c->scale = (float)(1 / sqrt((double)c->D));
	return KV_OK;
}

/* What the file asks for and this version would silently get wrong. */
static int
refuse_unsupported(const struct gguf *g, const struct kv_config *c, struct kv_err *e)
{
	size_t experts = 0, window = 0, value = c->D;
	int rc;

	if ((rc = get_size(g, c, "expert_count", &experts, false, e)) < 0 ||
	    (rc = get_size(g, c, "attention.sliding_window", &window, false, e)) < 0 ||
	    (rc = get_size(g, c, "attention.value_length", &value, false, e)) < 0)
		return rc;
	if (experts > 0)
		return kv_fail(e, KV_EMODEL, "a mixture of %zu experts, which is not supported", experts);
	if (window > 0 && (c->context == 0 || window < c->context))
		return kv_fail(
		    e, KV_EMODEL, "sliding-window attention over %zu tokens, which is not supported", window);
	if (value != c->D)
		return kv_fail(
		    e, KV_EMODEL, "values of %zu dimensions beside keys of %zu, which is not supported", value, c->D);
	return KV_OK;
}

/* Llama 3.1's scaling comes as a table of divisors, one per rotary pair. */
static int
rope_factors(const struct gguf *g, const struct kv_config *c, const float **out, struct kv_err *e)
{
	const struct gguf_tensor *t = gguf_find_tensor(g, "rope_freqs.weight");

	*out = NULL;
	if (t == NULL)
		return KV_OK;
	if (t->type != KVK_F32 || t->bytes != c->rope_dim / 2 * sizeof(float))
		return kv_fail(e, KV_EMODEL, "tensor rope_freqs.weight: expected %zu f32 values", c->rope_dim / 2);
	*out = t->data;
	return KV_OK;
}

static int
set_rope(const struct gguf *g, struct kv_config *c, struct kv_err *e)
{
	char full[GGUF_NAME_MAX], type[32];
	const float *factors;
	double linear = 1, eps = 0;
	int rc;

	c->rope_theta = 10000;
	if ((rc = get_real(g, c, "attention.layer_norm_rms_epsilon", &eps, true, e)) < 0 ||
	    (rc = get_real(g, c, "rope.freq_base", &c->rope_theta, false, e)) < 0 ||
	    (rc = get_real(g, c, "rope.scale_linear", &linear, false, e)) < 0)
		return rc;
	c->rms_eps = (float)eps;
	c->rope_interleaved = c->arch->gguf_interleaved;
	get_text(find(g, c, "rope.scaling.type", full), type, sizeof type);
	if (strcmp(type, "linear") == 0) {
		if ((rc = get_real(g, c, "rope.scaling.factor", &linear, true, e)) < 0)
			return rc;
	} else if (type[0] != '\0' && strcmp(type, "none") != 0) {
		return kv_fail(e, KV_EMODEL,
		    "key %s: '%s' is not supported (none, linear, or Llama 3.1's rope_freqs.weight)", full, type);
	}
	if ((rc = rope_factors(g, c, &factors, e)) < 0)
		return rc;
	return kv_config_rope(c, linear != 0 ? linear : 1, NULL, factors, e);
}

static int
set_config(const struct gguf *g, struct kv_config *c, struct kv_err *e)
{
	int rc;

	if ((rc = set_arch(g, c, e)) < 0 || (rc = set_sizes(g, c, e)) < 0 || (rc = refuse_unsupported(g, c, e)) < 0 ||
	    (rc = set_rope(g, c, e)) < 0)
		return rc;
	return kv_config_check(c, e);
}

/* ---- weights ---- */

static struct kv_matrix
matrix(const struct gguf_tensor *t)
{
	return (struct kv_matrix){
		.type = t->type,
		.rows = t->dims[1] * t->dims[2] * t->dims[3],
		.cols = t->dims[0],
		.data = t->data,
	};
}

static bool
is_bias(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && strcmp(name + n - 5, ".bias") == 0;
}

/* Tensors we know go to their place.  Others are ignored, but not a bias: without it every result would be slightly
 * wrong. */
static int
set_weights(const struct gguf *g, struct kv_model *m, struct kv_err *e)
{
	struct kv_matrix w;
	enum kv_role role;
	size_t layer;
	int rc;

	if ((rc = kv_model_alloc(m, e)) < 0)
		return rc;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const char *name = g->tensors[i].name;

		w = matrix(&g->tensors[i]);
		if (kv_role_find(name, true, &role, &layer))
			rc = kv_model_set(m, layer, role, &w, name, e);
		else if (is_bias(name))
			rc = kv_fail(e, KV_EMODEL, "tensor %s: not part of a %s model", name, m->cfg.arch->name);
		if (rc < 0)
			return rc;
	}
	return kv_model_complete(m, true, e);
}

static int
fingerprint(struct kv_config *c, const struct kv_map *map, struct kv_err *e)
{
	struct kv_fingerprint *f = kv_fingerprint_new();

	if (f == NULL)
		return kv_no_memory(e, sizeof f);
	kv_fingerprint_add(f, map->data, map->bytes);
	kv_fingerprint_take(f, c->fingerprint);
	return KV_OK;
}

static int
fill(struct kv_model *m, struct gguf *g, bool with_weights, struct kv_err *e)
{
	int rc;

	if ((rc = gguf_parse(g, &m->maps[0], e)) < 0 || (rc = set_config(g, &m->cfg, e)) < 0 ||
	    (rc = gguf_vocab(g, &m->vocab, e)) < 0 || (rc = set_weights(g, m, e)) < 0)
		return rc;
	if (!with_weights) { /* they had to be complete all the same */
		free(m->weights);
		m->weights = NULL;
	}
	return fingerprint(&m->cfg, &m->maps[0], e);
}

static int
gguf_open(struct kv_model *m, const char *path, bool with_weights, struct kv_err *e)
{
	struct gguf g = { 0 };
	int rc;

	if ((m->maps = kv_alloc(1, sizeof *m->maps, e)) == NULL)
		return KV_EMEM;
	if ((rc = kv_map_open(&m->maps[0], path, e)) < 0)
		return rc;
	m->n_maps = 1;
	if ((rc = fill(m, &g, with_weights, e)) < 0)
		kv_where(e, "%s", path);
	gguf_fini(&g);
	return rc;
}

static bool
gguf_probe(const char *path)
{
	struct stat st;
	char magic[4];
	FILE *f;
	bool yes;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (f = fopen(path, "rb")) == NULL)
		return false;
	yes = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
	fclose(f);
	return yes;
}

/* ---- inspection ---- */

static int
gguf_tensors(const char *path, int (*fn)(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e),
    void *ctx, struct kv_err *e)
{
	struct kv_map map = { 0 };
	struct gguf g = { 0 };
	struct kv_matrix w;
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = gguf_parse(&g, &map, e)) < 0)
		kv_where(e, "%s", path);
	for (size_t i = 0; i < g.n_tensors && rc == KV_OK; i++) {
		w = matrix(&g.tensors[i]);
		rc = fn(ctx, g.tensors[i].name, &w, e);
	}
	gguf_fini(&g);
	kv_map_close(&map);
	return rc;
}

/* Bytes that are not UTF-8 become '?': JSON has no way to say them. */
static json_t *
text_json(const char *s, size_t n)
{
	json_t *t = json_stringn(s, n);
	struct kv_buf b = { 0 };

	if (t != NULL)
		return t;
	if (kv_buf_add(&b, s, n, NULL) == KV_OK) {
		for (size_t i = 0; i < n; i++)
			if (b.data[i] & 0x80)
				b.data[i] = '?';
		t = json_stringn(b.data, n);
	}
	kv_buf_fini(&b);
	return t;
}

static json_t *
element_json(const struct gguf_value *v, uint64_t i, const unsigned char **at)
{
	const char *s;
	int64_t whole;
	double real;
	size_t n;

	if (v->type == GGUF_STRING) {
		s = gguf_string(at, &n);
		return text_json(s, n);
	}
	if (v->type == GGUF_BOOL && gguf_int(v, i, &whole))
		return json_boolean(whole != 0);
	if (gguf_int(v, i, &whole))
		return json_integer(whole);
	if (gguf_real(v, i, &real) && isfinite(real))
		return json_real(real);
	return json_null();
}

#define SHOWN 8 /* elements of a long array */

static json_t *
value_json(const struct gguf_value *v)
{
	const unsigned char *at = v->data;
	json_t *list;

	if (!v->is_array)
		return element_json(v, 0, &at);
	list = json_array();
	for (uint64_t i = 0; i < v->n && (i < SHOWN || v->n <= 2 * SHOWN); i++)
		json_array_append_new(list, v->type == GGUF_ARRAY ? json_null() : element_json(v, i, &at));
	if (v->n <= 2 * SHOWN)
		return list;
	return json_pack("{s:s, s:I, s:o}", "type", gguf_type_name(v->type), "length", (json_int_t)v->n, "first", list);
}

static int
gguf_metadata(const char *path, json_t **out, struct kv_err *e)
{
	struct kv_map map = { 0 };
	struct gguf g = { 0 };
	json_t *key;
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = gguf_parse(&g, &map, e)) < 0) {
		kv_where(e, "%s", path);
	} else {
		*out = json_pack(
		    "{s:s, s:i, s:I}", "format", "gguf", "version", (int)g.version, "tensors", (json_int_t)g.n_tensors);
		for (size_t i = 0; i < g.n_pairs; i++) {
			key = text_json(g.pairs[i].key, strlen(g.pairs[i].key));
			json_object_set_new(*out, json_string_value(key), value_json(&g.pairs[i].value));
			json_decref(key);
		}
	}
	gguf_fini(&g);
	kv_map_close(&map);
	return rc;
}

const struct kv_format kv_format_gguf = {
	.name = "gguf",
	.brief = "one file with keys and tensors, as llama.cpp uses",
	.probe = gguf_probe,
	.open = gguf_open,
	.tensors = gguf_tensors,
	.metadata = gguf_metadata,
};
