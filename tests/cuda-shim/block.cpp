/* SPDX-License-Identifier: MIT
 * A block: its threads start one after another, each on the stack of one that has ended if there is one; barriers.
 */
#include "block.h"

#include <stdio.h>

struct block block;
struct kv_shim_thread *kv_shim_now;
struct kv_shim_grid kv_shim_grid;

static void worker(void);

/* Whoever is ready, on a stack.  Nobody, while not all have ended: they wait for each other. */
static struct thread *
next_thread(void)
{
	unsigned id;

	if (schedule_take(&block.schedule, &id))
		return &block.threads[id];

	const struct thread *a = NULL;

	for (unsigned i = 0; i < block.n; i++) {
		const struct thread *t = &block.threads[i];

		if (t->at.what == NULL)
			continue;
		if (a == NULL)
			a = t;
		else if (t->at.what != a->at.what || t->at.line != a->at.line)
			fault(a, &a->at, "divergence: waits in %s, while thread %u waits in %s at %s:%d", a->at.what, i,
			    t->at.what, t->at.file, t->at.line);
	}
	fault(a, a != NULL ? &a->at : NULL, "divergence: waits in %s for lanes that wait for others",
	    a != NULL ? a->at.what : "?");
}

static void
start(struct thread *t, struct fiber *on)
{
	t->on = on;
	kv_shim_now = t;
	shim_acquire(&block.start);
}

static void
resume(struct fiber *from, struct thread *t, bool last)
{
	if (t->on == NULL) {
		t->on = fiber_take();
		fiber_prepare(t->on, worker);
	}
	kv_shim_now = t;
	fiber_switch(from, t->on, last);
}

void
give_way(void)
{
	struct thread *t = self(), *next = next_thread();

	if (next != t)
		resume(t->on, next, false);
	t->at.what = NULL;
}

static void
leave(struct thread *t)
{
	shim_release(&block.end);
	block.n_exited++;
	block.a_leaver = t;
	meet_exit(t);
	if (block.n_arrived > 0)
		fault(block.a_waiter, &block.a_waiter->at, "%s, but thread (%u, %u, %u) has returned before",
		    block.a_waiter->at.what, t->index.x, t->index.y, t->index.z);
}

/* A stack's life: thread after thread from start to end.  Under TSan a thread keeps a stack of its own, for what one
 * thread did on a stack is no business of another. */
static void
worker(void)
{
	fiber_begin();
	start(self(), self()->on);
	for (;;) {
		struct thread *t = self(), *next;

		block.job->call(block.job->arguments);
		leave(t);
		if (block.n_exited == block.n)
			break;
		next = next_thread();
		if (next->on == NULL && !shim_has_tsan()) {
			start(next, t->on);
			continue;
		}
		if (!shim_has_tsan())
			fiber_give(t->on);
		resume(t->on, next, true);
	}
	if (!shim_has_tsan())
		fiber_give(self()->on);
	fiber_switch(self()->on, &block.host, true);
}

static void
prepare_threads(void)
{
	const dim3 d = block.job->block;
	struct thread *t = block.threads;

	block.n = d.x * d.y * d.z;
	for (unsigned z = 0; z < d.z; z++)
		for (unsigned y = 0; y < d.y; y++)
			for (unsigned x = 0; x < d.x; x++, t++) {
				t->id = (unsigned)(t - block.threads);
				t->index.x = x;
				t->index.y = y;
				t->index.z = z;
				t->lane = t->id % LANES;
				t->warp = t->id / LANES;
			}
}

static struct fiber *
named_fiber(unsigned thread)
{
	struct fiber *f = fiber_take();
	char name[32];

	snprintf(name, sizeof(name), "CUDA thread %u", thread);
	__tsan_set_fiber_name(f->tsan, name);
	return f;
}

static void
prepare_block(void)
{
	block.n_exited = block.n_arrived = 0;
	for (unsigned i = 0; i < block.n; i++) {
		struct thread *t = &block.threads[i];

		if (!shim_has_tsan()) {
			t->on = NULL;
		} else {
			if (t->on == NULL)
				t->on = named_fiber(i);
			fiber_prepare(t->on, worker);
		}
		t->at.what = NULL;
		t->first_copy = t->n_copies = t->group = 0;
	}
	for (unsigned i = 0; i < block.n / LANES; i++)
		block.warps[i].waiting = block.warps[i].exited = 0;
	schedule_clear(&block.schedule);
	schedule_add_all(&block.schedule, block.n);
}

void
run_grid(const struct kv_shim_job *job)
{
	const uint64_t n = (uint64_t)job->grid.x * job->grid.y * job->grid.z;

	block.job = job;
	kv_shim_grid.grid = job->grid;
	kv_shim_grid.block = job->block;
	schedule_read(&block.schedule);
	fiber_is_here(&block.host);
	prepare_threads();
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t b = schedule_block(&block.schedule, i, n);

		kv_shim_grid.index.x = (unsigned)(b % job->grid.x);
		kv_shim_grid.index.y = (unsigned)(b / job->grid.x % job->grid.y);
		kv_shim_grid.index.z = (unsigned)(b / job->grid.x / job->grid.y);
		prepare_block();
		shared_open(job->bytes);
		shim_release(&block.start);
		resume(&block.host, next_thread(), false);
		kv_shim_now = NULL;
		shared_close();
	}
	shim_acquire(&block.end);
	block.job = NULL;
}

int
kv_shim_barrier(enum kv_shim_vote how, int predicate, const char *file, int line)
{
	struct thread *t = self();
	const unsigned phase = block.phase;
	int *votes = &block.votes[phase];

	t->at = { "__syncthreads", file, line };
	if (block.n_exited > 0)
		fault(t, &t->at, "__syncthreads, but thread (%u, %u, %u) has returned before", block.a_leaver->index.x,
		    block.a_leaver->index.y, block.a_leaver->index.z);
	if (block.n_arrived == 0) {
		block.a_waiter = t;
		*votes = how == KV_SHIM_AND;
	} else if (block.a_waiter->at.line != line || block.a_waiter->at.file != file) {
		fault(t, &t->at, "divergent barrier: thread (%u, %u, %u) waits in the one at %s:%d",
		    block.a_waiter->index.x, block.a_waiter->index.y, block.a_waiter->index.z,
		    block.a_waiter->at.file, block.a_waiter->at.line);
	}
	if (how == KV_SHIM_COUNT)
		*votes += predicate != 0;
	else if (how == KV_SHIM_AND)
		*votes &= predicate != 0;
	else if (how == KV_SHIM_OR)
		*votes |= predicate != 0;
	shim_release(&block.sync[phase]);
	if (++block.n_arrived < block.n) {
		give_way();
	} else {
		block.n_arrived = 0;
		block.phase = !phase;
		/* All are ready, this one too: who goes first is the schedule's choice. */
		schedule_add_all(&block.schedule, block.n);
		give_way();
	}
	shim_acquire(&block.sync[phase]);
	return *votes;
}
