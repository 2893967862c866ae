/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/tensor.h"
#include "tests/lib/quantise.h"
#include "tests/lib/weights.h"
#include "tests/lib/write_model.h"

#define ALIGNMENT 32

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 }; /* the file's numbers for value types */

/* A file in the making: three parts, put together at the end.  The first fault sticks. */
struct out {
	const struct kv_model *m;
	struct kv_buf pairs, infos, data;
	uint64_t n_pairs, n_tensors;
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
add_u32(struct out *o, struct kv_buf *b, uint32_t v)
{
	add(o, b, &v, sizeof v);
}

static void
add_u64(struct out *o, struct kv_buf *b, uint64_t v)
{
	add(o, b, &v, sizeof v);
}

static void
add_text(struct out *o, struct kv_buf *b, const char *s, size_t n)
{
	add_u64(o, b, n);
	add(o, b, s, n);
}

/* ---- keys ---- */

static void
key(struct out *o, const char *name, uint32_t type)
{
	add_text(o, &o->pairs, name, strlen(name));
	add_u32(o, &o->pairs, type);
	o->n_pairs++;
}

static void
key_text(struct out *o, const char *name, const char *value)
{
	key(o, name, STRING);
	add_text(o, &o->pairs, value, strlen(value));
}

static void
key_bool(struct out *o, const char *name, bool value)
{
	key(o, name, BOOL);
	add(o, &o->pairs, &(char){ value }, 1);
}

static void
key_id(struct out *o, const char *name, int32_t id)
{
	if (id < 0)
		return;
	key(o, name, U32);
	add_u32(o, &o->pairs, (uint32_t)id);
}

static void
key_list(struct out *o, const char *name, uint32_t type, size_t n)
{
	key(o, name, ARRAY);
	add_u32(o, &o->pairs, type);
	add_u64(o, &o->pairs, n);
}

static void
arch_size(struct out *o, const char *name, size_t value)
{
	char full[96];

	snprintf(full, sizeof full, "%s.%s", o->m->cfg.arch->name, name);
	key(o, full, U32);
	add_u32(o, &o->pairs, (uint32_t)value);
}

static void
arch_real(struct out *o, const char *name, float value)
{
	char full[96];

	snprintf(full, sizeof full, "%s.%s", o->m->cfg.arch->name, name);
	key(o, full, F32);
	add(o, &o->pairs, &value, sizeof value);
}

static void
add_config(struct out *o)
{
	const struct kv_config *c = &o->m->cfg;
	char scaling[96];

	key_text(o, "general.architecture", c->arch->name);
	key_text(o, "general.name", c->name);
	arch_size(o, "block_count", c->L);
	arch_size(o, "context_length", c->context);
	arch_size(o, "embedding_length", c->d);
	arch_size(o, "feed_forward_length", c->ff);
	arch_size(o, "attention.head_count", c->Hq);
	arch_size(o, "attention.head_count_kv", c->Hkv);
	arch_size(o, "attention.key_length", c->D);
	arch_size(o, "attention.value_length", c->D);
	arch_size(o, "rope.dimension_count", c->rope_dim);
	arch_real(o, "rope.freq_base", (float)c->rope_theta);
	arch_real(o, "attention.layer_norm_rms_epsilon", c->rms_eps);
	if (strcmp(c->rope_scaling, "linear") == 0) {
		snprintf(scaling, sizeof scaling, "%s.rope.scaling.type", c->arch->name);
		key_text(o, scaling, "linear");
		arch_real(o, "rope.scaling.factor", 1 / c->inv_freq[0]); /* the unscaled first frequency is 1 */
	}
}

static void
add_tokens(struct out *o)
{
	static const int32_t kinds[] = { [KV_TOKEN_NORMAL] = 1,
		[KV_TOKEN_SPECIAL] = 3,
		[KV_TOKEN_ADDED] = 4,
		[KV_TOKEN_UNUSED] = 5,
		[KV_TOKEN_BYTE] = 6 };
	const struct kv_vocab *v = &o->m->vocab;

	key_list(o, "tokenizer.ggml.tokens", STRING, v->n);
	for (size_t i = 0; i < v->n; i++)
		add_text(o, &o->pairs, v->tokens[i].text, v->tokens[i].n);
	key_list(o, "tokenizer.ggml.token_type", I32, v->n);
	for (size_t i = 0; i < v->n; i++)
		add_u32(o, &o->pairs, (uint32_t)kinds[v->tokens[i].kind]);
	if (v->kind == KV_VOCAB_SPM) {
		key_list(o, "tokenizer.ggml.scores", F32, v->n);
		for (size_t i = 0; i < v->n; i++)
			add(o, &o->pairs, &v->tokens[i].score, sizeof(float));
	} else {
		key_list(o, "tokenizer.ggml.merges", STRING, v->n_merges);
		for (size_t i = 0; i < v->n_merges; i++)
			add_text(o, &o->pairs, v->merges[i], strlen(v->merges[i]));
	}
}

static void
add_vocab(struct out *o)
{
	const struct kv_vocab *v = &o->m->vocab;

	if (v->kind == KV_VOCAB_NONE)
		return;
	key_text(o, "tokenizer.ggml.model", v->kind == KV_VOCAB_SPM ? "llama" : "gpt2");
	if (v->kind == KV_VOCAB_BPE)
		key_text(o, "tokenizer.ggml.pre", "gpt-2");
	add_tokens(o);
	key_id(o, "tokenizer.ggml.bos_token_id", v->bos);
	key_id(o, "tokenizer.ggml.eos_token_id", v->eos);
	key_id(o, "tokenizer.ggml.unknown_token_id", v->unk);
	key_id(o, "tokenizer.ggml.padding_token_id", v->pad);
	key_bool(o, "tokenizer.ggml.add_bos_token", v->add_bos);
	key_bool(o, "tokenizer.ggml.add_eos_token", v->add_eos);
	key_bool(o, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
	if (v->chat_template != NULL)
		key_text(o, "tokenizer.chat_template", v->chat_template);
}

/* ---- tensors ---- */

static uint32_t
type_number(enum kvk_type type)
{
	static const uint32_t numbers[KVK_N_TYPES] = {
		[KVK_F32] = 0,
		[KVK_F16] = 1,
		[KVK_BF16] = 30,
		[KVK_I32] = 26,
		[KVK_Q4_0] = 2,
		[KVK_Q4_1] = 3,
		[KVK_Q5_0] = 6,
		[KVK_Q5_1] = 7,
		[KVK_Q8_0] = 8,
		[KVK_Q2_K] = 10,
		[KVK_Q3_K] = 11,
		[KVK_Q4_K] = 12,
		[KVK_Q5_K] = 13,
		[KVK_Q6_K] = 14,
	};

	return numbers[type];
}

static void
pad(struct out *o, struct kv_buf *b, size_t at)
{
	static const char zeros[ALIGNMENT];

	add(o, b, zeros, (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT);
}

static void
add_tensor(struct out *o, const char *name, enum kvk_type type, const float *x, size_t rows, size_t cols, bool vector)
{
	size_t bytes;

	if (cols % kvk_types[type].block != 0)
		type = KVK_F32;
	kv_type_bytes(type, rows * cols, &bytes);
	add_text(o, &o->infos, name, strlen(name));
	add_u32(o, &o->infos, vector ? 1 : 2);
	add_u64(o, &o->infos, cols);
	if (!vector)
		add_u64(o, &o->infos, rows);
	add_u32(o, &o->infos, type_number(type));
	add_u64(o, &o->infos, o->data.n);
	o->n_tensors++;
	if (o->rc == KV_OK && (o->rc = kv_buf_reserve(&o->data, bytes, o->e)) == KV_OK) {
		quantise(type, x, rows * cols, o->data.data + o->data.n);
		o->data.n += bytes;
	}
	pad(o, &o->data, o->data.n);
}

static void
add_role(struct out *o, size_t layer, enum kv_role role, enum kvk_type type)
{
	char name[128];
	size_t rows, cols;
	float *x = weight_f32(o->m, layer, role, o->m->cfg.arch->gguf_interleaved, o->e);

	if (x == NULL) {
		o->rc = KV_EMEM;
		return;
	}
	kv_role_name(role, layer, true, name, sizeof name);
	kv_role_shape(&o->m->cfg, role, &rows, &cols);
	add_tensor(o, name, kv_roles[role].vector ? KVK_F32 : type, x, rows, cols, kv_roles[role].vector);
	free(x);
}

static void
add_rope_factors(struct out *o)
{
	const struct kv_config *c = &o->m->cfg;
	float factors[1024];
	size_t n = c->rope_dim / 2;

	if (strcmp(c->rope_scaling, "llama3") != 0 || n > sizeof factors / sizeof *factors)
		return;
	for (size_t i = 0; i < n; i++)
		factors[i] = (float)(pow(c->rope_theta, -(double)(2 * i) / (double)c->rope_dim) / c->inv_freq[i]);
	add_tensor(o, "rope_freqs.weight", KVK_F32, factors, 1, n, true);
}

static void
add_tensors(struct out *o, enum kvk_type type)
{
	add_rope_factors(o);
	for (size_t layer = 0; layer < o->m->cfg.L; layer++)
		for (enum kv_role role = 0; role < KV_N_ROLES && o->rc == KV_OK; role++)
			if (kv_role_needed(&o->m->cfg, role) && (layer == 0 || kv_roles[role].per_layer))
				add_role(o, layer, role, type);
}

static void
put_together(struct out *o, const char *path)
{
	struct kv_buf head = { 0 };
	FILE *f = NULL;

	add(o, &head, "GGUF", 4);
	add_u32(o, &head, 3);
	add_u64(o, &head, o->n_tensors);
	add_u64(o, &head, o->n_pairs);
	add(o, &head, o->pairs.data, o->pairs.n);
	add(o, &head, o->infos.data, o->infos.n);
	pad(o, &head, head.n);
	if (o->rc == KV_OK && ((f = fopen(path, "wb")) == NULL || fwrite(head.data, 1, head.n, f) != head.n ||
				  fwrite(o->data.data, 1, o->data.n, f) != o->data.n))
		o->rc = kv_fail(o->e, KV_EIO, "%s: cannot be written", path);
	if (f != NULL && fclose(f) != 0 && o->rc == KV_OK)
		o->rc = kv_fail(o->e, KV_EIO, "%s: cannot be written", path);
	kv_buf_fini(&head);
}

int
write_gguf(const struct kv_model *m, enum kvk_type type, const char *path, struct kv_err *e)
{
	struct out o = { .m = m, .e = e };

	add_config(&o);
	add_vocab(&o);
	add_tensors(&o, type);
	put_together(&o, path);
	kv_buf_fini(&o.pairs);
	kv_buf_fini(&o.infos);
	kv_buf_fini(&o.data);
	return o.rc;
}
