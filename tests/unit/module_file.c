/* SPDX-License-Identifier: MIT
 * Module files: what is written comes back, and what is damaged, incomplete or another model's is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "formats/format.h"
#include "formats/module_file.h"
#include "lib/tensor.h"
#include "tests/lib/tiny.h"

static const struct tiny_spec spec = {
	.arch = "llama", .L = 2, .Hq = 2, .Hkv = 1, .D = 4, .d = 8, .ff = 12, .vocab = 20, .seed = 6
};
static struct kv_model model;
static char path[64];

static int
set_up(void **state)
{
	struct kv_err e = { 0 };
	int fd;

	(void)state;
	snprintf(path, sizeof path, "/tmp/module-file-XXXXXX");
	if ((fd = mkstemp(path)) < 0 || close(fd) < 0 || tiny_model(&model, &spec, &e) < 0)
		return -1;
	snprintf(model.cfg.fingerprint, sizeof model.cfg.fingerprint, "0123456789abcdef0123456789abcdef");
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	kv_model_fini(&model);
	unlink(path);
	return 0;
}

static struct kv_lookahead *
make(size_t rank, enum kv_lookahead_targets targets)
{
	const struct kv_lookahead_shape shape = { 3, rank, 0.1, targets };
	struct kv_lookahead *m;
	struct kv_err e = { 0 };

	if (kv_lookahead_new(&m, &model.cfg, &shape, &e) < 0)
		fail_msg("%s", e.text);
	kv_lookahead_init(m, 5, 0.7);
	for (size_t i = 0; i < m->n_parameters; i++) /* B too, and something at the edges of f16 */
		if (m->parameters[i] == 0)
			m->parameters[i] = i % 3 == 0 ? 65504 : i % 3 == 1 ? -3e-8f : 0.1f;
	json_object_set_new(m->training, "steps", json_integer(17));
	return m;
}

static void
write_module(const struct kv_lookahead *m, enum kvk_type type)
{
	struct kv_err e = { 0 };

	if (kv_lookahead_write(m, path, type, &e) < 0)
		fail_msg("%s", e.text);
}

static void
expect_equal(const struct kv_lookahead *a, const struct kv_lookahead *b, double relative, double absolute)
{
	assert_int_equal(a->shape.n, b->shape.n);
	assert_int_equal(a->shape.rank, b->shape.rank);
	assert_true(a->shape.alpha == b->shape.alpha);
	assert_int_equal(a->shape.targets, b->shape.targets);
	assert_string_equal(a->base, b->base);
	assert_string_equal(a->base_name, b->base_name);
	assert_int_equal(a->base_parameters, b->base_parameters);
	assert_true(json_equal(a->training, b->training));
	assert_int_equal(a->n_parameters, b->n_parameters);
	for (size_t i = 0; i < a->n_parameters; i++) {
		const double x = (double)a->parameters[i], y = (double)b->parameters[i];

		if (!(fabs(x - y) <= relative * fabs(x) + absolute))
			fail_msg("number %zu: %.9g, read as %.9g", i, x, y);
	}
}

static void
round_trips(void **state)
{
	static const struct {
		size_t rank;
		enum kv_lookahead_targets targets;
		enum kvk_type type;
		double relative, absolute; /* half a unit in the last place, and of the smallest */
	} cases[] = {
		{ 2, KV_LOOKAHEAD_ALL, KVK_F32, 0, 0 },
		{ 2, KV_LOOKAHEAD_ALL, KVK_F16, 0x1p-11, 0x1p-25 },
		{ 1, KV_LOOKAHEAD_QKV, KVK_BF16, 0x1p-8, 0 },
		{ 0, KV_LOOKAHEAD_ALL, KVK_F32, 0, 0 },
		{ 2, KV_LOOKAHEAD_NONE, KVK_F16, 0x1p-11, 0x1p-25 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kv_lookahead *m = make(cases[i].rank, cases[i].targets), *back;
		struct kv_err e = { 0 };
		char first[33];

		write_module(m, cases[i].type);
		if (kv_lookahead_read(&back, path, &model.cfg, &e) < 0)
			fail_msg("%s", e.text);
		expect_equal(m, back, cases[i].relative, cases[i].absolute);
		assert_int_equal(strlen(back->hash), 32);
		strcpy(first, back->hash);
		write_module(back, cases[i].type); /* what has been rounded once is exact */
		kv_lookahead_free(m);
		if (kv_lookahead_read(&m, path, &model.cfg, &e) < 0)
			fail_msg("%s", e.text);
		expect_equal(m, back, 0, 0);
		assert_string_equal(m->hash, first);
		kv_lookahead_free(back);
		kv_lookahead_free(m);
	}
}

static void
halves_are_rounded_to_even(void **state)
{
	static const struct {
		float x;
		uint16_t f16, bf16;
	} cases[] = {
		{ 0, 0, 0 },
		{ -0.0f, 0x8000, 0x8000 },
		{ 1, 0x3c00, 0x3f80 },
		{ -2, 0xc000, 0xc000 },
		{ 65504, 0x7bff, 0x4780 },
		{ 65519, 0x7bff, 0x4780 },
		{ 65520, 0x7c00, 0x4780 },
		{ 0x1p-24f, 1, 0x3380 },
		{ 0x1p-25f, 0, 0x3300 },
		{ 0x1.8p-24f, 2, 0x33c0 },
		{ 0x1p-14f, 0x400, 0x3880 },
		{ 0x1.ff8p-15f, 0x3ff, 0x3880 },
		{ 1 + 0x1p-11f, 0x3c00, 0x3f80 },
		{ 1 + 0x3p-11f, 0x3c02, 0x3f80 },
		{ 1 + 0x1p-8f, 0x3c04, 0x3f80 },
		{ 1 + 0x3p-8f, 0x3c0c, 0x3f82 },
		{ 0x1.fffffep127f, 0x7c00, 0x7f80 },
		{ -INFINITY, 0xfc00, 0xff80 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(kv_f32_to_f16(cases[i].x), cases[i].f16);
		assert_int_equal(kv_f32_to_bf16(cases[i].x), cases[i].bf16);
	}
	for (unsigned h = 0; h < 0x10000; h++) { /* all halves are themselves */
		if (isnan(kv_f16_to_f32((uint16_t)h)))
			assert_true(isnan(kv_f16_to_f32(kv_f32_to_f16(kv_f16_to_f32((uint16_t)h)))));
		else
			assert_int_equal(kv_f32_to_f16(kv_f16_to_f32((uint16_t)h)), h);
	}
}

/* ---- damage */

struct file {
	unsigned char *bytes;
	size_t n, header; /* where the data begins */
};

static struct file
load(void)
{
	FILE *f = fopen(path, "rb");
	struct file x = { .bytes = calloc(1, 1 << 16) };

	assert_non_null(f);
	assert_non_null(x.bytes);
	x.n = fread(x.bytes, 1, 1 << 16, f);
	fclose(f);
	x.header = 8 + x.bytes[0] + ((size_t)x.bytes[1] << 8);
	return x;
}

static void
store(const unsigned char *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void
expect_refused(int code, const char *words)
{
	struct kv_lookahead *m;
	struct kv_err e = { 0 };
	int rc = kv_lookahead_read(&m, path, &model.cfg, &e);

	if (rc != code || m != NULL || strstr(e.text, words) == NULL || strstr(e.text, path) == NULL)
		fail_msg("status %d, expected %d; '%s', expected '%s'", rc, code, e.text, words);
}

/* The header with one text in the place of another of any length. */
static void
edit(const struct file *x, const char *from, const char *to)
{
	char *text = calloc(1, x->header + 1024), *out = calloc(1, x->n + 1024), *at;
	size_t n;

	assert_true(text != NULL && out != NULL);
	memcpy(text, x->bytes + 8, x->header - 8);
	if ((at = strstr(text, from)) == NULL)
		fail_msg("no '%s' in the header", from);
	n = (size_t)snprintf(out + 8, x->header + 1000, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	while (n % 8 != 0) /* data stays aligned */
		out[8 + n++] = ' ';
	out[0] = (char)(n & 255);
	out[1] = (char)(n >> 8);
	memcpy(out + 8 + n, x->bytes + x->header, x->n - x->header);
	store((unsigned char *)out, 8 + n + x->n - x->header);
	free(out);
	free(text);
}

/* The header without its last tensor. */
static void
remove_last(const struct file *x)
{
	char *text = calloc(1, x->header), *at = NULL;

	assert_non_null(text);
	memcpy(text, x->bytes + 8, x->header - 8);
	for (char *p = text; (p = strstr(p, ",\"model.")) != NULL; p++)
		at = p;
	assert_non_null(at);
	edit(x, at, "}");
	free(text);
}

static void
edits_are_named(void **state)
{
	static const struct {
		const char *from, *to;
		int code;
		const char *words;
	} cases[] = {
		{ "\"kvlookahead\":\"1\"", "\"kvlookahead\":\"2\"", KV_EFORMAT, "version 2" },
		{ "\"kvlookahead\":\"1\"", "\"kvlookahead\":1", KV_EFORMAT, "not a LookaheadKV module" },
		{ "\"kvlookahead\":\"1\",", "", KV_EFORMAT, "not a LookaheadKV module" },
		{ "\"tokens\":\"3\"", "\"tokens\":\"0\"", KV_EARG, "0 lookahead tokens" },
		{ "\"tokens\":\"3\"", "\"tokens\":\"-3\"", KV_EFORMAT, "tokens" },
		{ "\"tokens\":\"3\"", "\"tokens\":\"4\"", KV_EFORMAT, "[3][8], expected [4][8]" },
		{ "\"tokens\":\"3\"", "\"tokens\":\"99999999999999999999999\"", KV_EFORMAT, "tokens" },
		{ "\"rank\":\"2\"", "\"rank\":\"3\"", KV_EFORMAT, "expected [3][8]" },
		{ "\"rank\":\"2\"", "\"rank\":\"0\"", KV_EFORMAT, "none of that name" },
		{ "\"rank\":\"2\",", "", KV_EFORMAT, "no rank" },
		{ "\"alpha\":\"0.10000000000000001\"", "\"alpha\":\"nan\"", KV_EFORMAT, "alpha" },
		{ "\"alpha\":\"0.10000000000000001\"", "\"alpha\":\"1x\"", KV_EFORMAT, "alpha" },
		{ "\"targets\":\"all\"", "\"targets\":\"some\"", KV_EFORMAT, "targets" },
		{ "\"targets\":\"all\"", "\"targets\":\"qkv\"", KV_EFORMAT, "none of that name" },
		{ "\"layers\":\"2\"", "\"layers\":\"3\"", KV_EMODEL, "3 layers" },
		{ "\"embedding\":\"8\"", "\"embedding\":\"16\"", KV_EMODEL, "embeddings of 16" },
		{ "0123456789abcdef0123", "1123456789abcdef0123", KV_EMODEL, "made for another model" },
		{ "\"training\":\"{", "\"training\":\"[", KV_EFORMAT, "training" },
		{ "q_proj.lora_A.weight", "q_proj.lora_C.weight", KV_EFORMAT, "none of that name" },
		{ "model.layers.1.self_attn.k_proj", "model.layers.2.self_attn.k_proj", KV_EFORMAT, "layers.2" },
		{ "\"lookahead.embeddings\"", "\"__metadata_\"", KV_EFORMAT, "none of that name" },
		{ "\"dtype\":\"F32\"", "\"dtype\":\"I32\"", KV_EFORMAT, "i32" },
		{ "\"dtype\":\"F32\"", "\"dtype\":\"F64\"", KV_EMODEL, "F64" },
		{ "\"shape\":[3,8]", "\"shape\":[8,3]", KV_EFORMAT, "[8][3], expected [3][8]" },
		{ "\"shape\":[3,8]", "\"shape\":[3,9]", KV_EFORMAT, "takes" },
	};
	struct kv_lookahead *m = make(2, KV_LOOKAHEAD_ALL);
	struct file x;

	(void)state;
	write_module(m, KVK_F32);
	kv_lookahead_free(m);
	x = load();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		edit(&x, cases[i].from, cases[i].to);
		expect_refused(cases[i].code, cases[i].words);
	}
	free(x.bytes);
}

static void
a_missing_tensor_and_a_bad_number_are_named(void **state)
{
	static const float bad[] = { NAN, INFINITY };
	struct kv_lookahead *m = make(2, KV_LOOKAHEAD_ALL);
	struct kv_err e = { 0 };
	struct file x;

	(void)state;
	write_module(m, KVK_F32);
	x = load();
	remove_last(&x);
	expect_refused(KV_EFORMAT, "no tensor model.layers.1.self_attn.k_proj.lora_B.weight");
	for (size_t i = 0; i < 2; i++) {
		memcpy(x.bytes + x.header + 4 * 5, &bad[i], 4);
		store(x.bytes, x.n);
		expect_refused(KV_EMODEL, "lookahead.embeddings: element 5");
	}
	m->p[4] = NAN; /* nor is it written */
	assert_int_equal(kv_lookahead_write(m, path, KVK_F32, &e), KV_EARG);
	m->p[4] = 70000;
	assert_int_equal(kv_lookahead_write(m, path, KVK_F16, &e), KV_EARG);
	assert_int_equal(kv_lookahead_write(m, path, KVK_BF16, &e), KV_OK);
	assert_int_equal(kv_lookahead_write(m, path, KVK_I32, &e), KV_EARG);
	free(x.bytes);
	kv_lookahead_free(m);
}

/* One bit of any number, and the sum itself; a file without one is from before. */
static void
the_checksum_is_compared(void **state)
{
	struct kv_lookahead *m = make(2, KV_LOOKAHEAD_ALL), *back;
	static const struct {
		const char *from, *to;
	} others[] = {
		{ "\"alpha\":\"0.1", "\"alpha\":\"0.2" },
		{ "\"base_name\":\"", "\"base_name\":\"x" },
		{ "\\\"steps\\\":17", "\\\"steps\\\":16" },
		{ "\"layers\":\"2\"", "\"layers\":\"02\"" },
	};
	static unsigned char whole[1 << 16];
	char *text = calloc(1, 1 << 16), *sum, old[64], other[64];
	struct kv_err e = { 0 };
	struct file x;

	(void)state;
	write_module(m, KVK_F32);
	x = load();
	assert_non_null(text);
	memcpy(text, x.bytes + 8, x.header - 8);
	for (size_t i = x.header; i < x.n; i += 101) {
		x.bytes[i] ^= 1;
		store(x.bytes, x.n);
		expect_refused(KV_EFORMAT, "checksum");
		x.bytes[i] ^= 1;
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) { /* what the header says, as good as before */
		edit(&x, others[i].from, others[i].to);
		expect_refused(KV_EFORMAT, "its checksum is");
	}
	edit(&x, "\"alpha\":\"0.1", "\"alpha\":\"0.2");
	assert_int_equal(kv_lookahead_read_shape(&(struct kv_lookahead_shape){ 0 }, path, &e), KV_EFORMAT);
	x.bytes[x.header - 1] = '\n'; /* what pads it */
	store(x.bytes, x.n);
	expect_refused(KV_EFORMAT, "its checksum is");
	x.bytes[x.header - 1] = ' ';
	assert_non_null(sum = strstr(text, "\"xxh3\":\""));
	memset(whole, 0, sizeof whole); /* the documented way */
	memcpy(whole, x.bytes, x.n);
	memset(whole + 8 + (sum - text) + 8, '0', 16);
	snprintf(other, sizeof other, "%016llx", (unsigned long long)XXH3_64bits(whole, x.n));
	assert_memory_equal(sum + 8, other, 16);
	snprintf(old, sizeof old, "%.26s", sum); /* "xxh3":"0123456789abcdef", */
	strcpy(other, old);
	other[23] = old[23] == '0' ? '1' : '0';
	edit(&x, old, other);
	expect_refused(KV_EFORMAT, "checksum");
	edit(&x, old, "\"xxh3\":7,");
	expect_refused(KV_EFORMAT, "checksum");
	edit(&x, old, "");
	if (kv_lookahead_read(&back, path, &model.cfg, &e) < 0)
		fail_msg("%s", e.text);
	expect_equal(m, back, 0, 0);
	kv_lookahead_free(back);
	kv_lookahead_free(m);
	free(x.bytes);
	free(text);
}

static void
the_shape_needs_no_model(void **state)
{
	struct kv_lookahead *m = make(0, KV_LOOKAHEAD_ALL);
	struct kv_lookahead_shape s;
	struct kv_err e = { 0 };

	(void)state;
	write_module(m, KVK_F16);
	assert_int_equal(kv_lookahead_read_shape(&s, path, &e), KV_OK);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.rank, 0);
	assert_true(s.alpha == 0.1 && s.targets == KV_LOOKAHEAD_NONE);
	store((const unsigned char *)"x", 1);
	assert_int_equal(kv_lookahead_read_shape(&s, path, &e), KV_EFORMAT);
	assert_non_null(strstr(e.text, path));
	kv_lookahead_free(m);
}

/* Whatever is cut off or turned over: the reader says so or reads a module, and never more than the file holds. */
static void
cuts_and_flips(void **state)
{
	struct kv_lookahead *m = make(1, KV_LOOKAHEAD_ALL), *back;
	size_t refused = 0;
	struct file x;

	(void)state;
	write_module(m, KVK_F16);
	kv_lookahead_free(m);
	x = load();
	for (size_t n = 0; n < x.n; n += n < x.header ? 37 : 11) {
		store(x.bytes, n);
		expect_refused(KV_EFORMAT, "");
	}
	for (size_t i = 0; i < x.header; i += 3) {
		struct kv_err e = { 0 };

		x.bytes[i] ^= (unsigned char)(1u << i % 8);
		store(x.bytes, x.n);
		if (kv_lookahead_read(&back, path, &model.cfg, &e) < 0)
			refused += e.text[0] != '\0';
		kv_lookahead_free(back);
		x.bytes[i] ^= (unsigned char)(1u << i % 8);
	}
	assert_true(refused > x.header / 3 / 2);
	free(x.bytes);
}

static void
a_module_is_no_model(void **state)
{
	struct kv_lookahead *m = make(2, KV_LOOKAHEAD_ALL);
	const struct kv_format *f;
	struct kv_model other = { 0 };
	json_t *metadata = NULL;
	struct kv_err e = { 0 };

	(void)state;
	write_module(m, KVK_F32);
	f = kv_format_probe(path);
	assert_non_null(f);
	assert_string_equal(f->name, "lookahead");
	assert_int_equal(kv_model_open(&other, path, false, &e), KV_EMODEL);
	assert_non_null(strstr(e.text, "kv-prefill --lookahead"));
	assert_int_equal(f->metadata(path, &metadata, &e), KV_OK);
	assert_int_equal(json_integer_value(json_object_get(metadata, "parameters")), m->n_parameters);
	assert_true(fabs(json_number_value(json_object_get(metadata, "share")) -
			 (double)m->n_parameters / (double)m->base_parameters) < 1e-12);
	json_decref(metadata);
	kv_model_fini(&other);
	kv_lookahead_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(halves_are_rounded_to_even),
		cmocka_unit_test(edits_are_named),
		cmocka_unit_test(a_missing_tensor_and_a_bad_number_are_named),
		cmocka_unit_test(the_checksum_is_compared),
		cmocka_unit_test(the_shape_needs_no_model),
		cmocka_unit_test(cuts_and_flips),
		cmocka_unit_test(a_module_is_no_model),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
