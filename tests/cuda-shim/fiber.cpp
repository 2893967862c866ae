/* SPDX-License-Identifier: MIT */
#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sanitizer.h"

enum { STACK = 256 << 10, PAGE = 4096 }; /* bytes; only what a thread touches becomes memory */

#if defined(__x86_64__)

extern "C" __attribute__((visibility("hidden"))) void shim_switch(void **save, void *load);

/* Callee-saved registers on the old stack, its pointer to *save, then the same backwards. */
__asm__(".text\n"
	".hidden shim_switch\n"
	".globl shim_switch\n"
	".type shim_switch, @function\n"
	"shim_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size shim_switch, . - shim_switch\n");

void
fiber_prepare(struct fiber *f, void (*entry)(void))
{
	/* Stacks start at different places in their pages, or all would want the same lines of the cache. */
	const size_t colour = ((uintptr_t)f->bottom / (STACK + PAGE) % 31) * 128;
	char *top = (char *)f->bottom + f->bytes - colour;
	void **sp = (void **)(void *)top - 8;

	for (int i = 0; i < 6; i++)
		sp[i] = NULL;
	sp[6] = (void *)entry;
	sp[7] = NULL; /* where a debugger stops */
	f->sp = sp;
}

static void
jump(struct fiber *from, struct fiber *to)
{
	shim_switch(&from->sp, to->sp);
}

#else /* a system call at each switch */

void
fiber_prepare(struct fiber *f, void (*entry)(void))
{
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = (void *)f->bottom;
	f->context.uc_stack.ss_size = f->bytes;
	f->context.uc_link = NULL;
	makecontext(&f->context, entry, 0);
}

static void
jump(struct fiber *from, struct fiber *to)
{
	swapcontext(&from->context, &to->context);
}

#endif

static struct fiber *came_from; /* of the last switch, until its bounds are known */
static struct fiber *spare;

static void
arrived(void *fake)
{
	const void *bottom;
	size_t bytes;

	if (__sanitizer_finish_switch_fiber == NULL)
		return;
	__sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
	if (came_from->bottom == NULL) { /* the stack of an OS thread: only ASan knows it */
		came_from->bottom = bottom;
		came_from->bytes = bytes;
	}
}

void
fiber_begin(void)
{
	arrived(NULL);
}

void
fiber_switch(struct fiber *from, struct fiber *to, bool last)
{
	came_from = from;
	if (__sanitizer_start_switch_fiber != NULL)
		__sanitizer_start_switch_fiber(last ? NULL : &from->fake, to->bottom, to->bytes);
	if (shim_has_tsan())
		__tsan_switch_to_fiber(to->tsan, 1); /* 1: implies no order */
	jump(from, to);
	arrived(from->fake);
}

static struct fiber *
new_fiber(void)
{
	struct fiber *f = (struct fiber *)calloc(1, sizeof(*f));
	char *p = (char *)mmap(NULL, PAGE + STACK, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (f == NULL || p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE) != 0) {
		fprintf(stderr, "cuda-shim: no memory for the stack of a thread\n");
		abort();
	}
	f->bottom = p + PAGE;
	f->bytes = STACK;
	if (shim_has_tsan())
		f->tsan = __tsan_create_fiber(0);
	return f;
}

struct fiber *
fiber_take(void)
{
	struct fiber *f = spare;

	if (f == NULL)
		return new_fiber();
	spare = f->next;
	return f;
}

void
fiber_give(struct fiber *f)
{
	f->next = spare;
	spare = f;
}

void
fiber_is_here(struct fiber *f)
{
	memset(f, 0, sizeof(*f));
	if (shim_has_tsan())
		f->tsan = __tsan_get_current_fiber();
}
