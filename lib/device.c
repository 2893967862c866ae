/* SPDX-License-Identifier: MIT */
#include "lib/device.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_LIBRARY "libkvcuda.so"
#define PATH_BYTES   4096
#define CARDS_MAX    64 /* that are looked at */

static bool
has(const struct kvk_backend *t, const struct kvk_op *op)
{
	void (*f)(void);

	memcpy(&f, (const char *)t + op->offset, sizeof f);
	return f != NULL;
}

int
kv_device_check_table(const struct kvk_backend *t, struct kv_err *e)
{
	if (t->abi != KVK_ABI)
		return kv_fail(e, KV_EDEV, "backend has interface version %d, this program needs %d", t->abi, KVK_ABI);
	for (size_t i = 0; i < KVK_N_OPS; i++)
		if (kvk_ops[i].basic && !has(t, &kvk_ops[i]))
			return kv_fail(e, KV_EDEV, "%s: backend lacks the function '%s'", t->name, kvk_ops[i].name);
	return KV_OK;
}

/* The one of this name, which has n bytes. */
static const struct kvk_op *
find_op(const char *name, size_t n)
{
	size_t i = 0;

	while (i < KVK_N_OPS && (strlen(kvk_ops[i].name) != n || strncmp(kvk_ops[i].name, name, n) != 0))
		i++;
	assert(i < KVK_N_OPS);
	return &kvk_ops[i];
}

/* Are all of these, separated by spaces, in the table? */
static int
check_ops(const struct kvk_backend *t, struct kvk_dev *dev, const char *needs, struct kv_err *e)
{
	for (size_t n; *needs != '\0'; needs += n + (needs[n] == ' ')) {
		const struct kvk_op *op = find_op(needs, n = strcspn(needs, " "));

		if (!has(t, op))
			return kv_fail(e, KV_EDEV, "%s: the device lacks the operation '%s': use --device cpu", t->name,
			    op->name);
		if (op->product && dev != NULL && t->products != NULL && t->products(dev) != 0)
			return kv_fail(e, KV_EDEV, "%s: %s", t->name, t->error(dev));
	}
	return KV_OK;
}

/* absent, if not NULL: set to whether the machine has no such device. */
static int
open_table(struct kv_device *d, const struct kvk_backend *t, int ordinal, unsigned threads, bool *absent,
    struct kv_err *e)
{
	char why[256] = "no reason given";
	int rc = kv_device_check_table(t, e);

	if (rc < 0)
		return rc;
	if (threads > 1024)
		return kv_fail(e, KV_EARG, "%u threads wanted, at most 1024 are possible", threads);
	if ((rc = t->open(&d->dev, ordinal, (int)threads, d->precision, why, sizeof why)) != 0) {
		if (absent != NULL)
			*absent = rc == KVK_ENODEV;
		return kv_fail(e, KV_EDEV, "%s: cannot open device %d: %s", t->name, ordinal, why);
	}
	d->op = t;
	if (t->card != NULL && t->card(ordinal, d->card, sizeof d->card) != 0)
		d->card[0] = '\0';
	return KV_OK;
}

/* The library beside the running program, or "": as built, as installed, or in one folder. */
static void
library_beside(char path[PATH_BYTES])
{
	static const char *const places[] = { "/../lib/", "/../", "/" };
	char program[PATH_BYTES];
	const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	char *slash;

	path[0] = '\0';
	if (n <= 0)
		return;
	program[n] = '\0';
	if ((slash = strrchr(program, '/')) == NULL)
		return;
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (snprintf(path, PATH_BYTES, "%s%s" CUDA_LIBRARY, program, places[i]) < PATH_BYTES &&
		    access(path, R_OK) == 0)
			return;
		path[0] = '\0';
	}
}

/* It stays in memory when it is closed: what it registers with the driver must not go while the process lives.
 * *absent: there is none. */
static int
find_library(void **library, const struct kvk_backend **t, bool *absent, struct kv_err *e)
{
	const char *own = getenv("KV_CUDA_LIBRARY");
	char path[PATH_BYTES];
	bool named = own != NULL && *own != '\0';

	if (!named) {
		library_beside(path);
		own = path[0] != '\0' ? path : CUDA_LIBRARY;
	}
	*absent = false;
	if ((*library = dlopen(own, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) == NULL) {
		*absent = !named && own != path;
		return kv_fail(e, KV_EDEV, "cuda: %s; build it with 'make cuda', or use --device cpu", dlerror());
	}
	if ((*t = dlsym(*library, "kvk_cuda")) != NULL)
		return KV_OK;
	dlclose(*library);
	return kv_fail(e, KV_EDEV, "cuda: %.3000s has no table 'kvk_cuda'", own);
}

/* The number of the card that others call `card`. */
static int
find_card(const struct kvk_backend *t, const char *card, int *ordinal, struct kv_err *e)
{
	char name[256] = "";
	int rc = kv_device_check_table(t, e), status;

	if (rc < 0 || (rc = check_ops(t, NULL, "card use lend borrow unborrow", e)) < 0)
		return rc;
	for (*ordinal = 0; *ordinal < CARDS_MAX; ++*ordinal) {
		if ((status = t->card(*ordinal, name, sizeof name)) == 0 && strcmp(name, card) == 0)
			return KV_OK;
		if (status != 0 && *ordinal == 0)
			kv_fail(e, KV_EDEV, "%s: %s", t->name, name);
		if (status == KVK_ENODEV)
			break;
	}
	return *ordinal > 0 ? kv_fail(e, KV_EDEV, "%s: no card here is %s", t->name, card) : KV_EDEV;
}

/* card NULL: the device of that number. */
static int
open_cuda(struct kv_device *d, const char *card, int ordinal, unsigned threads, bool *absent, struct kv_err *e)
{
	const struct kvk_backend *t;
	void *library;
	int rc = find_library(&library, &t, absent, e);

	if (rc < 0)
		return rc;
	if ((card == NULL || (rc = find_card(t, card, &ordinal, e)) == KV_OK) &&
	    (rc = open_table(d, t, ordinal, threads, absent, e)) == KV_OK) {
		d->library = library;
		return KV_OK;
	}
	dlclose(library);
	return rc;
}

/* "cuda" is device 0, "cuda:N" device N. */
static int
cuda_ordinal(const char *name, int *ordinal)
{
	char *end;
	long n;

	if (strcmp(name, "cuda") == 0) {
		*ordinal = 0;
		return KV_OK;
	}
	if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
		return KV_EARG;
	n = strtol(name + 5, &end, 10);
	if (*end != '\0' || n > KV_DEVICE_LAST)
		return KV_EARG;
	*ordinal = (int)n;
	return KV_OK;
}

/* A fault that was recorded is this device's. */
static int
blame(const struct kv_device *d, int rc, struct kv_err *e)
{
	if (e != NULL && rc < 0)
		e->device = d;
	return rc;
}

static bool
is_auto(const char *name)
{
	return name == NULL || strcmp(name, "auto") == 0;
}

bool
kv_device_is_name(const char *name)
{
	int ordinal;

	return is_auto(name) || strcmp(name, "cpu") == 0 || cuda_ordinal(name, &ordinal) == KV_OK;
}

/* CUDA if it has all that is needed, else the CPU; why is kept. */
static int
open_auto(struct kv_device *d, unsigned threads, const char *needs, struct kv_err *e)
{
	struct kv_err why = { 0 };
	bool absent = false;

	if (open_cuda(d, NULL, 0, threads, &absent, &why) == KV_OK) {
		if (check_ops(d->op, d->dev, needs, &why) == KV_OK)
			return KV_OK;
		kv_device_close(d);
	}
	snprintf(d->fallback, sizeof d->fallback, "%s", why.text);
	if (!absent && d->unfit != NULL)
		d->unfit(d->fallback);
	return open_table(d, &kvk_cpu, 0, threads, NULL, e);
}

static int
open_named(struct kv_device *d, const char *needs, struct kv_err *e)
{
	const char *name = d->name;
	unsigned threads = d->threads;
	bool absent;
	int ordinal;

	d->fallback[0] = '\0';
	if (is_auto(name))
		return open_auto(d, threads, needs, e);
	if (strcmp(name, "cpu") == 0)
		return open_table(d, &kvk_cpu, 0, threads, NULL, e);
	if (cuda_ordinal(name, &ordinal) == KV_OK)
		return blame(d, open_cuda(d, NULL, ordinal, threads, &absent, e), e);
	return kv_fail(e, KV_EARG, "unknown device '%s': expected auto, cpu, cuda or cuda:N", name);
}

static int
list_cuda(kv_device_fn *fn, void *ctx)
{
	const struct kvk_backend *t;
	struct kv_err e = { 0 };
	char name[32], text[256];
	void *library;
	bool absent;
	int rc = find_library(&library, &t, &absent, &e);

	if (rc == KV_OK && (rc = kv_device_check_table(t, &e)) < 0)
		dlclose(library);
	if (rc < 0)
		return fn(ctx, "cuda", false, strncmp(e.text, "cuda: ", 6) == 0 ? e.text + 6 : e.text);
	for (int i = 0; rc == KV_OK; i++) {
		const int status = t->describe(i, text, sizeof text);

		if (status == KVK_ENODEV && i > 0)
			break;
		snprintf(name, sizeof name, status == KVK_ENODEV ? "cuda" : "cuda:%d", i);
		if ((rc = fn(ctx, name, status == 0, text)) < 0 || status == KVK_ENODEV)
			break;
	}
	dlclose(library);
	return rc;
}

int
kv_device_list(kv_device_fn *fn, void *ctx)
{
	char text[256];
	const bool usable = kvk_cpu.describe(0, text, sizeof text) == 0;
	int rc = fn(ctx, "cpu", usable, text);

	return rc < 0 ? rc : list_cuda(fn, ctx);
}

int
kv_device_open(struct kv_device *d, const char *name, unsigned threads, struct kv_err *e)
{
	kv_device_plan(d, name, threads);
	return open_named(d, "", e);
}

int
kv_device_open_card(struct kv_device *d, const char *card, struct kv_err *e)
{
	bool absent;

	kv_device_plan(d, NULL, 1);
	return open_cuda(d, card, 0, 1, &absent, e);
}

void
kv_device_close(struct kv_device *d)
{
	if (d == NULL || d->op == NULL)
		return;
	if (d->arrivals != NULL)
		d->op->host_free(d->dev, d->arrivals);
	d->op->close(d->dev);
	if (d->library != NULL)
		dlclose(d->library);
	*d = (struct kv_device){
		.name = d->name, .threads = d->threads, .precision = d->precision, .unfit = d->unfit
	};
}

void
kv_device_plan(struct kv_device *d, const char *name, unsigned threads)
{
	*d = (struct kv_device){ .name = name, .threads = threads };
}

int
kv_device_ready(struct kv_device *d, const char *needs, struct kv_err *e)
{
	int rc = d->op == NULL ? open_named(d, needs, e) : KV_OK;

	return rc == KV_OK ? kv_device_blame(d, check_ops(d->op, d->dev, needs, e), e) : rc;
}

bool
kv_device_can_fall_back(const struct kv_device *d, const struct kv_err *e)
{
	return e != NULL && e->device == d && is_auto(d->name) && !d->lent;
}

int
kv_device_fall_back(struct kv_device *d, int rc, struct kv_err *e)
{
	struct kv_err why;

	if (!kv_device_can_fall_back(d, e))
		return rc;
	why = *e;
	kv_device_close(d);
	*e = (struct kv_err){ 0 };
	if ((rc = open_table(d, &kvk_cpu, 0, d->threads, NULL, e)) < 0)
		return rc;
	memcpy(d->fallback, why.text, sizeof d->fallback);
	if (d->unfit != NULL)
		d->unfit(d->fallback);
	return KV_OK;
}

enum kvk_precision
kv_device_precision(struct kv_device *d)
{
	return d->precision = d->op->precision(d->dev);
}

int
kv_device_use(const struct kv_device *d, struct kv_err *e)
{
	return d->op != NULL && d->card[0] != '\0' ? kv_device_check(d, d->op->use(d->dev), "use", e) : KV_OK;
}

int
kv_device_blame(const struct kv_device *d, int rc, struct kv_err *e)
{
	return d->library != NULL ? blame(d, rc, e) : rc;
}

int
kv_device_check(const struct kv_device *d, int status, const char *what, struct kv_err *e)
{
	const size_t n = strlen(what);
	const char *text;
	int rc;

	if (status == 0)
		return KV_OK;
	text = d->op->error(d->dev);
	if (strncmp(text, what, n) == 0 && text[n] == ':')
		rc = kv_fail(e, KV_EDEV, "%s: %s", d->op->name, text);
	else
		rc = kv_fail(e, KV_EDEV, "%s: %s: %s", d->op->name, what, text);
	return kv_device_blame(d, rc, e);
}
