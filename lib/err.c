/* SPDX-License-Identifier: MIT */
#include "lib/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int
kv_fail(struct kv_err *e, int code, const char *fmt, ...)
{
	char text[KV_ERR_TEXT]; /* the arguments may point into e->text */
	va_list ap;

	if (e == NULL)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(e->text, text, sizeof text);
	e->code = code;
	return code;
}

int
kv_where(struct kv_err *e, const char *fmt, ...)
{
	char where[KV_ERR_TEXT];
	size_t n;
	va_list ap;

	if (e == NULL)
		return KV_EFAIL;
	va_start(ap, fmt);
	vsnprintf(where, sizeof where - 2, fmt, ap);
	va_end(ap);
	strcat(where, ": ");
	n = strlen(where);
	memmove(e->text + n, e->text, KV_ERR_TEXT - n);
	memcpy(e->text, where, n);
	e->text[KV_ERR_TEXT - 1] = '\0';
	return e->code;
}

int
kv_no_memory(struct kv_err *e, unsigned long long bytes)
{
	return kv_fail(e, KV_EMEM, "out of memory (%llu bytes wanted)", bytes);
}
