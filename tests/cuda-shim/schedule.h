/* SPDX-License-Identifier: MIT
 * Who runs next: KV_SHIM_SCHEDULE, in {fifo, lifo, reverse, random:SEED}, orders threads and blocks.
 *
 * A correct kernel computes the same under all of them; a missing barrier shows under some.
 */
#ifndef SHIM_SCHEDULE_H
#define SHIM_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_THREADS = 1024 };

enum order {
	FIFO,    /* in the order of indices, as they become ready */
	LIFO,    /* the last to become ready first: a warp runs as far as it can; blocks backwards */
	REVERSE, /* like fifo, indices backwards */
	RANDOM
};

struct schedule {
	enum order order;
	uint64_t seed;   /* of the next choice among threads */
	uint64_t blocks; /* of the order of blocks, one per launch */
	uint16_t ready[MAX_THREADS * 2]; /* a ring */
	unsigned first, n;
};

/* From the environment; a value that means nothing is reported, and the program ends. */
void schedule_read(struct schedule *s);

void schedule_clear(struct schedule *s);
void schedule_add(struct schedule *s, unsigned thread);
/* false when nobody is ready. */
bool schedule_take(struct schedule *s, unsigned *thread);
/* Threads 0 .. n-1, or those of a list in ascending order, become ready at once. */
void schedule_add_all(struct schedule *s, unsigned n);

/* The block that runs as number i of n. */
uint64_t schedule_block(const struct schedule *s, uint64_t i, uint64_t n);

#endif
