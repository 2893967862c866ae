/* SPDX-License-Identifier: MIT
 * config.json of a Hugging Face folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/huggingface.h"

json_t *
hf_get(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return json_is_null(v) ? NULL : v;
}

static int
get_size(const json_t *o, const char *key, size_t *out, bool required, struct kv_err *e)
{
	const json_t *v = hf_get(o, key);

	if (v == NULL)
		return required ? kv_fail(e, KV_EMODEL, "%s is missing", key) : KV_OK;
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return kv_fail(e, KV_EMODEL, "%s: expected a whole number", key);
	*out = (size_t)json_integer_value(v);
	return KV_OK;
}

static int
get_real(const json_t *o, const char *key, double *out, bool required, struct kv_err *e)
{
	const json_t *v = hf_get(o, key);

	if (v == NULL)
		return required ? kv_fail(e, KV_EMODEL, "%s is missing", key) : KV_OK;
	if (!json_is_number(v))
		return kv_fail(e, KV_EMODEL, "%s: expected a number", key);
	*out = json_number_value(v);
	return KV_OK;
}

static int
set_arch(const json_t *o, struct kv_config *c, struct kv_err *e)
{
	const char *type = json_string_value(hf_get(o, "model_type"));
	char known[128] = "";

	if (type == NULL)
		return kv_fail(e, KV_EMODEL, "model_type is missing: not a language model");
	if ((c->arch = kv_arch_find_hf(type)) != NULL)
		return KV_OK;
	for (const struct kv_arch *a = kv_archs; a->name != NULL; a++)
		snprintf(known + strlen(known), sizeof known - strlen(known), " %s", a->hf_name);
	return kv_fail(e, KV_EMODEL, "model_type '%s' is not known (known:%s)", type, known);
}

static int
set_sizes(const json_t *o, struct kv_config *c, struct kv_err *e)
{
	static const struct {
		const char *key;
		size_t at;
		bool required;
	} sizes[] = {
		{ "num_hidden_layers", offsetof(struct kv_config, L), true },
		{ "hidden_size", offsetof(struct kv_config, d), true },
		{ "intermediate_size", offsetof(struct kv_config, ff), true },
		{ "vocab_size", offsetof(struct kv_config, vocab), true },
		{ "num_attention_heads", offsetof(struct kv_config, Hq), true },
		{ "num_key_value_heads", offsetof(struct kv_config, Hkv), false },
		{ "head_dim", offsetof(struct kv_config, D), false },
		{ "max_position_embeddings", offsetof(struct kv_config, context), false },
	};
	int rc;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if ((rc = get_size(o, sizes[i].key, (size_t *)((char *)c + sizes[i].at), sizes[i].required, e)) < 0)
			return rc;
	if (c->Hkv == 0)
		c->Hkv = c->Hq;
	if (c->D == 0 && c->Hq != 0) {
		if (c->d % c->Hq != 0)
			return kv_fail(
			    e, KV_EMODEL, "hidden_size %zu is not a multiple of num_attention_heads %zu", c->d, c->Hq);
		c->D = c->d / c->Hq;
	}
	c->scale = (float)(1 / sqrt((double)c->D));
	return KV_OK;
}

/* A window at least as long as the context, or one that is switched off (qwen2), changes nothing. */
static int
refuse_window(const json_t *o, const struct kv_config *c, struct kv_err *e)
{
	const json_t *used = hf_get(o, "use_sliding_window"), *types = hf_get(o, "layer_types"), *type;
	size_t window = 0, i;
	int rc;

	json_array_foreach(types, i, type)
	{
		if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention") != 0)
			return kv_fail(e, KV_EMODEL, "layer_types: '%s' is not supported (full_attention is)",
			    json_is_string(type) ? json_string_value(type) : "?");
	}
	if (json_is_false(used))
		return KV_OK;
	if ((rc = get_size(o, "sliding_window", &window, false, e)) < 0)
		return rc;
	if (window > 0 && (c->context == 0 || window < c->context))
		return kv_fail(e, KV_EMODEL,
		    "sliding_window %zu is shorter than the context %zu: sliding-window attention is not "
		    "supported; setting it to null in config.json keeps the model exact up to %zu tokens",
		    window, c->context, window);
	return KV_OK;
}

/* What the file asks for and this version would silently get wrong. */
static int
refuse_unsupported(const json_t *o, const struct kv_config *c, struct kv_err *e)
{
	static const char *const biases[] = { "attention_bias", "mlp_bias" };
	const json_t *quantised = hf_get(o, "quantization_config");
	const char *act = json_string_value(hf_get(o, "hidden_act")), *method;

	if (quantised != NULL) {
		method = json_string_value(hf_get(quantised, "quant_method"));
		return kv_fail(e, KV_EMODEL,
		    "quantization_config (%s): only F32, F16 and BF16 folders are supported; a GGUF file may "
		    "be quantised",
		    method ? method : "unnamed");
	}
	for (int i = 0; i < 2; i++)
		if (json_is_true(hf_get(o, biases[i])))
			return kv_fail(e, KV_EMODEL, "%s true is not supported for %s", biases[i], c->arch->name);
	if (act != NULL && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
		return kv_fail(e, KV_EMODEL, "hidden_act '%s' is not supported (silu is)", act);
	return refuse_window(o, c, e);
}

static int
read_llama3(const json_t *s, struct kv_rope_llama3 *p, struct kv_err *e)
{
	int rc;

	if ((rc = get_real(s, "factor", &p->factor, true, e)) < 0 ||
	    (rc = get_real(s, "low_freq_factor", &p->low_freq_factor, true, e)) < 0 ||
	    (rc = get_real(s, "high_freq_factor", &p->high_freq_factor, true, e)) < 0)
		return rc;
	return get_real(s, "original_max_position_embeddings", &p->original_context, true, e);
}

/* rope_parameters (transformers 5: theta inside) or rope_scaling with rope_theta beside it. */
static int
set_rope(const json_t *o, struct kv_config *c, struct kv_err *e)
{
	const json_t *s = hf_get(o, "rope_parameters");
	struct kv_rope_llama3 llama3 = { 0 };
	const char *type;
	double linear = 1, part = 1;
	int rc;

	c->rope_theta = 10000;
	if ((rc = get_real(o, "rope_theta", &c->rope_theta, false, e)) < 0 ||
	    (rc = get_real(o, "partial_rotary_factor", &part, false, e)) < 0)
		return rc;
	if (s == NULL)
		s = hf_get(o, "rope_scaling");
	if ((rc = get_real(s, "rope_theta", &c->rope_theta, false, e)) < 0 ||
	    (rc = get_real(s, "partial_rotary_factor", &part, false, e)) < 0)
		return rc;
	if (!(part > 0 && part <= 1))
		return kv_fail(e, KV_EMODEL, "partial_rotary_factor %g: expected a number above 0 up to 1", part);
	c->rope_dim = (size_t)(part * (double)c->D);
	type = json_string_value(hf_get(s, "rope_type"));
	if (type == NULL)
		type = json_string_value(hf_get(s, "type"));
	if (s == NULL || (type != NULL && strcmp(type, "default") == 0))
		return kv_config_rope(c, 1, NULL, NULL, e);
	if (type != NULL && strcmp(type, "linear") == 0)
		return (rc = get_real(s, "factor", &linear, true, e)) < 0 ? rc
									  : kv_config_rope(c, linear, NULL, NULL, e);
	if (type != NULL && strcmp(type, "llama3") == 0)
		return (rc = read_llama3(s, &llama3, e)) < 0 ? rc : kv_config_rope(c, 1, &llama3, NULL, e);
	return kv_fail(e, KV_EMODEL, "rotary scaling '%s' is not supported (default, linear and llama3 are)",
	    type ? type : "without a type");
}

int
hf_config(const json_t *o, struct kv_config *c, bool *tied_known, struct kv_err *e)
{
	const json_t *tied = hf_get(o, "tie_word_embeddings");
	double eps = 1e-6; /* transformers' default */
	int rc;

	if ((rc = set_arch(o, c, e)) < 0 || (rc = set_sizes(o, c, e)) < 0 || (rc = refuse_unsupported(o, c, e)) < 0 ||
	    (rc = get_real(o, "rms_norm_eps", &eps, false, e)) < 0 || (rc = set_rope(o, c, e)) < 0)
		return rc;
	c->rms_eps = (float)eps;
	*tied_known = tied != NULL;
	c->tied = json_is_true(tied);
	return kv_config_check(c, e);
}
