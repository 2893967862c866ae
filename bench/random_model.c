/* SPDX-License-Identifier: MIT
 * random_model [options] OUT - a GGUF file of random bf16 weights, to measure a shape without its model; as it stands,
 * that of Llama 3.1 8B.
 *
 * Numbers come from one block of them, which matrices use over and over from different places on: the file is made as
 * fast as the disk takes it.  Their spread keeps activations and scores in the usual range.  There is no vocabulary:
 * prompts are token ids.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/model/model.h"
#include "lib/opt.h"
#include "lib/tensor.h"

#define BLOCK     ((size_t)32 << 20) /* bytes */
#define STEP      4999968            /* a multiple of ALIGNMENT: where the next matrix begins in the block */
#define ALIGNMENT 32

enum { U32 = 4, F32 = 6, STRING = 8 }; /* the file's numbers for types of values */
enum { TENSOR_F32 = 0, TENSOR_BF16 = 30 };

static struct kv_config c = { .name = "random",
	.L = 32,
	.Hq = 32,
	.Hkv = 8,
	.D = 128,
	.d = 4096,
	.ff = 14336,
	.vocab = 128256,
	.context = 131072,
	.rms_eps = 1e-5f,
	.rope_theta = 500000 };

static const struct kv_opt opts[] = {
	{ "layers", 0, KV_SIZE, &c.L, "N", "layers", 1, 1000, NULL },
	{ "heads", 0, KV_SIZE, &c.Hq, "N", "query heads", 1, 1024, NULL },
	{ "kv-heads", 0, KV_SIZE, &c.Hkv, "N", "KV heads", 1, 1024, NULL },
	{ "head-dim", 0, KV_SIZE, &c.D, "N", "head size", 2, 1024, NULL },
	{ "embedding", 0, KV_SIZE, &c.d, "N", "embedding size", 1, 1e6, NULL },
	{ "feed-forward", 0, KV_SIZE, &c.ff, "N", "feed-forward size", 1, 1e6, NULL },
	{ "vocabulary", 0, KV_SIZE, &c.vocab, "N", "tokens", 1, 1e7, NULL },
	{ "context", 0, KV_SIZE, &c.context, "N", "longest sequence", 1, 1e9, NULL },
	{ 0 },
};

/* A file in the making: keys and the list of tensors.  The first fault sticks. */
struct out {
	struct kv_buf pairs, infos;
	uint64_t n_pairs, n_tensors, data_bytes;
	FILE *file;
	uint8_t *block;
	int rc;
	struct kv_err *e;
};

static void
add(struct out *o, struct kv_buf *b, const void *bytes, size_t n)
{
	if (o->rc == KV_OK)
		o->rc = kv_buf_add(b, bytes, n, o->e);
}

static void
add_u32(struct out *o, struct kv_buf *b, size_t value)
{
	add(o, b, &(uint32_t){ (uint32_t)value }, 4);
}

static void
add_u64(struct out *o, struct kv_buf *b, uint64_t value)
{
	add(o, b, &value, sizeof value);
}

static void
add_text(struct out *o, struct kv_buf *b, const char *s)
{
	add_u64(o, b, strlen(s));
	add(o, b, s, strlen(s));
}

static void
key(struct out *o, const char *name, size_t type)
{
	add_text(o, &o->pairs, name);
	add_u32(o, &o->pairs, type);
	o->n_pairs++;
}

static void
add_keys(struct out *o)
{
	const struct {
		const char *name;
		size_t value;
	} sizes[] = { { "llama.block_count", c.L }, { "llama.context_length", c.context },
		{ "llama.embedding_length", c.d }, { "llama.feed_forward_length", c.ff },
		{ "llama.attention.head_count", c.Hq }, { "llama.attention.head_count_kv", c.Hkv },
		{ "llama.attention.key_length", c.D }, { "llama.attention.value_length", c.D },
		{ "llama.rope.dimension_count", c.D } };
	const float theta = (float)c.rope_theta;

	key(o, "general.architecture", STRING);
	add_text(o, &o->pairs, "llama");
	key(o, "general.name", STRING);
	add_text(o, &o->pairs, c.name);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		key(o, sizes[i].name, U32);
		add_u32(o, &o->pairs, sizes[i].value);
	}
	key(o, "llama.rope.freq_base", F32);
	add(o, &o->pairs, &theta, sizeof theta);
	key(o, "llama.attention.layer_norm_rms_epsilon", F32);
	add(o, &o->pairs, &c.rms_eps, sizeof c.rms_eps);
}

/* ---- tensors */

static size_t
tensor_bytes(enum kv_role role)
{
	size_t rows, cols;

	kv_role_shape(&c, role, &rows, &cols);
	return rows * cols * (kv_roles[role].vector ? 4 : 2);
}

static size_t
padding(uint64_t at)
{
	return (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT;
}

static void
describe(struct out *o, size_t layer, enum kv_role role)
{
	const bool vector = kv_roles[role].vector;
	char name[128];
	size_t rows, cols;

	kv_role_name(role, layer, true, name, sizeof name);
	kv_role_shape(&c, role, &rows, &cols);
	add_text(o, &o->infos, name);
	add_u32(o, &o->infos, vector ? 1 : 2);
	add_u64(o, &o->infos, cols);
	if (!vector)
		add_u64(o, &o->infos, rows);
	add_u32(o, &o->infos, vector ? TENSOR_F32 : TENSOR_BF16);
	add_u64(o, &o->infos, o->data_bytes);
	o->data_bytes += tensor_bytes(role);
	o->data_bytes += padding(o->data_bytes);
	o->n_tensors++;
}

static void
put(struct out *o, const void *bytes, size_t n)
{
	if (o->rc == KV_OK && fwrite(bytes, 1, n, o->file) != n)
		o->rc = kv_fail(o->e, KV_EIO, "cannot write: %s", strerror(errno));
}

static void
put_role(struct out *o, size_t layer, enum kv_role role)
{
	static const char zeros[ALIGNMENT];
	static size_t at;
	const float one = 1;
	const size_t bytes = tensor_bytes(role);

	(void)layer;
	for (size_t i = 0; i < bytes && kv_roles[role].vector && o->rc == KV_OK; i += sizeof one)
		put(o, &one, sizeof one);
	at = (at + STEP) % BLOCK;
	for (size_t left = bytes, n; left > 0 && !kv_roles[role].vector && o->rc == KV_OK; left -= n) {
		n = left < BLOCK - at ? left : BLOCK - at;
		put(o, o->block + at, n);
		at = (at + n) % BLOCK;
	}
	put(o, zeros, padding(bytes));
}

static void
each_role(struct out *o, void (*fn)(struct out *o, size_t layer, enum kv_role role))
{
	for (size_t layer = 0; layer < c.L; layer++)
		for (enum kv_role role = 0; role < KV_N_ROLES && o->rc == KV_OK; role++)
			if (kv_role_needed(&c, role) && (layer == 0 || kv_roles[role].per_layer))
				fn(o, layer, role);
}

/* Uniform numbers, as bf16; products of rows of d of them with rows of standard deviation 1 have one of 1.25. */
static void
fill(uint8_t *block)
{
	const float width = (float)(1.25 * sqrt(3 / (double)c.d));
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < BLOCK; i += 2) {
		float value;
		uint32_t bits;
		uint16_t high;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		value = width * ((float)(x >> 40) * 0x1p-23f - 1);
		memcpy(&bits, &value, sizeof bits);
		high = (uint16_t)(bits >> 16);
		memcpy(block + i, &high, sizeof high);
	}
}

static int
write_model(struct out *o, const char *path)
{
	struct kv_buf head = { 0 };

	add_keys(o);
	each_role(o, describe);
	add(o, &head, "GGUF", 4);
	add_u32(o, &head, 3);
	add_u64(o, &head, o->n_tensors);
	add_u64(o, &head, o->n_pairs);
	add(o, &head, o->pairs.data, o->pairs.n);
	add(o, &head, o->infos.data, o->infos.n);
	add(o, &head, (const char[ALIGNMENT]){ 0 }, padding(head.n));
	if (o->rc == KV_OK && (o->file = fopen(path, "wb")) == NULL)
		o->rc = kv_fail(o->e, KV_EIO, "%s: %s", path, strerror(errno));
	if (o->rc == KV_OK && (o->block = malloc(BLOCK)) == NULL)
		o->rc = kv_no_memory(o->e, BLOCK);
	if (o->rc == KV_OK) {
		fill(o->block);
		put(o, head.data, head.n);
		each_role(o, put_role);
	}
	if (o->file != NULL && fclose(o->file) != 0 && o->rc == KV_OK)
		o->rc = kv_fail(o->e, KV_EIO, "%s: %s", path, strerror(errno));
	free(o->block);
	kv_buf_fini(&head);
	return o->rc;
}

int
main(int argc, char **argv)
{
	const struct kv_opt *tables[] = { opts, NULL };
	struct kv_buf help = { 0 };
	struct kv_err e = { 0 };
	struct out o = { .e = &e };
	int rc;

	if (kv_opt_parse(tables, &argc, argv, &e) < 0 || argc != 2) {
		kv_opt_help(opts, &help, NULL);
		fprintf(stderr, "random_model: %s\nUsage: random_model [options] OUT\n%s", e.text, help.data);
		kv_buf_fini(&help);
		return 2;
	}
	c.arch = kv_arch_find("llama");
	c.rope_dim = c.D;
	c.scale = (float)(1 / sqrt((double)c.D));
	if ((rc = kv_config_rope(&c, 1, NULL, NULL, &e)) == KV_OK && (rc = kv_config_check(&c, &e)) == KV_OK)
		rc = write_model(&o, argv[1]);
	if (rc < 0)
		fprintf(stderr, "random_model: %s\n", e.text);
	kv_buf_fini(&o.pairs);
	kv_buf_fini(&o.infos);
	kv_config_fini(&c);
	return rc < 0;
}
