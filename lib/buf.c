/* SPDX-License-Identifier: MIT */
#include "lib/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
kv_buf_fini(struct kv_buf *b)
{
	if (b == NULL)
		return;
	free(b->data);
	*b = (struct kv_buf){ 0 };
}

int
kv_buf_reserve(struct kv_buf *b, size_t more, struct kv_err *e)
{
	size_t need = b->n + more + 1, cap = b->cap ? b->cap : 64;
	char *p;

	if (need <= more)
		return kv_no_memory(e, SIZE_MAX);
	if (need <= b->cap)
		return KV_OK;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	if ((p = realloc(b->data, cap)) == NULL)
		return kv_no_memory(e, cap);
	if (b->data == NULL)
		p[0] = '\0';
	b->data = p;
	b->cap = cap;
	return KV_OK;
}

int
kv_buf_add(struct kv_buf *b, const void *bytes, size_t n, struct kv_err *e)
{
	int rc = kv_buf_reserve(b, n, e);

	if (rc < 0)
		return rc;
	if (n > 0)
		memcpy(b->data + b->n, bytes, n);
	b->n += n;
	b->data[b->n] = '\0';
	return KV_OK;
}

int
kv_buf_printf(struct kv_buf *b, struct kv_err *e, const char *fmt, ...)
{
	va_list ap;
	int n, rc;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return kv_fail(e, KV_EFAIL, "cannot format '%s'", fmt);
	if ((rc = kv_buf_reserve(b, (size_t)n, e)) < 0)
		return rc;
	va_start(ap, fmt);
	vsnprintf(b->data + b->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
	return KV_OK;
}

bool
kv_mul(size_t a, size_t b, size_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

/* n * size bytes by calloc or malloc. */
static void *
take(size_t n, size_t size, bool zeroed, struct kv_err *e)
{
	size_t bytes;
	void *p;

	if (!kv_mul(n, size, &bytes)) {
		kv_no_memory(e, SIZE_MAX);
		return NULL;
	}
	bytes += bytes == 0;
	if ((p = zeroed ? calloc(bytes, 1) : malloc(bytes)) == NULL)
		kv_no_memory(e, bytes);
	return p;
}

void *
kv_alloc(size_t n, size_t size, struct kv_err *e)
{
	return take(n, size, true, e);
}

void *
kv_alloc_unset(size_t n, size_t size, struct kv_err *e)
{
	return take(n, size, false, e);
}
