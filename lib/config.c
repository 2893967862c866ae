/* SPDX-License-Identifier: MIT
 * Architectures, the checks every configuration has to pass, and the configuration as a stream's header carries it.
 */
#include "lib/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

const struct kv_arch kv_archs[] = {
	{ .name = "llama", .hf_name = "llama mistral", .gguf_interleaved = true },
	{ .name = "qwen2", .hf_name = "qwen2", .qkv_bias = true },
	{ .name = "qwen3", .hf_name = "qwen3", .qk_norm = true },
	{ .name = NULL },
};

const struct kv_arch *
kv_arch_find(const char *name)
{
	for (const struct kv_arch *a = kv_archs; a->name != NULL; a++)
		if (strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

/* Is `word` one of the blank-separated words of list? */
static bool
has_word(const char *list, const char *word)
{
	size_t n = strlen(word), len;

	for (; *list != '\0'; list += len + (list[len] == ' ')) {
		len = strcspn(list, " ");
		if (len == n && memcmp(list, word, n) == 0)
			return true;
	}
	return false;
}

const struct kv_arch *
kv_arch_find_hf(const char *hf_name)
{
	for (const struct kv_arch *a = kv_archs; a->name != NULL; a++)
		if (has_word(a->hf_name, hf_name))
			return a;
	return NULL;
}

void
kv_config_fini(struct kv_config *c)
{
	if (c == NULL)
		return;
	free(c->inv_freq);
	*c = (struct kv_config){ 0 };
}

/* ---- one row per size ---- */

struct size_field {
	const char *key; /* in the header */
	size_t at;       /* offset in struct kv_config */
	size_t min, max; /* of a model that can run */
	bool required;   /* in the header: what a reader of K and V cannot do without */
};

#define FIELD(key, member, min, max, required)                                                                         \
	{                                                                                                              \
		key, offsetof(struct kv_config, member), min, max, required                                            \
	}
static const struct size_field sizes[] = {
	FIELD("layers", L, 1, 10000, true),
	FIELD("heads", Hq, 1, 65536, true),
	FIELD("kv_heads", Hkv, 1, 65536, true),
	FIELD("head_dim", D, 2, 65536, true),
	FIELD("embedding", d, 1, (size_t)1 << 24, false),
	FIELD("feed_forward", ff, 1, (size_t)1 << 28, false),
	FIELD("vocabulary", vocab, 1, (size_t)1 << 28, false),
	FIELD("context", context, 0, (size_t)1 << 40, false),
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static size_t
field_get(const struct kv_config *c, const struct size_field *f)
{
	return *(const size_t *)((const char *)c + f->at);
}

static int
check_sizes(const struct kv_config *c, struct kv_err *e)
{
	for (size_t i = 0; i < N_SIZES; i++) {
		size_t v = field_get(c, &sizes[i]);

		if (v < sizes[i].min || v > sizes[i].max)
			return kv_fail(e, KV_EMODEL, "%s is %zu, expected %zu to %zu", sizes[i].key, v, sizes[i].min,
			    sizes[i].max);
	}
	return KV_OK;
}

/* ---- rotary embedding ---- */

/* Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones stay, those between are
 * blended. Source: the model's reference code; transformers' _compute_llama3_parameters gives the same numbers in
 * single precision. */
static double
scale_llama3(double freq, const struct kv_rope_llama3 *p)
{
	double turns = p->original_context * freq / (2 * M_PI); /* rotations within the original context */
	double smooth;

	if (turns > p->high_freq_factor)
		return freq;
	if (turns < p->low_freq_factor)
		return freq / p->factor;
	smooth = (turns - p->low_freq_factor) / (p->high_freq_factor - p->low_freq_factor);
	return (1 - smooth) * freq / p->factor + smooth * freq;
}

static bool
is_positive(double x)
{
	return isfinite(x) && x > 0;
}

static int
check_rope(const struct kv_config *c, double linear, const struct kv_rope_llama3 *p, struct kv_err *e)
{
	if (!is_positive(c->rope_theta))
		return kv_fail(e, KV_EMODEL, "rotary base %g is not a positive number", c->rope_theta);
	if (c->rope_dim == 0 || c->rope_dim % 2 != 0 || c->rope_dim > c->D)
		return kv_fail(e, KV_EMODEL,
		    "rotary dimensions %zu: expected an even number between 2 and the head size %zu", c->rope_dim,
		    c->D);
	if (!is_positive(linear))
		return kv_fail(e, KV_EMODEL, "rotary scaling factor %g is not a positive number", linear);
	if (p == NULL)
		return KV_OK;
	if (!is_positive(p->factor) || !is_positive(p->low_freq_factor) || !is_positive(p->original_context) ||
	    !isfinite(p->high_freq_factor) || p->high_freq_factor <= p->low_freq_factor)
		return kv_fail(e, KV_EMODEL,
		    "llama3 rotary scaling: factor %g, low %g, high %g, original context %g do not make sense",
		    p->factor, p->low_freq_factor, p->high_freq_factor, p->original_context);
	return KV_OK;
}

int
kv_config_rope(
    struct kv_config *c, double linear, const struct kv_rope_llama3 *llama3, const float *factors, struct kv_err *e)
{
	size_t n = c->rope_dim / 2;
	int rc;

	if ((rc = check_sizes(c, e)) < 0 || (rc = check_rope(c, linear, llama3, e)) < 0)
		return rc;
	free(c->inv_freq);
	if ((c->inv_freq = kv_alloc(n, sizeof *c->inv_freq, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		double freq = pow(c->rope_theta, -(double)(2 * i) / (double)c->rope_dim) / linear;

		if (llama3 != NULL)
			freq = scale_llama3(freq, llama3);
		if (factors != NULL)
			freq /= factors[i];
		c->inv_freq[i] = (float)freq;
		if (!is_positive(freq))
			return kv_fail(e, KV_EMODEL, "rotary frequency %zu is %g, expected a positive number", i, freq);
	}
	snprintf(c->rope_scaling, sizeof c->rope_scaling, "%s",
	    llama3 != NULL || factors != NULL ? "llama3"
	    : linear != 1                     ? "linear"
					      : "none");
	return KV_OK;
}

/* ---- checks and JSON ---- */

static int
check_heads(const struct kv_config *c, struct kv_err *e)
{
	if (c->Hq % c->Hkv != 0)
		return kv_fail(e, KV_EMODEL, "%zu query heads are not a multiple of %zu KV heads", c->Hq, c->Hkv);
	if (c->D % 2 != 0)
		return kv_fail(e, KV_EMODEL, "head_dim %zu is odd: rotary embedding needs pairs", c->D);
	if (!is_positive(c->scale))
		return kv_fail(e, KV_EMODEL, "softmax scale %g is not a positive number", c->scale);
	return KV_OK;
}

int
kv_config_check(const struct kv_config *c, struct kv_err *e)
{
	int rc;

	if (c->arch == NULL)
		return kv_fail(e, KV_EMODEL, "architecture unknown");
	if ((rc = check_sizes(c, e)) < 0)
		return rc;
	if (!isfinite(c->rms_eps) || c->rms_eps < 0)
		return kv_fail(e, KV_EMODEL, "RMS norm epsilon %g: expected a small positive number", c->rms_eps);
	if (c->inv_freq == NULL || c->rope_dim == 0 || c->rope_dim % 2 != 0 || c->rope_dim > c->D)
		return kv_fail(e, KV_EMODEL,
		    "rotary dimensions %zu: expected an even number between 2 and the head size %zu", c->rope_dim,
		    c->D);
	return check_heads(c, e);
}

static json_t *
rope_to_json(const struct kv_config *c)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->rope_dim / 2 && c->inv_freq != NULL; i++)
		json_array_append_new(list, json_real(c->inv_freq[i]));
	/* The keys and queries of a stream are always half-split, whatever the weights produce. */
	return json_pack("{s:f, s:I, s:s, s:s, s:o}", "theta", c->rope_theta, "dim", (json_int_t)c->rope_dim, "layout",
	    "half", "scaling", c->rope_scaling[0] ? c->rope_scaling : "none", "inv_freq", list);
}

json_t *
kv_config_to_json(const struct kv_config *c)
{
	json_t *o = json_object(), *name = json_string(c->name);

	json_object_set_new(o, "name", name ? name : json_string("")); /* NULL: not UTF-8 */
	json_object_set_new(o, "architecture", json_string(c->arch ? c->arch->name : ""));
	for (size_t i = 0; i < N_SIZES; i++)
		json_object_set_new(o, sizes[i].key, json_integer((json_int_t)field_get(c, &sizes[i])));
	json_object_set_new(o, "scale", json_real(c->scale));
	json_object_set_new(o, "rope", rope_to_json(c));
	json_object_set_new(o, "fingerprint", json_string(c->fingerprint));
	return o;
}

static int
read_size(struct kv_config *c, const json_t *o, const struct size_field *f, struct kv_err *e)
{
	const json_t *v = json_object_get(o, f->key);
	json_int_t n = json_integer_value(v);

	if (v == NULL && !f->required)
		return KV_OK;
	if (!json_is_integer(v) || n < (f->required ? (json_int_t)f->min : 0) || n > (json_int_t)f->max)
		return kv_fail(e, KV_EFORMAT, "model description: %s: expected an integer from %zu to %zu%s", f->key,
		    f->required ? f->min : 0, f->max, v ? "" : ", found none");
	*(size_t *)((char *)c + f->at) = (size_t)n;
	return KV_OK;
}

/* Copy a text of the header that has to fit `cap` bytes with its terminator; "" when absent. */
static int
read_text(char *out, size_t cap, const json_t *o, const char *key, struct kv_err *e)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_string_length(v);

	if (v != NULL && (!json_is_string(v) || n >= cap || strlen(json_string_value(v)) != n))
		return kv_fail(
		    e, KV_EFORMAT, "model description: %s: expected a text of less than %zu bytes", key, cap);
	snprintf(out, cap, "%s", v ? json_string_value(v) : "");
	return KV_OK;
}

static int
read_inv_freq(struct kv_config *c, const json_t *list, struct kv_err *e)
{
	size_t n = c->rope_dim / 2;

	if (!json_is_array(list) || json_array_size(list) != n)
		return kv_fail(e, KV_EFORMAT, "model description: rope.inv_freq: expected a list of %zu numbers", n);
	if ((c->inv_freq = kv_alloc(n, sizeof *c->inv_freq, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		c->inv_freq[i] = (float)json_number_value(json_array_get(list, i));
		if (!is_positive(c->inv_freq[i]))
			return kv_fail(
			    e, KV_EFORMAT, "model description: rope.inv_freq[%zu]: expected a positive number", i);
	}
	return KV_OK;
}

static int
read_rope(struct kv_config *c, const json_t *rope, struct kv_err *e)
{
	const json_t *theta = json_object_get(rope, "theta"), *list = json_object_get(rope, "inv_freq");
	json_int_t dim = json_integer_value(json_object_get(rope, "dim"));
	char layout[16];
	int rc;

	if (rope == NULL)
		return KV_OK;
	if (dim < 0 || dim % 2 != 0 || (size_t)dim > c->D)
		return kv_fail(
		    e, KV_EFORMAT, "model description: rope.dim: expected an even number up to head_dim %zu", c->D);
	c->rope_dim = (size_t)dim;
	if (theta != NULL && !is_positive(c->rope_theta = json_number_value(theta)))
		return kv_fail(e, KV_EFORMAT, "model description: rope.theta: expected a positive number");
	if ((rc = read_text(c->rope_scaling, sizeof c->rope_scaling, rope, "scaling", e)) < 0 ||
	    (rc = read_text(layout, sizeof layout, rope, "layout", e)) < 0)
		return rc;
	if (layout[0] != '\0' && strcmp(layout, "half") != 0)
		return kv_fail(e, KV_EFORMAT, "model description: rope.layout: expected half, found %s", layout);
	return list != NULL ? read_inv_freq(c, list, e) : KV_OK;
}

/* Zeroes *c first; the caller calls kv_config_fini in any case. */
int
kv_config_from_json(struct kv_config *c, const json_t *o, struct kv_err *e)
{
	const json_t *scale;
	char arch[64];
	int rc;

	*c = (struct kv_config){ 0 };
	if (!json_is_object(o))
		return kv_fail(e, KV_EFORMAT, "model description: expected a map");
	if ((rc = read_text(c->name, sizeof c->name, o, "name", e)) < 0 ||
	    (rc = read_text(arch, sizeof arch, o, "architecture", e)) < 0 ||
	    (rc = read_text(c->fingerprint, sizeof c->fingerprint, o, "fingerprint", e)) < 0)
		return rc;
	c->arch = kv_arch_find(arch);
	for (size_t i = 0; i < N_SIZES; i++)
		if ((rc = read_size(c, o, &sizes[i], e)) < 0)
			return rc;
	scale = json_object_get(o, "scale");
	c->scale = scale ? (float)json_number_value(scale) : (float)(1 / sqrt((double)c->D));
	if (check_heads(c, e) < 0)
		return kv_where(e, "model description");
	return read_rope(c, json_object_get(o, "rope"), e);
}
