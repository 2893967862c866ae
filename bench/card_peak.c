/* SPDX-License-Identifier: MIT
 * card_peak FILE COMMAND [WORD...] - runs a program and writes two numbers to FILE: how many bytes of the card
 * (KV_DEVICE) were in use at most meanwhile, less what was in use before (all that the program and the driver take for
 * it; "-" where the device does not tell), and the seconds it ran.  The exit status is the program's.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "lib/clock.h"
#include "lib/device.h"

#define EVERY_NS 5000000 /* between two looks */

extern char **environ;

/* Looks until the program has ended; the least room there was. */
static size_t
watch(const struct kv_device *d, pid_t id, int *status)
{
	const struct timespec pause = { .tv_nsec = EVERY_NS };
	size_t least = d->op->room(d->dev), room;

	while (waitpid(id, status, WNOHANG) == 0) {
		if ((room = d->op->room(d->dev)) < least)
			least = room;
		nanosleep(&pause, NULL);
	}
	return least;
}

static int
measure(const struct kv_device *d, const char *path, char **argv)
{
	const size_t before = d->op->room(d->dev);
	const double begin = kv_seconds();
	double seconds;
	size_t least;
	int status = 0, rc;
	pid_t id;
	FILE *f;

	if ((rc = posix_spawnp(&id, argv[0], NULL, NULL, argv, environ)) != 0) {
		fprintf(stderr, "card_peak: %s: %s\n", argv[0], strerror(rc));
		return 127;
	}
	least = watch(d, id, &status);
	seconds = kv_seconds() - begin;
	if ((f = fopen(path, "w")) == NULL) {
		fprintf(stderr, "card_peak: %s: %s\n", path, strerror(errno));
		return 1;
	}
	if (before > 0)
		fprintf(f, "%zu %.3f\n", before - least, seconds);
	else
		fprintf(f, "- %.3f\n", seconds);
	rc = fclose(f) != 0;
	return WIFEXITED(status) ? (rc ? 1 : WEXITSTATUS(status)) : 128 + WTERMSIG(status);
}

int
main(int argc, char **argv)
{
	struct kv_device d;
	struct kv_err e = { 0 };
	int rc;

	if (argc < 3) {
		fputs("usage: card_peak FILE COMMAND [WORD...]\n", stderr);
		return 2;
	}
	if (kv_device_open(&d, getenv("KV_DEVICE"), 1, &e) < 0) {
		fprintf(stderr, "card_peak: %s\n", e.text);
		return 1;
	}
	rc = measure(&d, argv[1], argv + 2);
	kv_device_close(&d);
	return rc;
}
