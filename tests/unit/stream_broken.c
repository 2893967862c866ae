/* SPDX-License-Identifier: MIT
 * Streams that are damaged, cut short, or made to do harm: each is refused with a sentence, at no cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <msgpack.h>

#include "formats/record.h"
#include "tests/lib/streams.h"

static const struct sample two = { .sequences = 2, .layers = 2, .tokens = 5, .token0 = 100, .logits = true };
static const struct sample small = {
	.sequences = 1, .layers = 1, .tokens = 3, .tensors = "k budget", .layer_ends = true,
};

static void
cut_at_every_byte(void **state)
{
	const char *path = scratch("small.kv");
	struct kv_buf b;
	struct kv_err e;

	(void)state;
	sample_write(path, &small);
	b = scratch_read(path);
	for (size_t n = 0; n < b.n; n++) {
		scratch_write(path, b.data, n);
		assert_int_equal(stream_walk(path, true, &e), KV_EFORMAT);
		expect_text(&e, n ? "cut short" : "empty");
		assert_int_equal(stream_walk(path, false, &e), KV_EFORMAT);
		assert_int_equal(stream_walk_piped(b.data, n, &e), KV_EFORMAT);
		expect_text(&e, n ? "cut short" : "empty");
	}
	kv_buf_fini(&b);
}

static void
cut_names_the_place(void **state)
{
	const char *path = scratch("two.kv");
	struct kv_buf b;
	struct kv_err e;

	(void)state;
	sample_write(path, &two);
	b = scratch_read(path);
	/* inside the last payload, logits of the second sequence: close and end records are 20 and 6 bytes */
	assert_int_equal(stream_walk_piped(b.data, b.n - 30, &e), KV_EFORMAT);
	expect_text(&e, ": sequence 1, logits: the stream is cut short inside a payload, after");
	kv_buf_fini(&b);
}

/* Every flip in a payload is found; elsewhere a fault or a clean end, never a crash. */
static void
flip_every_byte(void **state)
{
	const char *path = scratch("small.kv");
	struct kv_buf b;
	struct kv_err e;
	msgpack_unpacked u;
	size_t at = 0;
	char *in_payload;

	(void)state;
	sample_write(path, &small);
	b = scratch_read(path);
	in_payload = calloc(b.n, 1);
	msgpack_unpacked_init(&u);
	while (msgpack_unpack_next(&u, b.data, b.n, &at) == MSGPACK_UNPACK_SUCCESS)
		if (u.data.type == MSGPACK_OBJECT_BIN)
			memset(in_payload + at - u.data.via.bin.size, 1, u.data.via.bin.size);
	msgpack_unpacked_destroy(&u);
	for (size_t i = 0; i < b.n; i++)
		for (int bit = 0; bit < 8; bit += 1) {
			b.data[i] ^= (char)(1 << bit);
			e.code = 0;
			stream_walk_piped(b.data, b.n, &e);
			if (in_payload[i]) {
				assert_int_equal(e.code, KV_EFORMAT);
				expect_text(&e, "damaged");
			}
			if (bit == 0) {
				scratch_write(path, b.data, b.n);
				if (stream_walk(path, true, &e) == KV_OK)
					assert_false(in_payload[i]);
			}
			b.data[i] ^= (char)(1 << bit);
		}
	free(in_payload);
	kv_buf_fini(&b);
}

static void
trailing_bytes(void **state)
{
	const char *path = scratch("small.kv");
	struct kv_buf b;
	struct kv_err e = { 0 };
	size_t n;

	(void)state;
	sample_write(path, &small);
	b = scratch_read(path);
	n = b.n;
	must(kv_buf_add(&b, "\xc0", 1, &e), &e);
	assert_int_equal(stream_walk_piped(b.data, b.n, &e), KV_EFORMAT);
	expect_text(&e, "behind the End record");
	b.n = n;
	must(kv_buf_add(&b, b.data, n, &e), &e);
	assert_int_equal(stream_walk_piped(b.data, b.n, &e), KV_EFORMAT);
	kv_buf_fini(&b);
}

/* ---- hostile input: a header that is fine, then these bytes */

struct hostile {
	const char *name, *bytes;
	size_t n;
	const char *says;
};
#define BYTES(s) s, sizeof(s) - 1

static struct kv_buf
after_header(const char *bytes, size_t n)
{
	struct kv_buf b = { 0 };
	struct kv_err e = { 0 };
	json_t *header = json_of("{'kvstream':1,'model':{'layers':4},'history':[]}");

	must(kv_pack_encode(&b, header, &e), &e);
	must(kv_buf_add(&b, bytes, n, &e), &e);
	json_decref(header);
	return b;
}

/* An empty map is one byte, and a hundred times that when it is decoded. */
static void
many_empty_maps(void **state)
{
	const size_t n = 200000;
	struct kv_buf b = after_header("\xdd\x00\x03\x0d\x40", 5); /* an array of n */
	char *maps = malloc(n);
	struct kv_err e;

	(void)state;
	memset(maps, 0x80, n);
	must(kv_buf_add(&b, maps, n, &e), &e);
	scratch_write(scratch("maps.kv"), b.data, b.n);
	assert_int_equal(stream_walk(scratch("maps.kv"), true, &e), KV_EFORMAT);
	expect_text(&e, "a map or an array as 16");
	kv_buf_fini(&b);
	free(maps);
}

static void
bombs(void **state)
{
	static const struct hostile rows[] = {
		{ "array32", BYTES("\xdd\xff\xff\xff\xff"), "elements" },
		{ "map32", BYTES("\xdf\xff\xff\xff\xff"), "elements" },
		{ "str32", BYTES("\xdb\xff\xff\xff\xff"), "bytes" },
		{ "bin32", BYTES("\xc6\xff\xff\xff\xff"), "bytes" },
		{ "ext32", BYTES("\xc9\xff\xff\xff\xff\x01"), "bytes" },
		{ "array in map", BYTES("\x81\xa1x\xdd\x00\x10\x00\x00"), "cut short" },
		{ "unused byte", BYTES("\xc1"), "0xc1" },
	};
	struct timespec start, end;
	struct rusage before, after;
	struct kv_buf b;
	struct kv_err e;
	char *nested = malloc(1000000);

	(void)state;
	memset(nested, 0x91, 1000000);
	getrusage(RUSAGE_SELF, &before);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		b = after_header(rows[i].bytes, rows[i].n);
		assert_int_equal(stream_walk_piped(b.data, b.n, &e), KV_EFORMAT);
		expect_text(&e, rows[i].says);
		kv_buf_fini(&b);
		scratch_write(scratch("bomb.kv"), rows[i].bytes, rows[i].n); /* as the very first bytes too */
		assert_int_equal(stream_walk(scratch("bomb.kv"), true, &e), KV_EFORMAT);
	}
	b = after_header(nested, 1000000);
	scratch_write(scratch("bomb.kv"), b.data, b.n);
	assert_int_equal(stream_walk(scratch("bomb.kv"), true, &e), KV_EFORMAT);
	expect_text(&e, "nested");
	clock_gettime(CLOCK_MONOTONIC, &end);
	getrusage(RUSAGE_SELF, &after);
	assert_true(end.tv_sec - start.tv_sec <= 1);
	assert_true(after.ru_maxrss - before.ru_maxrss < 32 << 10); /* KiB */
	free(nested);
	kv_buf_fini(&b);
}

#define REFERENCE(map) "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'xxh3':'0123456789abcdef','reference':" map

/* Records in JSON with ' for ", one a line, after a good header and the opening of a sequence; what the fault says. */
static void
records_that_lie(void **state)
{
	static const char sum[] = "'bytes':4,'parts':1,'xxh3':'0123456789abcdef'}";
	static const struct {
		const char *record, *says;
	} rows[] = {
		{ "{'kvstream':1,'model':{}}", "second header" },
		{ "{'sequence':1,'tokens':[]}", "before this one is closed" },
		{ "{'close':1,'status':'ok'}", "key 'close' is 1, expected 0" },
		{ "{'close':0}", "key 'status'" },
		{ "{'close':0,'status':'no GPU'}", "failed in the program that wrote it: no GPU" },
		{ "{'end':0}", "before this sequence is closed" },
		{ "{'end':1,'close':0}", "several records at once" },
		{ "{'layer_end':4}", "layer 4 of a model with 4 layers" },
		{ "{'layer_end':'x'}", "not an integer" },
		{ "{'tensor':'k','layer':4,'dtype':'f32','shape':[1],", "layer 4 of a model with 4 layers" },
		{ "{'tensor':'k','layer':-1,'dtype':'f32','shape':[1],", "key 'layer' is -1" },
		{ "{'tensor':'k','layer':1.5,'dtype':'f32','shape':[1],", "key 'layer' is not an integer" },
		{ "{'tensor':7,'layer':1,'dtype':'f32','shape':[1],", "key 'tensor'" },
		{ "{'tensor':'','layer':1,'dtype':'f32','shape':[1],", "key 'tensor'" },
		{ "{'tensor':'a b','layer':1,'dtype':'f32','shape':[1],", "no name may have" },
		{ "{'tensor':'k','layer':1,'shape':[1],", "key 'dtype' is missing" },
		{ "{'tensor':'k','layer':1,'dtype':'f32',", "key 'shape'" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[-1],", "size 0 of 'shape'" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[1.0],", "size 0 of 'shape'" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[2],", "2 elements of f32 do not make 4 bytes" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[4294967296,4294967296],", "more elements" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[1,1,1,1,1],", "at most 4" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[1],'axes':['a','b'],", "key 'axes'" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[1],'axes':[1],", "key 'axes'" },
		{ "{'tensor':'k','layer':1,'dtype':'f32','shape':[1],'attrs':[],", "key 'attrs'" },
		{ "{'tensor':'k','dtype':'q4_0','shape':[31],", "do not make" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':0,'xxh3':'0123456789abcdef'}", "key 'parts' is 0" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':5,'xxh3':'0123456789abcdef'}", "key 'parts' is 5" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':1,'xxh3':'0123'}", "key 'xxh3'" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':1}", "key 'xxh3'" },
		{ "{'tensor':'k','dtype':'new','shape':[1],'bytes':1099511627776,'parts':1,'xxh3':'0123456789abcdef'}",
		    "do not fit 1 parts" },
		{ REFERENCE("{'path':'/x','offset':0}") ",'parts':1}", "key 'parts' is 1" },
		{ REFERENCE("{'path':'x','offset':0}") ",'parts':0}", "not an absolute path" },
		{ REFERENCE("{'path':7,'offset':0}") ",'parts':0}", "not an absolute path" },
		{ REFERENCE("{'path':'/x'}") ",'parts':0}", "key 'offset' is missing" },
		{ REFERENCE("{'path':'/x','offset':-1}") ",'parts':0}", "key 'offset' is -1" },
		{ REFERENCE("{'path':'/x','offset':9223372036854775804}") ",'parts':0}", "key 'offset' is 9223372036854775804" },
		{ REFERENCE("{'path':'/x','offset':1,'memory':true,'stamp':1}") ",'parts':0}", "key 'offset' is 1" },
		{ REFERENCE("{'path':'/x','offset':65,'memory':true,'stamp':1}") ",'parts':0}", "no multiple of 64" },
		{ REFERENCE("{'path':'/x','offset':64,'memory':true}") ",'parts':0}", "key 'stamp' is missing" },
		{ REFERENCE("{'path':'/x','offset':64,'memory':true,'stamp':0}") ",'parts':0}", "key 'stamp' is 0" },
		{ REFERENCE("{'path':'/x','offset':0}") ",'parts':0}", "key 'size' is missing" },
		{ REFERENCE("{'path':'/x','offset':0,'size':9}") ",'parts':0}", "key 'mtime_ns' is missing" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':0,'xxh3':null,'reference':"
		  "{'path':'/x','offset':0,'size':9,'mtime_ns':9}}", "key 'xxh3' is not a checksum" },
		{ "{'tensor':'k','dtype':'f32','shape':[1],'bytes':4,'parts':1,'xxh3':null}", "key 'xxh3' is not a checksum" },
		{ REFERENCE("{'path':'/x','offset':0,'memory':1}") ",'parts':0}", "neither true nor false" },
		{ REFERENCE("{'path':'/x','offset':0,'size':4,'mtime_ns':0,'device':'cuda:0'}") ",'parts':0}", "name of a device" },
		{ REFERENCE("{'path':'/x','offset':64,'memory':true,'stamp':1,'device':0}") ",'parts':0}", "name of a device" },
		{ REFERENCE("{'path':'/x','offset':64,'memory':true,'stamp':1,'device':'a b'}") ",'parts':0}", "name of a device" },
		{ REFERENCE("[]") ",'parts':0}", "not a map" },
	};
	struct kv_buf b, tail;
	struct kv_err e = { 0 };
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *open = json_of("{'sequence':0,'tokens':[5]}"), *rec;
		size_t n = strlen(rows[i].record);

		snprintf(text, sizeof text, "%s%s", rows[i].record, rows[i].record[n - 1] == ',' ? sum : "");
		rec = json_of(text);
		tail = (struct kv_buf){ 0 };
		must(kv_pack_encode(&tail, open, &e), &e);
		must(kv_pack_encode(&tail, rec, &e), &e);
		b = after_header(tail.data, tail.n);
		assert_true(stream_walk_piped(b.data, b.n, &e) < 0);
		expect_text(&e, rows[i].says);
		expect_text(&e, "sequence 0");
		scratch_write(scratch("lie.kv"), b.data, b.n);
		assert_true(stream_walk(scratch("lie.kv"), true, &e) < 0);
		kv_buf_fini(&b);
		kv_buf_fini(&tail);
		json_decref(open);
		json_decref(rec);
	}
}

/* The same, as MessagePack that JSON cannot say. */
static void
maps_that_no_record_has(void **state)
{
	static const struct hostile rows[] = {
		{ "key twice", BYTES("\x83\xa8sequence\x00\xa6tokens\x90\xa6tokens\x90"), "key 'tokens' stands twice" },
		{ "key no string", BYTES("\x83\xa8sequence\x00\xa6tokens\x90\x01\x90"), "not a string" },
		{ "NaN", BYTES("\x83\xa8sequence\x00\xa6tokens\x90\xa1x\xca\x7f\xc0\x00\x00"), "not finite" },
		{ "bin inside", BYTES("\x83\xa8sequence\x00\xa6tokens\x90\xa1x\xc4\x01z"), "bin or ext" },
		{ "2^64-1", BYTES("\x83\xa8sequence\x00\xa6tokens\x90\xa1x\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), "2^63-1" },
		{ "token not integer", BYTES("\x82\xa8sequence\x00\xa6tokens\x91\xa1x"), "token 0" },
		{ "token below 0", BYTES("\x82\xa8sequence\x00\xa6tokens\x92\x01\xff"), "token 1" },
		{ "no tokens", BYTES("\x81\xa8sequence\x00"), "key 'tokens'" },
		{ "prompt too long", BYTES("\x83\xa8sequence\x00\xa6tokens\x91\x01\xadprompt_length\x02"), "key 'prompt_length'" },
		{ "not the first", BYTES("\x82\xa8sequence\x01\xa6tokens\x90"), "key 'sequence' is 1" },
		{ "tensor outside", BYTES("\x81\xa6tensor\xa1k"), "outside of any sequence" },
		{ "close outside", BYTES("\x81\xa5" "close\x00"), "none is open" },
		{ "end of one", BYTES("\x81\xa3" "end\x01"), "key 'end' is 1" },
	};
	struct kv_buf b;
	struct kv_err e;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		b = after_header(rows[i].bytes, rows[i].n);
		assert_int_equal(stream_walk_piped(b.data, b.n, &e), KV_EFORMAT);
		expect_text(&e, rows[i].says);
		kv_buf_fini(&b);
	}
}

static void
headers(void **state)
{
	static const struct {
		const char *header, *says;
	} rows[] = {
		{ "{'kvstream':2,'model':{}}", "stream version 2; this program reads version 1" },
		{ "{'kvstream':'1','model':{}}", "not an integer" },
		{ "{'kvstream':1}", "key 'model'" },
		{ "{'kvstream':1,'model':{'layers':0}}", "key 'layers'" },
		{ "{'kvstream':1,'model':{},'history':{}}", "key 'history'" },
		{ "{'other':1}", "not a kvtools stream" },
		{ "[1]", "not a kvtools stream" },
	};
	const char *path = scratch("header.kv");
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *header = json_of(rows[i].header);

		b = (struct kv_buf){ 0 };
		must(kv_pack_encode(&b, header, &e), &e);
		scratch_write(path, b.data, b.n);
		assert_int_equal(stream_walk(path, true, &e), KV_EFORMAT);
		expect_text(&e, rows[i].says);
		kv_buf_fini(&b);
		json_decref(header);
	}
	scratch_write(path, "GGUF\x03", 5);
	assert_int_equal(stream_walk(path, true, &e), KV_EFORMAT);
	expect_text(&e, "GGUF model");
	assert_int_equal(stream_walk("/tmp", true, &e), KV_EIO);
	expect_text(&e, "/tmp: is a directory");
	assert_int_equal(stream_walk(scratch("missing.kv"), true, &e), KV_EIO);
	expect_text(&e, "No such file");
}

/* Tensors out of order, written by hand through the raw door. */
static void
order_of_layers(void **state)
{
	static const struct {
		const char *tensors, *says; /* name and layer digit; "-": no layer; "e": layer_end */
	} rows[] = {
		{ "k0 v0 k2 v2 x-", NULL },
		{ "k0 e0 k1 e1 x-", NULL },
		{ "k0 k0", "two tensors of that name" },
		{ "x- x-", "two tensors of that name" },
		{ "k1 k0", "not at its place" },
		{ "x- k0", "not at its place" },
		{ "k0 e0 v0", "not at its place" },
		{ "k0 k1 v0", "not at its place" },
	};
	const char *path = scratch("order.kv");
	struct kv_writer *w;
	struct kv_tensor t;
	struct kv_err e = { 0 };
	json_t *model = json_of("{'layers':3}"), *seq = json_of("{'tokens':[1]}");

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
		must(kv_writer_header(w, model, NULL, NULL, &e), &e);
		must(kv_writer_sequence(w, seq, &e), &e);
		for (const char *p = rows[i].tensors; *p != '\0'; p += p[2] ? 3 : 2) {
			char name[2] = { p[0], 0 };
			int layer = p[1] == '-' ? KV_NO_LAYER : p[1] - '0';

			if (p[0] == 'e') {
				must(kv_writer_layer_end(w, layer, &e), &e);
				continue;
			}
			must(kv_tensor_new(&t, name, layer, KVK_F32, "token", (size_t[]){ 1 }, &e), &e);
			must(kv_writer_tensor(w, &t, &e), &e);
			kv_tensor_fini(&t);
		}
		must(kv_writer_close(w, &e), &e);
		must(kv_writer_finish(w, &e), &e);
		assert_int_equal(stream_walk(path, true, &e), rows[i].says ? KV_EFORMAT : KV_OK);
		if (rows[i].says != NULL)
			expect_text(&e, rows[i].says);
	}
	json_decref(model);
	json_decref(seq);
}

/* A pipe that announces 1 TiB gets no memory for it. */
static void
a_lie_about_size_costs_nothing(void **state)
{
	static const char text[] = "{'tensor':'k','dtype':'new','shape':[1],'bytes':1099511627776,'parts':400,"
	                           "'xxh3':'0123456789abcdef'}";
	json_t *open = json_of("{'sequence':0,'tokens':[5]}"), *rec = json_of(text);
	struct rlimit old, limit;
	struct kv_buf tail = { 0 }, b;
	struct kv_err e = { 0 };

	(void)state;
	must(kv_pack_encode(&tail, open, &e), &e);
	must(kv_pack_encode(&tail, rec, &e), &e);
	must(kv_buf_add(&tail, "\xc6\xff\xff\xff\xffhello", 10, &e), &e);
	b = after_header(tail.data, tail.n);
	getrlimit(RLIMIT_DATA, &old);
	limit = old;
#ifndef __SANITIZE_ADDRESS__
	limit.rlim_cur = (rlim_t)48 << 20;
#endif
	setrlimit(RLIMIT_DATA, &limit);
	assert_int_equal(stream_walk_piped(b.data, b.n, &e), KV_EFORMAT);
	setrlimit(RLIMIT_DATA, &old);
	expect_text(&e, "sequence 0, k: the stream is cut short inside a payload");
	scratch_write(scratch("lie.kv"), b.data, b.n);
	assert_int_equal(stream_walk(scratch("lie.kv"), true, &e), KV_EFORMAT);
	expect_text(&e, "cut short");
	kv_buf_fini(&tail);
	kv_buf_fini(&b);
	json_decref(open);
	json_decref(rec);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_at_every_byte),
		cmocka_unit_test(cut_names_the_place),
		cmocka_unit_test(flip_every_byte),
		cmocka_unit_test(trailing_bytes),
		cmocka_unit_test(many_empty_maps),
		cmocka_unit_test(bombs),
		cmocka_unit_test(records_that_lie),
		cmocka_unit_test(maps_that_no_record_has),
		cmocka_unit_test(headers),
		cmocka_unit_test(order_of_layers),
		cmocka_unit_test(a_lie_about_size_costs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
