/* SPDX-License-Identifier: MIT
 * Stacks and the switch between them.
 */
#ifndef SHIM_FIBER_H
#define SHIM_FIBER_H

#include <stddef.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct fiber {
#if defined(__x86_64__)
	void *sp;
#else
	ucontext_t context;
#endif
	const void *bottom; /* lowest address of the stack */
	size_t bytes;
	void *fake; /* ASan's own stack of a fiber that waits */
	void *tsan; /* what TSan takes for a thread */
	struct fiber *next;
};

/* A stack that runs entry() when it is switched to; entry() must not return. */
void fiber_prepare(struct fiber *f, void (*entry)(void));
/* To be called first in entry(). */
void fiber_begin(void);
/* From one to the other; `last`: from is never continued, only prepared again. */
void fiber_switch(struct fiber *from, struct fiber *to, bool last);

/* A stack; all are kept for good. */
struct fiber *fiber_take(void);
void fiber_give(struct fiber *f);

/* The stack that the calling OS thread runs on; TSan's view of it. */
void fiber_is_here(struct fiber *f);

#endif
