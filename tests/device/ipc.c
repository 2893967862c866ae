/* SPDX-License-Identifier: MIT
 * Memory that passes from process to process. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"
#include "tests/lib/pair.h"

#define BYTES ((size_t)3 << 20)

/* ---- two processes.  Each opens the card for itself: what was opened before a fork is of no use behind it. */

static unsigned char
byte(size_t i)
{
	return (unsigned char)(i * 31 + i / 4096);
}

/* Fills memory, tells its handle, and waits until it is told that the other has closed it.  Not 0: what failed. */
static int
lend(int out, int in)
{
	void *library = dlopen(getenv("KV_TEST_BACKEND"), RTLD_NOW | RTLD_LOCAL), *p;
	const struct kvk_backend *op = library != NULL ? dlsym(library, "kvk_cuda") : NULL;
	unsigned char *host = malloc(BYTES);
	struct kvk_handle handle;
	struct kvk_dev *dev;
	char why[256], c;

	if (op == NULL || host == NULL || op->open(&dev, 0, 0, KVK_PRECISION_F32, why, sizeof why) != 0)
		return 1;
	for (size_t i = 0; i < BYTES; i++)
		host[i] = byte(i);
	if ((p = op->alloc(dev, BYTES)) == NULL || op->put(dev, p, host, BYTES) != 0 || op->wait(dev) != 0)
		return 2;
	if (op->lend(dev, p, &handle) != 0 || write(out, &handle, sizeof handle) != sizeof handle)
		return 3;
	if (read(in, &c, 1) != 1)
		return 4;
	op->free(dev, p);
	op->close(dev);
	free(host);
	return 0;
}

struct lender {
	pid_t id;
	int in, out;
	struct kvk_handle handle;
};

static struct lender
start(void)
{
	struct lender l;
	int to[2], from[2];

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	assert_true((l.id = fork()) >= 0);
	if (l.id == 0) {
		alarm(30);
		_exit(lend(from[1], to[0]));
	}
	close(to[0]);
	close(from[1]);
	l.in = from[0];
	l.out = to[1];
	assert_int_equal(read(l.in, &l.handle, sizeof l.handle), sizeof l.handle);
	return l;
}

static void
end(const struct lender *l)
{
	int status;

	assert_int_equal(write(l->out, "x", 1), 1);
	assert_int_equal(waitpid(l->id, &status, 0), l->id);
	assert_int_equal(status, 0);
	close(l->in);
	close(l->out);
}

static void
memory_of_another_process(void **state)
{
	const size_t last = BYTES / 16 - 1;
	struct kvk_copy last_row = { .x_type = KVK_U8, .rows = &last, .y_type = KVK_U8, .H = 1, .n = 1, .D = 16 };
	struct lender l;
	struct pair p;
	const void *there;
	unsigned char *host, row[16];
	void *y;

	(void)state;
	if (getenv("KV_TEST_BACKEND") == NULL)
		skip();
	l = start();
	pair_open(&p, KVK_PRECISION_F32);
	for (int round = 0; round < 2; round++) {
		assert_non_null(there = p.op->borrow(p.dev, &l.handle));
		host = pair_get(&p, there, BYTES);
		for (size_t i = 0; i < BYTES; i++)
			if (host[i] != byte(i))
				fail_msg("byte %zu is %u, expected %u", i, host[i], byte(i));
		free(host);
		/* a kernel that is under way when it is closed */
		y = pair_put(&p, NULL, sizeof row);
		last_row.x = there;
		last_row.y = y;
		pair_ok(&p, p.op->copy_rows(p.dev, &last_row));
		p.op->unborrow(p.dev, there);
		pair_ok(&p, p.op->get(p.dev, row, y, sizeof row));
		for (size_t i = 0; i < sizeof row; i++)
			assert_int_equal(row[i], byte(last * sizeof row + i));
		pair_free(&p, y);
	}
	end(&l);
	assert_null(p.op->borrow(p.dev, &l.handle));
	assert_true(strlen(p.op->error(p.dev)) > 0);
	pair_close(&p);
}

static void
names_of_cards(void **state)
{
	char name[64], same[64], why[256];
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	assert_int_equal(p.op->card(0, name, sizeof name), 0);
	assert_int_equal(strncmp(name, "cuda:GPU-", 9), 0);
	assert_int_equal(strlen(name), 9 + 36);
	assert_int_equal(p.op->card(0, same, sizeof same), 0);
	assert_string_equal(name, same);
	assert_int_not_equal(p.op->card(1000, why, sizeof why), 0);
	pair_ok(&p, p.op->use(p.dev));
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_another_process), /* first: it forks, before anything has opened the card */
		cmocka_unit_test(names_of_cards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
