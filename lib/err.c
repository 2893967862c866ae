/* SPDX-License-Identifier: MIT */
#include "lib/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that is too long loses its middle: at its start is the place, at its end the reason. */
static void
shorten(char *out, size_t cap, const char *text)
{
	static const char gap[] = "...";
	size_t n = strlen(text), head = cap / 2 - sizeof gap, tail = cap - head - sizeof gap;

	if (n < cap) {
		memcpy(out, text, n + 1);
		return;
	}
	memcpy(out, text, head);
	memcpy(out + head, gap, sizeof gap - 1);
	memcpy(out + head + sizeof gap - 1, text + n - tail, tail + 1);
}

static void
print(char *out, size_t cap, const char *fmt, va_list ap)
{
	char *text = NULL;
	va_list again;

	va_copy(again, ap);
	if (vasprintf(&text, fmt, ap) >= 0)
		shorten(out, cap, text);
	else
		vsnprintf(out, cap, fmt, again); /* no memory */
	va_end(again);
	free(text);
}

int
kv_fail(struct kv_err *e, int code, const char *fmt, ...)
{
	char text[KV_ERR_TEXT]; /* the arguments may point into e->text */
	va_list ap;

	if (e == NULL)
		return code;
	va_start(ap, fmt);
	print(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(e->text, text, sizeof text);
	e->code = code;
	e->device = NULL;
	return code;
}

int
kv_where(struct kv_err *e, const char *fmt, ...)
{
	char where[KV_ERR_TEXT / 2]; /* the other half is the sentence's */
	char sentence[KV_ERR_TEXT];
	size_t n;
	va_list ap;

	if (e == NULL)
		return KV_EFAIL;
	va_start(ap, fmt);
	print(where, sizeof where - 2, fmt, ap);
	va_end(ap);
	strcat(where, ": ");
	n = strlen(where);
	shorten(sentence, sizeof sentence - n, e->text);
	memcpy(e->text + n, sentence, strlen(sentence) + 1);
	memcpy(e->text, where, n);
	return e->code;
}

int
kv_no_memory(struct kv_err *e, unsigned long long bytes)
{
	return kv_fail(e, KV_EMEM, "out of memory (%llu bytes wanted)", bytes);
}
