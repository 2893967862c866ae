/* SPDX-License-Identifier: MIT */
#include "lib/text/json_text.h"

#include <utf8proc.h>

#include "lib/buf.h"

json_t *
kv_json_text(const char *bytes, size_t n)
{
	const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)bytes;
	struct kv_buf b = { 0 };
	json_t *text = NULL;
	utf8proc_int32_t point;
	utf8proc_ssize_t m;
	int rc = kv_buf_reserve(&b, n, NULL);

	for (size_t i = 0; rc == KV_OK && i<n; i += m> 0 ? (size_t)m : 1) {
		m = utf8proc_iterate(s + i, (utf8proc_ssize_t)(n - i), &point);
		rc = m > 0 ? kv_buf_add(&b, bytes + i, (size_t)m, NULL) : kv_buf_add(&b, "\xef\xbf\xbd", 3, NULL);
	}
	if (rc == KV_OK)
		text = json_stringn(b.data, b.n);
	kv_buf_fini(&b);
	return text;
}
