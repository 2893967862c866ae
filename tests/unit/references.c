/* SPDX-License-Identifier: MIT
 * Payloads by reference: lent by another process, or in a file; passed on, given back, dead, changed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/lender.h"
#include "formats/pipe.h"
#include "formats/record.h"
#include "tests/lib/streams.h"

#define LAYERS 3
#define LARGE  5000 /* floats of a tensor that is lent; 1000 are too few for that */

static size_t large = LARGE;

/* ---- children.  They end by _exit(): what cmocka knows is the parent's. */

static int
put(struct kv_writer *w, const char *name, int layer, size_t n, struct kv_err *e)
{
	struct kv_tensor t;
	int rc = kv_tensor_new(&t, name, layer, KVK_F32, "x", &n, e);

	for (size_t i = 0; rc == KV_OK && i < n; i++)
		((float *)t.owned)[i] = (float)i + 10000.0f * (float)layer;
	if (rc == KV_OK)
		rc = kv_writer_tensor(w, &t, e);
	kv_tensor_fini(&t);
	return rc;
}

/* A whole stream with k, score and v in each layer. */
static int
write_stream(const char *path, bool share, struct kv_err *e)
{
	json_t *model = json_pack("{s:i}", "layers", LAYERS), *sequence = json_pack("{s:[i]}", "tokens", 7);
	struct kv_writer *w = NULL;
	int rc = kv_writer_open(&w, path, NULL, NULL, e);

	if (rc == KV_OK && share)
		kv_writer_share(w);
	if (rc == KV_OK && (rc = kv_writer_header(w, model, NULL, NULL, e)) == KV_OK)
		rc = kv_writer_sequence(w, sequence, e);
	for (int l = 0; l < LAYERS && rc == KV_OK; l++)
		if ((rc = put(w, "k", l, large, e)) == KV_OK && (rc = put(w, "score", l, 1000, e)) == KV_OK &&
		    (rc = put(w, "v", l, large, e)) == KV_OK && l != 1)
			rc = kv_writer_layer_end(w, l, e);
	if (rc == KV_OK && (rc = kv_writer_close(w, e)) == KV_OK)
		rc = kv_writer_finish(w, e);
	else
		kv_writer_drop(w);
	json_decref(model);
	json_decref(sequence);
	return rc;
}

static int
filter(const char *in, const char *out, const char *uses, bool share, struct kv_err *e)
{
	char *files[] = { (char *)in, NULL };
	struct kv_pipe_options o = { .files = files, .output = out, .uses = uses, .keeps = uses, .share = share };
	struct kv_pipe *p = NULL;
	struct kv_step *s;
	int rc = kv_pipe_open(&p, &o, e);

	while (rc == KV_OK)
		rc = kv_pipe_next(p, &s, e);
	return kv_pipe_finish(p, rc, e);
}

struct child {
	pid_t id;
	int out; /* what it writes */
};

/* Its standard input is `in` (-1: our own), and nothing else of ours stays open in it. */
static struct child
start(int in, int (*run)(struct kv_err *e))
{
	struct kv_err e = { 0 };
	struct child c;
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_true((c.id = fork()) >= 0);
	if (c.id == 0) {
		alarm(20);
		signal(SIGPIPE, SIG_IGN);
		dup2(ends[1], 1);
		if (in >= 0)
			dup2(in, 0);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		_exit(-run(&e));
	}
	close(ends[1]);
	if (in >= 0)
		close(in);
	c.out = ends[0];
	return c;
}

/* As a negative error code. */
static int
end_of(struct child c)
{
	int status;

	if (c.out >= 0)
		close(c.out);
	assert_int_equal(waitpid(c.id, &status, 0), c.id);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -1000;
}

static const char *
name_of(const struct child *c)
{
	static char name[32];

	snprintf(name, sizeof name, "/dev/fd/%d", c->out);
	return name;
}

static int lend(struct kv_err *e) { return write_stream(NULL, true, e); }
static int pass_all(struct kv_err *e) { return filter(NULL, NULL, "nothing", false, e); }
static int look_and_pass(struct kv_err *e) { return filter(NULL, NULL, "k", true, e); }

static void
expect_plain(const char *path)
{
	const char *want = scratch("plain.kv");
	struct kv_err e = { 0 };
	struct kv_buf a, b;

	must(write_stream(want, false, &e), &e);
	a = scratch_read(want);
	b = scratch_read(path);
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.data, b.data, a.n);
	kv_buf_fini(&a);
	kv_buf_fini(&b);
}

/* The records that c writes, to the end. */
static struct kv_buf
records_of(const struct child *c)
{
	struct kv_buf b = { 0 };
	ssize_t n;

	do {
		kv_buf_reserve(&b, 65536, NULL);
		n = read(c->out, b.data + b.n, 65536);
		b.n += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	return b;
}

/* ---- memory */

/* What is stored is whole, whoever had a look on the way; all programs end by themselves, and well. */
static void
lent_payloads_arrive(void **state)
{
	const char *out = scratch("out.kv");
	static const char *const uses[] = { NULL, "nothing", "v" };
	struct kv_err e = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
		struct child lender = start(-1, lend), first, second;

		must(filter(name_of(&lender), out, uses[i], false, &e), &e);
		expect_plain(out);
		assert_int_equal(end_of(lender), KV_OK);

		lender = start(-1, lend);
		first = start(lender.out, pass_all);
		second = start(first.out, look_and_pass);
		lender.out = first.out = -1;
		must(filter(name_of(&second), out, uses[i], true, &e), &e);
		expect_plain(out);
		assert_int_equal(end_of(second), KV_OK);
		assert_int_equal(end_of(first), KV_OK);
		assert_int_equal(end_of(lender), KV_OK);
	}
}

/* The lender is there as long as it takes its reader to come, and records are small. */
static void
the_lender_waits(void **state)
{
	struct child lender = start(-1, lend), middle = start(lender.out, pass_all);
	struct kv_err e = { 0 };

	(void)state;
	lender.out = -1;
	usleep(300000);
	assert_int_equal(waitpid(lender.id, NULL, WNOHANG), 0);
	must(stream_walk(name_of(&middle), true, &e), &e);
	assert_int_equal(end_of(middle), KV_OK);
	assert_int_equal(end_of(lender), KV_OK);
}

static void
a_dead_lender_is_named(void **state)
{
	struct child lender = start(-1, lend);
	struct kv_buf b = records_of(&lender);
	const char *stored = scratch("stored.kv"), *out = scratch("none.kv");
	struct kv_err e = { 0 };

	(void)state;
	assert_in_range(b.n, 100, LAYERS * (3 * 512 + 4096)); /* and none of what was lent */
	kill(lender.id, SIGKILL);
	end_of(lender);
	scratch_write(stored, b.data, b.n);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "sequence 0, layer 0, k: the payload was left in the memory of another program, which is gone");
	expect_text(&e, "run the pipeline without --share");
	must(stream_walk(stored, false, &e), &e); /* who does not look does not care */
	assert_int_equal(filter(stored, out, "nothing", false, &e), KV_EIO); /* but it cannot be stored */
	assert_int_equal(access(out, F_OK), -1);
	kv_buf_fini(&b);
}

/* A lender that is killed later than its reader came leaves its memory to that. */
static void
memory_outlives_its_lender(void **state)
{
	struct child lender = start(-1, lend);
	struct kv_reader *r;
	struct kv_record rec = { 0 };
	struct kv_err e = { 0 };
	bool seen = false;

	(void)state;
	must(kv_reader_open(&r, name_of(&lender), &e), &e);
	while (!seen) {
		must(kv_reader_next(r, &rec, &e), &e);
		if ((seen = rec.kind == KV_RECORD_TENSOR)) {
			kill(lender.id, SIGKILL);
			end_of(lender);
			must(kv_reader_payload(r, &rec.tensor, &e), &e);
			assert_true(((const float *)rec.tensor.data)[LARGE - 1] == LARGE - 1);
		}
		kv_record_fini(&rec);
	}
	kv_reader_free(r);
}

static int
look_and_die(struct kv_err *e)
{
	struct kv_reader *r;
	struct kv_record rec = { 0 };

	if (kv_reader_open(&r, NULL, e) == KV_OK)
		while (kv_reader_next(r, &rec, e) == KV_OK && rec.kind != KV_RECORD_LAYER_END)
			kv_record_fini(&rec);
	raise(SIGKILL);
	return KV_OK;
}

/* It does not wait for a reader that will never come back. */
static void
a_reader_that_dies_ends_the_lender(void **state)
{
	struct child lender = start(-1, lend), reader = start(lender.out, look_and_die);

	(void)state;
	lender.out = -1;
	assert_int_equal(end_of(reader), -1000);
	assert_int_equal(end_of(lender), KV_EPIPE);
}

/* A program that stores the records as they come: the lender says that this cannot be. */
static void
a_reader_that_does_not_know_ends_the_lender(void **state)
{
	struct child lender = start(-1, lend);
	struct kv_buf b = records_of(&lender); /* the end of the stream is seen although the lender waits */

	(void)state;
	kv_buf_fini(&b);
	assert_int_equal(end_of(lender), KV_EIO);
}

/* The records twice, as tee makes them: the second to come finds that what was lent has been given back. */
static void
there_is_one_reader(void **state)
{
	struct child lender = start(-1, lend);
	struct kv_buf b = records_of(&lender);
	const char *stored = scratch("twice.kv");
	struct kv_reader *holder;
	struct kv_record rec;
	struct kv_err e = { 0 };

	(void)state;
	scratch_write(stored, b.data, b.n);
	must(kv_reader_open(&holder, stored, &e), &e); /* a third, so that the memory stays */
	for (int i = 0; i < 3; i++) {
		must(kv_reader_next(holder, &rec, &e), &e);
		kv_record_fini(&rec);
	}
	must(stream_walk(stored, true, &e), &e);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "has been given back by another reader");
	kv_reader_free(holder);
	assert_int_equal(end_of(lender), KV_OK);
	kv_buf_fini(&b);
}

/* Memory that has been given back is lent again, and whoever still has the reference of before is told. */
static void
memory_is_lent_again(void **state)
{
	struct kv_lender l = { 0 };
	struct kv_borrower b = { 0 };
	struct kv_reference first = { 0 }, r;
	struct kv_loan *loan;
	struct kv_err e = { 0 };
	const void *seen;
	void *room;

	(void)state;
	for (int i = 0; i < 10; i++) {
		must(kv_lender_take(&l, 5000, &room, &r, &e), &e);
		memset(room, i, 5000);
		must(kv_borrow(&b, &r, 5000, &loan, &e), &e);
		must(kv_loan_map(loan, true, &seen, &e), &e);
		assert_memory_equal(seen, room, 5000);
		if (i == 0)
			first = r;
		assert_int_equal(r.at, first.at);
		if (i == 1) {
			must(kv_borrow(&b, &first, 5000, &loan, &e), &e);
			assert_int_equal(kv_loan_map(loan, true, &seen, &e), KV_EIO);
			expect_text(&e, "has been given back by another reader");
		}
		kv_borrower_return(&b, NULL);
	}
	must(kv_lender_wait(&l, -1, &e), &e);
	for (int i = 0; i < 200; i++) { /* of another size: the first room is of no use any more */
		must(kv_lender_take(&l, 9000, &room, &r, &e), &e);
		must(kv_borrow(&b, &r, 9000, &loan, &e), &e);
		kv_borrower_return(&b, NULL);
	}
	assert_int_equal(l.n_rooms, 1);
	kv_borrower_fini(&b);
	kv_lender_fini(&l);
}

/* ---- files */

/* What kv-score --share writes into a pipe when its input is a file, as a file. */
static const char *
references_to(const char *in)
{
	const char *out = scratch("references.kv");
	char command[300];
	FILE *cat;
	struct kv_err e = { 0 };

	snprintf(command, sizeof command, "cat > '%s'", out);
	assert_non_null(cat = popen(command, "we"));
	snprintf(command, sizeof command, "/dev/fd/%d", fileno(cat));
	must(filter(in, command, "v", true, &e), &e);
	pclose(cat);
	return out;
}

static void
files_are_referred_to(void **state)
{
	const char *in = scratch("in.kv"), *out = scratch("whole.kv"), *stored;
	struct kv_err e = { 0 };
	struct stat st;

	(void)state;
	must(write_stream(in, false, &e), &e);
	stored = references_to(in);
	assert_int_equal(stat(stored, &st), 0);
	assert_in_range(st.st_size, 1, LAYERS * (3 * 512 + 4096));
	must(stream_walk(stored, true, &e), &e);
	must(filter(stored, out, "score", true, &e), &e);
	expect_plain(out);
}

/* So that it looks like the file that it was. */
static void
change_secretly(const char *path, struct kv_buf *b, size_t at)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	b->data[at] ^= 1;
	scratch_write(path, b->data, b->n);
	assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){ st.st_atim, st.st_mtim }, 0), 0);
}

static void
files_that_changed_are_noticed(void **state)
{
	const char *in = scratch("in.kv"), *stored;
	struct kv_buf b;
	struct kv_err e = { 0 };

	(void)state;
	must(write_stream(in, false, &e), &e);
	stored = references_to(in);
	b = scratch_read(in);
	change_secretly(in, &b, b.n - 100); /* in the last v */
	assert_int_equal(stream_walk(stored, true, &e), KV_EFORMAT);
	expect_text(&e, "sequence 0, layer 2, v: the payload in ");
	expect_text(&e, "was changed");
	scratch_write(in, b.data, b.n);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "layer 0, k: the payload was left in the file ");
	expect_text(&e, "it was changed or replaced; put it back");
	scratch_write(in, b.data, b.n - 200);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "layer 0, k: the payload was left in the file ");
	expect_text(&e, "it was changed or replaced; put it back");
	unlink(in);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "layer 0, k: the payload was left in the file ");
	expect_text(&e, "No such file or directory; put it back");
	assert_int_equal(mkfifo(in, 0600), 0);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "not a regular file");
	unlink(in);
	assert_int_equal(mkdir(in, 0700), 0);
	assert_int_equal(stream_walk(stored, true, &e), KV_EIO);
	expect_text(&e, "not a regular file");
	rmdir(in);
	kv_buf_fini(&b);
}

/* Pages of our own memory at [data, data + bytes) that are there; SIZE_MAX: the system does not tell. */
static size_t
pages_there(const void *data, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page, n = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	for (size_t i = 0; i < bytes / page; i++)
		if (pread(fd, &entry, sizeof entry, (off_t)((first + i) * sizeof entry)) != sizeof entry) {
			n = SIZE_MAX;
			break;
		} else
			n += entry >> 63;
	if (fd >= 0)
		close(fd);
	return n;
}

/* Who reads one row of v touches what lies around it and no more, and does not look at the checksum of the rest. */
static void
what_is_not_read_is_not_touched(void **state)
{
	const char *in = scratch("in.kv"), *stored;
	char *files[] = { NULL, NULL };
	struct kv_pipe_options o = { .files = files, .no_output = true, .uses = "v", .partly = "k,v" };
	const struct kv_tensor *v;
	struct kv_pipe *p;
	struct kv_step *s;
	struct kv_buf b;
	struct kv_err e = { 0 };
	size_t n;

	(void)state;
	large = 1 << 18;
	must(write_stream(in, false, &e), &e);
	large = LARGE;
	files[0] = (char *)(stored = references_to(in));
	b = scratch_read(in);
	change_secretly(in, &b, b.n - 1000);
	assert_int_equal(stream_walk(stored, true, &e), KV_EFORMAT);
	must(kv_pipe_open(&p, &o, &e), &e);
	for (int layer = 0; layer < LAYERS; layer++) {
		must(kv_pipe_next(p, &s, &e), &e);
		v = kv_step_find(s, "v");
		assert_true(((const float *)v->data)[700] == 700 + 10000.0f * (float)layer);
		if ((n = pages_there(v->data, v->bytes)) != SIZE_MAX)
			assert_in_range(n, 1, v->bytes / 4096 / 4);
	}
	must(kv_pipe_finish(p, KV_OK, &e), &e);
	kv_buf_fini(&b);
}

/* A reference to v is written and v itself left alone, but for what lies around its ends: records stand there. */
static void
what_is_passed_on_is_not_touched(void **state)
{
	const char *in = scratch("in.kv");
	char *files[] = { (char *)in, NULL }, out[32];
	struct kv_pipe_options o = { .files = files, .output = out, .uses = "k", .keeps = "k", .share = true };
	const struct kv_tensor *k;
	struct kv_pipe *p;
	struct kv_step *s;
	struct kv_err e = { 0 };
	int ends[2];
	size_t n;

	(void)state;
	large = 1 << 18;
	must(write_stream(in, false, &e), &e);
	large = LARGE;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0); /* it has room for all records */
	snprintf(out, sizeof out, "/dev/fd/%d", ends[1]);
	must(kv_pipe_open(&p, &o, &e), &e);
	for (int layer = 0; layer < LAYERS; layer++) {
		must(kv_pipe_next(p, &s, &e), &e);
		k = kv_step_find(s, "k");
		/* v begins a few kilobytes behind k, and is as large */
		n = pages_there((const char *)k->data + k->bytes + k->bytes / 4, k->bytes / 2);
		assert_true(n == 0 || n == SIZE_MAX);
	}
	must(kv_pipe_finish(p, KV_OK, &e), &e);
	close(ends[0]);
	close(ends[1]);
}

/* A stream says that any file is lent memory: it is neither read nor, above all, cut. */
static void
files_are_no_memory(void **state)
{
	const char *victim = scratch("victim"), *path = scratch("lies.kv"), *out = scratch("none.kv");
	static const char text[8192] = "precious";
	struct kv_buf raw = { 0 };
	struct kv_reference r = { .path = victim, .at = 4096, .is_memory = true, .stamp = 1 };
	struct kv_writer *w;
	struct kv_err e = { 0 };
	json_t *model = json_pack("{s:i}", "layers", 1), *sequence = json_pack("{s:[i]}", "tokens", 7);
	json_t *map = json_of("{'tensor':'k','layer':0,'dtype':'u8','shape':[4096],'bytes':4096,'parts':1,"
			      "'xxh3':'0123456789abcdef'}");

	(void)state;
	scratch_write(victim, text, sizeof text);
	must(kv_pack_encode(&raw, map, &e), &e);
	must(kv_record_place(&raw, 0, &r, NULL, &e), &e);
	must(kv_writer_open(&w, path, NULL, NULL, &e), &e);
	must(kv_writer_header(w, model, NULL, NULL, &e), &e);
	must(kv_writer_sequence(w, sequence, &e), &e);
	must(kv_writer_raw(w, raw.data, raw.n, &e), &e);
	must(kv_writer_close(w, &e), &e);
	must(kv_writer_finish(w, &e), &e);
	assert_int_equal(stream_walk(path, true, &e), KV_EIO);
	must(stream_walk(path, false, &e), &e);
	assert_int_equal(filter(path, out, "nothing", false, &e), KV_EIO);
	kv_buf_fini(&raw);
	raw = scratch_read(victim);
	assert_int_equal(raw.n, sizeof text);
	assert_memory_equal(raw.data, text, sizeof text);
	kv_buf_fini(&raw);
	json_decref(model);
	json_decref(sequence);
	json_decref(map);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lent_payloads_arrive),
		cmocka_unit_test(the_lender_waits),
		cmocka_unit_test(a_dead_lender_is_named),
		cmocka_unit_test(memory_outlives_its_lender),
		cmocka_unit_test(a_reader_that_dies_ends_the_lender),
		cmocka_unit_test(a_reader_that_does_not_know_ends_the_lender),
		cmocka_unit_test(there_is_one_reader),
		cmocka_unit_test(memory_is_lent_again),
		cmocka_unit_test(files_are_referred_to),
		cmocka_unit_test(files_that_changed_are_noticed),
		cmocka_unit_test(what_is_not_read_is_not_touched),
		cmocka_unit_test(what_is_passed_on_is_not_touched),
		cmocka_unit_test(files_are_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
