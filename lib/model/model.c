/* SPDX-License-Identifier: MIT
 * Which matrices a model has, what they are called in the file formats, and their shapes.
 */
#include "lib/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

const struct kv_role_info kv_roles[KV_N_ROLES] = {
	[KV_EMBED] = { "token_embd.weight", "model.embed_tokens.weight", false, false },
	[KV_OUT_NORM] = { "output_norm.weight", "model.norm.weight", false, true },
	[KV_OUT] = { "output.weight", "lm_head.weight", false, false },
	[KV_ATTN_NORM] = { "blk.%zu.attn_norm.weight", "model.layers.%zu.input_layernorm.weight", true, true },
	[KV_Q] = { "blk.%zu.attn_q.weight", "model.layers.%zu.self_attn.q_proj.weight", true, false },
	[KV_K] = { "blk.%zu.attn_k.weight", "model.layers.%zu.self_attn.k_proj.weight", true, false },
	[KV_V] = { "blk.%zu.attn_v.weight", "model.layers.%zu.self_attn.v_proj.weight", true, false },
	[KV_O] = { "blk.%zu.attn_output.weight", "model.layers.%zu.self_attn.o_proj.weight", true, false },
	[KV_Q_BIAS] = { "blk.%zu.attn_q.bias", "model.layers.%zu.self_attn.q_proj.bias", true, true },
	[KV_K_BIAS] = { "blk.%zu.attn_k.bias", "model.layers.%zu.self_attn.k_proj.bias", true, true },
	[KV_V_BIAS] = { "blk.%zu.attn_v.bias", "model.layers.%zu.self_attn.v_proj.bias", true, true },
	[KV_Q_NORM] = { "blk.%zu.attn_q_norm.weight", "model.layers.%zu.self_attn.q_norm.weight", true, true },
	[KV_K_NORM] = { "blk.%zu.attn_k_norm.weight", "model.layers.%zu.self_attn.k_norm.weight", true, true },
	[KV_FFN_NORM] = { "blk.%zu.ffn_norm.weight", "model.layers.%zu.post_attention_layernorm.weight", true, true },
	[KV_GATE] = { "blk.%zu.ffn_gate.weight", "model.layers.%zu.mlp.gate_proj.weight", true, false },
	[KV_UP] = { "blk.%zu.ffn_up.weight", "model.layers.%zu.mlp.up_proj.weight", true, false },
	[KV_DOWN] = { "blk.%zu.ffn_down.weight", "model.layers.%zu.mlp.down_proj.weight", true, false },
};

#define NAME_MAX_BYTES 128

void
kv_role_name(enum kv_role role, size_t layer, bool gguf, char *out, size_t cap)
{
	const char *pattern = gguf ? kv_roles[role].gguf : kv_roles[role].hf, *at = strstr(pattern, "%zu");

	if (at == NULL)
		snprintf(out, cap, "%s", pattern);
	else
		snprintf(out, cap, "%.*s%zu%s", (int)(at - pattern), pattern, layer, at + 3);
}

/* Does name fit the pattern?  *layer is the number in the place of %zu: digits without a leading zero, below 10^6. */
static bool
fits(const char *name, const char *pattern, size_t *layer)
{
	const char *at = strstr(pattern, "%zu");
	size_t before, digits;

	if (at == NULL)
		return strcmp(name, pattern) == 0;
	before = (size_t)(at - pattern);
	if (strncmp(name, pattern, before) != 0)
		return false;
	name += before;
	digits = strspn(name, "0123456789");
	if (digits == 0 || digits > 6 || (digits > 1 && name[0] == '0') || strcmp(name + digits, at + 3) != 0)
		return false;
	*layer = strtoul(name, NULL, 10);
	return true;
}

bool
kv_role_find(const char *name, bool gguf, enum kv_role *role, size_t *layer)
{
	*layer = 0;
	for (*role = 0; *role < KV_N_ROLES; (*role)++)
		if (fits(name, gguf ? kv_roles[*role].gguf : kv_roles[*role].hf, layer))
			return true;
	return false;
}

bool
kv_role_needed(const struct kv_config *c, enum kv_role role)
{
	switch (role) {
	case KV_OUT: return !c->tied;
	case KV_Q_BIAS:
	case KV_K_BIAS:
	case KV_V_BIAS: return c->arch->qkv_bias;
	case KV_Q_NORM:
	case KV_K_NORM: return c->arch->qk_norm;
	default: return role < KV_N_ROLES;
	}
}

/* The products cannot overflow: kv_config_check() bounds their factors. */
void
kv_role_shape(const struct kv_config *c, enum kv_role role, size_t *rows, size_t *cols)
{
	size_t q = c->Hq * c->D, kv = c->Hkv * c->D;
	const size_t shape[KV_N_ROLES][2] = {
		[KV_EMBED] = { c->vocab, c->d },
		[KV_OUT_NORM] = { 1, c->d },
		[KV_OUT] = { c->vocab, c->d },
		[KV_ATTN_NORM] = { 1, c->d },
		[KV_Q] = { q, c->d },
		[KV_K] = { kv, c->d },
		[KV_V] = { kv, c->d },
		[KV_O] = { c->d, q },
		[KV_Q_BIAS] = { 1, q },
		[KV_K_BIAS] = { 1, kv },
		[KV_V_BIAS] = { 1, kv },
		[KV_Q_NORM] = { 1, c->D },
		[KV_K_NORM] = { 1, c->D },
		[KV_FFN_NORM] = { 1, c->d },
		[KV_GATE] = { c->ff, c->d },
		[KV_UP] = { c->ff, c->d },
		[KV_DOWN] = { c->d, c->ff },
	};

	*rows = shape[role][0];
	*cols = shape[role][1];
}

void
kv_model_fini(struct kv_model *m)
{
	if (m == NULL)
		return;
	free(m->weights);
	kv_vocab_fini(&m->vocab);
	kv_config_fini(&m->cfg);
	for (size_t i = 0; i < m->n_maps; i++)
		kv_map_close(&m->maps[i]);
	free(m->maps);
	*m = (struct kv_model){ 0 };
}

int
kv_model_alloc(struct kv_model *m, struct kv_err *e)
{
	free(m->weights);
	m->weights = kv_alloc(m->cfg.L * KV_N_ROLES, sizeof *m->weights, e);
	return m->weights != NULL ? KV_OK : KV_EMEM;
}

int
kv_model_set(struct kv_model *m, size_t layer, enum kv_role role, const struct kv_matrix *w, const char *file_name,
    struct kv_err *e)
{
	struct kv_matrix *place;
	size_t rows, cols;

	if (layer >= m->cfg.L)
		return kv_fail(e, KV_EMODEL, "tensor %s: the model has %zu layers only", file_name, m->cfg.L);
	if (!kv_role_needed(&m->cfg, role))
		return kv_fail(e, KV_EMODEL, "tensor %s: not part of a %s model%s", file_name, m->cfg.arch->name,
		    role == KV_OUT ? " with tied embeddings" : "");
	kv_role_shape(&m->cfg, role, &rows, &cols);
	if (w->rows != rows || w->cols != cols)
		return kv_fail(e, KV_EMODEL, "tensor %s: expected shape [%zu][%zu], found [%zu][%zu]", file_name, rows,
		    cols, w->rows, w->cols);
	if (kvk_types[w->type].integer || (kv_roles[role].vector && kvk_types[w->type].block != 1))
		return kv_fail(e, KV_EMODEL, "tensor %s: %s is no type for it", file_name, kvk_types[w->type].name);
	place = &m->weights[layer * KV_N_ROLES + role];
	if (place->data != NULL)
		return kv_fail(e, KV_EMODEL, "tensor %s: there are two of it", file_name);
	*place = *w;
	return KV_OK;
}

int
kv_model_complete(const struct kv_model *m, bool gguf, struct kv_err *e)
{
	char name[NAME_MAX_BYTES];

	for (size_t layer = 0; layer < m->cfg.L; layer++) {
		for (enum kv_role role = 0; role < KV_N_ROLES; role++) {
			if (!kv_role_needed(&m->cfg, role) || (layer > 0 && !kv_roles[role].per_layer))
				continue;
			if (m->weights[layer * KV_N_ROLES + role].data != NULL)
				continue;
			kv_role_name(role, layer, gguf, name, sizeof name);
			return kv_fail(e, KV_EMODEL, "tensor %s is missing", name);
		}
	}
	return KV_OK;
}

const struct kv_matrix *
kv_model_weight(const struct kv_model *m, size_t layer, enum kv_role role)
{
	if (role == KV_OUT && m->cfg.tied)
		role = KV_EMBED;
	return &m->weights[(kv_roles[role].per_layer ? layer : 0) * KV_N_ROLES + role];
}
