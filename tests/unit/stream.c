/* SPDX-License-Identifier: MIT
 * The stream's reader and writer: what is written comes back, and no input whatever does harm. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <msgpack.h>

#include "formats/record.h"
#include "lib/file.h"
#include "tests/lib/streams.h"

static const struct sample two = { .sequences = 2, .layers = 2, .tokens = 5, .token0 = 100, .logits = true };
static const struct sample cut_two = {
	.sequences = 2, .layers = 2, .tokens = 5, .token0 = 100, .logits = true, .part_max = 16
};

/* ---- what is written comes back */

static void
round_trip(void **state)
{
	static const enum kv_record_kind kinds[] = { KV_RECORD_HEADER, KV_RECORD_SEQUENCE, KV_RECORD_TENSOR,
		KV_RECORD_TENSOR, KV_RECORD_TENSOR, KV_RECORD_TENSOR, KV_RECORD_TENSOR, KV_RECORD_TENSOR,
		KV_RECORD_TENSOR, KV_RECORD_CLOSE };
	const char *path = scratch("two.kv");
	struct kv_reader *r;
	struct kv_record rec;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(path, &two);
	must(kv_reader_open(&r, path, &e), &e);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		must(kv_reader_next(r, &rec, &e), &e);
		assert_int_equal(rec.kind, kinds[i]);
		if (i == 0) {
			const json_t *entry = json_array_get(json_object_get(rec.map, "history"), 0);

			assert_string_equal(json_string_value(json_object_get(entry, "program")), "kv-sample");
			assert_string_equal(json_string_value(json_array_get(json_object_get(entry, "arguments"), 1)), "caf\xe9");
			assert_float_equal(json_real_value(json_object_get(json_object_get(rec.map, "model"), "scale")), 0.5, 0);
		}
		if (i == 1)
			assert_int_equal(json_integer_value(json_array_get(json_object_get(rec.map, "tokens"), 4)), 128);
		if (i == 4) {
			assert_string_equal(rec.tensor.name, "score");
			assert_int_equal(rec.tensor.type, KVK_F32);
			assert_int_equal(rec.tensor.n_axes, 2);
			assert_string_equal(rec.tensor.axis[1], "token");
			assert_int_equal(rec.tensor.shape[1], 5);
			assert_int_equal(json_integer_value(json_object_get(rec.tensor.attrs, "pool_width")), 7);
			assert_null(rec.tensor.data);
			must(kv_reader_payload(r, &rec.tensor, &e), &e);
			assert_null(rec.tensor.owned); /* borrowed from the map */
		}
		if (i == 8)
			assert_int_equal(rec.tensor.layer, KV_NO_LAYER);
		kv_record_fini(&rec);
	}
	kv_reader_free(r);
	must(stream_walk(path, true, &e), &e);
	must(stream_walk(path, false, &e), &e);
}

static void
file_and_pipe_agree(void **state)
{
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(scratch("two.kv"), &two);
	b = scratch_read(scratch("two.kv"));
	must(stream_walk_piped(b.data, b.n, &e), &e);
	kv_buf_fini(&b);
}

/* Any MessagePack reader can walk it: here msgpack-c itself, with no help from us. */
static void
payloads_are_aligned(void **state)
{
	const char *path = scratch("two.kv");
	struct kv_buf b;
	msgpack_unpacked u;
	size_t at = 0, n_bins = 0;

	(void)state;
	for (size_t max = 0; max < 2; max++) {
		sample_write(path, max ? &cut_two : &two);
		b = scratch_read(path);
		msgpack_unpacked_init(&u);
		for (at = 0, n_bins = 0; msgpack_unpack_next(&u, b.data, b.n, &at) == MSGPACK_UNPACK_SUCCESS;)
			if (u.data.type == MSGPACK_OBJECT_BIN) {
				assert_int_equal((at - u.data.via.bin.size) % KV_ALIGN, 0);
				n_bins++;
			}
		assert_int_equal(at, b.n);
		/* per sequence and layer k and v of 80 bytes (5 parts of 16), score of 40 (row of 20 does not fit: 16
		 * 16 8); logits of 40 */
		assert_int_equal(n_bins, max ? 2 * (2 * (5 + 5 + 3) + 10 * 4 / 16 + 1) : 2 * (2 * 3 + 1));
		msgpack_unpacked_destroy(&u);
		kv_buf_fini(&b);
	}
}

static void
parts_are_whole_rows(void **state)
{
	struct kv_parts p;
	struct kv_err e = { 0 };

	(void)state;
	must(kv_parts_split(&p, 300, 30, 100, &e), &e); /* rows of 30: 90 90 90 30 */
	assert_int_equal(p.n, 4);
	assert_int_equal(p.size[0], 90);
	assert_int_equal(p.size[3], 30);
	kv_parts_fini(&p);
	must(kv_parts_split(&p, 300, 150, 100, &e), &e); /* no row fits: 100 100 100 */
	assert_int_equal(p.n, 3);
	kv_parts_fini(&p);
	must(kv_parts_split(&p, 0, 0, 100, &e), &e);
	assert_int_equal(p.n, 1);
	kv_parts_fini(&p);
	assert_int_equal(kv_parts_split(&p, 1000000, 0, 10, &e), KV_EFORMAT);
}

static void
parts_come_back_whole(void **state)
{
	const char *whole = scratch("whole.kv"), *cut = scratch("cut.kv");
	struct kv_reader *a, *b;
	struct kv_record x, y;
	struct kv_buf bytes;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(whole, &two);
	sample_write(cut, &cut_two);
	must(kv_reader_open(&a, whole, &e), &e);
	must(kv_reader_open(&b, cut, &e), &e);
	while (kv_reader_next(a, &x, &e) == KV_OK) {
		must(kv_reader_next(b, &y, &e), &e);
		if (x.kind == KV_RECORD_TENSOR) {
			must(kv_reader_payload(a, &x.tensor, &e), &e);
			must(kv_reader_payload(b, &y.tensor, &e), &e);
			assert_int_equal(x.tensor.bytes, y.tensor.bytes);
			assert_memory_equal(x.tensor.data, y.tensor.data, x.tensor.bytes);
			assert_non_null(y.tensor.owned);
		}
		kv_record_fini(&x);
		kv_record_fini(&y);
	}
	kv_reader_free(a);
	kv_reader_free(b);
	bytes = scratch_read(cut);
	must(stream_walk_piped(bytes.data, bytes.n, &e), &e);
	kv_buf_fini(&bytes);
}

static void
empty_tensors_and_sequences(void **state)
{
	const char *path = scratch("empty.kv");
	struct sample s = { .sequences = 2, .layers = 1, .tokens = 0 }, none = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	sample_write(path, &s);
	must(stream_walk(path, true, &e), &e);
	sample_write(path, &none);
	must(stream_walk(path, true, &e), &e);
}

static void
only_and_drop(void **state)
{
	static const struct {
		const char *only, *drop, *left;
	} rows[] = {
		{ NULL, NULL, "k v score " },
		{ "score", NULL, "score " },
		{ "k,score", NULL, "k score " },
		{ NULL, "k,v", "score " },
		{ "k,v", "v", "k " },
		{ "sco", NULL, "" },
	};
	const char *path = scratch("only.kv");
	struct kv_writer *w;
	struct kv_reader *r;
	struct kv_record rec;
	struct kv_tensor t;
	struct kv_err e = { 0 };
	json_t *model = json_object(), *seq = json_of("{'tokens':[1]}");
	char left[64];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		must(kv_writer_open(&w, path, rows[i].only, rows[i].drop, &e), &e);
		must(kv_writer_header(w, model, NULL, NULL, &e), &e);
		must(kv_writer_sequence(w, seq, &e), &e);
		for (const char *const *name = (const char *const[]){ "k", "v", "score", NULL }; *name != NULL; name++) {
			must(kv_tensor_new(&t, *name, 0, KVK_F32, "token", (size_t[]){ 1 }, &e), &e);
			must(kv_writer_tensor(w, &t, &e), &e);
			kv_tensor_fini(&t);
		}
		must(kv_writer_close(w, &e), &e);
		must(kv_writer_finish(w, &e), &e);
		left[0] = '\0';
		must(kv_reader_open(&r, path, &e), &e);
		while (kv_reader_next(r, &rec, &e) == KV_OK) {
			if (rec.kind == KV_RECORD_TENSOR)
				strcat(strcat(left, rec.tensor.name), " ");
			kv_record_fini(&rec);
		}
		kv_reader_free(r);
		assert_string_equal(left, rows[i].left);
	}
	assert_int_equal(kv_writer_open(&w, path, "k,,v", NULL, &e), KV_EARG);
	json_decref(model);
	json_decref(seq);
}

/* ---- the writer's failures */

static void
nothing_is_left_behind(void **state)
{
	const char *path = scratch("gone.kv");
	size_t before = (scratch_write(scratch("x"), "x", 1), scratch_count());
	struct kv_writer *w;
	struct kv_err e = { 0 };
	json_t *model = json_object();

	(void)state;
	must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
	must(kv_writer_header(w, model, NULL, NULL, &e), &e);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(scratch_count(), before + 1);
	kv_writer_drop(w);
	assert_int_equal(scratch_count(), before);
	json_decref(model);
}

static void
full_disk_and_closed_pipe(void **state)
{
	struct kv_writer *w;
	struct kv_err e = { 0 };
	json_t *model = json_object();
	char path[32];
	int fd[2];

	(void)state;
	must(kv_writer_open(&w, "/dev/full", NULL, NULL, &e), &e);
	assert_int_equal(kv_writer_header(w, model, NULL, NULL, &e), KV_EIO);
	expect_text(&e, "/dev/full: cannot write: No space left on device");
	kv_writer_drop(w);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(fd), 0);
	snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
	must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
	close(fd[0]);
	assert_int_equal(kv_writer_header(w, model, NULL, NULL, &e), KV_EPIPE);
	kv_writer_drop(w);
	close(fd[1]);
	json_decref(model);
}

static void
terminals_and_closed_descriptors(void **state)
{
	int pty = posix_openpt(O_RDWR | O_NOCTTY), status;
	struct kv_writer *w;
	struct kv_err e = { 0 };
	char path[64];
	pid_t pid;

	(void)state;
	if (pty < 0 || grantpt(pty) < 0 || unlockpt(pty) < 0 || ptsname_r(pty, path, sizeof path) != 0)
		skip();
	assert_int_equal(stream_walk(path, true, &e), KV_EIO);
	expect_text(&e, "is a terminal; name a stream's FILE");
	assert_int_equal(kv_writer_open(&w, path, NULL, NULL, &e), KV_EIO);
	expect_text(&e, "is a terminal and streams are binary");
	if ((pid = fork()) == 0) {
		close(STDIN_FILENO);
		close(STDOUT_FILENO);
		_exit(stream_walk("-", true, &e) == KV_EIO && strstr(e.text, "<stdin>: Bad file descriptor") != NULL &&
		        kv_writer_open(&w, "-", NULL, NULL, &e) == KV_EIO && strstr(e.text, "<stdout>: Bad file") != NULL
		    ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pty);
}

/* Parts beyond 4 GiB, by their sizes alone. */
static void
huge_parts(void **state)
{
	const size_t GiB = (size_t)1 << 30, row = 40 * (size_t)131072 * 128 * 2;
	struct kv_parts p;
	struct kv_err e = { 0 };
	size_t total = 0;

	(void)state;
	must(kv_parts_split(&p, 8 * row, row, UINT32_MAX, &e), &e); /* rows of 1.25 GiB: 3 a part */
	assert_int_equal(p.n, 3);
	assert_int_equal(p.size[0], 3 * row);
	assert_int_equal(p.size[2], 2 * row);
	kv_parts_fini(&p);
	must(kv_parts_split(&p, 9 * GiB, 9 * GiB, UINT32_MAX, &e), &e);
	assert_int_equal(p.n, 3);
	for (size_t i = 0; i < p.n; i++)
		total += p.size[i];
	assert_int_equal(total, 9 * GiB);
	kv_parts_fini(&p);
}

/* STREAM.md explains these bytes one by one; its lines are "offset  bytes  words". */
static void
expect_explained(const struct kv_buf *b)
{
	FILE *f = fopen("formats/STREAM.md", "r");
	char line[256], *p, *end;
	size_t at, next = 0, n_lines = 0;
	unsigned long byte;

	if (f == NULL)
		return; /* run from elsewhere than the repository's root */
	while (fgets(line, sizeof line, f) != NULL) {
		at = strtoul(line, &end, 10);
		if (end != line + 6 || strncmp(end, "  ", 2) != 0)
			continue;
		assert_true(n_lines == 0 || at == next);
		for (p = end + 2; p[0] != ' ' && p[0] != '\n'; p = end + (*end == ' ')) {
			byte = strtoul(p, &end, 16);
			assert_int_equal(end - p, 2);
			assert_true(at < b->n);
			assert_int_equal((unsigned char)b->data[at++], byte);
		}
		next = at;
		n_lines++;
	}
	assert_true(n_lines > 40);
	assert_int_equal(next, 200);
	fclose(f);
}

static void
the_hex_dump_is_true(void **state)
{
	static const unsigned char expected[] = {
#include "tests/unit/stream_hex.h"
	};
	const char *path = scratch("hex.kv");
	json_t *model = json_of("{'layers':1}"), *seq = json_of("{'tokens':[1,300]}");
	const float score[2] = { 0.5f, -2.0f };
	struct kv_writer *w;
	struct kv_tensor t;
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	must(kv_tensor_init(&t, "score", 0, KVK_F32, "kv_head token", (size_t[]){ 1, 2 }, &e), &e);
	t.data = score;
	must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
	must(kv_writer_header(w, model, NULL, NULL, &e), &e);
	must(kv_writer_sequence(w, seq, &e), &e);
	must(kv_writer_tensor(w, &t, &e), &e);
	must(kv_writer_close(w, &e), &e);
	must(kv_writer_finish(w, &e), &e);
	b = scratch_read(path);
	assert_int_equal(b.n, sizeof expected);
	assert_memory_equal(b.data, expected, b.n);
	expect_explained(&b);
	kv_buf_fini(&b);
	json_decref(model);
	json_decref(seq);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(file_and_pipe_agree),
		cmocka_unit_test(payloads_are_aligned),
		cmocka_unit_test(parts_are_whole_rows),
		cmocka_unit_test(parts_come_back_whole),
		cmocka_unit_test(empty_tensors_and_sequences),
		cmocka_unit_test(only_and_drop),
		cmocka_unit_test(nothing_is_left_behind),
		cmocka_unit_test(full_disk_and_closed_pipe),
		cmocka_unit_test(terminals_and_closed_descriptors),
		cmocka_unit_test(huge_parts),
		cmocka_unit_test(the_hex_dump_is_true),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
