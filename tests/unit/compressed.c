/* SPDX-License-Identifier: MIT
 * Compressed streams and archives: what comes out is what went in, or a fault that says what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/archive.h"
#include "formats/compressed.h"
#include "formats/stream.h"
#include "tests/lib/streams.h"

static const struct sample two = { .sequences = 2, .layers = 2, .tokens = 5, .token0 = 100, .logits = true };
static const char *const names[] = { "s.kv.zst", "s.kv.gz", "s.kv.xz" };
#define N_NAMES (sizeof names / sizeof names[0])

/* All that a path expands to. */
static int
expand(const char *path, struct kv_buf *b, struct kv_err *e)
{
	struct kv_source s;
	size_t got = 1;
	int rc = kv_source_open(&s, path, e);

	while (rc == KV_OK && got > 0 && (rc = kv_buf_reserve(b, 1000, e)) == KV_OK &&
	       (rc = kv_source_read(&s, b->data + b->n, 1000, &got, e)) == KV_OK)
		b->n += got;
	kv_source_close(&s);
	return rc;
}

static void
expect_bytes(const struct kv_buf *a, const struct kv_buf *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->data, b->data, a->n);
}

/* ---- what is written comes back */

static void
round_trips(void **state)
{
	struct kv_buf plain, again, first;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(scratch("s.kv"), &two);
	plain = scratch_read(scratch("s.kv"));
	for (size_t i = 0; i < N_NAMES; i++) {
		struct kv_buf out = { 0 };

		sample_write(scratch(names[i]), &two);
		first = scratch_read(scratch(names[i]));
		assert_true(first.n < plain.n);
		must(expand(scratch(names[i]), &out, &e), &e);
		expect_bytes(&plain, &out); /* so payloads keep their alignment within the stream */
		must(stream_walk(scratch(names[i]), true, &e), &e);
		must(stream_walk(scratch(names[i]), false, &e), &e);
		must(stream_walk_piped(first.data, first.n, &e), &e);
		sample_write(scratch(names[i]), &two);
		again = scratch_read(scratch(names[i]));
		expect_bytes(&first, &again);
		kv_buf_fini(&again);
		kv_buf_fini(&first);
		kv_buf_fini(&out);
	}
	kv_buf_fini(&plain);
}

/* By content: the name is nothing to a reader. */
static void
names_do_not_matter(void **state)
{
	struct kv_err e = { 0 };

	(void)state;
	sample_write(scratch("s.kv.xz"), &two);
	assert_int_equal(rename(scratch("s.kv.xz"), scratch("s.bin.gz")), 0);
	must(stream_walk(scratch("s.bin.gz"), true, &e), &e);
	sample_write(scratch("s.kv"), &two);
	assert_int_equal(rename(scratch("s.kv"), scratch("plain.zst")), 0);
	must(stream_walk(scratch("plain.zst"), true, &e), &e);
	unlink(scratch("s.bin.gz"));
	unlink(scratch("plain.zst"));
}

static void
payload_owner(const char *path, bool owned)
{
	struct kv_reader *r;
	struct kv_record rec;
	struct kv_err e = { 0 };

	must(kv_reader_open(&r, path, &e), &e);
	do
		must(kv_reader_next(r, &rec, &e), &e);
	while (rec.kind != KV_RECORD_TENSOR && (kv_record_fini(&rec), true));
	must(kv_reader_payload(r, &rec.tensor, &e), &e);
	assert_int_equal(rec.tensor.owned != NULL, owned);
	kv_record_fini(&rec);
	kv_reader_free(r);
}

static void
plain_files_stay_mapped(void **state)
{
	(void)state;
	sample_write(scratch("s.kv"), &two);
	sample_write(scratch("s.kv.zst"), &two);
	payload_owner(scratch("s.kv"), false);
	payload_owner(scratch("s.kv.zst"), true);
}

/* ---- damage */

static void
cut_anywhere(void **state)
{
	struct kv_buf b;
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < N_NAMES; i++) {
		sample_write(scratch(names[i]), &two);
		b = scratch_read(scratch(names[i]));
		for (size_t n = 1; n < b.n; n++) {
			e = (struct kv_err){ 0 };
			scratch_write(scratch("cut"), b.data, n);
			assert_int_equal(stream_walk(scratch("cut"), true, &e), KV_EFORMAT);
			expect_text(&e, n < 6 ? "cut: " : "cut short");
			assert_int_equal(stream_walk_piped(b.data, n, &e), KV_EFORMAT);
		}
		kv_buf_fini(&b);
	}
}

/* A flipped bit is found, unless it is in a field that changes nothing (gzip's time stamp). */
static void
flip_anywhere(void **state)
{
	struct kv_buf b, plain;
	struct kv_err e;
	size_t n_found = 0, n = 0;

	(void)state;
	sample_write(scratch("s.kv"), &two);
	plain = scratch_read(scratch("s.kv"));
	for (size_t i = 0; i < N_NAMES; i++) {
		sample_write(scratch(names[i]), &two);
		b = scratch_read(scratch(names[i]));
		for (size_t at = 0; at < b.n; at++, n++) {
			struct kv_buf out = { 0 };

			e = (struct kv_err){ 0 };
			b.data[at] ^= (char)(1 << at % 8);
			scratch_write(scratch("flipped"), b.data, b.n);
			b.data[at] ^= (char)(1 << at % 8);
			if (expand(scratch("flipped"), &out, &e) == KV_OK && out.n == plain.n)
				assert_memory_equal(out.data, plain.data, plain.n);
			else if (stream_walk(scratch("flipped"), true, &e) != KV_OK)
				n_found++;
			else
				fail_msg("%s: a flip of byte %zu goes unnoticed", names[i], at);
			kv_buf_fini(&out);
		}
		kv_buf_fini(&b);
	}
	assert_true(n_found > n - 30);
	kv_buf_fini(&plain);
}

static void
odd_inputs(void **state)
{
	static const unsigned char nothing[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00 };
	struct kv_sink s;
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	scratch_write(scratch("nothing"), nothing, sizeof nothing);
	assert_int_equal(stream_walk(scratch("nothing"), true, &e), KV_EFORMAT);
	expect_text(&e, "empty");
	sample_write(scratch("s.kv.zst"), &two);
	b = scratch_read(scratch("s.kv.zst"));
	must(kv_sink_open(&s, scratch("s.zst.zst"), &e), &e);
	must(kv_sink_write(&s, b.data, b.n, &e), &e);
	must(kv_sink_finish(&s, &e), &e);
	kv_sink_drop(&s);
	assert_int_equal(stream_walk(scratch("s.zst.zst"), true, &e), KV_EFORMAT);
	expect_text(&e, "compressed twice");
	kv_buf_fini(&b);
}

/* What expands to more than anyone has is read through a buffer: 64 MiB of padding behind a header, and no end. */
static void
a_bomb_is_streamed(void **state)
{
	static const char header[] = "\x82\xa8kvstream\x01\xa5model\x80";
	char *nils = malloc(1 << 20);
	struct kv_sink s;
	struct kv_err e = { 0 };

	(void)state;
	memset(nils, 0xc0, 1 << 20);
	must(kv_sink_open(&s, scratch("bomb.zst"), &e), &e);
	must(kv_sink_write(&s, header, sizeof header - 1, &e), &e);
	for (size_t i = 0; i < 64; i++)
		must(kv_sink_write(&s, nils, 1 << 20, &e), &e);
	must(kv_sink_finish(&s, &e), &e);
	kv_sink_drop(&s);
	assert_int_equal(stream_walk(scratch("bomb.zst"), true, &e), KV_EFORMAT);
	expect_text(&e, "cut short before its End record, after 67108882 bytes");
	free(nils);
}

/* ---- writing */

static void
nothing_is_left_behind(void **state)
{
	struct kv_sink s;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < N_NAMES; i++) {
		unlink(scratch(names[i]));
		must(kv_sink_open(&s, scratch(names[i]), &e), &e);
		must(kv_sink_write(&s, "abc", 3, &e), &e);
		assert_int_not_equal(access(scratch(names[i]), F_OK), 0);
		kv_sink_drop(&s);
		assert_int_not_equal(access(scratch(names[i]), F_OK), 0);
	}
}

static void
full_disk(void **state)
{
	struct kv_sink s;
	struct kv_err e;
	int rc;

	(void)state;
	for (size_t i = 0; i < N_NAMES; i++) {
		const char *path = scratch(names[i]);

		e = (struct kv_err){ 0 };
		unlink(path);
		assert_int_equal(symlink("/dev/full", path), 0);
		must(kv_sink_open(&s, path, &e), &e);
		if ((rc = kv_sink_write(&s, "abc", 3, &e)) == KV_OK)
			rc = kv_sink_finish(&s, &e);
		assert_int_equal(rc, KV_EIO);
		expect_text(&e, "No space left");
		kv_sink_drop(&s);
		unlink(path);
	}
}

/* ---- archives */

struct bytes {
	const char *at;
	size_t n;
};

static int
pull_bytes(void *ctx, void *dst, size_t n, size_t *got, struct kv_err *e)
{
	struct bytes *b = ctx;

	(void)e;
	*got = n < b->n ? n : b->n;
	memcpy(dst, b->at, *got);
	b->at += *got;
	b->n -= *got;
	return KV_OK;
}

static void
add(struct kv_archive_writer *w, const char *name, const struct kv_buf *b)
{
	struct bytes bytes = { b->data, b->n };
	struct kv_err e = { 0 };

	must(kv_archive_add(w, name, b->n, 0, pull_bytes, &bytes, &e), &e);
}

static void
members(void **state)
{
	char path[200];
	struct kv_archive_writer *w;
	struct kv_buf plain, packed, out = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	sample_write(scratch("s.kv"), &two);
	sample_write(scratch("s.kv.gz"), &two);
	plain = scratch_read(scratch("s.kv"));
	packed = scratch_read(scratch("s.kv.gz"));
	must(kv_archive_writer_open(&w, scratch("a.tar.zst"), &e), &e);
	add(w, "run1/s.kv", &plain);
	add(w, "run1/s:2.kv.gz", &packed);
	must(kv_archive_writer_finish(w, &e), &e);

	snprintf(path, sizeof path, "%s:run1/s.kv", scratch("a.tar.zst"));
	must(expand(path, &out, &e), &e);
	expect_bytes(&plain, &out);
	must(stream_walk(path, true, &e), &e);
	snprintf(path, sizeof path, "%s:./run1/s:2.kv.gz", scratch("a.tar.zst"));
	out.n = 0;
	must(expand(path, &out, &e), &e);
	expect_bytes(&plain, &out);

	snprintf(path, sizeof path, "%s:run2/s.kv", scratch("a.tar.zst"));
	assert_int_equal(stream_walk(path, true, &e), KV_EFORMAT);
	expect_text(&e, "a.tar.zst:run2/s.kv: no such member; there are run1/s.kv, run1/s:2.kv.gz");
	snprintf(path, sizeof path, "%s:x", scratch("s.kv"));
	assert_int_equal(stream_walk(path, true, &e), KV_EFORMAT);
	expect_text(&e, "not a tar archive");
	assert_int_equal(stream_walk(scratch("a.tar.zst"), true, &e), KV_EFORMAT);
	expect_text(&e, "a tar archive; name a stream in it");
	scratch_write(scratch("a.tar.zst:x"), plain.data, plain.n); /* a file of that name wins */
	must(stream_walk(scratch("a.tar.zst:x"), true, &e), &e);
	kv_buf_fini(&out);
	kv_buf_fini(&packed);
	kv_buf_fini(&plain);
}

static void
sizes_must_hold(void **state)
{
	struct kv_archive_writer *w;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t n = 2; n <= 4; n += 2) {
		struct bytes three = { "abc", 3 };

		must(kv_archive_writer_open(&w, scratch("never.tar"), &e), &e);
		assert_int_equal(kv_archive_add(w, "x", n, 0, pull_bytes, &three, &e), KV_EFORMAT);
		expect_text(&e, "x: its size has changed");
		kv_archive_writer_drop(w);
		assert_int_not_equal(access(scratch("never.tar"), F_OK), 0);
	}
}

static void
unsafe_names(void **state)
{
	static const struct {
		const char *name;
		bool safe;
	} rows[] = { { "a", true }, { "a/b.kv", true }, { "..a/b..", true }, { "a/...", true }, { "", false },
		{ "/a", false }, { "..", false }, { "../a", false }, { "a/../b", false }, { "a/..", false } };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if ((kv_archive_unsafe(rows[i].name) == NULL) != rows[i].safe)
			fail_msg("%s", rows[i].name);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(names_do_not_matter),
		cmocka_unit_test(plain_files_stay_mapped),
		cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(flip_anywhere),
		cmocka_unit_test(odd_inputs),
		cmocka_unit_test(a_bomb_is_streamed),
		cmocka_unit_test(nothing_is_left_behind),
		cmocka_unit_test(full_disk),
		cmocka_unit_test(members),
		cmocka_unit_test(sizes_must_hold),
		cmocka_unit_test(unsafe_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
