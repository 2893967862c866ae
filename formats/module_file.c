/* SPDX-License-Identifier: MIT
 * Reading LookaheadKV modules, and what kv-show says about them. */
#include "formats/module_file.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "formats/format.h"
#include "formats/safetensors.h"
#include "lib/buf.h"
#include "lib/tensor.h"

#define EMBEDDINGS "lookahead.embeddings"
#define MARK       "kvlookahead" /* the metadata key that makes a safetensors file a module; its value is the version */
#define VERSION    "1"
#define MAX_LAYERS 100000

/* ---- names: those of the adapted matrices in Hugging Face's spelling, with lora_A. or lora_B. before "weight" */

#define WEIGHT "weight"

static void
adapter_name(enum kv_role role, size_t layer, bool b, char *out, size_t cap)
{
	char base[128];

	kv_role_name(role, layer, false, base, sizeof base);
	snprintf(out, cap, "%.*slora_%c." WEIGHT, (int)(strlen(base) - strlen(WEIGHT)), base, b ? 'B' : 'A');
}

static bool
find_adapter_name(const char *name, enum kv_role *role, size_t *layer, bool *b)
{
	const size_t n = strlen(name), tail = strlen("lora_A." WEIGHT);
	char base[128];

	if (n < tail || n >= sizeof base ||
	    (strcmp(name + n - tail, "lora_A." WEIGHT) != 0 && strcmp(name + n - tail, "lora_B." WEIGHT) != 0))
		return false;
	*b = name[n - tail + strlen("lora_")] == 'B';
	snprintf(base, sizeof base, "%.*s" WEIGHT, (int)(n - tail), name);
	return kv_role_find(base, false, role, layer);
}

/* Places of tensors are numbered: the embeddings, then A and B of every layer's every role, adapted or not. */
static size_t
n_places(size_t L)
{
	return 1 + 2 * L * KV_N_ROLES;
}

/* The tensor in a place; false: there is none. */
static bool
tensor_at(const struct kv_lookahead *m, size_t place, struct kv_lookahead_tensor *t)
{
	const size_t at = (place - 1) / 2, layer = at / KV_N_ROLES;
	const enum kv_role role = at % KV_N_ROLES;
	const bool b = place % 2 == 0;
	const struct kv_adapter *a;

	*t = (struct kv_lookahead_tensor){ EMBEDDINGS, m->shape.n, m->d, m->p };
	if (place == 0)
		return true;
	if ((a = kv_lookahead_adapter(m, layer, role)) == NULL)
		return false;
	adapter_name(role, layer, b, t->name, sizeof t->name);
	t->rows = b ? a->out : m->shape.rank;
	t->cols = b ? m->shape.rank : a->in;
	t->data = b ? a->b : a->a;
	return true;
}

bool
kv_lookahead_tensor(const struct kv_lookahead *m, size_t i, struct kv_lookahead_tensor *t)
{
	size_t place = 0;

	for (; place < n_places(m->L); place++)
		if (tensor_at(m, place, t) && i-- == 0)
			return true;
	return false;
}

/* ---- the description in the metadata */

struct description {
	struct kv_lookahead_shape shape;
	size_t L, d, base_parameters;
	const char *base, *base_name; /* borrowed from the metadata */
	json_t *training;             /* owned */
};

static int
get_text(const json_t *metadata, const char *key, const char **to, struct kv_err *e)
{
	*to = json_string_value(json_object_get(metadata, key));
	return *to != NULL ? KV_OK : kv_fail(e, KV_EFORMAT, "metadata: no %s", key);
}

static int
get_size(const json_t *metadata, const char *key, size_t max, size_t *to, struct kv_err *e)
{
	unsigned long long v;
	const char *text;
	char *end;
	int rc = get_text(metadata, key, &text, e);

	if (rc < 0)
		return rc;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || v > max)
		return kv_fail(
		    e, KV_EFORMAT, "metadata: %s: expected a number from 0 to %zu, got '%.40s'", key, max, text);
	*to = (size_t)v;
	return KV_OK;
}

static int
get_alpha(const json_t *metadata, double *to, struct kv_err *e)
{
	const char *text;
	char *end;
	int rc = get_text(metadata, "alpha", &text, e);

	if (rc < 0)
		return rc;
	*to = strtod(text, &end);
	if (end == text || *end != '\0' || !isfinite(*to))
		return kv_fail(e, KV_EFORMAT, "metadata: alpha: expected a number, got '%.40s'", text);
	return KV_OK;
}

static int
get_targets(const json_t *metadata, enum kv_lookahead_targets *to, struct kv_err *e)
{
	const char *text;
	int rc = get_text(metadata, "targets", &text, e), found;

	if (rc < 0)
		return rc;
	if ((found = kv_lookahead_targets_find(text)) < 0)
		return kv_fail(e, KV_EFORMAT, "metadata: targets: expected none, qkv or all, got '%.40s'", text);
	*to = (enum kv_lookahead_targets)found;
	return KV_OK;
}

/* An object, empty when the file says nothing. */
static int
get_training(const json_t *metadata, json_t **to, struct kv_err *e)
{
	const char *text = json_string_value(json_object_get(metadata, "training"));
	json_error_t why;

	*to = text != NULL ? json_loads(text, 0, &why) : json_object();
	if (!json_is_object(*to)) {
		json_decref(*to);
		*to = NULL;
		return kv_fail(e, KV_EFORMAT, "metadata: training: expected a JSON object");
	}
	return KV_OK;
}

static int
check_version(const json_t *metadata, struct kv_err *e)
{
	const char *version = json_string_value(json_object_get(metadata, MARK));

	if (version == NULL)
		return kv_fail(e, KV_EFORMAT, "not a LookaheadKV module: its metadata has no " MARK);
	if (strcmp(version, VERSION) != 0)
		return kv_fail(e, KV_EFORMAT, "a module of version %.40s, this program reads " VERSION, version);
	return KV_OK;
}

/* Free d->training in any case. */
static int
describe(const json_t *metadata, struct description *d, struct kv_err *e)
{
	int rc;

	*d = (struct description){ 0 };
	if ((rc = check_version(metadata, e)) < 0 ||
	    (rc = get_size(metadata, "tokens", KV_LOOKAHEAD_MAX, &d->shape.n, e)) < 0 ||
	    (rc = get_size(metadata, "rank", KV_LOOKAHEAD_MAX, &d->shape.rank, e)) < 0 ||
	    (rc = get_alpha(metadata, &d->shape.alpha, e)) < 0 ||
	    (rc = get_targets(metadata, &d->shape.targets, e)) < 0 ||
	    (rc = get_size(metadata, "layers", MAX_LAYERS, &d->L, e)) < 0 ||
	    (rc = get_size(metadata, "embedding", SIZE_MAX / 2, &d->d, e)) < 0 ||
	    (rc = get_text(metadata, "base_fingerprint", &d->base, e)) < 0 ||
	    (rc = get_text(metadata, "base_name", &d->base_name, e)) < 0 ||
	    (rc = get_size(metadata, "base_parameters", SIZE_MAX / 2, &d->base_parameters, e)) < 0)
		return rc;
	return get_training(metadata, &d->training, e);
}

/* ---- reading */

struct reading {
	struct kv_lookahead *m;
	bool *seen; /* [n_places] */
};

/* Where a tensor of the file belongs; false: nowhere. */
static bool
find_tensor(const struct kv_lookahead *m, const char *name, size_t *place, struct kv_lookahead_tensor *t)
{
	enum kv_role role;
	size_t layer;
	bool b;

	*place = 0;
	if (strcmp(name, EMBEDDINGS) != 0) {
		if (!find_adapter_name(name, &role, &layer, &b) || layer >= m->L)
			return false;
		*place = 1 + 2 * (layer * KV_N_ROLES + role) + b;
	}
	return tensor_at(m, *place, t);
}

static int
read_tensor(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	struct reading *r = ctx;
	const struct kv_tensor t = { .type = w->type, .data = w->data };
	struct kv_lookahead_tensor to;
	size_t place;

	if (!find_tensor(r->m, name, &place, &to))
		return kv_fail(
		    e, KV_EFORMAT, "tensor %.128s: a module of this description has none of that name", name);
	if (kvk_types[w->type].integer)
		return kv_fail(
		    e, KV_EFORMAT, "tensor %s: of type %s, expected f32, f16 or bf16", name, kvk_types[w->type].name);
	if (w->rows != to.rows || w->cols != to.cols)
		return kv_fail(e, KV_EFORMAT, "tensor %s: [%zu][%zu], expected [%zu][%zu]", name, w->rows, w->cols,
		    to.rows, to.cols);
	for (size_t i = 0; i < to.rows * to.cols; i++) {
		to.data[i] = (float)kv_tensor_get(&t, i);
		if (!isfinite(to.data[i]))
			return kv_fail(e, KV_EMODEL, "tensor %s: element %zu is %g: is the file damaged?", name, i,
			    (double)to.data[i]);
	}
	r->seen[place] = true;
	return KV_OK;
}

static int
check_complete(const struct reading *r, struct kv_err *e)
{
	struct kv_lookahead_tensor t;

	for (size_t place = 0; place < n_places(r->m->L); place++)
		if (tensor_at(r->m, place, &t) && !r->seen[place])
			return kv_fail(e, KV_EFORMAT, "no tensor %s: is the file whole?", t.name);
	return KV_OK;
}

static void
hash(const struct kv_map *map, char hex[33])
{
	const XXH128_hash_t h = XXH3_128bits(map->data, map->bytes);

	snprintf(hex, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static int
read_all(struct reading *r, const struct kv_map *map, const struct kv_config *c, struct kv_err *e)
{
	struct description d = { 0 };
	json_t *metadata = NULL;
	int rc;

	if ((rc = safetensors_metadata(map, &metadata, e)) < 0 || (rc = describe(metadata, &d, e)) < 0 ||
	    (rc = kv_lookahead_made_for(d.base, d.base_name, d.L, d.d, c, e)) < 0 ||
	    (rc = kv_lookahead_new(&r->m, c, &d.shape, e)) < 0)
		goto done;
	json_decref(r->m->training);
	r->m->training = json_incref(d.training);
	rc = KV_EMEM;
	if ((r->seen = kv_alloc(n_places(c->L), sizeof *r->seen, e)) == NULL)
		goto done;
	if ((rc = safetensors_each(map, NULL, read_tensor, r, e)) == KV_OK && (rc = check_complete(r, e)) == KV_OK)
		rc = safetensors_check_sum(map, e);
	hash(map, r->m->hash);
done:
	json_decref(d.training);
	json_decref(metadata);
	return rc;
}

int
kv_lookahead_read(struct kv_lookahead **out, const char *path, const struct kv_config *c, struct kv_err *e)
{
	struct reading r = { 0 };
	struct kv_map map = { 0 };
	int rc;

	*out = NULL;
	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = read_all(&r, &map, c, e)) < 0) {
		kv_lookahead_free(r.m);
		kv_where(e, "%s", path);
	} else
		*out = r.m;
	free(r.seen);
	kv_map_close(&map);
	return rc;
}

int
kv_lookahead_read_shape(struct kv_lookahead_shape *s, const char *path, struct kv_err *e)
{
	struct description d = { 0 };
	struct kv_map map = { 0 };
	json_t *metadata = NULL;
	int rc;

	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = safetensors_metadata(&map, &metadata, e)) == KV_OK && (rc = describe(metadata, &d, e)) == KV_OK &&
	    (rc = kv_lookahead_check_shape(&d.shape, e)) == KV_OK)
		rc = safetensors_check_sum(&map, e);
	*s = d.shape;
	json_decref(d.training);
	json_decref(metadata);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

/* ---- inspection */

static bool
lookahead_probe(const char *path)
{
	return safetensors_has_key(path, MARK);
}

static int
count_elements(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	(void)name, (void)e;
	*(size_t *)ctx += w->rows * w->cols;
	return KV_OK;
}

/* The description with numbers as numbers, how large the module is, and its share of the model. */
static int
lookahead_metadata(const char *path, json_t **out, struct kv_err *e)
{
	struct description d = { 0 };
	struct kv_map map = { 0 };
	json_t *metadata = NULL;
	size_t count = 0;
	char hex[33];
	int rc;

	*out = NULL;
	if ((rc = kv_map_open(&map, path, e)) < 0)
		return rc;
	if ((rc = safetensors_metadata(&map, &metadata, e)) == KV_OK && (rc = describe(metadata, &d, e)) == KV_OK)
		rc = safetensors_each(&map, NULL, count_elements, &count, e);
	if (rc < 0)
		goto done;
	hash(&map, hex);
	*out = json_pack("{s:I, s:I, s:f, s:s, s:I, s:I, s:s, s:s, s:I, s:I, s:f, s:s, s:O}", "tokens",
	    (json_int_t)d.shape.n, "rank", (json_int_t)d.shape.rank, "alpha", d.shape.alpha, "targets",
	    kv_lookahead_targets[d.shape.targets], "layers", (json_int_t)d.L, "embedding", (json_int_t)d.d, "base_name",
	    d.base_name, "base_fingerprint", d.base, "base_parameters", (json_int_t)d.base_parameters, "parameters",
	    (json_int_t)count, "share", d.base_parameters > 0 ? (double)count / (double)d.base_parameters : 0.0,
	    "module", hex, "training", d.training);
	if (*out == NULL)
		rc = kv_no_memory(e, map.bytes);
done:
	json_decref(d.training);
	json_decref(metadata);
	kv_map_close(&map);
	return rc < 0 ? kv_where(e, "%s", path) : rc;
}

const struct kv_format kv_format_lookahead = {
	.name = "lookahead",
	.brief = "a LookaheadKV module, which goes with a model: kv-prefill --lookahead",
	.probe = lookahead_probe,
	.tensors = safetensors_show,
	.metadata = lookahead_metadata,
};
