/* SPDX-License-Identifier: MIT */
#include "lib/text/escape.h"

#include <string.h>
#include <utf8proc.h>

/* Bidirectional embeddings, overrides and isolates, and the two Unicode line ends: they reorder or break a line. */
static bool
reorders(utf8proc_int32_t c)
{
	return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

static bool
harmless(utf8proc_int32_t c)
{
	return c >= 0x20 && c != '\\' && (c < 0x7f || c > 0x9f) && !reorders(c);
}

/* The name of a byte that has one in C, else 0. */
static char
short_name(unsigned char c)
{
	switch (c) {
	case '\n': return 'n';
	case '\t': return 't';
	case '\r': return 'r';
	case '\\': return '\\';
	default: return 0;
	}
}

static int
escape_bytes(struct kv_buf *out, const unsigned char *p, size_t n, struct kv_err *e)
{
	int rc = KV_OK;

	for (size_t i = 0; i < n && rc == KV_OK; i++)
		rc = short_name(p[i]) ? kv_buf_printf(out, e, "\\%c", short_name(p[i]))
				      : kv_buf_printf(out, e, "\\x%02x", p[i]);
	return rc;
}

int
kv_escape(struct kv_buf *out, const char *bytes, size_t n, struct kv_err *e)
{
	const unsigned char *p = (const unsigned char *)bytes;
	int rc = KV_OK;

	for (size_t i = 0, step; i < n && rc == KV_OK; i += step) {
		utf8proc_int32_t c;
		size_t left = n - i;
		utf8proc_ssize_t got = utf8proc_iterate(p + i, left < 4 ? (utf8proc_ssize_t)left : 4, &c);

		step = got > 0 ? (size_t)got : 1;
		rc = got > 0 && harmless(c) ? kv_buf_add(out, p + i, step, e) : escape_bytes(out, p + i, step, e);
	}
	return rc;
}

int
kv_escape_string(struct kv_buf *out, const char *s, struct kv_err *e)
{
	return kv_escape(out, s, strlen(s), e);
}

/* One character of a JSON string. */
static int
escape_json(struct kv_buf *out, utf8proc_int32_t c, const unsigned char *p, size_t n, struct kv_err *e)
{
	if (c == '"' || c == '\\')
		return kv_buf_printf(out, e, "\\%c", (char)c);
	if (short_name((unsigned char)*p))
		return kv_buf_printf(out, e, "\\%c", short_name(*p));
	return harmless(c) ? kv_buf_add(out, p, n, e) : kv_buf_printf(out, e, "\\u%04x", (unsigned)c);
}

int
kv_escape_json(struct kv_buf *out, const char *bytes, size_t n, struct kv_err *e)
{
	const unsigned char *p = (const unsigned char *)bytes;
	int rc = kv_buf_add(out, "\"", 1, e);

	for (size_t i = 0, step; i < n && rc == KV_OK; i += step) {
		utf8proc_int32_t c;
		size_t left = n - i;
		utf8proc_ssize_t got = utf8proc_iterate(p + i, left < 4 ? (utf8proc_ssize_t)left : 4, &c);

		step = got > 0 ? (size_t)got : 1;
		rc = escape_json(out, got > 0 ? c : 0xfffd, got > 0 ? p + i : (const unsigned char *)"\xef\xbf\xbd",
		    got > 0 ? step : 3, e);
	}
	return rc < 0 ? rc : kv_buf_add(out, "\"", 1, e);
}

size_t
kv_display_width(const char *escaped, size_t n)
{
	const unsigned char *p = (const unsigned char *)escaped;
	size_t width = 0;

	for (size_t i = 0; i < n;) {
		utf8proc_int32_t c;
		utf8proc_ssize_t got = utf8proc_iterate(p + i, (utf8proc_ssize_t)(n - i), &c);

		width += got > 0 ? (size_t)utf8proc_charwidth(c) : 1;
		i += got > 0 ? (size_t)got : 1;
	}
	return width;
}
