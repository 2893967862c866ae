/* SPDX-License-Identifier: MIT
 * Configurations: rotary frequencies, checks, the description in a stream's header, fingerprints. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

#include "lib/fingerprint.h"
#include "lib/model/model.h"
#include "tests/lib/tiny.h"

static struct kv_config
sane(void)
{
	return (struct kv_config){
		.arch = kv_arch_find("llama"),
		.name = "test",
		.L = 2,
		.Hq = 4,
		.Hkv = 2,
		.D = 64,
		.d = 256,
		.ff = 512,
		.vocab = 1000,
		.context = 4096,
		.rms_eps = 1e-5f,
		.scale = 0.125f,
		.rope_theta = 500000,
		.rope_dim = 64,
	};
}

/* transformers 5.24.0, ROPE_INIT_FUNCTIONS["llama3"], original context 8192; single precision, hence the tolerance. */
static const float llama31[32] = { 1.0f, 0.663601279f, 0.440366626f, 0.292227834f, 0.193922758f, 0.128687382f,
	0.0853971019f, 0.0566696189f, 0.0376060307f, 0.0249554086f, 0.0165604409f, 0.0109895291f, 0.00729266508f,
	0.00483942125f, 0.00321144611f, 0.00137189368f, 0.000524846022f, 0.000178507791f, 7.78465546e-05f,
	5.16590699e-05f, 3.42810235e-05f, 2.2748929e-05f, 1.50962178e-05f, 1.00178686e-05f, 6.64786967e-06f,
	4.41153452e-06f, 2.92749974e-06f, 1.94269251e-06f, 1.28917316e-06f, 8.55496921e-07f, 5.6770881e-07f,
	3.7673226e-07f };
static const float tiny3[8] = { 1.0f, 0.0958399773f, 0.0125000002f, 0.00395284733f, 0.00124999997f, 0.000395284733f,
	0.000125000006f, 3.95284733e-05f };

static void
near(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_true(fabs((double)a[i] - b[i]) <= 1e-6 * b[i]);
}

static void
llama3_scaling_is_that_of_transformers(void **state)
{
	struct kv_config c = sane();
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_config_rope(&c, 1, &(struct kv_rope_llama3){ 8, 1, 4, 8192 }, NULL, &e), KV_OK);
	near(c.inv_freq, llama31, 32);
	assert_string_equal(c.rope_scaling, "llama3");
	c.rope_theta = 10000;
	c.rope_dim = 16;
	assert_int_equal(kv_config_rope(&c, 1, &(struct kv_rope_llama3){ 8, 1, 4, 32 }, NULL, &e), KV_OK);
	near(c.inv_freq, tiny3, 8);
	kv_config_fini(&c);
}

static void
other_scalings_divide(void **state)
{
	static const float factors[4] = { 1, 2, 4, 8 };
	static const float plain[4] = { 1, 0.1f, 0.01f, 0.001f }, quarter[4] = { 0.25f, 0.025f, 0.0025f, 0.00025f };
	static const float divided[4] = { 1, 0.05f, 0.0025f, 0.000125f };
	struct kv_config c = sane();

	(void)state;
	c.rope_theta = 10000;
	c.rope_dim = 8;
	assert_int_equal(kv_config_rope(&c, 1, NULL, NULL, NULL), KV_OK);
	near(c.inv_freq, plain, 4);
	assert_string_equal(c.rope_scaling, "none");
	assert_int_equal(kv_config_rope(&c, 4, NULL, NULL, NULL), KV_OK);
	near(c.inv_freq, quarter, 4);
	assert_string_equal(c.rope_scaling, "linear");
	assert_int_equal(kv_config_rope(&c, 1, NULL, factors, NULL), KV_OK);
	near(c.inv_freq, divided, 4);
	kv_config_fini(&c);
}

static void
senseless_rotary_parameters_are_refused(void **state)
{
	struct kv_config c = sane();
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_config_rope(&c, 0, NULL, NULL, &e), KV_EMODEL);
	assert_int_equal(kv_config_rope(&c, NAN, NULL, NULL, &e), KV_EMODEL);
	assert_int_equal(kv_config_rope(&c, 1, &(struct kv_rope_llama3){ 8, 4, 4, 8192 }, NULL, &e), KV_EMODEL);
	assert_int_equal(kv_config_rope(&c, 1, NULL, (float[32]){ 0 }, &e), KV_EMODEL);
	c.rope_dim = 65;
	assert_int_equal(kv_config_rope(&c, 1, NULL, NULL, &e), KV_EMODEL);
	c.rope_dim = 128; /* more than D */
	assert_int_equal(kv_config_rope(&c, 1, NULL, NULL, &e), KV_EMODEL);
	c.rope_dim = 64;
	c.rope_theta = -1;
	assert_int_equal(kv_config_rope(&c, 1, NULL, NULL, &e), KV_EMODEL);
	kv_config_fini(&c);
}

static void
a_size_is_checked_before_memory_is_taken_for_it(void **state)
{
	struct kv_config c = sane();
	struct kv_err e = { 0 };

	(void)state;
	c.D = c.rope_dim = (size_t)1 << 31;
	assert_int_equal(kv_config_rope(&c, 1, NULL, NULL, &e), KV_EMODEL);
	assert_string_equal(e.text, "head_dim is 2147483648, expected 2 to 65536");
	assert_null(c.inv_freq);
	kv_config_fini(&c);
}

static void
check_names_the_field(void **state)
{
	struct kv_config good = sane(), c;
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_config_check(&good, &e), KV_EMODEL); /* no rotary table yet */
	assert_int_equal(kv_config_rope(&good, 1, NULL, NULL, NULL), KV_OK);
	assert_int_equal(kv_config_check(&good, &e), KV_OK);
	c = good, c.L = 0;
	assert_int_equal(kv_config_check(&c, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "layers is 0"));
	c = good, c.Hkv = 3;
	assert_int_equal(kv_config_check(&c, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "not a multiple of 3 KV heads"));
	c = good, c.vocab = SIZE_MAX;
	assert_int_equal(kv_config_check(&c, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "vocabulary is"));
	c = good, c.rms_eps = NAN;
	assert_int_equal(kv_config_check(&c, &e), KV_EMODEL);
	kv_config_fini(&good);
}

static void
the_header_carries_it_all(void **state)
{
	struct kv_config a = sane(), b;
	struct kv_err e = { 0 };
	json_t *o, *again;

	(void)state;
	strcpy(a.fingerprint, "00112233445566778899aabbccddeeff");
	assert_int_equal(kv_config_rope(&a, 1, &(struct kv_rope_llama3){ 8, 1, 4, 8192 }, NULL, NULL), KV_OK);
	o = kv_config_to_json(&a);
	assert_int_equal(kv_config_from_json(&b, o, &e), KV_OK);
	assert_ptr_equal(b.arch, a.arch);
	assert_memory_equal(b.inv_freq, a.inv_freq, 32 * sizeof(float));
	assert_true(b.D == 64 && b.scale == a.scale && b.rope_theta == a.rope_theta && !b.rope_interleaved);
	again = kv_config_to_json(&b);
	assert_true(json_equal(o, again));
	json_decref(o);
	json_decref(again);
	kv_config_fini(&a);
	kv_config_fini(&b);
}

#define HEADS "'layers': 2, 'heads': 4, 'kv_heads': 2, 'head_dim': 8"

static int
parse(const char *quoted, struct kv_config *c, struct kv_err *e)
{
	char text[1024];
	json_t *o;
	int rc;

	snprintf(text, sizeof text, "%s", quoted);
	for (char *p = text; *p != '\0'; p++)
		if (*p == '\'')
			*p = '"';
	o = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_non_null(o);
	rc = kv_config_from_json(c, o, e);
	json_decref(o);
	return rc;
}

static void
a_strangers_header_is_checked(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "[]", "expected a map" },
		{ "{'layers': 2, 'heads': 4, 'kv_heads': 2}",
		    "head_dim: expected an integer from 2 to 65536, found none" },
		{ "{'layers': -1, 'heads': 4, 'kv_heads': 2, 'head_dim': 8}", "layers" },
		{ "{'layers': 9223372036854775807, 'heads': 4, 'kv_heads': 2, 'head_dim': 8}", "layers" },
		{ "{'layers': '2', 'heads': 4, 'kv_heads': 2, 'head_dim': 8}", "layers" },
		{ "{'layers': 2, 'heads': 4, 'kv_heads': 3, 'head_dim': 8}", "multiple" },
		{ "{'layers': 2, 'heads': 4, 'kv_heads': 2, 'head_dim': 9}", "odd" },
		{ "{" HEADS ", 'scale': 0}", "scale" },
		{ "{" HEADS ", 'name': 7}", "name" },
		{ "{" HEADS ", 'fingerprint': '0123456789012345678901234567890123456789'}", "fingerprint" },
		{ "{" HEADS ", 'rope': {'dim': 10}}", "rope.dim" },
		{ "{" HEADS ", 'rope': {'dim': 8, 'inv_freq': [1, 2]}}", "rope.inv_freq" },
		{ "{" HEADS ", 'rope': {'dim': 4, 'inv_freq': [1, -2]}}", "rope.inv_freq[1]" },
		{ "{" HEADS ", 'rope': {'dim': 8, 'layout': 'spiral'}}", "rope.layout" },
		{ "{" HEADS ", 'rope': {'dim': 8, 'theta': 0}}", "rope.theta" },
	};
	struct kv_config c;
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		e = (struct kv_err){ 0 };
		assert_true(parse(bad[i].text, &c, &e) < 0);
		assert_non_null(strstr(e.text, bad[i].says));
		kv_config_fini(&c);
	}
	assert_int_equal(parse("{" HEADS ", 'architecture': 'mamba', 'surprise': {}}", &c, &e), KV_OK);
	assert_null(c.arch);
	assert_true(fabs(c.scale - 1 / sqrt(8)) < 1e-7);
	kv_config_fini(&c);
}

static void
architectures_are_found_by_either_name(void **state)
{
	(void)state;
	assert_ptr_equal(kv_arch_find_hf("mistral"), kv_arch_find("llama"));
	assert_ptr_equal(kv_arch_find_hf("qwen3"), kv_arch_find("qwen3"));
	assert_null(kv_arch_find("mistral"));
	assert_null(kv_arch_find_hf("llama mistral"));
	assert_null(kv_arch_find_hf(""));
}

static void
names_and_roles_match(void **state)
{
	enum kv_role role;
	size_t layer;
	char name[128];

	(void)state;
	for (enum kv_role r = 0; r < KV_N_ROLES; r++) {
		for (int gguf = 0; gguf < 2; gguf++) {
			kv_role_name(r, 31, gguf, name, sizeof name);
			assert_true(kv_role_find(name, gguf, &role, &layer));
			assert_int_equal(role, r);
			assert_int_equal(layer, kv_roles[r].per_layer ? 31 : 0);
		}
	}
	assert_false(kv_role_find("blk.01.attn_q.weight", true, &role, &layer));
	assert_false(kv_role_find("blk..attn_q.weight", true, &role, &layer));
	assert_false(kv_role_find("blk.99999999999999999999.attn_q.weight", true, &role, &layer));
	assert_false(kv_role_find("blk.0.attn_q.weight.more", true, &role, &layer));
}

static void
misfits_are_named(void **state)
{
	struct tiny_spec s = { "llama", 1, 2, 1, 8, 16, 32, 300, 64, true, false, true, 1 };
	struct kv_model m = { 0 };
	struct kv_err e = { 0 };
	struct kv_matrix w;

	(void)state;
	assert_int_equal(tiny_model(&m, &s, &e), KV_OK);
	w = *kv_model_weight(&m, 0, KV_Q);
	assert_int_equal(kv_model_set(&m, 0, KV_Q, &w, "q", &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "two of it"));
	assert_int_equal(kv_model_set(&m, 1, KV_Q, &w, "q", &e), KV_EMODEL);
	assert_int_equal(kv_model_set(&m, 0, KV_K, &w, "k", &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "tensor k: expected shape [8][16], found [16][16]"));
	assert_int_equal(kv_model_set(&m, 0, KV_Q_BIAS, &w, "b", &e), KV_EMODEL);
	assert_int_equal(kv_model_set(&m, 0, KV_OUT, &w, "o", &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "tied"));
	assert_ptr_equal(kv_model_weight(&m, 0, KV_OUT), kv_model_weight(&m, 0, KV_EMBED));
	m.weights[KV_DOWN].data = NULL;
	assert_int_equal(kv_model_complete(&m, true, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "blk.0.ffn_down.weight is missing"));
	assert_int_equal(kv_model_complete(&m, false, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "model.layers.0.mlp.down_proj.weight is missing"));
	kv_model_fini(&m);
}

static void
fingerprint_of(const unsigned char *p, size_t n, char hex[33])
{
	struct kv_fingerprint *f = kv_fingerprint_new();

	assert_non_null(f);
	kv_fingerprint_add(f, p, n);
	kv_fingerprint_take(f, hex);
}

/* As fingerprint.h describes it: the bytes that count, put together and hashed at once. */
static void
fingerprint_samples_large_files(void **state)
{
	const size_t mib = (size_t)1 << 20, n = 9 * mib + 12345;
	unsigned char *p = malloc(n), *q = malloc(8 + 2 * mib + 64 * 16384);
	char a[33], b[33];
	XXH128_canonical_t h;
	size_t at = 8;

	(void)state;
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 2654435761u >> 13);
	for (int i = 0; i < 8; i++)
		q[i] = (unsigned char)(n >> 8 * i);
	memcpy(q + at, p, mib), at += mib;
	for (size_t i = 0; i < 64; i++)
		memcpy(q + at, p + mib + i * ((n - 2 * mib) / 64), 16384), at += 16384;
	memcpy(q + at, p + n - mib, mib), at += mib;
	XXH128_canonicalFromHash(&h, XXH3_128bits(q, at));
	for (int i = 0; i < 16; i++)
		sprintf(b + 2 * i, "%02x", h.digest[i]);
	fingerprint_of(p, n, a);
	assert_string_equal(a, b);
	p[mib + 20000]++; /* between two pieces */
	fingerprint_of(p, n, b);
	assert_string_equal(a, b);
	p[n - 1]++;
	fingerprint_of(p, n, b);
	assert_string_not_equal(a, b);
	fingerprint_of(p, 4 * mib, a);
	p[2 * mib + 1]++;
	fingerprint_of(p, 4 * mib, b);
	assert_string_not_equal(a, b);
	free(p);
	free(q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama3_scaling_is_that_of_transformers),
		cmocka_unit_test(other_scalings_divide),
		cmocka_unit_test(senseless_rotary_parameters_are_refused),
		cmocka_unit_test(a_size_is_checked_before_memory_is_taken_for_it),
		cmocka_unit_test(check_names_the_field),
		cmocka_unit_test(the_header_carries_it_all),
		cmocka_unit_test(a_strangers_header_is_checked),
		cmocka_unit_test(architectures_are_found_by_either_name),
		cmocka_unit_test(names_and_roles_match),
		cmocka_unit_test(misfits_are_named),
		cmocka_unit_test(fingerprint_samples_large_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
