/* SPDX-License-Identifier: MIT
 * Messages and progress, to standard error. */
#include "bin/command.h"
#include "lib/clock.h"
#include "lib/text/escape.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool progress_shown;

static const char *
name(void)
{
	return kv_command.tool != NULL ? kv_command.tool->name : "kvtools";
}

/* It may quote what a file or a caller says, and they may say anything to a terminal. */
void
kv_message(const char *kind, const char *fmt, va_list ap)
{
	struct kv_buf line = { 0 };
	char *text = NULL;

	kv_progress_end();
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	if (text == NULL || kv_escape(&line, text, strlen(text), NULL) < 0)
		fprintf(stderr, "%s: %sout of memory\n", name(), kind);
	else
		fprintf(stderr, "%s: %s%s\n", name(), kind, line.data != NULL ? line.data : "");
	kv_buf_fini(&line);
	free(text);
}

void
kv_complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	kv_message("", fmt, ap);
	va_end(ap);
}

void
kv_warn(const char *fmt, ...)
{
	va_list ap;

	if (kv_common.quiet)
		return;
	va_start(ap, fmt);
	kv_message("warning: ", fmt, ap);
	va_end(ap);
}

void
kv_note(const char *fmt, ...)
{
	va_list ap;

	if (!kv_common.verbose)
		return;
	va_start(ap, fmt);
	kv_message("", fmt, ap);
	va_end(ap);
}

void
kv_progress(const char *what, size_t done, size_t total)
{
	static double first, last;
	double now = kv_seconds();

	if (first == 0)
		first = now;
	if (kv_common.quiet || now - first < 1.0 || now - last < 0.1 || !isatty(STDERR_FILENO))
		return;
	last = now;
	progress_shown = true;
	fprintf(stderr, "\r%s: %s %zu/%zu\033[K", name(), what, done, total);
	fflush(stderr);
}

void
kv_progress_end(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}
