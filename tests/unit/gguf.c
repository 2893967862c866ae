/* SPDX-License-Identifier: MIT
 * GGUF files: what is written comes back, and what is broken is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/format.h"
#include "lib/tensor.h"
#include "tests/lib/quantise.h"
#include "tests/lib/streams.h"
#include "tests/lib/tiny.h"
#include "tests/lib/weights.h"
#include "tests/lib/write_model.h"

/* ---- round trips ---- */

static void
grow(struct kv_model *m, const struct tiny_spec *s)
{
	struct kv_err e = { 0 };

	*m = (struct kv_model){ 0 };
	if (tiny_model(m, s, &e) < 0)
		fail_msg("%s", e.text);
}

static void
open_model(struct kv_model *m, const char *path, bool with_weights)
{
	struct kv_err e = { 0 };

	*m = (struct kv_model){ 0 };
	if (kv_model_open(m, path, with_weights, &e) < 0)
		fail_msg("%s", e.text);
}

static void
same_config(const struct kv_config *a, const struct kv_config *b)
{
	json_t *x = kv_config_to_json(a), *y = kv_config_to_json(b);

	assert_true(a->tied == b->tied && a->rms_eps == b->rms_eps);
	json_object_del(x, "fingerprint");
	json_object_del(y, "fingerprint");
	for (size_t i = 0; i < a->rope_dim / 2; i++)
		assert_true(fabs((double)a->inv_freq[i] - b->inv_freq[i]) <= 1e-6 * a->inv_freq[i]);
	json_object_del(json_object_get(x, "rope"), "inv_freq");
	json_object_del(json_object_get(y, "rope"), "inv_freq");
	assert_true(json_equal(x, y));
	json_decref(x);
	json_decref(y);
}

static void
same_vocab(const struct kv_vocab *a, const struct kv_vocab *b)
{
	assert_true(a->kind == b->kind && a->n == b->n && a->n_merges == b->n_merges && a->n_patterns == b->n_patterns);
	assert_true(a->bos == b->bos && a->eos == b->eos && a->unk == b->unk && a->pad == b->pad);
	assert_true(a->add_bos == b->add_bos && a->add_eos == b->add_eos && a->add_space_prefix == b->add_space_prefix);
	assert_int_equal(a->n_stops, b->n_stops);
	for (size_t i = 0; i < a->n; i++) {
		assert_int_equal(a->tokens[i].n, b->tokens[i].n);
		assert_memory_equal(a->tokens[i].text, b->tokens[i].text, a->tokens[i].n);
		assert_true(a->tokens[i].kind == b->tokens[i].kind && a->tokens[i].score == b->tokens[i].score);
	}
	for (size_t i = 0; i < a->n_merges; i++)
		assert_string_equal(a->merges[i], b->merges[i]);
	for (size_t i = 0; i < a->n_patterns; i++)
		assert_string_equal(a->patterns[i], b->patterns[i]);
	if (a->chat_template != NULL)
		assert_string_equal(a->chat_template, b->chat_template);
}

/* Every weight of a and b, in one order of rotary pairs, differs by no more than storing as `type` may cost. */
static void
same_weights(const struct kv_model *a, const struct kv_model *b, enum kvk_type type)
{
	for (size_t layer = 0; layer < a->cfg.L; layer++) {
		for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
			const struct kv_matrix *w = kv_model_weight(a, layer, role),
					       *v = kv_model_weight(b, layer, role);
			double range = 0, bound;
			float *x, *y;

			if (!kv_role_needed(&a->cfg, role))
				continue;
			x = weight_f32(a, layer, role, false, NULL);
			y = weight_f32(b, layer, role, false, NULL);
			for (size_t i = 0; i < w->rows * w->cols; i++)
				range = fmax(range, fabs(x[i]));
			assert_int_equal(v->type, kv_roles[role].vector ? KVK_F32 : type);
			bound = quantise_error(v->type, range);
			for (size_t i = 0; i < w->rows * w->cols; i++)
				assert_true(fabs((double)x[i] - y[i]) <= bound);
			free(x);
			free(y);
		}
	}
}

static void
round_trip(const struct tiny_spec *s, enum kvk_type type)
{
	const char *path = scratch("model.gguf");
	struct kv_model a, b;

	grow(&a, s);
	assert_int_equal(write_gguf(&a, type, path, NULL), KV_OK);
	open_model(&b, path, true);
	assert_true(b.cfg.rope_interleaved == b.cfg.arch->gguf_interleaved);
	same_config(&a.cfg, &b.cfg);
	same_vocab(&a.vocab, &b.vocab);
	same_weights(&a, &b, type);
	kv_model_fini(&a);
	kv_model_fini(&b);
}

static void
every_type_comes_back(void **state)
{
	static const struct tiny_spec s = { "llama", 1, 4, 2, 128, 256, 256, 268, 64, true, false, true, 7 };

	(void)state;
	for (enum kvk_type t = 0; t < KVK_N_TYPES; t++)
		if (!kvk_types[t].integer)
			round_trip(&s, t);
}

static void
every_architecture_comes_back(void **state)
{
	static const struct tiny_spec specs[] = {
		{ "llama", 2, 4, 1, 16, 48, 80, 300, 64, false, false, true, 1 },
		{ "llama", 2, 3, 3, 16, 48, 80, 300, 64, false, true, false,
		    2 }, /* halves: written interleaved, scaled */
		{ "qwen2", 2, 4, 2, 8, 32, 48, 300, 64, true, false, false, 3 },
		{ "qwen3", 2, 4, 2, 24, 32, 48, 300, 64, false, true, false, 4 }, /* Hq D is not d */
		{ "llama", 1, 2, 1, 8, 16, 32, 20, 64, false, false, true, 5 },   /* no vocabulary */
	};

	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
		round_trip(&specs[i], KVK_F32);
}

static void
weights_may_be_left_out(void **state)
{
	static const struct tiny_spec s = { "qwen2", 1, 2, 1, 8, 16, 32, 300, 64, true, false, false, 6 };
	struct kv_model a, b;

	(void)state;
	grow(&a, &s);
	assert_int_equal(write_gguf(&a, KVK_F32, scratch("m.gguf"), NULL), KV_OK);
	open_model(&b, scratch("m.gguf"), false);
	assert_null(b.weights);
	same_config(&a.cfg, &b.cfg);
	same_vocab(&a.vocab, &b.vocab);
	assert_int_equal(strlen(b.cfg.fingerprint), 32);
	kv_model_fini(&a);
	kv_model_fini(&b);
}

static void
sentencepiece_comes_back(void **state)
{
	static const struct tiny_spec s = { "llama", 1, 2, 1, 8, 16, 32, 6, 64, true, false, true, 8 };
	struct kv_token tokens[6] = {
		{ "<unk>", 5, 0, KV_TOKEN_SPECIAL },
		{ "<s>", 3, 0, KV_TOKEN_SPECIAL },
		{ "</s>", 4, 0, KV_TOKEN_SPECIAL },
		{ "<0x0A>", 6, 0, KV_TOKEN_BYTE },
		{ "\xe2\x96\x81"
		  "a",
		    4, -1.5f, KV_TOKEN_NORMAL },
		{ "a", 1, -2, KV_TOKEN_ADDED },
	};
	struct kv_model a, b;

	(void)state;
	grow(&a, &s);
	a.vocab.kind = KV_VOCAB_SPM;
	a.vocab.tokens = tokens;
	a.vocab.n = 6;
	a.vocab.unk = 0, a.vocab.bos = 1, a.vocab.eos = 2, a.vocab.add_bos = a.vocab.add_space_prefix = true;
	assert_int_equal(kv_vocab_set_stops(&a.vocab, NULL, 0, NULL), KV_OK);
	assert_int_equal(write_gguf(&a, KVK_F32, scratch("spm.gguf"), NULL), KV_OK);
	open_model(&b, scratch("spm.gguf"), true);
	same_vocab(&a.vocab, &b.vocab);
	kv_model_fini(&a);
	kv_model_fini(&b);
}

/* ---- models that are no models: a good file, patched ---- */

static struct kv_buf
good_file(void)
{
	static const struct tiny_spec s = { "llama", 2, 4, 2, 8, 32, 64, 270, 64, false, false, true, 9 };
	struct kv_model m;

	grow(&m, &s);
	assert_int_equal(write_gguf(&m, KVK_F32, scratch("good.gguf"), NULL), KV_OK);
	kv_model_fini(&m);
	return scratch_read(scratch("good.gguf"));
}

static char *
find_bytes(const struct kv_buf *b, const char *name)
{
	char *p = memmem(b->data, b->n, name, strlen(name));

	assert_non_null(p);
	return p;
}

/* Bytes to put at `skip` bytes behind the first place where `name` ends; text NULL: the number, as 4 bytes. */
static const struct {
	const char *name;
	int skip;
	const char *text;
	uint32_t number;
	const char *says;
} patches[] = {
	{ "general.architecture", 12, "mamba", 0, "architecture 'mamba' is not known (known: llama qwen2 qwen3)" },
	{ "general.architecture", -1, "f", 0, "key general.architecture is missing" },
	{ "llama.block_count", 4, NULL, 0, "layers is 0" },
	{ "llama.block_count", 4, NULL, UINT32_MAX, "layers is 4294967295" },
	{ "llama.block_count", 4, NULL, 3, "tensor blk.2.attn_norm.weight is missing" },
	{ "llama.block_count", 4, NULL, 1, "the model has 1 layers only" },
	{ "llama.block_count", 0, NULL, 6, "key llama.block_count: expected a whole number, found f32" },
	{ "llama.block_count", -1, "f", 0, "key llama.block_count is missing" },
	{ "llama.attention.head_count_kv", 4, NULL, 3, "not a multiple of 3 KV heads" },
	{ "llama.attention.value_length", 4, NULL, 3, "values of 3 dimensions" },
	{ "llama.rope.dimension_count", 4, NULL, 10, "rotary dimensions 10" },
	{ "llama.rope.freq_base", 4, NULL, 0, "rotary base 0" },
	{ "llama.embedding_length", 4, NULL, 31,
	    "tensor token_embd.weight: expected shape [270][31], found [270][32]" },
	{ "blk.1.ffn_up.weigh", 0, "x", 0, "tensor blk.1.ffn_up.weight is missing" },
	{ "blk.1.attn_k.weight", -15, "0", 0, "tensor blk.0.attn_k.weight: there are two" },
	{ "blk.0.attn_q.weight", 4, NULL, 16, "tensor blk.0.attn_q.weight: expected shape [32][32], found [32][16]" },
	{ "blk.0.attn_q.weight", 20, NULL, 16, "element type number 16" },
	{ "blk.0.attn_q.weight", 24, NULL, 16, "tensor blk.0.attn_q.weight: offset 16 is no multiple" },
	{ "blk.0.attn_q.weight", 24, NULL, 1u << 30,
	    "tensor blk.0.attn_q.weight: 4096 bytes at offset 1073741824 end beyond" },
	{ "blk.0.attn_q.weight", -6, "bias.x", 0, "tensor blk.0.attn_q.weight is missing" },
	{ "blk.0.attn_norm.weight", -16, "ssm_inner_x.bias", 0,
	    "tensor blk.0.ssm_inner_x.bias: not part of a llama model" },
	{ "tokenizer.ggml.model", 12, "bert", 0, "tokenizer.ggml.model: expected gpt2 or llama" },
	{ "tokenizer.ggml.pre", 12, "gpt-9", 0, "pre-tokenizer 'gpt-9' is not known" },
	{ "tokenizer.ggml.bos_token_id", 4, NULL, 99999, "tokenizer.ggml.bos_token_id: not one of the 270 tokens" },
	{ "tokenizer.ggml.token_type", 4, NULL, 6, "tokenizer.ggml.token_type: expected a list of i32" },
	{ "tokenizer.ggml.merge", 0, "x", 0, "key tokenizer.ggml.merges is missing" },
	{ "tokenizer.ggml.token", 0, "x", 0, "key tokenizer.ggml.tokens is missing" },
};

static void
misfit_models_are_named(void **state)
{
	struct kv_buf good = good_file(), b = { 0 };
	struct kv_model m = { 0 };
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
		char *at;
		int rc;

		b.n = 0;
		assert_int_equal(kv_buf_add(&b, good.data, good.n, NULL), KV_OK);
		at = find_bytes(&b, patches[i].name) + strlen(patches[i].name) + patches[i].skip;
		if (patches[i].text != NULL)
			memcpy(at, patches[i].text, strlen(patches[i].text));
		else
			memcpy(at, &patches[i].number, 4);
		scratch_write(scratch("bad.gguf"), b.data, b.n);
		e = (struct kv_err){ 0 };
		rc = kv_model_open(&m, scratch("bad.gguf"), true, &e);
		kv_model_fini(&m);
		if (rc >= 0 || strstr(e.text, patches[i].says) == NULL || strstr(e.text, "bad.gguf: ") == NULL)
			fail_msg("patch %zu (%s): status %d, \"%s\"", i, patches[i].name, rc, e.text);
	}
	kv_buf_fini(&b);
	kv_buf_fini(&good);
}

/* ---- defaults and inspection ---- */

static void
keys_that_are_absent_have_defaults(void **state)
{
	struct kv_buf b = good_file();
	struct kv_model m;

	(void)state;
	find_bytes(&b, "tokenizer.ggml.add_bos_token")[0] = 'x';
	find_bytes(&b, "llama.attention.key_length")[0] = 'x';
	find_bytes(&b, "llama.attention.value_length")[0] = 'x';
	find_bytes(&b, "llama.rope.dimension_count")[0] = 'x';
	find_bytes(&b, "llama.rope.freq_base")[0] = 'x';
	find_bytes(&b, "llama.context_length")[0] = 'x';
	scratch_write(scratch("defaults.gguf"), b.data, b.n);
	open_model(&m, scratch("defaults.gguf"), true);
	assert_false(m.vocab.add_bos); /* byte-level, pre gpt-2 */
	assert_true(m.cfg.D == 8 && m.cfg.rope_dim == 8 && m.cfg.rope_theta == 10000 && m.cfg.context == 0);
	kv_model_fini(&m);
	kv_buf_fini(&b);
}

static int
count(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	(void)e;
	if (strcmp(name, "blk.1.ffn_gate.weight") == 0)
		assert_true(w->type == KVK_F32 && w->rows == 64 && w->cols == 32);
	++*(size_t *)ctx;
	return KV_OK;
}

static void
files_can_be_inspected(void **state)
{
	struct kv_buf b = good_file();
	const struct kv_format *f = kv_format_probe(scratch("good.gguf"));
	json_t *meta = NULL, *tokens;
	size_t n = 0;

	(void)state;
	assert_string_equal(f->name, "gguf");
	assert_int_equal(f->tensors(scratch("good.gguf"), count, &n, NULL), KV_OK);
	assert_int_equal(n, 3 + 2 * 9);
	assert_int_equal(f->metadata(scratch("good.gguf"), &meta, NULL), KV_OK);
	assert_int_equal(json_integer_value(json_object_get(meta, "llama.block_count")), 2);
	assert_string_equal(json_string_value(json_object_get(meta, "general.architecture")), "llama");
	assert_true(json_is_true(json_object_get(meta, "tokenizer.ggml.add_bos_token")));
	tokens = json_object_get(meta, "tokenizer.ggml.tokens");
	assert_int_equal(json_integer_value(json_object_get(tokens, "length")), 270);
	assert_int_equal(json_array_size(json_object_get(tokens, "first")), 8);
	json_decref(meta);
	kv_buf_fini(&b);
}

static void
what_is_no_model_is_told_so(void **state)
{
	struct kv_model m = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	scratch_write(scratch("text"), "hello, world", 12);
	assert_int_equal(kv_model_open(&m, scratch("text"), true, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "text: not a model"));
	assert_int_equal(kv_model_open(&m, scratch("nothing"), true, &e), KV_EIO);
	assert_non_null(strstr(e.text, "nothing: No such file"));
	assert_int_equal(kv_model_open(&m, "/dev/null", true, &e), KV_EIO);
	assert_int_equal(kv_model_open(&m, "/", true, &e), KV_EMODEL);
}

static void
a_published_model_opens(void **state)
{
	const char *shared = getenv("KV_SHARED");
	struct kv_model m = { 0 };
	struct kv_err e = { 0 };
	char path[4096];
	FILE *f;

	(void)state;
	snprintf(path, sizeof path, "%s/data/stories260K.gguf", shared ? shared : "../shared");
	if ((f = fopen(path, "rb")) == NULL)
		skip();
	fclose(f);
	if (kv_model_open(&m, path, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(
	    m.cfg.L == 5 && m.cfg.Hq == 8 && m.cfg.Hkv == 4 && m.cfg.D == 8 && m.cfg.d == 64 && m.cfg.ff == 172);
	assert_true(
	    m.cfg.vocab == 512 && m.cfg.context == 512 && m.cfg.rope_interleaved && m.vocab.kind == KV_VOCAB_SPM);
	assert_true(m.vocab.bos == 1 && m.vocab.eos == 2 && m.vocab.add_bos && m.vocab.add_space_prefix);
	kv_model_fini(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_comes_back),
		cmocka_unit_test(every_architecture_comes_back),
		cmocka_unit_test(weights_may_be_left_out),
		cmocka_unit_test(sentencepiece_comes_back),
		cmocka_unit_test(misfit_models_are_named),
		cmocka_unit_test(keys_that_are_absent_have_defaults),
		cmocka_unit_test(files_can_be_inspected),
		cmocka_unit_test(what_is_no_model_is_told_so),
		cmocka_unit_test(a_published_model_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
