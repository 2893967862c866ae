/* SPDX-License-Identifier: MIT
 * Memory that passes from process to process, and what is done to it on the way: gather and convert, exactly. */
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
		pair_ok(&p, p.op->gather(p.dev, there, sizeof row, &last, 1, y));
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

/* ---- on the way */

static void
gather_case(struct pair *p, size_t bytes, size_t n, size_t shift)
{
	const size_t N = 300;
	unsigned char *x = test_alloc(N, bytes), *want = test_alloc(n + 1, bytes), *got;
	size_t *rows = test_alloc(n + 1, sizeof *rows);
	char *dx;
	void *dy = pair_put(p, NULL, n * bytes);

	for (size_t i = 0; i < N * bytes; i++)
		x[i] = byte(i * 7);
	for (size_t i = 0; i < n; i++) {
		rows[i] = (i * 113 + 5) % (N - 1);
		memcpy(want + i * bytes, x + rows[i] * bytes, bytes);
	}
	dx = pair_put(p, NULL, N * bytes + 16);
	pair_ok(p, p->op->put(p->dev, dx + shift, x, N * bytes));
	pair_ok(p, p->op->gather(p->dev, dx + shift, bytes, rows, n, dy));
	got = pair_get(p, dy, n * bytes);
	assert_memory_equal(got, want, n * bytes);
	pair_free(p, dx);
	pair_free(p, dy);
	free(got);
	free(rows);
	free(want);
	free(x);
}

static void
gathers(void **state)
{
	static const size_t bytes[] = { 1, 2, 6, 16, 20, 128, 160, 256, 512 }, n[] = { 0, 1, 33, 257 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
		for (size_t k = 0; k < sizeof n / sizeof *n; k++)
			gather_case(&p, bytes[i], n[k], 0);
	gather_case(&p, 128, 40, 2);
	gather_case(&p, 128, 40, 4);
	gather_case(&p, 128, 40, 1);
	pair_close(&p);
}

static void
conversions(void **state)
{
	static const enum kvk_type types[] = { KVK_F32, KVK_F16, KVK_BF16 };
	static const size_t n[] = { 0, 1, 255, 1000 };
	struct pair p;

	(void)state;
	pair_open(&p, KVK_PRECISION_F32);
	for (size_t k = 0; k < sizeof n / sizeof *n; k++)
		for (size_t a = 0; a < 3; a++)
			for (size_t b = 0; b < 3; b++) {
				const size_t in = n[k] * kvk_types[types[a]].bytes, out = n[k] * kvk_types[types[b]].bytes;
				float *f = test_floats(n[k], 1, k);
				void *x = test_alloc(in, 1), *want = test_alloc(out, 1), *got;
				void *dx, *dy = pair_put(&p, NULL, out);

				assert_int_equal(kvk_cpu.get_as(p.cpu, x, types[a], f, KVK_F32, n[k]), 0);
				assert_int_equal(kvk_cpu.get_as(p.cpu, want, types[b], x, types[a], n[k]), 0);
				dx = pair_put(&p, x, in);
				pair_ok(&p, p.op->convert(p.dev, dy, types[b], dx, types[a], n[k]));
				got = pair_get(&p, dy, out);
				assert_memory_equal(got, want, out);
				pair_free(&p, dx);
				pair_free(&p, dy);
				free(f);
				free(x);
				free(want);
				free(got);
			}
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_another_process), /* first: it forks, before anything has opened the card */
		cmocka_unit_test(names_of_cards),
		cmocka_unit_test(gathers),
		cmocka_unit_test(conversions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
