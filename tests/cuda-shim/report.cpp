/* SPDX-License-Identifier: MIT
 * Reports: one line on stderr, then abort(), so that no test passes over them.
 */
#include "block.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

/* "kernel NAME, block (x, y, z), thread (x, y, z): " */
static int
write_where(char *text, size_t room, const struct thread *t)
{
	const uint3 b = kv_shim_grid.index;

	if (block.job == NULL)
		return 0;
	if (t == NULL)
		return snprintf(text, room, "kernel %s: ", block.job->name);
	return snprintf(text, room, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ", block.job->name, b.x, b.y,
	    b.z, t->index.x, t->index.y, t->index.z);
}

void
fault(const struct thread *t, const struct place *at, const char *fmt, ...)
{
	char where[512] = "";
	va_list ap;

	write_where(where, sizeof(where), t);
	fprintf(stderr, "cuda-shim: %s", where);
	if (at != NULL && at->file != NULL)
		fprintf(stderr, "%s:%d: ", at->file, at->line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(NULL);
	abort();
}

void
kv_shim_fault(const char *file, int line, const char *fmt, ...)
{
	const struct place at = { "", file, line };
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fault(self(), &at, "%s", text);
}

void
complain(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "cuda-shim: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(NULL);
	abort();
}

/* ---- bad accesses.  The handler tells where, then lets the one that was there before (a sanitizer's, the test's)
 * see the same access again. */
static const int signals[] = { SIGSEGV, SIGBUS };
static struct sigaction before[2];
static unsigned n_open;

static void
tell(int signal, siginfo_t *info, void *context)
{
	char text[768];
	int n;

	(void)context;
	n = snprintf(text, sizeof(text), "cuda-shim: ");
	n += write_where(text + n, sizeof(text) - (size_t)n, self());
	n += memory_describe(text + n, sizeof(text) - (size_t)n, info->si_addr);
	text[n++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(127);
	for (unsigned i = 0; i < 2; i++)
		if (signals[i] == signal)
			sigaction(signal, &before[i], NULL);
}

/* Not on the stack of a fiber, which may be what has overflowed. */
static void
give_stack(void)
{
	static __thread char *mine;
	stack_t s;

	if (mine != NULL || (sigaltstack(NULL, &s) == 0 && !(s.ss_flags & SS_DISABLE)))
		return;
	memset(&s, 0, sizeof(s));
	s.ss_size = 64 << 10;
	s.ss_sp = mine = (char *)malloc(s.ss_size);
	if (mine != NULL)
		sigaltstack(&s, NULL);
}

/* ASan has the access, the shim has the thread. */
static void
tell_after_asan(const char *report)
{
	char text[512];

	(void)report;
	if (write_where(text, sizeof(text), self()) > 0)
		fprintf(stderr, "cuda-shim: %sfound by ASan\n", text);
}

void
report_open(void)
{
	struct sigaction a;

	if (n_open++ > 0)
		return;
	give_stack();
	if (__asan_set_error_report_callback != NULL)
		__asan_set_error_report_callback(tell_after_asan);
	memset(&a, 0, sizeof(a));
	a.sa_sigaction = tell;
	a.sa_flags = SA_SIGINFO | SA_ONSTACK;
	for (unsigned i = 0; i < 2; i++)
		sigaction(signals[i], &a, &before[i]);
}

void
report_close(void)
{
	if (--n_open > 0)
		return;
	for (unsigned i = 0; i < 2; i++)
		sigaction(signals[i], &before[i], NULL);
}
