/* SPDX-License-Identifier: MIT
 * Files: what is whole appears, what is not does not. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "lib/file.h"
#include "tests/lib/streams.h"

static void
expect_content(const char *path, const char *text)
{
	struct kv_buf b = scratch_read(path);

	assert_string_equal(b.data, text);
	kv_buf_fini(&b);
}

static void
maps(void **state)
{
	const char *path = scratch("map"), *fifo = scratch("fifo");
	struct kv_map m;
	struct kv_err e = { 0 };
	int fd;

	(void)state;
	scratch_write(path, "hello", 5);
	must(kv_map_open(&m, path, &e), &e);
	assert_int_equal(m.bytes, 5);
	assert_memory_equal(m.data, "hello", 5);
	kv_map_close(&m);
	kv_map_close(&m);

	fd = open(path, O_RDONLY);
	lseek(fd, 2, SEEK_SET); /* what a shell's `read` has taken is not mapped again */
	must(kv_map_fd(&m, fd, path, &e), &e);
	assert_int_equal(m.bytes, 3);
	assert_memory_equal(m.data, "llo", 3);
	kv_map_close(&m);
	close(fd);

	scratch_write(path, "", 0);
	must(kv_map_open(&m, path, &e), &e);
	assert_null(m.data);
	assert_int_equal(m.bytes, 0);
	assert_int_equal(kv_map_open(&m, "/tmp", &e), KV_EIO);
	expect_text(&e, "/tmp: is a directory");
	assert_int_equal(kv_map_open(&m, scratch("none"), &e), KV_EIO);
	expect_text(&e, "No such file");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(kv_map_open(&m, fifo, &e), KV_EIO); /* and does not wait for a writer */
	expect_text(&e, "not a regular file");
}

static void
reads(void **state)
{
	const char *path = scratch("read");
	struct kv_buf b = { 0 };
	struct kv_err e = { 0 };

	(void)state;
	scratch_write(path, "a\0b", 3);
	must(kv_file_read(path, 3, &b, &e), &e);
	assert_int_equal(b.n, 3);
	assert_memory_equal(b.data, "a\0b", 4);
	b.n = 0;
	assert_int_equal(kv_file_read(path, 2, &b, &e), KV_EIO);
	expect_text(&e, "longer than 2 bytes");
	assert_int_equal(kv_file_read("/dev/zero", 100000, &b, &e), KV_EIO);
	assert_int_equal(kv_file_read("/tmp", 9, &b, &e), KV_EIO);
	expect_text(&e, "/tmp: Is a directory");
	kv_buf_fini(&b);
}

static void
an_output_appears_when_it_is_complete(void **state)
{
	const char *path = scratch("out");
	struct kv_outfile f;
	struct kv_err e = { 0 };
	struct stat st;
	mode_t mask = umask(027);

	(void)state;
	must(kv_outfile_open(&f, path, &e), &e);
	must(kv_write_all(f.fd, "new", 3, &e), &e);
	assert_int_equal(access(path, F_OK), -1);
	must(kv_outfile_finish(&f, &e), &e);
	assert_int_equal(f.fd, -1);
	expect_content(path, "new");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	umask(mask);

	must(kv_outfile_open(&f, path, &e), &e); /* an existing file stays until then */
	must(kv_write_all(f.fd, "newer", 5, &e), &e);
	expect_content(path, "new");
	kv_outfile_drop(&f);
	expect_content(path, "new");
	kv_outfile_drop(&f);
	kv_outfile_drop(NULL);
}

static void
a_link_stays_a_link(void **state)
{
	const char *path = scratch("target"), *link = scratch("link");
	struct kv_outfile f;
	struct kv_err e = { 0 };
	struct stat st;

	(void)state;
	scratch_write(path, "old", 3);
	assert_int_equal(symlink(path, link), 0);
	must(kv_outfile_open(&f, link, &e), &e);
	must(kv_write_all(f.fd, "new", 3, &e), &e);
	must(kv_outfile_finish(&f, &e), &e);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	expect_content(path, "new");
}

static void
outputs_that_cannot_be(void **state)
{
	struct kv_outfile f;
	struct kv_err e = { 0 };

	(void)state;
	assert_int_equal(kv_outfile_open(&f, "/tmp", &e), KV_EIO);
	expect_text(&e, "/tmp: Is a directory");
	assert_int_equal(f.fd, -1);
	assert_int_equal(kv_outfile_open(&f, scratch("no/such/folder"), &e), KV_EIO);
	expect_text(&e, "no/such/folder: cannot create: No such file");
	must(kv_outfile_open(&f, "/dev/full", &e), &e);
	assert_null(f.temp);
	assert_int_equal(kv_write_all(f.fd, "x", 1, &e), KV_EIO);
	kv_outfile_drop(&f);
}

static void
many_outputs(void **state)
{
	struct kv_outfile f[9];
	struct kv_err e = { 0 };
	char name[16];
	size_t before = (scratch_write(scratch("x"), "", 0), scratch_count()), i;

	(void)state;
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof name, "many%zu", i);
		must(kv_outfile_open(&f[i], scratch(name), &e), &e);
	}
	assert_int_equal(kv_outfile_open(&f[8], scratch("many8"), &e), KV_EFAIL);
	kv_outfile_drop(&f[3]);
	must(kv_outfile_open(&f[3], scratch("many3"), &e), &e); /* its place is free again */
	for (i = 0; i < 8; i++)
		kv_outfile_drop(&f[i]);
	assert_int_equal(scratch_count(), before);
}

/* The child opens an output, says so, and waits for the signal. */
static void
a_signal_removes_what_is_unfinished(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	size_t before = (scratch_write(scratch("x"), "", 0), scratch_count());
	const char *path = scratch("killed");
	int status, fd[2];
	char c;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		pid_t pid;

		assert_int_equal(pipe(fd), 0);
		if ((pid = fork()) == 0) {
			struct kv_outfile f;

			for (size_t k = 0; k < 3; k++)
				signal(signals[k], SIG_DFL);
			if (kv_outfile_open(&f, path, NULL) < 0 || write(fd[1], "x", 1) != 1)
				_exit(9);
			for (;;)
				pause();
		}
		assert_int_equal(read(fd[0], &c, 1), 1);
		assert_int_equal(scratch_count(), before + 1);
		kill(pid, signals[i]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), signals[i]);
		assert_int_equal(scratch_count(), before);
		close(fd[0]);
		close(fd[1]);
	}
}

static void
a_closed_pipe_is_told_apart(void **state)
{
	struct kv_err e = { 0 };
	int fd[2];

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(fd), 0);
	close(fd[0]);
	assert_int_equal(kv_write_all(fd[1], "x", 1, &e), KV_EPIPE);
	assert_int_equal(kv_write_all(fd[1], NULL, 0, &e), KV_OK);
	close(fd[1]);
	assert_int_equal(kv_write_all(fd[1], "x", 1, &e), KV_EIO);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps),
		cmocka_unit_test(reads),
		cmocka_unit_test(an_output_appears_when_it_is_complete),
		cmocka_unit_test(a_link_stays_a_link),
		cmocka_unit_test(outputs_that_cannot_be),
		cmocka_unit_test(many_outputs),
		cmocka_unit_test(a_signal_removes_what_is_unfinished),
		cmocka_unit_test(a_closed_pipe_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
