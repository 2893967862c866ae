/* SPDX-License-Identifier: MIT
 * lend_times --sizes LIST --row BYTES - what it takes that another process opens memory of the card: the keys, or the
 * values, of one layer, BYTES for each of so many tokens.  TSV on standard output, as bench/card_times.c prints: what,
 * tokens, 0, seconds; the median of some rounds.
 *
 *	lend     the lender's call for a handle
 *	borrow   the other process opens what it stands for, and closes it again
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bin/common.h"
#include "lib/clock.h"
#include "lib/device_memory.h"
#include "lib/text/ids.h"

#define OPS "lend borrow unborrow"

static struct {
	const char *sizes;
	size_t row, rounds;
} o = { .sizes = "4096", .row = 2048, .rounds = 21 };

static const struct kv_opt opts[] = {
	{ "sizes", 0, KV_STRING, &o.sizes, "LIST", "tokens", 0, 0, NULL },
	{ "row", 0, KV_SIZE, &o.row, "BYTES", "of a token in one layer", 1, 1e6, NULL },
	{ "rounds", 0, KV_SIZE, &o.rounds, "N", "of which the median counts", 1, 1000, NULL },
	{ 0 },
};

static const struct kv_tool tool = {
	.name = "lend_times",
	.usage = "--sizes LIST --row BYTES",
	.brief = "what it takes that another process opens memory of the card",
	.opts = opts,
	.common = KV_COMMON_DEVICE,
};

static int
rising(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int
open_device(struct kv_device *d, struct kv_err *e)
{
	kv_device_plan(d, kv_common.device, 1);
	return kv_device_ready(d, OPS, e);
}

/* The other process: opens what each handle stands for, closes it, and answers how long that took. */
static int
borrower(int in, int out)
{
	struct kvk_handle handle;
	struct kv_device d;
	struct kv_err e = { 0 };
	const void *p;
	double begin, took;

	if (open_device(&d, &e) < 0)
		return kv_report(KV_EDEV, &e);
	while (read(in, &handle, sizeof handle) == (ssize_t)sizeof handle) {
		begin = kv_seconds();
		if ((p = d.op->borrow(d.dev, &handle)) == NULL)
			return kv_report(kv_fail(&e, KV_EDEV, "%s", d.op->error(d.dev)), &e);
		d.op->unborrow(d.dev, p);
		took = kv_seconds() - begin;
		if (write(out, &took, sizeof took) != (ssize_t)sizeof took)
			break;
	}
	kv_device_close(&d);
	return 0;
}

struct other {
	pid_t id;
	int in, out; /* from it, to it */
};

static int
start(struct other *x, struct kv_err *e)
{
	int to[2], from[2];

	if (pipe(to) != 0 || pipe(from) != 0 || (x->id = fork()) < 0)
		return kv_fail(e, KV_EFAIL, "cannot start another process");
	if (x->id == 0) {
		close(to[1]);
		close(from[0]);
		_exit(borrower(to[0], from[1]));
	}
	close(to[0]);
	close(from[1]);
	*x = (struct other){ x->id, from[0], to[1] };
	return KV_OK;
}

static int
time_one(const struct other *x, const struct kv_device *d, void *p, double *lend, double *borrow, struct kv_err *e)
{
	struct kvk_handle handle;
	const double begin = kv_seconds();
	int rc = kv_device_check(d, d->op->lend(d->dev, p, &handle), "lend", e);

	*lend = kv_seconds() - begin;
	if (rc == KV_OK && (write(x->out, &handle, sizeof handle) != (ssize_t)sizeof handle ||
			       read(x->in, borrow, sizeof *borrow) != (ssize_t)sizeof *borrow))
		rc = kv_fail(e, KV_EFAIL, "the other process has ended");
	return rc;
}

static void
print(const char *what, size_t tokens, double *seconds)
{
	qsort(seconds, o.rounds, sizeof *seconds, rising);
	printf("%s\t%zu\t0\t%.9f\n", what, tokens, seconds[o.rounds / 2]);
	fflush(stdout);
}

/* The first time does not count. */
static int
time_size(const struct other *x, const struct kv_device *d, size_t tokens, struct kv_err *e)
{
	double *lend = kv_alloc(2 * o.rounds, sizeof *lend, e), *borrow = lend != NULL ? lend + o.rounds : NULL;
	void *p = kv_device_alloc(d, tokens, o.row, e);
	int rc = lend != NULL && p != NULL ? time_one(x, d, p, lend, borrow, e) : KV_EMEM;

	for (size_t i = 0; i < o.rounds && rc == KV_OK; i++)
		rc = time_one(x, d, p, &lend[i], &borrow[i], e);
	if (rc == KV_OK) {
		print("lend", tokens, lend);
		print("borrow", tokens, borrow);
	}
	kv_device_free(d, p);
	free(lend);
	return rc;
}

int
main(int argc, char **argv)
{
	struct other other = { 0 };
	struct kv_device d = { 0 };
	struct kv_ids sizes = { 0 };
	struct kv_err e = { 0 };
	int rc, status;

	kv_options(argc, argv, &tool);
	/* Each process opens the card for itself: what was opened before a fork is of no use behind it. */
	if ((rc = kv_ids_parse(&sizes, o.sizes, &e)) < 0 || (rc = start(&other, &e)) < 0)
		return kv_report(rc, &e);
	rc = open_device(&d, &e);
	for (size_t i = 0; i < sizes.n && rc == KV_OK; i++)
		rc = time_size(&other, &d, (size_t)sizes.v[i], &e);
	close(other.out);
	close(other.in);
	if (waitpid(other.id, &status, 0) == other.id && status != 0 && rc == KV_OK)
		rc = kv_fail(&e, KV_EFAIL, "the other process failed");
	if (d.op != NULL)
		kv_device_close(&d);
	kv_ids_fini(&sizes);
	return kv_report(rc, &e);
}
