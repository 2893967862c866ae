/* SPDX-License-Identifier: MIT */
#include "lib/tensor.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

void
kv_tensor_fini(struct kv_tensor *t)
{
	if (t == NULL)
		return;
	json_decref(t->attrs);
	free(t->owned);
	*t = (struct kv_tensor){ 0 };
}

void
kv_parts_fini(struct kv_parts *p)
{
	free(p->size);
	free(p->at);
	*p = (struct kv_parts){ 0 };
}

/* Copies the next blank-separated word of *s; false when there is none. */
static bool
next_word(const char **s, char word[KV_NAME_MAX])
{
	size_t n;

	*s += strspn(*s, " ");
	n = strcspn(*s, " ");
	if (n == 0)
		return false;
	snprintf(word, KV_NAME_MAX, "%.*s", (int)n, *s);
	*s += n;
	return true;
}

int
kv_tensor_init(struct kv_tensor *t, const char *name, int layer, enum kvk_type type, const char *axes,
    const size_t *shape, struct kv_err *e)
{
	char word[KV_NAME_MAX];
	size_t n = 1;

	*t = (struct kv_tensor){ .layer = layer, .type = type };
	snprintf(t->name, sizeof t->name, "%s", name);
	if (type >= KVK_N_TYPES || kvk_types[type].block != 1)
		return kv_fail(e, KV_EARG, "%s: not a plain element type", name);
	snprintf(t->type_name, sizeof t->type_name, "%s", kvk_types[type].name);
	while (next_word(&axes, word)) {
		if (t->n_axes == KV_AXES_MAX)
			return kv_fail(e, KV_ESHAPE, "%s: more than %d axes", name, KV_AXES_MAX);
		memcpy(t->axis[t->n_axes], word, KV_NAME_MAX);
		t->shape[t->n_axes] = shape[t->n_axes];
		if (!kv_mul(n, shape[t->n_axes], &n))
			return kv_fail(e, KV_ESHAPE, "%s: more elements than this machine can count", name);
		t->n_axes++;
	}
	if (!kv_type_bytes(type, n, &t->bytes))
		return kv_fail(e, KV_ESHAPE, "%s: more bytes than this machine can count", name);
	return KV_OK;
}

int
kv_tensor_new(struct kv_tensor *t, const char *name, int layer, enum kvk_type type, const char *axes,
    const size_t *shape, struct kv_err *e)
{
	int rc = kv_tensor_init(t, name, layer, type, axes, shape, e);

	if (rc < 0)
		return rc;
	if ((t->owned = kv_alloc(t->bytes, 1, e)) == NULL)
		return KV_EMEM;
	t->data = t->owned;
	return KV_OK;
}

size_t
kv_tensor_n(const struct kv_tensor *t)
{
	size_t n = 1;

	for (unsigned i = 0; i < t->n_axes; i++)
		n *= t->shape[i];
	return n;
}

/* "kv_head 8, token 100, dim any" */
static void
spell(char *out, size_t cap, unsigned n, char axis[][KV_NAME_MAX], const size_t *shape)
{
	size_t at = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < n && at < cap; i++) {
		at += (size_t)snprintf(out + at, cap - at, "%s%s ", i ? ", " : "", axis[i][0] ? axis[i] : "?");
		if (at < cap)
			at += (size_t)(shape[i] == KV_ANY ? snprintf(out + at, cap - at, "any")
							  : snprintf(out + at, cap - at, "%zu", shape[i]));
	}
}

int
kv_tensor_expect(const struct kv_tensor *t, enum kvk_type type, const char *axes, const size_t *shape, struct kv_err *e)
{
	char want[KV_AXES_MAX][KV_NAME_MAX], expected[200], found[200];
	const char *p = axes;
	unsigned n = 0;
	bool fits, is_float = t->type == KVK_F32 || t->type == KVK_F16 || t->type == KVK_BF16;

	if (type == KVK_N_TYPES ? !is_float : t->type != type)
		return kv_fail(e, KV_ESHAPE, "%s: expected %s, found %s", t->name,
		    type == KVK_N_TYPES ? "f32, f16 or bf16" : kvk_types[type].name, t->type_name);
	while (n < KV_AXES_MAX && next_word(&p, want[n]))
		n++;
	fits = n == t->n_axes;
	for (unsigned i = 0; fits && i < n; i++)
		fits = (shape[i] == KV_ANY || shape[i] == t->shape[i]) &&
		       (t->axis[i][0] == '\0' || strcmp(t->axis[i], want[i]) == 0);
	if (fits)
		return KV_OK;
	spell(expected, sizeof expected, n, want, shape);
	spell(found, sizeof found, t->n_axes, (char(*)[KV_NAME_MAX])t->axis, t->shape);
	return kv_fail(e, KV_ESHAPE, "%s: expected [%s], found [%s]", t->name, expected, found);
}

json_int_t
kv_tensor_position(const struct kv_tensor *t, size_t i, size_t n)
{
	const json_t *first = json_object_get(t->attrs, "first_position"),
		     *list = json_object_get(t->attrs, "positions");
	const json_t *v = json_array_size(list) == n ? json_array_get(list, i) : NULL;
	json_int_t at = -1;

	if (i >= n || n > INT32_MAX)
		return -1;
	if (json_is_integer(first) && json_integer_value(first) >= 0 && json_integer_value(first) <= INT32_MAX)
		at = json_integer_value(first) + (json_int_t)i;
	else if (first == NULL && json_is_integer(v))
		at = json_integer_value(v);
	return at >= 0 && at <= INT32_MAX ? at : -1;
}

enum kvk_type
kv_type_find(const char *name)
{
	enum kvk_type t = 0;

	while (t < KVK_N_TYPES && strcmp(kvk_types[t].name, name) != 0)
		t++;
	return t;
}

bool
kv_type_bytes(enum kvk_type type, size_t n, size_t *bytes)
{
	const struct kvk_type_info *info = &kvk_types[type];

	return n % info->block == 0 && kv_mul(n / info->block, info->bytes, bytes);
}

float
kv_f16_to_f32(uint16_t h)
{
	const uint32_t exponent = (h >> 10) & 31, fraction = h & 1023, sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t bits;
	float f;

	if (exponent == 31)
		return fraction ? NAN : (h & 0x8000 ? -INFINITY : INFINITY);
	if (exponent == 0)
		return (float)fraction * (h & 0x8000 ? -0x1p-24f : 0x1p-24f);
	bits = sign | (exponent + 112) << 23 | fraction << 13; /* biases 15 and 127 */
	memcpy(&f, &bits, sizeof f);
	return f;
}

float
kv_bf16_to_f32(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

uint16_t
kv_f32_to_f16(float x)
{
	const uint16_t sign = signbit(x) ? 0x8000 : 0;
	const double a = fabs((double)x);
	int exponent;

	if (isnan(x))
		return (uint16_t)(sign | 0x7e00);
	if (a >= 65520) /* rounds to infinity */
		return (uint16_t)(sign | 0x7c00);
	frexp(a, &exponent); /* 2^(exponent - 1) <= a; a unit in the last place is 2^(exponent - 11), at least 2^-24 */
	if (a == 0 || exponent < -13)
		exponent = -13;
	/* a carry out of the fraction raises the exponent, as the bits stand */
	return (uint16_t)(sign + ((exponent + 13) << 10) + (int)nearbyint(ldexp(a, 11 - exponent)));
}

uint16_t
kv_f32_to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double
kv_tensor_get(const struct kv_tensor *t, size_t i)
{
	switch (t->type) {
	case KVK_F32: return ((const float *)t->data)[i];
	case KVK_F16: return kv_f16_to_f32(((const uint16_t *)t->data)[i]);
	case KVK_BF16: return kv_bf16_to_f32(((const uint16_t *)t->data)[i]);
	case KVK_I32: return ((const int32_t *)t->data)[i];
	case KVK_U8: return ((const uint8_t *)t->data)[i];
	default: return NAN;
	}
}
