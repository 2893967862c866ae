/* SPDX-License-Identifier: MIT
 * A writer with a thread of its own: order, faults, and that who computes does not wait. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/stream.h"
#include "tests/lib/streams.h"

#define LAYERS 4
#define FLOATS 500000 /* of a tensor: 2 MB, more than a pipe holds */

static float data[2][FLOATS];

static int
put(struct kv_writer *w, int layer, struct kv_err *e)
{
	struct kv_tensor t;
	size_t n = FLOATS;
	int rc = kv_tensor_init(&t, "x", layer, KVK_F32, "n", &n, e);

	for (size_t i = 0; i < n; i++)
		data[layer % 2][i] = (float)(i + (size_t)layer);
	t.data = data[layer % 2];
	if (rc == KV_OK && (rc = kv_writer_tensor(w, &t, e)) == KV_OK)
		rc = kv_writer_layer_end(w, layer, e);
	kv_tensor_fini(&t);
	return rc;
}

static int
start(struct kv_writer **w, const char *path, bool background, struct kv_err *e)
{
	json_t *model = json_pack("{s:i}", "layers", LAYERS), *sequence = json_pack("{s:[i]}", "tokens", 7);
	int rc = kv_writer_open(w, path, NULL, NULL, e);

	if (rc == KV_OK && background)
		rc = kv_writer_background(*w, e);
	if (rc == KV_OK && (rc = kv_writer_header(*w, model, NULL, NULL, e)) == KV_OK)
		rc = kv_writer_sequence(*w, sequence, e);
	json_decref(model);
	json_decref(sequence);
	return rc;
}

static int
write_all(const char *path, bool background, struct kv_err *e)
{
	struct kv_writer *w = NULL;
	int rc = start(&w, path, background, e);

	for (int l = 0; l < LAYERS && rc == KV_OK; l++)
		if ((rc = kv_writer_settle(w, e)) == KV_OK)
			rc = put(w, l, e);
	if (rc == KV_OK && (rc = kv_writer_close(w, e)) == KV_OK)
		return kv_writer_finish(w, e);
	kv_writer_drop(w);
	return rc;
}

static void
the_same_bytes(void **state)
{
	const char *a = scratch("a.kv"), *b = scratch("b.kv");
	struct kv_err e = { 0 };
	struct kv_buf x, y;

	(void)state;
	must(write_all(a, false, &e), &e);
	must(write_all(b, true, &e), &e);
	x = scratch_read(a);
	y = scratch_read(b);
	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.data, y.data, x.n);
	kv_buf_fini(&x);
	kv_buf_fini(&y);
}

/* Nobody reads yet, and a layer does not fit the pipe: the call comes back all the same, and settling waits. */
static void
who_computes_does_not_wait(void **state)
{
	struct kv_writer *w;
	struct kv_err e = { 0 };
	char path[32], command[64];
	int ends[2];
	FILE *count;
	size_t n = 0;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
	must(start(&w, path, true, &e), &e);
	alarm(20); /* it would wait for ever */
	must(put(w, 0, &e), &e);
	snprintf(command, sizeof command, "wc -c <&%d", dup(ends[0]));
	close(ends[0]);
	close(ends[1]);
	assert_non_null(count = popen(command, "r"));
	must(kv_writer_settle(w, &e), &e);
	must(put(w, 1, &e), &e);
	must(kv_writer_close(w, &e), &e);
	must(kv_writer_finish(w, &e), &e);
	close(atoi(strchr(command, '&') + 1));
	assert_int_equal(fscanf(count, "%zu", &n), 1);
	pclose(count);
	alarm(0);
	assert_in_range(n, 2 * sizeof data[0], 2 * sizeof data[0] + 2000);
}

static void
faults_come_out(void **state)
{
	struct kv_err e = { 0 };
	struct kv_writer *w;
	char path[32];
	int ends[2];

	(void)state;
	assert_int_equal(write_all("/dev/full", true, &e), KV_EIO);
	expect_text(&e, "/dev/full: cannot write: No space left on device");
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
	must(start(&w, path, true, &e), &e);
	must(put(w, 0, &e), &e);
	close(ends[0]); /* in the middle of it */
	assert_int_equal(kv_writer_settle(w, &e), KV_EPIPE);
	assert_int_equal(put(w, 1, &e), KV_EPIPE);
	kv_writer_drop(w);
	close(ends[1]);
}

/* Dropped with work to do: no file, and no thread that goes on. */
static void
dropped_in_the_middle(void **state)
{
	const char *path = scratch("none.kv");
	struct kv_err e = { 0 };
	struct kv_writer *w;

	(void)state;
	must(start(&w, path, true, &e), &e);
	must(put(w, 0, &e), &e);
	kv_writer_drop(w);
	assert_int_equal(access(path, F_OK), -1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_bytes),
		cmocka_unit_test(who_computes_does_not_wait),
		cmocka_unit_test(faults_come_out),
		cmocka_unit_test(dropped_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
