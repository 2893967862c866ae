/* SPDX-License-Identifier: MIT
 * The GGUF container: files built or broken byte by byte, each fault named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/gguf.h"
#include "tests/lib/streams.h"
#include "tests/lib/tiny.h"
#include "tests/lib/write_model.h"

/* ---- built by hand ---- */

static void
u32(struct kv_buf *b, uint32_t v)
{
	assert_int_equal(kv_buf_add(b, &v, sizeof v, NULL), KV_OK);
}

static void
u64(struct kv_buf *b, uint64_t v)
{
	assert_int_equal(kv_buf_add(b, &v, sizeof v, NULL), KV_OK);
}

static void
text(struct kv_buf *b, const char *s)
{
	u64(b, strlen(s));
	assert_int_equal(kv_buf_add(b, s, strlen(s), NULL), KV_OK);
}

static void
head(struct kv_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_pairs)
{
	assert_int_equal(kv_buf_add(b, "GGUF", 4, NULL), KV_OK);
	u32(b, version);
	u64(b, n_tensors);
	u64(b, n_pairs);
}

/* Enough zeros that counts and offsets have room. */
static void
room(struct kv_buf *b, size_t n)
{
	assert_int_equal(kv_buf_reserve(b, n, NULL), KV_OK);
	memset(b->data + b->n, 0, n);
	b->n += n;
}

static void
tensor(struct kv_buf *b, const char *name, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
	text(b, name);
	u32(b, n_dims);
	for (uint32_t i = 0; i < n_dims && i < 8; i++)
		u64(b, i == 0 ? d0 : i == 1 ? d1 : 1);
	u32(b, type);
	u64(b, offset);
}

static void
one_tensor(struct kv_buf *b, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
	head(b, 3, 1, 0);
	tensor(b, "w", n_dims, d0, d1, type, offset);
	room(b, 4096);
}

static void
alignment(struct kv_buf *b, uint32_t n)
{
	head(b, 3, 0, 1);
	text(b, "general.alignment");
	u32(b, 4);
	u32(b, n);
}

/* general.x = a list of `type` with n elements, of which none are there. */
static void
list(struct kv_buf *b, uint32_t type, uint64_t n)
{
	head(b, 3, 0, 1);
	text(b, "general.x");
	u32(b, 9);
	u32(b, type);
	u64(b, n);
}

/* clang-format off: one line each */
static void
empty(struct kv_buf *b)
{
	room(b, 0);
}
static void
no_magic(struct kv_buf *b)
{
	head(b, 3, 0, 0);
	b->data[3] = 'X';
}
static void
only_magic(struct kv_buf *b)
{
	head(b, 3, 0, 0);
	b->n = 4;
}
static void
version_1(struct kv_buf *b)
{
	head(b, 1, 0, 0);
}
static void
version_9(struct kv_buf *b)
{
	head(b, 9, 0, 0);
}
static void
big_endian(struct kv_buf *b)
{
	head(b, 0x03000000, 0, 0);
}
static void
no_counts(struct kv_buf *b)
{
	head(b, 3, 0, 0);
	b->n = 20;
}
static void
many_tensors(struct kv_buf *b)
{
	head(b, 3, (uint64_t)1 << 60, 0);
	room(b, 4096);
}
static void
many_pairs(struct kv_buf *b)
{
	head(b, 3, 0, (uint64_t)1 << 60);
	room(b, 4096);
}
static void
more_pairs(struct kv_buf *b)
{
	head(b, 3, 0, 500);
	room(b, 4096);
}
static void
negative(struct kv_buf *b)
{
	head(b, 3, UINT64_MAX, 0);
	room(b, 4096);
}
static void
long_key(struct kv_buf *b)
{
	head(b, 3, 0, 1);
	u64(b, (uint64_t)1 << 62);
	room(b, 100);
}
static void
wide_key(struct kv_buf *b)
{
	head(b, 3, 0, 1);
	u64(b, 1000);
	room(b, 2000);
}
static void
key_type(struct kv_buf *b)
{
	head(b, 3, 0, 1);
	text(b, "k");
	u32(b, 13);
	room(b, 20);
}
static void
cut_value(struct kv_buf *b)
{
	head(b, 3, 0, 1);
	text(b, "keykeykey");
	u32(b, 10);
	u32(b, 0);
}
static void
long_string(struct kv_buf *b)
{
	head(b, 3, 0, 1);
	text(b, "k");
	u32(b, 8);
	u64(b, UINT64_MAX - 3);
	room(b, 20);
}
static void
long_list(struct kv_buf *b)
{
	list(b, 4, (uint64_t)1 << 60);
	room(b, 64);
}
static void
wrapping_list(struct kv_buf *b)
{
	list(b, 10, ((uint64_t)1 << 61) + 1);
	room(b, 64);
}
static void
long_strings(struct kv_buf *b)
{
	list(b, 8, (uint64_t)1 << 60);
	room(b, 64);
}
static void
cut_strings(struct kv_buf *b)
{
	list(b, 8, 4);
	u64(b, 0);
	u64(b, 99);
	room(b, 40);
}
static void
list_type(struct kv_buf *b)
{
	list(b, 77, 1);
	room(b, 64);
}
static void
align_0(struct kv_buf *b)
{
	alignment(b, 0);
}
static void
align_24(struct kv_buf *b)
{
	alignment(b, 24);
}
static void
align_4(struct kv_buf *b)
{
	alignment(b, 4);
}
static void
align_huge(struct kv_buf *b)
{
	alignment(b, (uint32_t)1 << 31);
}
static void
no_dims(struct kv_buf *b)
{
	one_tensor(b, 0, 0, 0, 0, 0);
}
static void
five_dims(struct kv_buf *b)
{
	one_tensor(b, 5, 1, 1, 0, 0);
}
static void
zero_dim(struct kv_buf *b)
{
	one_tensor(b, 2, 4, 0, 0, 0);
}
static void
overflow(struct kv_buf *b)
{
	one_tensor(b, 2, (uint64_t)1 << 33, (uint64_t)1 << 33, 0, 0);
}
static void
beyond(struct kv_buf *b)
{
	one_tensor(b, 2, 64, 64, 0, 0);
}
static void
far_offset(struct kv_buf *b)
{
	one_tensor(b, 1, 4, 0, 0, UINT64_MAX - 31);
}
static void
odd_offset(struct kv_buf *b)
{
	one_tensor(b, 1, 4, 0, 0, 8);
}
static void
unknown_type(struct kv_buf *b)
{
	one_tensor(b, 1, 32, 0, 23, 0);
}
static void
part_block(struct kv_buf *b)
{
	one_tensor(b, 1, 40, 0, 8, 0);
}
static void
cut_info(struct kv_buf *b)
{
	head(b, 3, 1, 0);
	tensor(b, "a name as long as this", 1, 4, 0, 0, 0);
	b->n -= 3;
}
/* clang-format on */

static void
nested(struct kv_buf *b)
{
	list(b, 9, 1);
	for (int i = 0; i < 1000; i++) {
		u32(b, 9);
		u64(b, 1);
	}
}

static void
same_keys(struct kv_buf *b)
{
	head(b, 3, 0, 2);
	for (int i = 0; i < 2; i++) {
		text(b, "twin");
		u32(b, 4);
		u32(b, 0);
	}
}

static void
same_tensors(struct kv_buf *b)
{
	head(b, 3, 2, 0);
	tensor(b, "twin", 1, 4, 0, 0, 0);
	tensor(b, "twin", 1, 4, 0, 0, 32);
	room(b, 256);
}

static const struct {
	const char *name;
	void (*build)(struct kv_buf *b);
	int rc;
	const char *says;
} broken[] = {
	{ "empty", empty, KV_EFORMAT, "empty" },
	{ "no magic", no_magic, KV_EFORMAT, "does not begin with GGUF" },
	{ "only magic", only_magic, KV_EFORMAT, "version 0" },
	{ "version 1", version_1, KV_EFORMAT, "version 1" },
	{ "version 9", version_9, KV_EFORMAT, "version 9" },
	{ "big-endian", big_endian, KV_EFORMAT, "big-endian" },
	{ "no counts", no_counts, KV_EFORMAT, "ends within the header" },
	{ "2^60 tensors", many_tensors, KV_EFORMAT, "1152921504606846976 tensors" },
	{ "2^64-1 tensors", negative, KV_EFORMAT, "18446744073709551615 tensors" },
	{ "2^60 keys", many_pairs, KV_EFORMAT, "1152921504606846976 keys" },
	{ "more keys than bytes", more_pairs, KV_EFORMAT, "500 keys" },
	{ "endless key", long_key, KV_EFORMAT, "key 0: its name ends beyond the file" },
	{ "wide key", wide_key, KV_EFORMAT, "key 0: a name of 1000 bytes" },
	{ "unknown value type", key_type, KV_EFORMAT, "key k: unknown value type 13" },
	{ "cut value", cut_value, KV_EFORMAT, "key keykeykey: ends beyond" },
	{ "endless string", long_string, KV_EFORMAT, "key k: a string ends beyond" },
	{ "endless list", long_list, KV_EFORMAT, "key general.x: ends beyond" },
	{ "list whose bytes wrap", wrapping_list, KV_EFORMAT, "key general.x: ends beyond" },
	{ "endless list of strings", long_strings, KV_EFORMAT, "key general.x: ends beyond" },
	{ "string of a list", cut_strings, KV_EFORMAT, "key general.x: a string ends beyond" },
	{ "list of unknown type", list_type, KV_EFORMAT, "key general.x: unknown value type 77" },
	{ "nested lists", nested, KV_EFORMAT, "key general.x: arrays nested too deeply" },
	{ "alignment 0", align_0, KV_EFORMAT, "general.alignment" },
	{ "alignment 24", align_24, KV_EFORMAT, "general.alignment" },
	{ "alignment 4", align_4, KV_EFORMAT, "general.alignment" },
	{ "alignment 2^31", align_huge, KV_EFORMAT, "general.alignment" },
	{ "no dimensions", no_dims, KV_EFORMAT, "tensor w: 0 dimensions" },
	{ "five dimensions", five_dims, KV_EFORMAT, "tensor w: 5 dimensions" },
	{ "a dimension of 0", zero_dim, KV_EFORMAT, "tensor w: dimension 1 is 0" },
	{ "overflowing dimensions", overflow, KV_EFORMAT,
	    "tensor w: dimensions [8589934592 8589934592 1 1] are absurd" },
	{ "data beyond the file", beyond, KV_EFORMAT, "tensor w: 16384 bytes at offset 0 end beyond the file" },
	{ "offset beyond the file", far_offset, KV_EFORMAT,
	    "tensor w: 16 bytes at offset 18446744073709551584 end beyond" },
	{ "misaligned offset", odd_offset, KV_EFORMAT, "tensor w: offset 8 is no multiple of the alignment 32" },
	{ "unknown tensor type", unknown_type, KV_EMODEL,
	    "tensor w: element type number 23 is not known (known: f32 f16 q4_0" },
	{ "part of a block", part_block, KV_EFORMAT,
	    "tensor w: rows of 40 elements are no whole number of q8_0 blocks" },
	{ "cut tensor info", cut_info, KV_EFORMAT, "tensor a name as long as this: its description ends beyond" },
	{ "the same key twice", same_keys, KV_EFORMAT, "key twin: there are two" },
	{ "the same tensor twice", same_tensors, KV_EFORMAT, "tensor twin: there are two" },
};

/* Parses an exact copy, so that the sanitizer sees a read beyond the end. */
static int
parse(const struct kv_buf *b, struct kv_err *e)
{
	unsigned char *copy = malloc(b->n ? b->n : 1);
	struct kv_map map = { .data = copy, .bytes = b->n };
	struct kv_vocab v = { 0 };
	struct gguf g = { 0 };
	int rc;

	assert_non_null(copy);
	if (b->n > 0)
		memcpy(copy, b->data, b->n);
	if ((rc = gguf_parse(&g, &map, e)) == KV_OK)
		rc = gguf_vocab(&g, &v, e);
	kv_vocab_fini(&v);
	gguf_fini(&g);
	free(copy);
	return rc;
}

static void
broken_containers_are_named(void **state)
{
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
		struct kv_buf b = { 0 };
		int rc;

		e = (struct kv_err){ 0 };
		broken[i].build(&b);
		rc = parse(&b, &e);
		if (rc != broken[i].rc || strstr(e.text, broken[i].says) == NULL)
			fail_msg("%s: status %d, \"%s\"", broken[i].name, rc, e.text);
		kv_buf_fini(&b);
	}
}

static void
version_2_and_nested_lists_are_fine(void **state)
{
	struct kv_buf b = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	head(&b, 2, 0, 1);
	text(&b, "general.x");
	u32(&b, 9), u32(&b, 9), u64(&b, 2);              /* two lists: */
	u32(&b, 8), u64(&b, 1), text(&b, "in the list"); /* one string */
	u32(&b, 0), u64(&b, 0);                          /* nothing */
	if (parse(&b, &e) != KV_OK)
		fail_msg("%s", e.text);
	kv_buf_fini(&b);
}

/* ---- a good file, cut and bent ---- */

static struct kv_buf
good_file(void)
{
	static const struct tiny_spec s = { "llama", 2, 4, 2, 8, 32, 64, 270, 64, false, false, true, 9 };
	struct kv_model m = { 0 };

	assert_int_equal(tiny_model(&m, &s, NULL), KV_OK);
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

static size_t
header_bytes(const struct kv_buf *b)
{
	return (size_t)(find_bytes(b, "blk.1.ffn_down.weight") - b->data) + 60; /* the last tensor */
}

static void
cut_files_are_refused(void **state)
{
	struct kv_buf good = good_file(), b = good;
	size_t all = good.n, header = header_bytes(&good);
	struct kv_err e;

	(void)state;
	for (b.n = 0; b.n < header; b.n++)
		assert_true(parse(&b, &e) < 0);
	for (b.n = header; b.n < all; b.n += 977) {
		assert_true(parse(&b, &e) < 0);
		assert_non_null(strstr(e.text, "is it truncated?"));
	}
	kv_buf_fini(&good);
}

/* Whatever the header says, the parser ends and reads nothing that is not there (the sanitizers watch). */
static void
flipped_bytes_do_no_harm(void **state)
{
	struct kv_buf good = good_file();
	size_t header = header_bytes(&good);
	struct kv_err e;
	uint32_t r = 1;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		size_t at;
		char old;

		r = r * 1664525 + 1013904223;
		at = (r >> 8) % header;
		old = good.data[at];
		good.data[at] = (char)(i % 3 == 0 ? 0xff : old ^ 1 << r % 8);
		parse(&good, &e);
		good.data[at] = old;
	}
	kv_buf_fini(&good);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_containers_are_named),
		cmocka_unit_test(version_2_and_nested_lists_are_fine),
		cmocka_unit_test(cut_files_are_refused),
		cmocka_unit_test(flipped_bytes_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
