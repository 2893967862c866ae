/* SPDX-License-Identifier: MIT
 * The block that runs, which the engine's parts share.  One block runs at a time, under the run-time's lock.
 */
#ifndef SHIM_BLOCK_H
#define SHIM_BLOCK_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#error "the shim's own sources are never built with sanitizers, only kernels are: README.md"
#endif

#include <cuda_runtime.h>

#include "fiber.h"
#include "sanitizer.h"
#include "schedule.h"

enum {
	LANES = 32,
	MAX_WARPS = MAX_THREADS / LANES,
	SHARED_DEFAULT = 48 << 10, /* bytes of shared memory that a kernel has without asking */
	SHARED_OPTIN = 227 << 10,  /* and that it can ask for */
	SHARED_OWN = 1 << 10,      /* kept back per block */
};

/* Why a thread waits, or last waited. */
struct place {
	const char *what, *file;
	int line;
};

struct thread : kv_shim_thread {
	unsigned id, warp;
	struct fiber *on; /* NULL: not started */
	struct place at;
	/* what it brought to a meeting of its warp */
	unsigned mask;
	kv_shim_compute *compute;
	struct kv_shim_copy *copies; /* a ring of max_copies, a power of two; see shim/async.h */
	unsigned first_copy, n_copies, max_copies, group;
};

struct warp {
	unsigned waiting, exited; /* bits by lane */
	void *brought[LANES];
	unsigned phase;
	char sync[2]; /* addresses that TSan knows meetings by, in turn */
};

struct block {
	const struct kv_shim_job *job;
	unsigned n, n_exited, n_arrived; /* threads; arrived: at the barrier */
	struct thread *a_waiter, *a_leaver;
	unsigned phase;
	int votes[2]; /* of two barriers in turn: a thread that is late still reads the old one */
	char sync[2], start, end;
	struct schedule schedule;
	struct fiber host;
	struct thread threads[MAX_THREADS];
	struct warp warps[MAX_WARPS];
};
extern struct block block;

static inline struct thread *
self(void)
{
	return static_cast<struct thread *>(kv_shim_now);
}

/* block.cpp: every block of a launch, one after another. */
void run_grid(const struct kv_shim_job *job);
/* The running thread waits until somebody adds it to the schedule. */
void give_way(void);

/* meet.cpp: whoever still counts on the thread that ends. */
void meet_exit(struct thread *t);

/* shared.cpp */
void shared_open(size_t dynamic_bytes); /* before a block */
void shared_close(void);                /* after it: nothing was written outside */

/* report.cpp: what happened where, on stderr; never returns.  fault(): of a thread; the others: outside kernels. */
void fault(const struct thread *t, const struct place *at, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void complain(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* A bad access inside a kernel is reported with kernel, block and thread. */
void report_open(void);
void report_close(void);

#endif
