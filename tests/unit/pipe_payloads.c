/* SPDX-License-Identifier: MIT
 * The pipe: tensors that a program does not use, steps that are held, tensors with other names. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/pipe.h"
#include "lib/file.h"
#include "tests/lib/streams.h"

static const struct sample small = {
	.sequences = 2, .layers = 3, .tokens = 6, .tensors = "k v score budget", .logits = true
};
/* Payloads that are too large to wait in memory: k and v have 1,056,000 bytes. */
static const struct sample large = {
	.sequences = 2, .layers = 2, .tokens = 66000, .tensors = "score k v", .layer_ends = true
};

struct how {
	const char *uses;
	bool piped, held; /* piped: the input is a pipe */
	bool out_piped, keeps;
};

/* The file comes as a pipe: its bytes wait there, or, where they are too many, cat is our child. */
struct piped {
	char name[32]; /* to be opened */
	FILE *f;
	bool is_child;
};

static void
piped_open(struct piped *p, const char *path)
{
	struct kv_buf b = scratch_read(path);
	char command[256];
	int ends[2];

	p->is_child = b.n > 65536;
	if (!p->is_child) {
		assert_int_equal(pipe(ends), 0);
		assert_int_equal(write(ends[1], b.data, b.n), b.n);
		close(ends[1]);
		p->f = fdopen(ends[0], "r");
	} else {
		snprintf(command, sizeof command, "cat '%s'", path);
		p->f = popen(command, "re");
	}
	assert_non_null(p->f);
	snprintf(p->name, sizeof p->name, "/dev/fd/%d", fileno(p->f));
	kv_buf_fini(&b);
}

static void
piped_close(struct piped *p)
{
	if (p->is_child)
		pclose(p->f);
	else
		fclose(p->f);
}

typedef int each_step(struct kv_pipe *p, struct kv_step *s, struct kv_err *e);

/* Everything through a pipe; each is called for every step. */
static int
filter(const char *in, const char *out, const struct how *how, each_step *each, struct kv_err *e)
{
	char *files[] = { (char *)in, NULL };
	struct kv_pipe_options o = { .files = files, .output = out, .uses = how->uses };
	char command[256], sink[32];
	FILE *cat = NULL;
	struct kv_step *s, *held;
	struct kv_pipe *p = NULL;
	struct piped pipe;
	size_t n;
	int rc;

	if (how->piped) {
		piped_open(&pipe, in);
		files[0] = pipe.name;
	}
	if (how->out_piped) {
		snprintf(command, sizeof command, "cat > '%s'", out);
		assert_non_null(cat = popen(command, "we"));
		snprintf(sink, sizeof sink, "/dev/fd/%d", fileno(cat));
		o.output = sink;
	}
	if (how->keeps)
		o.keeps = how->uses != NULL ? how->uses : "*";
	rc = kv_pipe_open(&p, &o, e);
	while (rc == KV_OK) {
		if (how->held && (rc = kv_pipe_hold(p, &held, &n, e)) != KV_OK)
			break;
		do {
			if ((rc = kv_pipe_next(p, &s, e)) == KV_OK && each != NULL)
				rc = each(p, s, e);
		} while (rc == KV_OK && s->layer != KV_NO_LAYER);
	}
	rc = kv_pipe_finish(p, rc, e);
	if (how->piped)
		piped_close(&pipe);
	if (how->out_piped)
		pclose(cat);
	return rc;
}

static void
expect_same_bytes(const char *a, const char *b)
{
	struct kv_buf x = scratch_read(a), y = scratch_read(b);

	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.data, y.data, x.n);
	kv_buf_fini(&x);
	kv_buf_fini(&y);
}

/* ---- what is not used */

/* Whatever is used, by whatever way it comes, held or not: without a change the output is the input. */
static void
what_is_not_used_passes(void **state)
{
	static const char *const uses[] = { "k", "score", NULL, "v", "budget", "score,bud*", "nothing" };
	static const struct sample *const samples[] = { &small, &large };
	const char *in = scratch("in.kv"), *out = scratch("out.kv");
	struct sample sample;
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		sample = *samples[i / 2];
		sample.part_max = i % 2 == 0 ? 0 : i == 1 ? 24 : 500000;
		sample_write(in, &sample);
		for (size_t k = 0; k < 16 * (i < 2 ? sizeof uses / sizeof *uses : 3); k++) {
			const struct how how = { uses[k / 16], k & 1, k & 2, k & 4, k & 8 };

			must(filter(in, out, &how, NULL, &e), &e);
			expect_same_bytes(in, out);
		}
	}
}

static int
look(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	const struct kv_tensor *k = kv_step_find(s, "k"), *score = kv_step_find(s, "score");
	struct kv_tensor t;

	(void)p;
	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	assert_non_null(k);
	assert_int_equal(k->shape[2], 4);
	assert_null(k->data);
	assert_non_null(score->data);
	must(kv_tensor_new(&t, "k", s->layer, KVK_I32, "", NULL, e), e);
	assert_int_equal(kv_step_put(s, &t, e), KV_EARG); /* it may have left already */
	expect_text(e, "'k' is not among those that are used");
	kv_tensor_fini(&t);
	kv_step_remove(s, "score");
	return KV_OK;
}

static void
what_is_not_used_has_no_data(void **state)
{
	const char *in = scratch("in.kv"), *out = scratch("out.kv"), *want = scratch("want.kv");
	struct sample without = small;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &small);
	without.tensors = "k v budget";
	sample_write(want, &without);
	for (unsigned i = 0; i < 4; i++) {
		const struct how how = { "score", i & 1, .held = i & 2 };

		must(filter(in, out, &how, look, &e), &e);
		expect_same_bytes(want, out);
	}
}

/* Pages of our memory [n] that are there. */
static size_t
pages_present(const void *at, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at / page, present = 0;
	FILE *f = fopen("/proc/self/pagemap", "re");
	uint64_t entry;

	assert_non_null(f);
	for (size_t i = 0; i < n / page; i++) {
		assert_int_equal(fseek(f, (long)((first + i) * sizeof entry), SEEK_SET), 0);
		assert_int_equal(fread(&entry, sizeof entry, 1, f), 1);
		present += entry >> 63;
	}
	fclose(f);
	return present;
}

/* Of a mapped file, payloads that are neither used nor written are not even looked at: v stands behind k. */
static void
what_nobody_wants_is_not_read(void **state)
{
	static const char *const only[] = { "score", NULL };
	const char *in = scratch("in.kv"), *out = scratch("out.kv");
	char *files[] = { (char *)in, NULL };
	struct kv_pipe_options o = { .files = files, .output = out, .uses = "k", .keeps = "k" };
	const struct kv_tensor *k;
	struct kv_pipe *p;
	struct kv_step *s;
	struct kv_err e = { 0 };
	size_t n_v;

	(void)state;
	sample_write(in, &large);
	for (size_t i = 0; i < 2; i++) {
		o.only = only[i];
		must(kv_pipe_open(&p, &o, &e), &e);
		must(kv_pipe_next(p, &s, &e), &e);
		k = kv_step_find(s, "k");
		assert_in_range(pages_present(k->data, k->bytes), k->bytes / 4096 - 1, k->bytes / 4096);
		/* v has 257 pages; the system brings some around the ends */
		n_v = pages_present((const char *)k->data + k->bytes, k->bytes);
		assert_in_range(n_v, 0, only[i] != NULL ? 40 : 257);
		must(kv_pipe_finish(p, KV_END, &e), &e);
	}
}

/* A checksum is compared where the bytes are looked at; what passes, passes with the checksum it came with. */
static void
damage_is_noticed_by_who_looks(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 2, .tokens = 50, .tensors = "k v score" };
	const char *in = scratch("in.kv"), *out = scratch("none.kv");
	static const char *const uses[] = { "k", "v", "x" };
	struct kv_buf b;
	struct kv_err e = { 0 };
	char *v;

	(void)state;
	sample_write(in, &s);
	b = scratch_read(in);
	v = memmem(b.data, b.n, "tensor\xa1v\xa5layer\x01", 15);
	assert_non_null(v);
	v[400] ^= 1; /* behind the record's 150 bytes or so, in a payload of 800 */
	scratch_write(in, b.data, b.n);
	for (size_t i = 0; i < 8 * sizeof uses / sizeof *uses; i++) {
		const struct how how = { uses[i / 8], i & 1, i & 2, .keeps = i & 4 };

		if (how.uses[0] == 'v') {
			assert_int_equal(filter(in, out, &how, NULL, &e), KV_EFORMAT);
		} else {
			must(filter(in, out, &how, NULL, &e), &e);
			expect_same_bytes(in, out);
			assert_int_equal(stream_walk(out, true, &e), KV_EFORMAT);
			unlink(out);
		}
		expect_text(&e, "sequence 0, layer 1, v: the payload was damaged");
		assert_int_equal(access(out, F_OK), -1);
	}
	kv_buf_fini(&b);
}

static int
replace_kept(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	struct kv_tensor t;
	int rc;

	(void)p;
	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	assert_non_null(kv_step_find(s, "k")->data);
	must(kv_tensor_new(&t, "k", s->layer, KVK_I32, "", NULL, e), e);
	if ((rc = kv_step_put(s, &t, e)) < 0)
		kv_tensor_fini(&t);
	return rc;
}

static void
what_is_kept_cannot_be_replaced(void **state)
{
	const char *in = scratch("in.kv"), *out = scratch("none.kv");
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &small);
	for (unsigned i = 0; i < 2; i++) {
		const struct how how = { "k", .piped = i, .keeps = true };

		assert_int_equal(filter(in, out, &how, replace_kept, &e), KV_EARG);
		expect_text(&e, "'k' is not among those that are used and not kept");
	}
}

/* A stream that ends anywhere is refused, whatever becomes of its payloads. */
static void
cut_streams_are_refused(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 1, .tokens = 6, .tensors = "k score v" };
	const char *in = scratch("in.kv"), *cut = scratch("cut.kv"), *out = scratch("none.kv");
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &s);
	b = scratch_read(in);
	for (size_t n = 0; n < b.n; n++) {
		const struct how how = { n & 4 ? "score" : "k", n & 1, .held = n & 2 };

		scratch_write(cut, b.data, n);
		assert_int_equal(filter(cut, out, &how, NULL, &e), KV_EFORMAT);
		expect_text(&e, n > 0 ? "cut short" : "empty");
		assert_int_equal(access(out, F_OK), -1);
	}
	kv_buf_fini(&b);
}

/* ---- steps that are held */

/* A value of the last layer, spooled and mapped, goes into the first. */
static void
held_steps_are_all_there(void **state)
{
	const char *in = scratch("in.kv"), *out = scratch("none.kv");
	struct piped pipe;
	char *files[] = { pipe.name, NULL };
	struct kv_pipe_options o = { .files = files, .output = out, .uses = "k,new" };
	struct kv_pipe *p;
	struct kv_step *held, *s, *again;
	struct kv_tensor t;
	struct kv_err e = { 0 };
	size_t n, m;

	(void)state;
	sample_write(in, &large);
	piped_open(&pipe, in);
	must(kv_pipe_open(&p, &o, &e), &e);
	assert_int_equal(kv_pipe_hold(p, &held, &n, &e), KV_OK);
	assert_int_equal(n, 3);
	assert_int_equal(held[0].seq->number, 0);
	assert_int_equal(held[2].layer, KV_NO_LAYER);
	must(kv_tensor_new(&t, "new", 0, KVK_U8, "x", (size_t[]){ 1 }, &e), &e);
	((uint8_t *)t.owned)[0] = ((const uint8_t *)kv_step_find(&held[1], "k")->data)[1000000];
	must(kv_step_put(&held[0], &t, &e), &e);
	must(kv_pipe_next(p, &s, &e), &e);
	assert_ptr_equal(s, &held[0]);
	assert_int_equal(kv_pipe_hold(p, &again, &m, &e), KV_EARG); /* in the middle */
	assert_int_equal(kv_pipe_finish(p, KV_EARG, &e), KV_EARG);
	piped_close(&pipe);
	assert_int_equal(access(out, F_OK), -1);
}

static int
mark(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	struct kv_tensor t;

	(void)p;
	must(kv_tensor_new(&t, "new", s->layer, KVK_U8, "x", (size_t[]){ 1 }, e), e);
	return kv_step_put(s, &t, e);
}

static void
held_steps_can_be_changed(void **state)
{
	const char *in = scratch("in.kv"), *a = scratch("plain.kv"), *b = scratch("held.kv");
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &large);
	must(filter(in, a, &(struct how){ "score", .piped = false }, mark, &e), &e);
	for (unsigned piped = 0; piped < 2; piped++) {
		must(filter(in, b, &(struct how){ "score", piped, .held = true }, mark, &e), &e);
		expect_same_bytes(a, b);
	}
}

/* A folder that is missing, and one that is full: here a limit stands for the disk's. */
static void
tmpdir_is_named(void **state)
{
	const char *in = scratch("in.kv"), *out = scratch("none.kv"), *before = getenv("TMPDIR");
	struct rlimit limit, was;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &large);
	setenv("TMPDIR", "/no/such/folder", 1);
	assert_int_equal(filter(in, out, &(struct how){ "score", true, .held = true }, NULL, &e), KV_EIO);
	expect_text(&e, "$TMPDIR (/no/such/folder): No such file or directory");
	must(filter(in, out, &(struct how){ "score", .held = true }, NULL, &e), &e); /* a mapped file needs none */
	unlink(out);
	unsetenv("TMPDIR");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	limit = was;
	limit.rlim_cur = 2000000;
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(filter(in, out, &(struct how){ "score", true, .held = true }, NULL, &e), KV_EIO);
	setrlimit(RLIMIT_FSIZE, &was);
	expect_text(
	    &e, "$TMPDIR (/tmp): File too large, with 2 MB of keys and values there; set TMPDIR to a folder with room");
	assert_int_equal(access(out, F_OK), -1);
	if (before != NULL)
		setenv("TMPDIR", before, 1);
}

/* ---- tensors with other names */

static int
names_of(struct kv_pipe *p, struct kv_step *s, struct kv_err *e)
{
	(void)p;
	(void)e;
	if (s->layer == KV_NO_LAYER)
		return KV_OK;
	assert_string_equal(kv_step_at(s, 0)->name, "k");
	assert_string_equal(kv_step_at(s, 1)->name, "score.b");
	assert_non_null(kv_step_at(s, 1)->attrs);
	assert_string_equal(kv_step_at(s, 2)->name, "old");
	return KV_OK;
}

static void
tensors_get_other_names(void **state)
{
	static const struct sample s = { .sequences = 1, .layers = 2, .tokens = 5, .tensors = "k score budget" };
	const char *in = scratch("in.kv"), *out = scratch("out.kv"), *back = scratch("back.kv");
	char operand[256];
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &s);
	snprintf(operand, sizeof operand, "%s:score=score.b,budget=old", in);
	for (unsigned held = 0; held < 2; held++) {
		must(filter(operand, out, &(struct how){ .uses = "score.*", .held = held }, names_of, &e), &e);
		snprintf(operand, sizeof operand, "%s:score.b=score,old=budget", out);
		must(filter(operand, back, &(struct how){ 0 }, NULL, &e), &e);
		expect_same_bytes(in, back);
		snprintf(operand, sizeof operand, "%s:score=score.b,budget=old", in);
	}
	/* a file of the whole name comes first, and its tensors keep theirs */
	scratch_write(scratch("a.kv:score=x"), "", 0);
	assert_int_equal(filter(scratch("a.kv:score=x"), out, &(struct how){ 0 }, NULL, &e), KV_EFORMAT);
	expect_text(&e, "a.kv:score=x: empty");
}

static void
names_that_cannot_be(void **state)
{
	static const struct {
		const char *renamings;
		int code;
		const char *says;
	} rows[] = {
		{ "score=", KV_EARG, "in.kv: expected FILE:tensor=newname, found ':score='" },
		{ "=b", KV_EARG, "expected FILE:tensor=newname" },
		{ "score=a=b", KV_EARG, "expected FILE:tensor=newname" },
		{ "score=a,", KV_EARG, "expected FILE:tensor=newname" },
		{ "score=a,k", KV_EARG, "expected FILE:tensor=newname" },
		{ "score=a b", KV_EARG, "expected FILE:tensor=newname" },
		{ "score=k", KV_EMODEL, "in.kv: sequence 0, layer 0, k: this tensor is in" },
		{ "scroe=a", KV_EFORMAT, "in.kv: no tensor scroe, which was to be renamed" },
	};
	const char *in = scratch("in.kv"), *out = scratch("none.kv");
	char operand[256];
	struct kv_err e = { 0 };

	(void)state;
	sample_write(in, &small);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(operand, sizeof operand, "%s:%s", in, rows[i].renamings);
		assert_int_equal(filter(operand, out, &(struct how){ 0 }, NULL, &e), rows[i].code);
		expect_text(&e, rows[i].says);
		assert_int_equal(access(out, F_OK), -1);
	}
}

/* Two streams that both have a score join when one of them calls it something else. */
static void
names_that_would_clash(void **state)
{
	static const struct sample a = { .sequences = 1, .layers = 2, .tokens = 5, .tensors = "k score" };
	static const struct sample b = { .sequences = 1, .layers = 2, .tokens = 5, .tensors = "score" };
	const char *first = scratch("a.kv"), *second = scratch("b.kv");
	char operand[256], *files[] = { (char *)first, operand, NULL };
	struct kv_pipe_options o = { .files = files, .no_output = true };
	struct kv_pipe *p;
	struct kv_step *s;
	struct kv_err e = { 0 };

	(void)state;
	sample_write(first, &a);
	sample_write(second, &b);
	snprintf(operand, sizeof operand, "%s", second);
	must(kv_pipe_open(&p, &o, &e), &e);
	assert_int_equal(kv_pipe_next(p, &s, &e), KV_EMODEL);
	expect_text(&e, "or rename it: FILE:score=NEWNAME");
	kv_pipe_finish(p, KV_EMODEL, NULL);
	snprintf(operand, sizeof operand, "%s:score=score.b", second);
	must(kv_pipe_open(&p, &o, &e), &e);
	must(kv_pipe_next(p, &s, &e), &e);
	assert_non_null(kv_step_find(s, "score")->data);
	assert_non_null(kv_step_find(s, "score.b")->data);
	kv_pipe_finish(p, KV_END, NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_used_passes),
		cmocka_unit_test(what_is_not_used_has_no_data),
		cmocka_unit_test(what_nobody_wants_is_not_read),
		cmocka_unit_test(damage_is_noticed_by_who_looks),
		cmocka_unit_test(what_is_kept_cannot_be_replaced),
		cmocka_unit_test(cut_streams_are_refused),
		cmocka_unit_test(held_steps_are_all_there),
		cmocka_unit_test(held_steps_can_be_changed),
		cmocka_unit_test(tmpdir_is_named),
		cmocka_unit_test(tensors_get_other_names),
		cmocka_unit_test(names_that_cannot_be),
		cmocka_unit_test(names_that_would_clash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
