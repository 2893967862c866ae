/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/buf.h"
#include "lib/tensor.h"
#include "tests/lib/quantise.h"
#include "tests/lib/weights.h"
#include "tests/lib/write_model.h"

static int
write_bytes(const char *folder, const char *name, const struct kv_buf *parts, size_t n, struct kv_err *e)
{
	char path[4096];
	FILE *f;
	bool good;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	if ((f = fopen(path, "wb")) == NULL)
		return kv_fail(e, KV_EIO, "%s: %s", path, strerror(errno));
	good = true;
	for (size_t i = 0; i < n; i++)
		good &= fwrite(parts[i].data, 1, parts[i].n, f) == parts[i].n;
	good &= fclose(f) == 0;
	return good ? KV_OK : kv_fail(e, KV_EIO, "%s: cannot be written", path);
}

/* Takes the reference. */
static int
write_json(const char *folder, const char *name, json_t *o, struct kv_err *e)
{
	char *text = o != NULL ? json_dumps(o, JSON_INDENT(1)) : NULL;
	struct kv_buf b = { .data = text, .n = text != NULL ? strlen(text) : 0 };
	int rc = text != NULL ? write_bytes(folder, name, &b, 1, e) : kv_fail(e, KV_EFAIL, "%s: not JSON", name);

	free(text);
	json_decref(o);
	return rc;
}

/* ---- config.json, generation_config.json ---- */

static json_t *
rope_scaling(const struct kv_config *c)
{
	if (strcmp(c->rope_scaling, "llama3") == 0) /* the only ones tiny_model() makes */
		return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", 8.0, "low_freq_factor",
		    1.0, "high_freq_factor", 4.0, "original_max_position_embeddings", 32);
	if (strcmp(c->rope_scaling, "linear") == 0)
		return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", 1.0 / c->inv_freq[0]);
	return json_null();
}

static json_t *
config(const struct kv_model *m)
{
	const struct kv_config *c = &m->cfg;
	json_t *o =
	    json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model_type", c->arch->name, "num_hidden_layers",
		(json_int_t)c->L, "hidden_size", (json_int_t)c->d, "intermediate_size", (json_int_t)c->ff, "vocab_size",
		(json_int_t)c->vocab, "num_attention_heads", (json_int_t)c->Hq, "num_key_value_heads",
		(json_int_t)c->Hkv, "head_dim", (json_int_t)c->D, "max_position_embeddings", (json_int_t)c->context);

	json_object_set_new(o, "_name_or_path", json_string(c->name));
	json_object_set_new(o, "hidden_act", json_string("silu"));
	json_object_set_new(o, "rms_norm_eps", json_real(c->rms_eps));
	json_object_set_new(o, "rope_theta", json_real(c->rope_theta));
	json_object_set_new(o, "rope_scaling", rope_scaling(c));
	json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
	if (m->vocab.bos >= 0)
		json_object_set_new(o, "bos_token_id", json_integer(m->vocab.bos));
	if (m->vocab.eos >= 0)
		json_object_set_new(o, "eos_token_id", json_integer(m->vocab.eos));
	return o;
}

static json_t *
generation_config(const struct kv_vocab *v)
{
	json_t *stops = json_array();

	for (size_t i = 0; i < v->n_stops; i++)
		json_array_append_new(stops, json_integer(v->stops[i]));
	return json_pack("{s:o}", "eos_token_id", stops);
}

/* ---- tokenizer.json, tokenizer_config.json ---- */

static bool
is_added(const struct kv_token *t)
{
	return t->kind == KV_TOKEN_SPECIAL || t->kind == KV_TOKEN_ADDED;
}

static json_t *
model(const struct kv_vocab *v)
{
	json_t *vocab = json_object(), *merges = json_array();

	for (size_t i = 0; i < v->n; i++)
		if (!is_added(&v->tokens[i]))
			json_object_setn_new(vocab, v->tokens[i].text, v->tokens[i].n, json_integer((json_int_t)i));
	for (size_t i = 0; i < v->n_merges; i++) { /* pairs, as current files have them; older ones have "left right" */
		const char *space = strchr(v->merges[i], ' ');
		json_t *left = json_stringn(v->merges[i], (size_t)(space - v->merges[i]));

		json_array_append_new(merges, json_pack("[o, s]", left, space + 1));
	}
	return json_pack("{s:s, s:b, s:b, s:o, s:o}", "type", "BPE", "byte_fallback", 0, "ignore_merges",
	    (int)v->ignore_merges, "vocab", vocab, "merges", merges);
}

static json_t *
added_tokens(const struct kv_vocab *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->n; i++)
		if (is_added(&v->tokens[i]))
			json_array_append_new(list, json_pack("{s:I, s:o, s:b}", "id", (json_int_t)i, "content",
							json_stringn(v->tokens[i].text, v->tokens[i].n), "special",
							v->tokens[i].kind == KV_TOKEN_SPECIAL));
	return list;
}

static json_t *
token_text(const struct kv_vocab *v, int32_t id)
{
	return id >= 0 ? json_stringn(v->tokens[id].text, v->tokens[id].n) : json_null();
}

static json_t *
post_processor(const struct kv_vocab *v)
{
	json_t *single = json_array();

	if (v->add_bos && v->bos >= 0)
		json_array_append_new(
		    single, json_pack("{s:{s:o, s:i}}", "SpecialToken", "id", token_text(v, v->bos), "type_id", 0));
	json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
	return json_pack("{s:s, s:o}", "type", "TemplateProcessing", "single", single);
}

static json_t *
tokenizer(const struct kv_vocab *v)
{
	return json_pack("{s:s, s:o, s:o, s:{s:s, s:b, s:b}, s:o, s:o}", "version", "1.0", "added_tokens",
	    added_tokens(v), "normalizer", v->nfc ? json_pack("{s:s}", "type", "NFC") : json_null(), "pre_tokenizer",
	    "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1, "post_processor", post_processor(v), "model",
	    model(v));
}

static int
write_tokenizer(const struct kv_vocab *v, const char *folder, struct kv_err *e)
{
	json_t *settings;
	int rc;

	if (v->kind == KV_VOCAB_NONE)
		return KV_OK;
	if (v->kind != KV_VOCAB_BPE)
		return kv_fail(e, KV_EARG, "write_hf writes byte-level vocabularies only");
	settings = json_pack("{s:o, s:o}", "bos_token", token_text(v, v->bos), "eos_token", token_text(v, v->eos));
	if (v->chat_template != NULL)
		json_object_set_new(settings, "chat_template", json_string(v->chat_template));
	if ((rc = write_json(folder, "tokenizer.json", tokenizer(v), e)) < 0) {
		json_decref(settings);
		return rc;
	}
	if ((rc = write_json(folder, "tokenizer_config.json", settings, e)) < 0)
		return rc;
	return write_json(folder, "generation_config.json", generation_config(v), e);
}

/* ---- weights ---- */

struct shard {
	json_t *header;
	struct kv_buf data;
	char name[64];
};

static int
add_tensor(
    struct shard *s, const struct kv_model *m, size_t layer, enum kv_role role, enum kvk_type type, struct kv_err *e)
{
	static const char *const dtypes[] = { [KVK_F32] = "F32", [KVK_F16] = "F16", [KVK_BF16] = "BF16" };
	size_t rows, cols, bytes;
	json_t *shape;
	char name[128];
	float *x;
	int rc;

	kv_role_shape(&m->cfg, role, &rows, &cols);
	kv_type_bytes(type, rows * cols, &bytes);
	kv_role_name(role, layer, false, name, sizeof name);
	if ((x = weight_f32(m, layer, role, false, e)) == NULL)
		return KV_EMEM;
	if ((rc = kv_buf_reserve(&s->data, bytes, e)) == KV_OK) {
		shape = kv_roles[role].vector ? json_pack("[I]", (json_int_t)cols)
					      : json_pack("[I, I]", (json_int_t)rows, (json_int_t)cols);
		quantise(type, x, rows * cols, s->data.data + s->data.n);
		json_object_set_new(s->header, name,
		    json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[type], "shape", shape, "data_offsets",
			(json_int_t)s->data.n, (json_int_t)(s->data.n + bytes)));
		s->data.n += bytes;
	}
	free(x);
	return rc;
}

/* Tensors go round the shards, so that a layer is spread over files. */
static int
fill_shards(struct shard *s, unsigned n, const struct kv_model *m, enum kvk_type type, json_t *map, struct kv_err *e)
{
	char name[128];
	unsigned at = 0;
	int rc;

	for (size_t layer = 0; layer < m->cfg.L; layer++) {
		for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
			if (!kv_role_needed(&m->cfg, role) || (layer > 0 && !kv_roles[role].per_layer))
				continue;
			if ((rc = add_tensor(&s[at], m, layer, role, type, e)) < 0)
				return rc;
			kv_role_name(role, layer, false, name, sizeof name);
			json_object_set_new(map, name, json_string(s[at].name));
			at = (at + 1) % n;
		}
	}
	return KV_OK;
}

static int
write_shard(const struct shard *s, const char *folder, struct kv_err *e)
{
	char *text = json_dumps(s->header, JSON_COMPACT);
	struct kv_buf parts[3] = { { 0 }, { 0 }, s->data };
	uint64_t n;
	int rc;

	if (text == NULL)
		return kv_no_memory(e, 0);
	rc = kv_buf_add(&parts[1], text, strlen(text), e);
	while (rc == KV_OK && parts[1].n % 8 != 0) /* data begins at a multiple of 8 */
		rc = kv_buf_add(&parts[1], " ", 1, e);
	n = parts[1].n;
	parts[0] = (struct kv_buf){ .data = (char *)&n, .n = sizeof n };
	if (rc == KV_OK)
		rc = write_bytes(folder, s->name, parts, 3, e);
	kv_buf_fini(&parts[1]);
	free(text);
	return rc;
}

static int
write_weights(const struct kv_model *m, enum kvk_type type, unsigned n, const char *folder, struct kv_err *e)
{
	struct shard *s = kv_alloc(n, sizeof *s, e);
	json_t *map = json_object();
	int rc = s != NULL ? KV_OK : KV_EMEM;

	for (unsigned i = 0; i < n && rc == KV_OK; i++) {
		s[i].header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
		if (n == 1)
			snprintf(s[i].name, sizeof s[i].name, "model.safetensors");
		else
			snprintf(s[i].name, sizeof s[i].name, "model-%05u-of-%05u.safetensors", i + 1, n);
	}
	if (rc == KV_OK)
		rc = fill_shards(s, n, m, type, map, e);
	for (unsigned i = 0; i < n && rc == KV_OK; i++)
		rc = write_shard(&s[i], folder, e);
	if (rc == KV_OK && n > 1)
		rc = write_json(folder, "model.safetensors.index.json", json_pack("{s:O}", "weight_map", map), e);
	for (unsigned i = 0; i < n && s != NULL; i++) {
		json_decref(s[i].header);
		kv_buf_fini(&s[i].data);
	}
	free(s);
	json_decref(map);
	return rc;
}

int
write_hf(const struct kv_model *m, enum kvk_type type, unsigned n_shards, const char *folder, struct kv_err *e)
{
	int rc;

	if (type != KVK_F32 && type != KVK_F16 && type != KVK_BF16)
		return kv_fail(e, KV_EARG, "safetensors hold f32, f16 or bf16, not %s", kvk_types[type].name);
	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return kv_fail(e, KV_EIO, "%s: %s", folder, strerror(errno));
	if ((rc = write_json(folder, "config.json", config(m), e)) < 0 ||
	    (rc = write_tokenizer(&m->vocab, folder, e)) < 0)
		return rc;
	return write_weights(m, type, n_shards ? n_shards : 1, folder, e);
}
