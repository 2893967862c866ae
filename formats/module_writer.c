/* SPDX-License-Identifier: MIT
 * Writing LookaheadKV modules. */
#include "formats/module_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "lib/buf.h"
#include "lib/checksum.h"
#include "lib/file.h"
#include "lib/tensor.h"

/* The element types of a module: their names in the file, and how a float becomes one. */
static void
put_f32(float x, unsigned char *to)
{
	memcpy(to, &x, sizeof x);
}

static void
put_f16(float x, unsigned char *to)
{
	const uint16_t h = kv_f32_to_f16(x);

	memcpy(to, &h, sizeof h);
}

static void
put_bf16(float x, unsigned char *to)
{
	const uint16_t h = kv_f32_to_bf16(x);

	memcpy(to, &h, sizeof h);
}

static const struct element {
	enum kvk_type type;
	const char *name;
	float most; /* what is larger becomes infinity */
	void (*put)(float x, unsigned char *to);
} elements[] = {
	{ KVK_F32, "F32", 0x1.fffffep127f, put_f32 },
	{ KVK_F16, "F16", 0x1.ffdp15f, put_f16 },
	{ KVK_BF16, "BF16", 0x1.fep127f, put_bf16 },
};

static const struct element *
find_element(enum kvk_type type)
{
	for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
		if (elements[i].type == type)
			return &elements[i];
	return NULL;
}

/* Values of the metadata are strings, as safetensors wants them. */
static int
set_number(json_t *to, const char *key, double v)
{
	char text[40];

	snprintf(text, sizeof text, "%.17g", v);
	return json_object_set_new(to, key, json_string(text));
}

static json_t *
metadata_of(const struct kv_lookahead *m)
{
	char *training = json_dumps(m->training, JSON_COMPACT | JSON_SORT_KEYS);
	json_t *o = json_object();
	int bad = o == NULL || training == NULL;

	bad = bad || json_object_set_new(o, "kvlookahead", json_string("1")) ||
	      set_number(o, "tokens", (double)m->shape.n) || set_number(o, "rank", (double)m->shape.rank) ||
	      set_number(o, "alpha", m->shape.alpha) ||
	      json_object_set_new(o, "targets", json_string(kv_lookahead_targets[m->shape.targets])) ||
	      set_number(o, "layers", (double)m->L) || set_number(o, "embedding", (double)m->d) ||
	      json_object_set_new(o, "base_name", json_string_nocheck(m->base_name)) ||
	      json_object_set_new(o, "base_fingerprint", json_string(m->base)) ||
	      set_number(o, "base_parameters", (double)m->base_parameters) ||
	      json_object_set_new(o, SAFETENSORS_SUM, json_string(SAFETENSORS_NO_SUM)) ||
	      json_object_set_new(o, "training", json_string(training));
	free(training);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static int
put_header(const struct kv_lookahead *m, const struct element *as, struct kv_buf *b, struct kv_err *e)
{
	const size_t size = kvk_types[as->type].bytes;
	json_t *o = json_object(), *metadata = metadata_of(m);
	struct kv_lookahead_tensor t;
	size_t at = 0, n;
	int bad = o == NULL || metadata == NULL || json_object_set(o, "__metadata__", metadata), rc;

	for (size_t i = 0; !bad && kv_lookahead_tensor(m, i, &t); i++, at += n) {
		n = t.rows * t.cols * size;
		bad = json_object_set_new(o, t.name,
		    json_pack("{s:s, s:[II], s:[II]}", "dtype", as->name, "shape", (json_int_t)t.rows,
			(json_int_t)t.cols, "data_offsets", (json_int_t)at, (json_int_t)(at + n)));
	}
	rc = bad ? kv_no_memory(e, m->L * 1024) : safetensors_put_header(o, b, e);
	json_decref(metadata);
	json_decref(o);
	return rc;
}

/* Where the numbers go: first into the checksum, which stands in front of them, then into the file. */
struct target {
	struct kv_summing *sum; /* NULL: the file */
	int fd;
};

static int
put_tensor(const struct target *to, const struct kv_lookahead_tensor *t, const struct element *as, struct kv_err *e)
{
	const size_t n = t->rows * t->cols, size = kvk_types[as->type].bytes;
	unsigned char *bytes = kv_alloc_unset(n, size, e);
	int rc = bytes != NULL ? KV_OK : KV_EMEM;

	for (size_t i = 0; i < n && rc == KV_OK; i++) {
		if (!(fabsf(t->data[i]) <= as->most))
			rc =
			    kv_fail(e, KV_EARG, "tensor %s: %g is no finite %s", t->name, (double)t->data[i], as->name);
		else
			as->put(t->data[i], bytes + i * size);
	}
	if (rc == KV_OK && to->sum != NULL)
		kv_summing_add(to->sum, bytes, n * size);
	else if (rc == KV_OK)
		rc = kv_write_all(to->fd, bytes, n * size, e);
	free(bytes);
	return rc;
}

static int
put_tensors(const struct target *to, const struct kv_lookahead *m, const struct element *as, struct kv_err *e)
{
	struct kv_lookahead_tensor t;
	int rc = KV_OK;

	for (size_t i = 0; rc == KV_OK && kv_lookahead_tensor(m, i, &t); i++)
		rc = put_tensor(to, &t, as, e);
	return rc;
}

/* Of the header and the tensors behind it, into the header. */
static int
put_sum(struct kv_buf *header, const struct kv_lookahead *m, const struct element *as, struct kv_err *e)
{
	const struct target to = { .sum = kv_summing_new(e) };
	int rc;

	if (to.sum == NULL)
		return KV_EMEM;
	kv_summing_add(to.sum, header->data, header->n);
	if ((rc = put_tensors(&to, m, as, e)) == KV_OK)
		safetensors_put_sum(header, kv_summing_get(to.sum));
	kv_summing_free(to.sum);
	return rc;
}

int
kv_lookahead_write(const struct kv_lookahead *m, const char *path, enum kvk_type type, struct kv_err *e)
{
	const struct element *as = find_element(type);
	struct kv_buf header = { 0 };
	struct kv_outfile f;
	int rc;

	if (as == NULL)
		return kv_fail(e, KV_EARG, "a module is written as f32, f16 or bf16");
	if ((rc = kv_outfile_open(&f, path, e)) < 0)
		return rc;
	if ((rc = put_header(m, as, &header, e)) == KV_OK && (rc = put_sum(&header, m, as, e)) == KV_OK &&
	    (rc = kv_write_all(f.fd, header.data, header.n, e)) == KV_OK)
		rc = put_tensors(&(struct target){ .fd = f.fd }, m, as, e);
	kv_buf_fini(&header);
	if (rc == KV_OK)
		return kv_outfile_finish(&f, e);
	kv_outfile_drop(&f);
	return kv_where(e, "%s", path);
}
