/* SPDX-License-Identifier: MIT
 * The n-th allocation fails, for every n: the pipe says so, and leaves nothing behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/pipe.h"
#include "tests/lib/streams.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer) || !defined __GLIBC__
#define CAN_FAIL 0 /* the sanitizer has its own allocator */
#else
#define CAN_FAIL 1
#endif

static bool armed;
static size_t left; /* allocations before the one that fails */
static bool failed;

#if CAN_FAIL
/* glibc lets a program bring its own allocator and still reach the one it replaces. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool
fails(void)
{
	if (!armed || left-- > 0)
		return false;
	failed = true;
	left = SIZE_MAX;
	errno = ENOMEM;
	return true;
}

void *
malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
#endif

/* A filter over two inputs that adds a tensor to every layer; held: it sees all layers of a sequence at once. */
static int
filter(char *const *files, bool held, const char *output, const json_t *entry, struct kv_err *e)
{
	struct kv_pipe_options o = {
		.files = files, .output = output, .entry = entry, .only = "k,v,new", .uses = "k,new"
	};
	struct kv_pipe *p = NULL;
	struct kv_step *s, *all;
	struct kv_tensor t;
	size_t n;
	int rc = kv_pipe_open(&p, &o, e);

	while (rc == KV_OK) {
		if (held && (rc = kv_pipe_hold(p, &all, &n, e)) != KV_OK)
			break;
		while ((rc = kv_pipe_next(p, &s, e)) == KV_OK) {
			rc = kv_tensor_new(&t, "new", s->layer, KVK_F32, "token", (size_t[]){ 2 }, e);
			if (rc == KV_OK)
				rc = kv_step_put(s, &t, e);
			kv_tensor_fini(&t);
			if (rc < 0 || s->layer == KV_NO_LAYER)
				break;
		}
	}
	return kv_pipe_finish(p, rc, e);
}

/* The bytes of a file that fits a pipe's buffer, to be read from descriptor `fd`. */
static void
refill(int fd, const struct kv_buf *b)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], b->data, b->n), b->n);
	close(ends[1]);
	assert_int_equal(dup2(ends[0], fd), fd);
	close(ends[0]);
}

static void
expect_same(const char *a, const char *b)
{
	struct kv_buf x = scratch_read(a), y = scratch_read(b);

	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.data, y.data, x.n);
	kv_buf_fini(&x);
	kv_buf_fini(&y);
}

#define PIPE_FD 100

/* held: the second input comes through a pipe, and what is not used of it is spooled. */
static void
fail_each_once(bool held)
{
	static const struct sample a = { .sequences = 2, .layers = 2, .tokens = 3, .tensors = "k x", .logits = true };
	static const struct sample b = { .sequences = 2, .layers = 2, .tokens = 3, .tensors = "v", .layer_ends = true };
	char *files[] = { (char *)scratch("a.kv"), (char *)scratch("b.kv"), NULL }, piped[] = "/dev/fd/100",
	     renamed[256];
	const char *out = scratch("out.kv"), *good = scratch("good.kv");
	json_t *entry = kv_history_entry("kv-test", "1", 0, NULL);
	struct kv_buf second;
	struct kv_err e = { 0 };
	size_t n_files, n_faults = 0, n;
	int rc;

	sample_write(files[0], &a);
	sample_write(files[1], &b);
	second = scratch_read(files[1]);
	assert_int_equal(filter(files, false, good, entry, &e), KV_OK);
	snprintf(renamed, sizeof renamed, "%s:x=new.x,k=k", files[0]);
	files[0] = renamed;
	if (held)
		files[1] = piped;
	n_files = scratch_count();
	for (n = 0;; n++) {
		refill(PIPE_FD, &second);
		left = n;
		failed = false;
		armed = true;
		rc = filter(files, held, out, entry, &e);
		armed = false;
		if (rc == KV_OK) { /* glibc's asprintf can do without its last one */
			expect_same(out, good);
			unlink(out);
		} else if (rc != KV_EMEM || strstr(e.text, "memory") == NULL) {
			fail_msg("allocation %zu failed: status %d, '%s'", n, rc, e.text);
		}
		n_faults += rc == KV_EMEM;
		assert_int_equal(scratch_count(), n_files);
		if (!failed)
			break;
	}
	assert_int_equal(rc, KV_OK);
	assert_true(n_faults > 100);
	close(PIPE_FD);
	kv_buf_fini(&second);
	json_decref(entry);
}

static void
every_allocation_fails_once(void **state)
{
	(void)state;
	if (!CAN_FAIL)
		skip();
	fail_each_once(false);
	fail_each_once(true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
