/* SPDX-License-Identifier: MIT */
#include "tests/lib/pair.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/kernels.h"

/* KV_TEST_FILTER=PATTERN: only tests of such names, where all would take too long. */
__attribute__((constructor)) static void
filter(void)
{
	const char *pattern = getenv("KV_TEST_FILTER");

	if (pattern != NULL)
		cmocka_set_test_filter(pattern);
}

/* Stays open: what a library registers at its start must not go while the process lives. */
static const struct kvk_backend *
backend(void)
{
	static const struct kvk_backend *table;
	const char *path = getenv("KV_TEST_BACKEND");
	void *library;

	if (table != NULL || path == NULL || *path == '\0')
		return table;
	if ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL)
		fail_msg("%s", dlerror());
	if ((table = dlsym(library, "kvk_cuda")) == NULL)
		fail_msg("%s: no table 'kvk_cuda'", path);
	return table;
}

void
pair_open(struct pair *p, enum kvk_precision precision)
{
	char why[256] = "";

	memset(p, 0, sizeof *p);
	if ((p->op = backend()) == NULL)
		skip();
	assert_int_equal(p->op->abi, KVK_ABI);
	if (p->op->open(&p->dev, 0, 0, precision, why, sizeof why) != 0)
		fail_msg("%s: %s", p->op->name, why);
	p->cpu = test_dev(1);
}

void
pair_close(struct pair *p)
{
	if (p->dev != NULL)
		p->op->close(p->dev);
	kvk_cpu.close(p->cpu);
}

void *
pair_put(struct pair *p, const void *host, size_t bytes)
{
	void *device = p->op->alloc(p->dev, bytes > 0 ? bytes : 1);
	void *poison = NULL;

	assert_non_null(device);
	if (host == NULL)
		host = poison = memset(test_alloc(bytes, 1), 0xff, bytes);
	pair_ok(p, p->op->put(p->dev, device, host, bytes));
	free(poison);
	return device;
}

void *
pair_get(struct pair *p, const void *device, size_t bytes)
{
	void *host = test_alloc(bytes, 1);

	pair_ok(p, p->op->get(p->dev, host, device, bytes));
	return host;
}

void
pair_free(struct pair *p, void *device)
{
	p->op->free(p->dev, device);
}

void
pair_ok(struct pair *p, int status)
{
	if (status != 0)
		fail_msg("%s: %s", p->op->name, p->op->error(p->dev));
}

void
pair_near(
    struct pair *p, const char *what, const float *device, const double *want, size_t n, double abs, double rel)
{
	float *got = pair_get(p, device, n * sizeof *got);

	test_near(what, got, want, n, abs, rel);
	free(got);
}
