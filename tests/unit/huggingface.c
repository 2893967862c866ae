/* SPDX-License-Identifier: MIT
 * Hugging Face folders: what is written comes back, and what is broken is named. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/format.h"
#include "formats/huggingface.h"
#include "formats/safetensors.h"
#include "tests/lib/quantise.h"
#include "tests/lib/streams.h"
#include "tests/lib/tiny.h"
#include "tests/lib/weights.h"
#include "tests/lib/write_model.h"

static const struct tiny_spec small = { "llama", 2, 4, 2, 8, 32, 48, 280, 64, false, false, true, 11 };

/* ---- folders ---- */

static void
remove_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *d;
	char path[1024];

	while (dir != NULL && (d = readdir(dir)) != NULL) {
		snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
		unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(folder);
}

static void
make_folder(const char *folder, const struct tiny_spec *s, enum kvk_type type, unsigned shards, struct kv_model *m)
{
	struct kv_model local = { 0 };
	struct kv_err e = { 0 };

	m = m != NULL ? m : &local;
	*m = (struct kv_model){ 0 };
	if (tiny_model(m, s, &e) < 0 || write_hf(m, type, shards, folder, &e) < 0)
		fail_msg("%s", e.text);
	kv_model_fini(&local);
}

static void
open_folder(struct kv_model *m, const char *folder)
{
	struct kv_err e = { 0 };

	*m = (struct kv_model){ 0 };
	if (kv_model_open(m, folder, true, &e) < 0)
		fail_msg("%s", e.text);
}

static void
put_file(const char *folder, const char *name, const void *bytes, size_t n)
{
	char path[1024];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	scratch_write(path, bytes, n);
}

static struct kv_buf
get_file(const char *folder, const char *name)
{
	char path[1024];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return scratch_read(path);
}

/* Expect that the folder does not open, with a message that has both texts. */
static void
refused(const char *folder, const char *where, const char *says)
{
	struct kv_model m = { 0 };
	struct kv_err e = { 0 };
	int rc = kv_model_open(&m, folder, true, &e);

	kv_model_fini(&m);
	if (rc >= 0 || strstr(e.text, where) == NULL || strstr(e.text, says) == NULL)
		fail_msg("expected \"%s: … %s\", got status %d, \"%s\"", where, says, rc, e.text);
}

/* ---- round trips ---- */

static void
same_weights(const struct kv_model *a, const struct kv_model *b, enum kvk_type type)
{
	for (size_t layer = 0; layer < a->cfg.L; layer++) {
		for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
			const struct kv_matrix *w = kv_model_weight(a, layer, role);
			float *x, *y;

			if (!kv_role_needed(&a->cfg, role))
				continue;
			assert_int_equal(kv_model_weight(b, layer, role)->type, type);
			x = weight_f32(a, layer, role, false, NULL);
			y = weight_f32(b, layer, role, false, NULL);
			for (size_t i = 0; i < w->rows * w->cols; i++)
				assert_true(fabs((double)x[i] - y[i]) <=
					    quantise_error(type, fmax(fabs(x[i]), 0x1p-14))); /* subnormal halves */
			free(x);
			free(y);
		}
	}
}

static void
same_vocab(const struct kv_vocab *a, const struct kv_vocab *b)
{
	assert_true(a->kind == b->kind && a->n == b->n && a->n_merges == b->n_merges && a->n_patterns == b->n_patterns);
	assert_true(a->bos == b->bos && a->eos == b->eos && a->add_bos == b->add_bos && a->add_eos == b->add_eos);
	assert_int_equal(a->n_stops, b->n_stops);
	for (size_t i = 0; i < a->n; i++) {
		assert_int_equal(a->tokens[i].n, b->tokens[i].n);
		assert_memory_equal(a->tokens[i].text, b->tokens[i].text, a->tokens[i].n);
		assert_true((a->tokens[i].kind == KV_TOKEN_SPECIAL) == (b->tokens[i].kind == KV_TOKEN_SPECIAL));
	}
	for (size_t i = 0; i < a->n_merges; i++)
		assert_string_equal(a->merges[i], b->merges[i]);
	for (size_t i = 0; i < a->n_patterns; i++)
		assert_string_equal(a->patterns[i], b->patterns[i]);
	if (a->chat_template != NULL)
		assert_string_equal(a->chat_template, b->chat_template);
}

static void
folders_come_back(void **state)
{
	static const struct {
		struct tiny_spec spec;
		enum kvk_type type;
		unsigned shards;
	} cases[] = {
		{ { "llama", 2, 4, 1, 16, 48, 80, 300, 64, false, true, true, 1 }, KVK_F32, 1 },
		{ { "llama", 2, 3, 3, 16, 48, 80, 300, 64, true, false, false, 2 }, KVK_F16, 3 },
		{ { "qwen2", 2, 4, 2, 8, 32, 48, 300, 64, true, false, false, 3 }, KVK_BF16, 2 },
		{ { "qwen3", 2, 4, 2, 24, 32, 48, 20, 64, false, true, false, 4 }, KVK_F32, 5 }, /* no vocabulary */
	};
	char folder[256];

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("trip"));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kv_model a, b;

		make_folder(folder, &cases[i].spec, cases[i].type, cases[i].shards, &a);
		open_folder(&b, folder);
		assert_false(b.cfg.rope_interleaved);
		assert_true(
		    b.cfg.tied == a.cfg.tied && b.cfg.rms_eps == a.cfg.rms_eps && b.cfg.context == a.cfg.context);
		assert_int_equal(b.n_maps, cases[i].shards);
		for (size_t j = 0; j < a.cfg.rope_dim / 2; j++)
			assert_true(fabs((double)a.cfg.inv_freq[j] - b.cfg.inv_freq[j]) <= 1e-6 * a.cfg.inv_freq[j]);
		same_weights(&a, &b, cases[i].type);
		same_vocab(&a.vocab, &b.vocab);
		kv_model_fini(&a);
		kv_model_fini(&b);
		remove_folder(folder);
	}
}

/* The same weights as a GGUF file and as a folder: one configuration, one order of rotary pairs after weight_f32. */
static void
both_formats_agree(void **state)
{
	struct kv_model a, g, h;
	struct kv_err e = { 0 };
	json_t *x, *y;
	char folder[256];

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("tiny-llama"));
	make_folder(folder, &small, KVK_F32, 1, &a);
	assert_int_equal(write_gguf(&a, KVK_F32, scratch("both.gguf"), &e), KV_OK);
	open_folder(&h, folder);
	open_folder(&g, scratch("both.gguf"));
	same_weights(&g, &h, KVK_F32);
	x = kv_config_to_json(&g.cfg);
	y = kv_config_to_json(&h.cfg);
	json_object_del(x, "fingerprint");
	json_object_del(y, "fingerprint");
	assert_true(json_equal(x, y));
	json_decref(x);
	json_decref(y);
	kv_model_fini(&a);
	kv_model_fini(&g);
	kv_model_fini(&h);
	remove_folder(folder);
}

/* ---- config.json ---- */

#define SIZES                                                                                                          \
	"'num_hidden_layers': 2, 'hidden_size': 32, 'intermediate_size': 48, 'vocab_size': 280, "                      \
	"'num_attention_heads': 4"
#define LLAMA "'model_type': 'llama', " SIZES

static int
parse_config(const char *text, struct kv_config *c, bool *tied_known, struct kv_err *e)
{
	json_t *o = json_of(text);
	int rc = hf_config(o, c, tied_known, e);

	json_decref(o);
	return rc;
}

static void
config_defaults_and_spellings(void **state)
{
	struct kv_config c = { 0 };
	struct kv_err e = { 0 };
	bool known;

	(void)state;
	assert_int_equal(parse_config("{" LLAMA "}", &c, &known, &e), KV_OK);
	assert_true(!known && c.Hkv == 4 && c.D == 8 && c.rope_dim == 8 && c.rope_theta == 10000 && c.context == 0);
	kv_config_fini(&c);
	/* transformers 5 */
	assert_int_equal(
	    parse_config("{" LLAMA ", 'head_dim': 16, 'num_key_value_heads': 2, 'tie_word_embeddings': true, "
			 "'rope_parameters': {'rope_theta': 500000.0, 'rope_type': 'default'}}",
		&c, &known, &e),
	    KV_OK);
	assert_true(known && c.tied && c.Hkv == 2 && c.D == 16 && c.rope_theta == 500000);
	assert_string_equal(c.rope_scaling, "none");
	kv_config_fini(&c);
	/* older: type instead of rope_type, theta outside */
	assert_int_equal(
	    parse_config("{" LLAMA ", 'rope_theta': 1000000, 'rope_scaling': {'type': 'linear', 'factor': 4.0}}", &c,
		&known, &e),
	    KV_OK);
	assert_true(c.rope_theta == 1000000 && c.inv_freq[0] == 0.25f);
	kv_config_fini(&c);
	assert_int_equal(
	    parse_config("{" LLAMA ", 'rope_scaling': null, 'sliding_window': null, 'partial_rotary_factor': 0.5}", &c,
		&known, &e),
	    KV_OK);
	assert_int_equal(c.rope_dim, 4);
	kv_config_fini(&c);
	/* a window that is off or too long to matter */
	assert_int_equal(
	    parse_config("{'model_type': 'qwen2', " SIZES ", 'max_position_embeddings': 4096, 'sliding_window': 128, "
			 "'use_sliding_window': false, 'layer_types': ['full_attention', 'full_attention']}",
		&c, &known, &e),
	    KV_OK);
	kv_config_fini(&c);
	assert_int_equal(parse_config("{'model_type': 'mistral', " SIZES
				      ", 'max_position_embeddings': 4096, 'sliding_window': 4096}",
			     &c, &known, &e),
	    KV_OK);
	kv_config_fini(&c);
}

static void
unsupported_configs_are_named(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "{}", "model_type is missing" },
		{ "{'model_type': 'mamba'}", "model_type 'mamba' is not known (known: llama mistral qwen2 qwen3)" },
		{ "{'model_type': 'llama'}", "num_hidden_layers is missing" },
		{ "{" LLAMA ", 'num_key_value_heads': -1}", "num_key_value_heads: expected a whole number" },
		{ "{" LLAMA ", 'num_key_value_heads': 3}", "multiple of 3 KV heads" },
		{ "{'model_type': 'mistral', " SIZES ", 'max_position_embeddings': 32768, 'sliding_window': 4096}",
		    "sliding_window 4096 is shorter than the context 32768" },
		{ "{'model_type': 'qwen2', " SIZES ", 'layer_types': ['sliding_attention']}",
		    "layer_types: 'sliding_attention'" },
		{ "{" LLAMA ", 'quantization_config': {'quant_method': 'gptq'}}", "quantization_config (gptq)" },
		{ "{" LLAMA ", 'attention_bias': true}", "attention_bias true" },
		{ "{" LLAMA ", 'hidden_act': 'gelu'}", "hidden_act 'gelu'" },
		{ "{" LLAMA ", 'rope_scaling': {'rope_type': 'yarn', 'factor': 2}}", "rotary scaling 'yarn'" },
		{ "{" LLAMA ", 'rope_scaling': {'rope_type': 'llama3', 'factor': 2}}", "low_freq_factor is missing" },
		{ "{" LLAMA ", 'rope_parameters': {'full_attention': {'rope_type': 'default'}}}",
		    "rotary scaling 'without a type'" },
		{ "{" LLAMA ", 'rope_theta': 'x'}", "rope_theta: expected a number" },
		{ "{" LLAMA ", 'partial_rotary_factor': 2}", "partial_rotary_factor 2" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct kv_config c = { 0 };
		struct kv_err e = { 0 };
		bool known;
		int rc = parse_config(bad[i].text, &c, &known, &e);

		if (rc != KV_EMODEL || strstr(e.text, bad[i].says) == NULL)
			fail_msg("%s: status %d, \"%s\"", bad[i].text, rc, e.text);
		kv_config_fini(&c);
	}
}

static void
an_output_table_unties(void **state)
{
	struct tiny_spec s = small;
	struct kv_model m;
	struct kv_buf text;
	char folder[256], *p;

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("untied"));
	for (int tied = 0; tied < 2; tied++) { /* config.json does not say */
		s.tied = tied;
		make_folder(folder, &s, KVK_F32, 2, NULL);
		text = get_file(folder, "config.json");
		p = strstr(text.data, "tie_word");
		assert_non_null(p);
		*p = 'x';
		put_file(folder, "config.json", text.data, text.n);
		kv_buf_fini(&text);
		open_folder(&m, folder);
		assert_int_equal(m.cfg.tied, tied);
		kv_model_fini(&m);
		remove_folder(folder);
	}
}

/* ---- safetensors ---- */

static int
nothing(void *ctx, const char *name, const struct kv_matrix *w, struct kv_err *e)
{
	(void)name, (void)w, (void)e;
	++*(int *)ctx;
	return KV_OK;
}

/* A file with this header (quotes as '), padded to a multiple of 8, and `data` bytes behind it; length -1: as it is. */
static int
parse_tensors(const char *header, long long length, size_t data, struct kv_err *e)
{
	size_t chars = strlen(header), n = (chars + 7) / 8 * 8;
	unsigned char *p = calloc(8 + n + data, 1);
	struct kv_map map = { .data = p, .bytes = 8 + n + data };
	int count = 0, rc;

	*e = (struct kv_err){ 0 };
	for (int i = 0; i < 8; i++)
		p[i] = (unsigned char)((uint64_t)(length < 0 ? (long long)n : length) >> 8 * i);
	memset(p + 8, ' ', n);
	for (size_t i = 0; i < chars; i++)
		p[8 + i] = (unsigned char)(header[i] == '\'' ? '"' : header[i]);
	rc = safetensors_each(&map, NULL, nothing, &count, e);
	free(p);
	return rc < 0 ? rc : count;
}

static void
broken_safetensors_are_named(void **state)
{
	static const struct {
		const char *header;
		long long length;
		const char *says;
	} bad[] = {
		{ "{}", 1LL << 60, "header of 1152921504606846976 bytes" },
		{ "{}", 4096, "header of 4096 bytes" },
		{ "{", -1, "header: " },
		{ "[]", -1, "header: expected a JSON object" },
		{ "{'a': {}, 'a': {}}", -1, "duplicate object key" },
		{ "{'a': 7}", -1, "tensor a: no dtype" },
		{ "{'a': {'dtype': 'F8_E4M3'}}", -1, "tensor a: dtype F8_E4M3 is not supported" },
		{ "{'a': {'dtype': 'F32'}}", -1, "tensor a: no shape" },
		{ "{'a': {'dtype': 'F32', 'shape': [2, 0]}}", -1, "tensor a: dimension 1 is no positive number" },
		{ "{'a': {'dtype': 'F32', 'shape': [2.5]}}", -1, "tensor a: dimension 0" },
		{ "{'a': {'dtype': 'F32', 'shape': [4294967296, 4294967296]}}", -1, "tensor a: its shape is absurd" },
		{ "{'a': {'dtype': 'F32', 'shape': [4294967296, 4294967296, 4294967296, 1]}}", -1,
		    "tensor a: its shape is absurd" },
		{ "{'a': {'dtype': 'F32', 'shape': [4]}}", -1, "tensor a: data_offsets" },
		{ "{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [16, 0]}}", -1, "tensor a: data_offsets" },
		{ "{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [-16, 0]}}", -1, "tensor a: data_offsets" },
		{ "{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 9223372036854775807]}}", -1,
		    "tensor a: ends at byte" },
		{ "{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [60, 76]}}", -1,
		    "tensor a: ends at byte 76 of 64" },
		{ "{'a': {'dtype': 'F16', 'shape': [4], 'data_offsets': [0, 16]}}", -1,
		    "tensor a: [1][4] f16 takes 8 bytes" },
		{ "{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [2, 6]}}", -1, "tensor a: not aligned" },
		{ "{'a\\nb': {'dtype': 'F32', 'shape': [1]}}", -1, "control characters" },
	};
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int rc = parse_tensors(bad[i].header, bad[i].length, 64, &e);

		if (rc >= 0 || strstr(e.text, bad[i].says) == NULL)
			fail_msg("%s: status %d, \"%s\"", bad[i].header, rc, e.text);
	}
	assert_int_equal(
	    parse_tensors(
		"{'__metadata__': {'x': 'y'}, 'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]}}", -1, 64,
		&e),
	    1);
	assert_true(safetensors_each(&(struct kv_map){ 0 }, NULL, nothing, NULL, &e) < 0); /* an empty file */
}

/* In FOLDER/NAME, the first `from` becomes `to`, both of the same length. */
static void
patch(const char *folder, const char *name, const char *from, const char *to)
{
	struct kv_buf b = get_file(folder, name);
	char *p = memmem(b.data, b.n, from, strlen(from));

	assert_non_null(p);
	assert_int_equal(strlen(from), strlen(to));
	memcpy(p, to, strlen(to));
	put_file(folder, name, b.data, b.n);
	kv_buf_fini(&b);
}

static void
harmless_tensors_are_ignored(void **state)
{
	struct kv_model m;
	char folder[256];

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("extra"));
	make_folder(folder, &small, KVK_F32, 1, NULL);
	/* not even a tensor, but nothing anyone here would look at */
	patch(folder, "model.safetensors", "\"__metadata__\":{\"format\":\"pt\"}", "\"rotary_emb.inv_freq\":[9,9,99]");
	open_folder(&m, folder);
	kv_model_fini(&m);
	remove_folder(folder);
}

static void
broken_folders_are_named(void **state)
{
	static const char first[] = "model-00001-of-00002.safetensors", index[] = "model.safetensors.index.json";
	static const struct {
		const char *file, *from, *to, *where, *says;
	} cases[] = {
		{ "config.json", "{", "[", "config.json", "line 2" },
		{ "config.json", "llama", "mamba", "config.json", "model_type 'mamba'" },
		{ "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "",
		    "model.layers.2.input_layernorm.weight is missing" },
		{ "config.json", "\"hidden_size\": 32", "\"hidden_size\": 48", first,
		    "model.embed_tokens.weight: expected shape [280][48]" },
		{ first, "model.embed_tokens", "model.embed_token5", "", "model.embed_tokens.weight is missing" },
		{ first, "F32", "F64", first, "dtype F64 is not supported" },
		{ first, "layers.0.mlp.up_proj.weight", "layers.0.mlp.upp_projX.bias", first,
		    "upp_projX.bias: not part of a llama model" },
		{ index, "model-00001-of-00002", "../el-00001-of-00002", index,
		    "expected the name of a file in the folder" },
		{ index, "model-00002-of-00002", "model-00009-of-00002", "model-00009-of-00002.safetensors",
		    "No such file" },
		{ index, "weight_map", "weight_mop", index, "weight_map is missing" },
		{ "tokenizer.json", "\"BPE\"", "\"XYZ\"", "tokenizer.json", "model type 'XYZ'" },
		{ "tokenizer.json", "ByteLevel", "Whitepace", "tokenizer.json",
		    "pre_tokenizer Whitepace is not supported" },
	};
	char folder[256];

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("broken"));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		make_folder(folder, &small, KVK_F32, 2, NULL);
		patch(folder, cases[i].file, cases[i].from, cases[i].to);
		refused(folder, cases[i].where, cases[i].says);
		remove_folder(folder);
	}
}

static void
parts_that_lack_are_named(void **state)
{
	char folder[256], path[512];
	struct kv_model m;

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("lacking"));
	make_folder(folder, &small, KVK_F32, 1, NULL);
	snprintf(path, sizeof path, "%s/tokenizer.json", folder);
	unlink(path);
	open_folder(&m, folder);
	assert_int_equal(m.vocab.kind, KV_VOCAB_NONE);
	kv_model_fini(&m);
	snprintf(path, sizeof path, "%s/model.safetensors", folder);
	unlink(path);
	refused(folder, "lacking", "neither model.safetensors nor");
	snprintf(path, sizeof path, "%s/config.json", folder);
	unlink(path);
	refused(folder, "lacking", "not a model");
	remove_folder(folder);
}

static void
folders_can_be_inspected(void **state)
{
	char folder[256];
	const struct kv_format *f;
	json_t *meta = NULL;
	int n = 0;

	(void)state;
	snprintf(folder, sizeof folder, "%s", scratch("inspect"));
	make_folder(folder, &small, KVK_BF16, 3, NULL);
	f = kv_format_probe(folder);
	assert_string_equal(f->name, "huggingface");
	assert_int_equal(f->tensors(folder, nothing, &n, NULL), KV_OK);
	assert_int_equal(n, 3 + 2 * 9);
	assert_int_equal(f->metadata(folder, &meta, NULL), KV_OK);
	assert_string_equal(
	    json_string_value(json_object_get(json_object_get(meta, "config.json"), "model_type")), "llama");
	json_decref(meta);
	remove_folder(folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folders_come_back),
		cmocka_unit_test(both_formats_agree),
		cmocka_unit_test(config_defaults_and_spellings),
		cmocka_unit_test(unsupported_configs_are_named),
		cmocka_unit_test(an_output_table_unties),
		cmocka_unit_test(broken_safetensors_are_named),
		cmocka_unit_test(harmless_tensors_are_ignored),
		cmocka_unit_test(broken_folders_are_named),
		cmocka_unit_test(parts_that_lack_are_named),
		cmocka_unit_test(folders_can_be_inspected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
