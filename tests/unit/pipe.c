/* SPDX-License-Identifier: MIT
 * The pipe: steps in order, inputs joined, what nobody touched leaves as it came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/pipe.h"
#include "formats/record.h"
#include "lib/file.h"
#include "tests/lib/streams.h"

/* A filter that changes nothing; its status. */
static int
cat(const char *a, const char *b, const char *output, struct kv_err *e)
{
	char *files[] = { (char *)a, (char *)b, NULL };
	struct kv_pipe_options o = { .files = files, .output = output };
	struct kv_pipe *p = NULL;
	struct kv_step *s;
	int rc = kv_pipe_open(&p, &o, e);

	while (rc == KV_OK && (rc = kv_pipe_next(p, &s, e)) == KV_OK)
		;
	return kv_pipe_finish(p, rc, e);
}

/* The stream's records one after the other, without padding and payloads. */
static struct kv_buf
records(const char *path, bool with_header)
{
	struct kv_buf all = { 0 };
	struct kv_reader *r;
	struct kv_record rec;
	struct kv_err e = { 0 };

	must(kv_reader_open(&r, path, &e), &e);
	while (kv_reader_next(r, &rec, &e) == KV_OK) {
		if (with_header || rec.kind != KV_RECORD_HEADER)
			must(kv_buf_add(&all, rec.raw.data, rec.raw.n, &e), &e);
		kv_record_fini(&rec);
	}
	kv_reader_free(r);
	return all;
}

static void
expect_same(const char *a, const char *b, bool with_header)
{
	struct kv_buf x = records(a, with_header), y = records(b, with_header);

	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.data, y.data, x.n);
	kv_buf_fini(&x);
	kv_buf_fini(&y);
}

/* ---- one input */

static void
unchanged_streams_stay_the_same(void **state)
{
	static const struct sample samples[] = {
		{ .sequences = 2, .layers = 2, .tokens = 5, .logits = true, .id = "first" },
		{ .sequences = 1, .layers = 4, .tokens = 70, .tensors = "k x protect budget", .layer_ends = true },
		{ .sequences = 3, .layers = 0, .tokens = 1 },
		{ 0 },
	};
	const char *in = scratch("in.kv"), *out = scratch("out.kv"), *again = scratch("again.kv");
	struct sample sample;
	struct kv_buf x, y;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < 2 * sizeof samples / sizeof *samples; i++) {
		sample = samples[i / 2];
		sample.part_max = i % 2 ? 24 : 0;
		sample_write(in, &sample);
		must(cat(in, NULL, out, &e), &e);
		must(stream_walk(out, true, &e), &e);
		expect_same(in, out, true);
		/* no history entry was added, so even the files are equal, payloads and padding included */
		x = scratch_read(in);
		y = scratch_read(out);
		assert_int_equal(x.n, y.n);
		assert_memory_equal(x.data, y.data, x.n);
		kv_buf_fini(&x);
		kv_buf_fini(&y);
		must(cat(out, NULL, again, &e), &e);
		expect_same(out, again, true);
	}
}

static void
steps_come_in_order(void **state)
{
	static const struct sample s = { .sequences = 2, .layers = 2, .tokens = 3, .behind = 2, .logits = true };
	static const int layers[] = { 0, 1, KV_NO_LAYER, 0, 1, KV_NO_LAYER };
	char *files[] = { (char *)scratch("in.kv"), NULL };
	struct kv_pipe_options o = { .files = files, .no_output = true, .uses = "k,logits" };
	struct kv_pipe *p;
	struct kv_step *step;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(files[0], &s);
	must(kv_pipe_open(&p, &o, &e), &e);
	assert_int_equal(json_integer_value(json_object_get(kv_pipe_model(p), "layers")), 4);
	assert_int_equal(json_array_size(kv_pipe_history(p)), 1);
	assert_non_null(strstr(kv_pipe_name(p), "in.kv"));
	for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
		must(kv_pipe_next(p, &step, &e), &e);
		assert_int_equal(step->layer, layers[i]);
		assert_int_equal(step->seq->number, i / 3);
		assert_int_equal(step->seq->n_tokens, 5); /* of which two stand behind the prompt */
		assert_int_equal(step->seq->T, 3);
		assert_int_equal(step->seq->tokens[1], 7 + i / 3);
		assert_string_equal(kv_step_at(step, 0)->name, layers[i] < 0 ? "logits" : "k");
		assert_non_null(kv_step_at(step, 0)->data);
		if (layers[i] < 0)
			continue;
		assert_string_equal(kv_step_at(step, 1)->name, "v"); /* described, but not used */
		assert_int_equal(kv_step_find(step, "v")->shape[1], 3);
		assert_null(kv_step_find(step, "v")->data);
		assert_null(kv_step_find(step, "score")->data);
	}
	kv_fail(&e, KV_ESHAPE, "no good");
	kv_step_where(p, step, &e);
	expect_text(&e, "in.kv: sequence 1: no good");
	assert_int_equal(kv_pipe_next(p, &step, &e), KV_END);
	assert_int_equal(kv_pipe_next(p, &step, &e), KV_END);
	assert_int_equal(kv_pipe_finish(p, KV_END, &e), KV_OK);
}

/* A program that adds a tensor, replaces one, and removes one. */
static void
programs_change_steps(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 2, .tokens = 3, .tensors = "k v budget", .layer_ends = 1 };
	char *files[] = { (char *)scratch("in.kv"), NULL };
	char *const argv[] = { "-b", "3" };
	json_t *entry = kv_history_entry("kv-test", "9", 2, argv);
	struct kv_pipe_options o = { .files = files, .output = scratch("out.kv"), .entry = entry, .drop = "v" };
	struct kv_pipe *p;
	struct kv_step *step;
	struct kv_tensor t;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(files[0], &s);
	must(kv_pipe_open(&p, &o, &e), &e);
	while (kv_pipe_next(p, &step, &e) == KV_OK) {
		if (step->layer == KV_NO_LAYER)
			continue;
		must(kv_tensor_new(&t, "score", step->layer, KVK_F32, "kv_head token", (size_t[]){ 2, 3 }, &e), &e);
		((float *)t.owned)[5] = 1.5f;
		must(kv_step_put(step, &t, &e), &e);
		assert_null(t.owned);
		must(kv_tensor_new(&t, "budget", step->layer, KVK_I32, "kv_head", (size_t[]){ 2 }, &e), &e);
		((int32_t *)t.owned)[1] = 77;
		must(kv_step_put(step, &t, &e), &e);
		kv_step_remove(step, "k");
		kv_step_remove(step, "never there");
		must(kv_tensor_new(&t, "score", step->layer + 1, KVK_F32, "", NULL, &e), &e);
		assert_int_equal(kv_step_put(step, &t, &e), KV_EARG);
		kv_tensor_fini(&t);
	}
	must(kv_pipe_finish(p, KV_END, &e), &e);
	json_decref(entry);

	files[0] = (char *)o.output;
	o = (struct kv_pipe_options){ .files = files, .no_output = true };
	must(kv_pipe_open(&p, &o, &e), &e);
	assert_int_equal(json_array_size(kv_pipe_history(p)), 2);
	must(kv_pipe_next(p, &step, &e), &e);
	assert_string_equal(kv_step_at(step, 0)->name, "budget");
	assert_int_equal(((const int32_t *)kv_step_at(step, 0)->data)[1], 77);
	assert_string_equal(kv_step_at(step, 1)->name, "score");
	assert_float_equal(((const float *)kv_step_at(step, 1)->data)[5], 1.5f, 0);
	assert_null(kv_step_at(step, 2));
	kv_pipe_finish(p, KV_END, &e);
}

/* Unknown records of every sort, nils between records, unknown keys, an unknown type: all of it passes, in order. */
static void
unknown_things_pass(void **state)
{
	static const char unknown[] = "\x93\x01\xc4\x02zz\xc1"; /* the last byte is not written */
	static const char payload[] = "\xc0\xc0\xc0\xc4\x05hello";
	static const char *const known[] = {
		"{'kvstream':1,'model':{'layers':2},'color':'red','history':[]}",
		"{'tokens':[1,2],'sequence':0,'mood':{'a':[null,true]}}",
		"{'shape':[7],'tensor':'z','layer':1,'dtype':'u5','bytes':5,'parts':1,'xxh3':'%s','new':1.5}",
		"{'status':'ok','close':0,'seconds':2}",
		"{'end':1,'total':3}",
	};
	const char *in = scratch("in.kv"), *out = scratch("out.kv");
	struct kv_buf b = { 0 };
	struct kv_err e = { 0 };
	char text[256];

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		json_t *map;

		snprintf(text, sizeof text, known[i], "9555e8555c62dcfd"); /* XXH3-64 of "hello" */
		map = json_of(text);
		must(kv_pack_encode(&b, map, &e), &e);
		json_decref(map);
		if (i == 2)
			must(kv_buf_add(&b, payload, sizeof payload - 1, &e), &e);
		if (i < 4) {
			must(kv_buf_add(&b, unknown, sizeof unknown - 2, &e), &e);
			must(kv_buf_add(&b, "\xc0\xc0\xa3" "abc" "\x81\x01\x02", 9, &e), &e);
		}
	}
	scratch_write(in, b.data, b.n);
	must(stream_walk_piped(b.data, b.n, &e), &e);
	must(cat(in, NULL, out, &e), &e);
	expect_same(in, out, true);
	must(stream_walk(out, true, &e), &e);
	kv_buf_fini(&b);
}

static void
damage_is_noticed_on_the_way(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 2, .tokens = 5 };
	const char *in = scratch("in.kv"), *out = scratch("damaged.kv");
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &s);
	b = scratch_read(in);
	b.data[b.n - 40] ^= 1; /* inside the last score */
	scratch_write(in, b.data, b.n);
	assert_int_equal(cat(in, NULL, out, &e), KV_EFORMAT); /* which uses everything */
	expect_text(&e, "in.kv: sequence 0, layer 1, score: the payload was damaged");
	assert_int_equal(access(out, F_OK), -1);
	scratch_write(in, b.data, b.n / 2);
	assert_int_equal(cat(in, NULL, out, &e), KV_EFORMAT);
	expect_text(&e, "cut short");
	assert_int_equal(access(out, F_OK), -1);
	kv_buf_fini(&b);
}

/* ---- several inputs */

static void
zipped_files_equal_the_whole(void **state)
{
	struct sample all = { .sequences = 3, .layers = 3, .tokens = 6, .tensors = "k v score budget", .logits = true };
	struct sample cache = all, budgets = all;
	const char *a = scratch("cache.kv"), *b = scratch("budgets.kv"), *whole = scratch("all.kv"), *out = scratch("zip.kv");
	struct kv_buf x, y;
	struct kv_err e = { 0 };

	(void)state;
	for (int marks = 0; marks < 2; marks++) {
		all.layer_ends = cache.layer_ends = budgets.layer_ends = marks;
		cache.tensors = "k v";
		budgets.tensors = "score budget";
		budgets.logits = false;
		sample_write(whole, &all);
		sample_write(a, &cache);
		sample_write(b, &budgets);
		must(cat(a, b, out, &e), &e);
		x = scratch_read(whole);
		y = scratch_read(out); /* all three name the same program in their history, so it stands there once */
		assert_int_equal(x.n, y.n);
		assert_memory_equal(x.data, y.data, x.n);
		kv_buf_fini(&x);
		kv_buf_fini(&y);
	}
}

/* Inputs that have different layers meet where they can. */
static void
zipped_layers_interleave(void **state)
{
	struct sample some = { .sequences = 1, .layers = 2, .tokens = 3, .tensors = "k" };
	struct sample more = { .sequences = 1, .layers = 4, .tokens = 3, .tensors = "v", .layer_ends = true, .id = "from b" };
	char *files[] = { (char *)scratch("a.kv"), (char *)scratch("b.kv"), NULL };
	struct kv_pipe_options o = { .files = files, .no_output = true };
	struct kv_pipe *p;
	struct kv_step *step;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(files[0], &some);
	sample_write(files[1], &more);
	must(kv_pipe_open(&p, &o, &e), &e);
	for (int l = 0; l < 4; l++) {
		must(kv_pipe_next(p, &step, &e), &e);
		assert_int_equal(step->layer, l);
		assert_int_equal(kv_step_find(step, "k") != NULL, l < 2);
		assert_non_null(kv_step_find(step, "v"));
		assert_string_equal(json_string_value(json_object_get(step->seq->map, "id")), "from b");
	}
	must(kv_pipe_next(p, &step, &e), &e);
	assert_int_equal(step->layer, KV_NO_LAYER);
	assert_int_equal(kv_pipe_next(p, &step, &e), KV_END);
	kv_pipe_finish(p, KV_END, &e);
}

static void
inputs_that_do_not_belong_together(void **state)
{
	static const struct sample base = { .sequences = 2, .layers = 2, .tokens = 4, .tensors = "k", .token0 = 10 };
	static const struct {
		struct sample b;
		int code;
		const char *says[3];
	} rows[] = {
		{ { .sequences = 2, .layers = 2, .tokens = 4, .tensors = "v k", .token0 = 10 }, KV_EMODEL,
		    { "b.kv: sequence 0, layer 0, k: this tensor is in", "a.kv as well" } },
		{ { .sequences = 2, .layers = 2, .tokens = 4, .tensors = "v", .token0 = 11 }, KV_EMODEL,
		    { "sequence 0, token 0: 10 in", "a.kv, 11 in", "b.kv" } },
		{ { .sequences = 2, .layers = 2, .tokens = 5, .tensors = "v", .token0 = 10 }, KV_EMODEL,
		    { "sequence 0: 4 tokens in", "a.kv, 5 in", "b.kv" } },
		{ { .sequences = 1, .layers = 2, .tokens = 4, .tensors = "v", .token0 = 10 }, KV_EMODEL,
		    { "sequence 1 is in", "a.kv and missing in", "b.kv" } },
		{ { .sequences = 3, .layers = 2, .tokens = 4, .tensors = "v", .token0 = 10 }, KV_EMODEL,
		    { "sequence 2 is in", "b.kv and missing in", "a.kv" } },
		{ { .sequences = 2, .layers = 2, .tokens = 4, .tensors = "v", .token0 = 10, .fingerprint = "beef" },
		    KV_EMODEL,
		    { "a.kv and ", "b.kv come from different models", "fingerprint is \"f00d\" and \"beef\"" } },
	};
	const char *a = scratch("a.kv"), *b = scratch("b.kv"), *out = scratch("none.kv");
	struct kv_err e = { 0 };

	(void)state;
	sample_write(a, &base);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		sample_write(b, &rows[i].b);
		assert_int_equal(cat(a, b, out, &e), rows[i].code);
		for (size_t k = 0; k < 3 && rows[i].says[k] != NULL; k++)
			expect_text(&e, rows[i].says[k]);
		assert_int_equal(access(out, F_OK), -1);
	}
	assert_int_equal(cat("-", "-", out, &e), KV_EARG);
	assert_int_equal(cat(a, scratch("missing.kv"), out, &e), KV_EIO);
}

/* A layer whose end is marked is handed out before the next one has been written. */
static void
a_marked_layer_does_not_wait(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 2, .tokens = 3, .tensors = "k", .layer_ends = true };
	char name[32], *files[] = { name, NULL };
	struct kv_pipe_options o = { .files = files, .no_output = true };
	struct kv_pipe *p;
	struct kv_step *step;
	struct kv_buf b;
	struct kv_err e = { 0 };
	const char *mark;
	size_t n;
	int fd[2];

	(void)state;
	sample_write(scratch("in.kv"), &s);
	b = scratch_read(scratch("in.kv"));
	mark = memmem(b.data, b.n, "layer_end\x00", 10);
	assert_non_null(mark);
	n = (size_t)(mark - b.data) + 10;
	assert_int_equal(pipe(fd), 0);
	snprintf(name, sizeof name, "/dev/fd/%d", fd[0]);
	assert_int_equal(write(fd[1], b.data, n), n);
	alarm(10); /* a pipe that waits would wait for ever */
	must(kv_pipe_open(&p, &o, &e), &e);
	must(kv_pipe_next(p, &step, &e), &e);
	assert_int_equal(step->layer, 0);
	assert_int_equal(write(fd[1], b.data + n, b.n - n), b.n - n);
	close(fd[1]);
	must(kv_pipe_next(p, &step, &e), &e);
	must(kv_pipe_next(p, &step, &e), &e);
	assert_int_equal(kv_pipe_next(p, &step, &e), KV_END);
	alarm(0);
	kv_pipe_finish(p, KV_END, &e);
	close(fd[0]);
	kv_buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unchanged_streams_stay_the_same),
		cmocka_unit_test(steps_come_in_order),
		cmocka_unit_test(programs_change_steps),
		cmocka_unit_test(unknown_things_pass),
		cmocka_unit_test(damage_is_noticed_on_the_way),
		cmocka_unit_test(zipped_files_equal_the_whole),
		cmocka_unit_test(zipped_layers_interleave),
		cmocka_unit_test(inputs_that_do_not_belong_together),
		cmocka_unit_test(a_marked_layer_does_not_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
