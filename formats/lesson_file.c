/* SPDX-License-Identifier: MIT */
#include "formats/lesson_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/buf.h"
#include "lib/fingerprint.h"

#define VERSION "1" /* of what a name stands for */

/* DIR/HASH.kv; the hash is over everything that decides the contents. */
static int
path_of(const char *dir, const struct kv_lesson_key *key, char **path, struct kv_err *e)
{
	struct kv_fingerprint *f = kv_fingerprint_new();
	uint64_t sizes[3] = { key->prompt->n, key->generate, key->response != NULL ? key->response->n + 1 : 0 };
	struct kv_buf b = { 0 };
	char hex[33];
	int rc;

	*path = NULL;
	if (f == NULL)
		return kv_no_memory(e, sizeof hex);
	kv_fingerprint_add(f, VERSION, sizeof VERSION);
	kv_fingerprint_add(f, key->cfg->fingerprint, sizeof key->cfg->fingerprint);
	kv_fingerprint_add(f, key->precision, strlen(key->precision) + 1);
	kv_fingerprint_add(f, sizes, sizeof sizes);
	kv_fingerprint_add(f, key->prompt->v, key->prompt->n * sizeof *key->prompt->v);
	if (key->response != NULL)
		kv_fingerprint_add(f, key->response->v, key->response->n * sizeof *key->response->v);
	kv_fingerprint_take(f, hex);
	if ((rc = kv_buf_printf(&b, e, "%s/%s.kv", dir, hex)) == KV_OK)
		*path = b.data;
	return rc;
}

/* ---- writing */

static int
write_tensor(struct kv_writer *w, const char *name, size_t layer, enum kvk_type type, const char *axes,
    const size_t *shape, const void *data, json_t *attrs, struct kv_err *e)
{
	struct kv_tensor t = { 0 };
	int rc = kv_tensor_init(&t, name, (int)layer, type, axes, shape, e);

	t.attrs = attrs;
	t.data = data;
	if (rc == KV_OK)
		rc = kv_writer_tensor(w, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

static json_t *
score_attrs(size_t T)
{
	return json_pack("{s:s s:s s:s s:s s:i s:i s:i s:I}", "method", "truth", "rows", "mean", "granularity", "head",
	    "pool", "none", "pool_width", 1, "n_sink", 0, "n_recent", 0, "n_tokens", (json_int_t)T);
}

static int
write_layer(
    struct kv_writer *w, const struct kv_config *c, const struct kv_lesson *x, size_t l, bool with_kv, struct kv_err *e)
{
	const size_t kv[] = { c->Hkv, x->T, c->D }, score[] = { c->Hq, x->T }, at = l * c->Hkv * x->T * c->D;
	int rc = KV_OK;

	if (with_kv)
		rc = write_tensor(w, "k", l, KVK_F16, "kv_head token dim", kv, x->k + at, NULL, e);
	if (with_kv && rc == KV_OK)
		rc = write_tensor(w, "v", l, KVK_F16, "kv_head token dim", kv, x->v + at, NULL, e);
	if (rc == KV_OK)
		rc = write_tensor(
		    w, "score", l, KVK_F32, "head token", score, x->truth + l * c->Hq * x->T, score_attrs(x->T), e);
	return rc == KV_OK ? kv_writer_layer_end(w, (int)l, e) : rc;
}

static int
write_all(struct kv_writer *w, const struct kv_lesson_key *key, const struct kv_lesson *x, bool with_kv,
    const json_t *entry, struct kv_err *e)
{
	json_t *model = kv_config_to_json(key->cfg);
	json_t *map = json_pack("{s:s s:o s:I s:o}", "id", key->id, "tokens", kv_ids_to_json(key->prompt),
	    "prompt_length", (json_int_t)x->T, "response", kv_ids_to_json(&x->response));
	int rc = model == NULL || map == NULL ? kv_no_memory(e, x->T) : KV_OK;

	if (rc == KV_OK && (rc = kv_writer_header(w, model, NULL, entry, e)) == KV_OK)
		rc = kv_writer_sequence(w, map, e);
	for (size_t l = 0; l < key->cfg->L && rc == KV_OK; l++)
		rc = write_layer(w, key->cfg, x, l, with_kv, e);
	json_decref(map);
	json_decref(model);
	return rc == KV_OK ? kv_writer_close(w, e) : rc;
}

static uint64_t
size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int
kv_lesson_write(const char *dir, const struct kv_lesson_key *key, const struct kv_lesson *x, bool with_kv,
    const json_t *entry, uint64_t *bytes, struct kv_err *e)
{
	struct kv_writer *w = NULL;
	char *path;
	int rc = path_of(dir, key, &path, e);

	if (rc < 0)
		return rc;
	if (mkdir(dir, 0777) < 0 && errno != EEXIST) {
		rc = kv_fail(e, KV_EIO, "%s: cannot make the folder: %s", dir, strerror(errno));
		goto done;
	}
	if ((rc = kv_writer_open(&w, path, NULL, NULL, e)) == KV_OK &&
	    (rc = write_all(w, key, x, with_kv, entry, e)) == KV_OK)
		rc = kv_writer_finish(w, e);
	else
		kv_writer_drop(w);
	*bytes = rc == KV_OK ? size_of(path) : 0;
done:
	free(path);
	return rc;
}

/* ---- reading */

static int
foreign(const struct kv_lesson_file *f, const char *what, struct kv_err *e)
{
	return kv_fail(e, KV_EFORMAT, "%s: %s", kv_reader_name(f->reader), what);
}

static int
check_header(struct kv_lesson_file *f, const struct kv_lesson_key *key, struct kv_err *e)
{
	struct kv_record rec = { 0 };
	const char *of;
	int rc = kv_reader_next(f->reader, &rec, e);

	if (rc == KV_OK) {
		of = json_string_value(json_object_get(json_object_get(rec.map, "model"), "fingerprint"));
		if (of == NULL || strcmp(of, key->cfg->fingerprint) != 0)
			rc = foreign(f, "of another model", e);
	}
	kv_record_fini(&rec);
	return rc;
}

static bool
same_ids(const json_t *list, const struct kv_ids *ids)
{
	if (json_array_size(list) != ids->n)
		return false;
	for (size_t i = 0; i < ids->n; i++)
		if (json_integer_value(json_array_get(list, i)) != ids->v[i])
			return false;
	return true;
}

static int
check_sequence(struct kv_lesson_file *f, const struct kv_lesson_key *key, struct kv_err *e)
{
	struct kv_record rec = { 0 };
	const json_t *response;
	int rc = kv_reader_next(f->reader, &rec, e);

	if (rc == KV_OK &&
	    (rec.kind != KV_RECORD_SEQUENCE || !same_ids(json_object_get(rec.map, "tokens"), key->prompt)))
		rc = foreign(f, "of another prompt", e);
	response = json_object_get(rec.map, "response");
	if (rc == KV_OK && !json_is_array(response))
		rc = foreign(f, "without a response", e);
	if (rc == KV_OK && (rc = kv_ids_from_json(&f->response, response, e)) < 0)
		kv_where(e, "%s: response", kv_reader_name(f->reader));
	if (rc == KV_OK && kv_ids_check(&f->response, key->cfg->vocab, key->prompt->n, e) < 0)
		rc = foreign(f, "its response has tokens that the model has not", e);
	kv_record_fini(&rec);
	return rc == KV_END ? foreign(f, "empty", e) : rc;
}

int
kv_lesson_open(struct kv_lesson_file *f, const char *dir, const struct kv_lesson_key *key, struct kv_err *e)
{
	struct stat st;
	char *path;
	int rc;

	*f = (struct kv_lesson_file){ .T = key->prompt->n, .L = key->cfg->L };
	if ((rc = path_of(dir, key, &path, e)) < 0)
		return rc;
	if (stat(path, &st) < 0)
		rc = errno == ENOENT ? KV_END : kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	else if ((rc = kv_reader_open(&f->reader, path, e)) == KV_OK && (rc = check_header(f, key, e)) == KV_OK)
		rc = check_sequence(f, key, e);
	f->bytes = rc == KV_OK ? (uint64_t)st.st_size : 0;
	free(path);
	return rc;
}

static int
memory(struct kv_lesson_file *f, const struct kv_config *c, struct kv_err *e)
{
	size_t floats;

	if (!kv_mul(c->L * c->Hq, f->T, &floats))
		return kv_no_memory(e, SIZE_MAX);
	if ((f->truth = kv_alloc_unset(floats, sizeof *f->truth, e)) == NULL ||
	    (f->k = kv_alloc(2 * c->L, sizeof *f->k, e)) == NULL ||
	    (f->owned = kv_alloc(2 * c->L, sizeof *f->owned, e)) == NULL)
		return KV_EMEM;
	f->v = f->k + c->L;
	return KV_OK;
}

/* A tensor's place; its number of bytes is what the model says. */
static int
take(struct kv_lesson_file *f, const struct kv_config *c, struct kv_record *rec, size_t found[3], struct kv_err *e)
{
	struct kv_tensor *t = &rec->tensor;
	const size_t kv[] = { c->Hkv, f->T, c->D }, score[] = { c->Hq, f->T }, l = (size_t)t->layer;
	const bool is_k = strcmp(t->name, "k") == 0, is_v = strcmp(t->name, "v") == 0;
	int rc;

	if (t->layer < 0 || l >= c->L || (!is_k && !is_v && strcmp(t->name, "score") != 0))
		return KV_OK;
	rc = is_k || is_v ? kv_tensor_expect(t, KVK_F16, "kv_head token dim", kv, e)
			  : kv_tensor_expect(t, KVK_F32, "head token", score, e);
	if (rc < 0)
		return kv_where(e, "%s: layer %d", kv_reader_name(f->reader), t->layer);
	if ((rc = kv_reader_payload(f->reader, t, e)) < 0)
		return rc;
	if (!is_k && !is_v) {
		memcpy(f->truth + l * c->Hq * f->T, t->data, c->Hq * f->T * sizeof *f->truth);
		found[2]++;
		return KV_OK;
	}
	(is_k ? f->k : f->v)[l] = t->data;
	f->owned[(is_k ? 0 : c->L) + l] = t->owned;
	t->owned = NULL;
	found[is_v]++;
	return KV_OK;
}

int
kv_lesson_read(struct kv_lesson_file *f, const struct kv_lesson_key *key, struct kv_err *e)
{
	const struct kv_config *c = key->cfg;
	size_t found[3] = { 0 };
	int rc = memory(f, c, e);

	while (rc == KV_OK) {
		struct kv_record rec = { 0 };

		if ((rc = kv_reader_next(f->reader, &rec, e)) == KV_OK && rec.kind == KV_RECORD_TENSOR)
			rc = take(f, c, &rec, found, e);
		kv_record_fini(&rec);
	}
	if (rc < 0)
		return rc;
	if (found[2] != c->L || found[0] != found[1] || (found[0] != 0 && found[0] != c->L))
		return foreign(f, "some tensors are missing", e);
	if (found[0] == 0) {
		free((void *)f->k);
		f->k = f->v = NULL;
	}
	return KV_OK;
}

void
kv_lesson_close(struct kv_lesson_file *f)
{
	for (size_t i = 0; f->owned != NULL && i < 2 * f->L; i++)
		free(f->owned[i]);
	free(f->owned);
	free((void *)f->k);
	free(f->truth);
	kv_ids_fini(&f->response);
	kv_reader_free(f->reader);
	*f = (struct kv_lesson_file){ 0 };
}
