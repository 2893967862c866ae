/* SPDX-License-Identifier: MIT
 * Threads that share the units of one operation.
 *
 * The caller works too, as worker 0.  Units are dealt in ascending order, one at a time.  A helper that wakes too late
 * finds the job closed and sleeps on: nobody waits for a thread that the system has not scheduled, which is what keeps
 * a pipe of several programs fast on few processors.  Idle helpers spin for some microseconds, then sleep. */
#include "kernels/cpu/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS       300 /* of about 40 ns */
#define STACK_BYTES ((size_t)1 << 20)
#define OPEN        0x80000000u /* in `inside`: helpers may join; the other bits count those that have */

struct member {
	struct cpu_team *team;
	size_t worker;
	pthread_t thread;
};

struct cpu_team {
	_Atomic uint32_t number; /* of the job; changes wake the helpers */
	_Atomic uint32_t inside;
	_Atomic uint32_t sleepers;
	_Atomic size_t next; /* unit */
	_Atomic bool leave;
	size_t n;
	cpu_unit_fn *fn;
	void *ctx;
	size_t helpers;
	struct member member[];
};

static void
sleep_while(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void
wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void
breathe(void)
{
#if defined __x86_64__ || defined __i386__
	__builtin_ia32_pause();
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void
work(struct cpu_team *t, size_t worker)
{
	for (size_t u; (u = atomic_fetch_add(&t->next, 1)) < t->n;)
		t->fn(t->ctx, u, worker);
}

static bool
join(struct cpu_team *t)
{
	uint32_t inside = atomic_load(&t->inside);

	while (inside & OPEN)
		if (atomic_compare_exchange_weak(&t->inside, &inside, inside + 1))
			return true;
	return false;
}

/* Until the job's number is another than `seen`. */
static void
await_job(struct cpu_team *t, uint32_t seen)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&t->number) != seen)
			return;
		breathe();
	}
	atomic_fetch_add(&t->sleepers, 1);
	while (atomic_load(&t->number) == seen)
		sleep_while(&t->number, seen);
	atomic_fetch_sub(&t->sleepers, 1);
}

static void *
help(void *arg)
{
	const struct member *m = arg;
	struct cpu_team *t = m->team;
	uint32_t seen = 0;

	for (;;) {
		await_job(t, seen);
		seen = atomic_load(&t->number);
		if (atomic_load(&t->leave))
			return NULL;
		if (!join(t))
			continue;
		work(t, m->worker);
		if (atomic_fetch_sub(&t->inside, 1) == 1)
			wake(&t->inside);
	}
}

static void
announce(struct cpu_team *t)
{
	atomic_fetch_add(&t->number, 1);
	if (atomic_load(&t->sleepers) > 0)
		wake(&t->number);
}

/* Closes the job and waits for those who are still at it. */
static void
close_job(struct cpu_team *t)
{
	uint32_t inside = atomic_fetch_and(&t->inside, ~OPEN) & ~OPEN;

	for (int i = 0; inside > 0; inside = atomic_load(&t->inside)) {
		if (i++ < SPINS)
			breathe();
		else
			sleep_while(&t->inside, inside);
	}
}

void
cpu_team_run(struct cpu_team *t, size_t n, cpu_unit_fn *fn, void *ctx)
{
	if (t == NULL || t->helpers == 0 || n < 2) {
		for (size_t u = 0; u < n; u++)
			fn(ctx, u, 0);
		return;
	}
	t->n = n;
	t->fn = fn;
	t->ctx = ctx;
	atomic_store(&t->next, 0);
	atomic_store(&t->inside, OPEN);
	announce(t);
	work(t, 0);
	close_job(t);
}

struct cpu_team *
cpu_team_new(size_t threads)
{
	struct cpu_team *t = calloc(1, sizeof *t + (threads - 1) * sizeof t->member[0]);
	pthread_attr_t attr;

	if (t == NULL || pthread_attr_init(&attr) != 0)
		return t;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (size_t i = 0; i + 1 < threads; i++) {
		t->member[i].team = t;
		t->member[i].worker = i + 1;
		if (pthread_create(&t->member[i].thread, &attr, help, &t->member[i]) != 0)
			break;
		t->helpers++;
	}
	pthread_attr_destroy(&attr);
	return t;
}

void
cpu_team_free(struct cpu_team *t)
{
	if (t == NULL)
		return;
	atomic_store(&t->leave, true);
	announce(t);
	for (size_t i = 0; i < t->helpers; i++)
		pthread_join(t->member[i].thread, NULL);
	free(t);
}
