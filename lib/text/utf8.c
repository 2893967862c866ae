/* SPDX-License-Identifier: MIT */
#include "lib/text/utf8.h"

#include "lib/text/tokenizer.h"

/* What a first byte says: the length, and the range of the second byte (the others are 80..BF). */
struct lead {
	unsigned char from, to, n, second_from, second_to;
};

static const struct lead leads[] = {
	{ 0x00, 0x7f, 1, 0x00, 0x00 }, { 0xc2, 0xdf, 2, 0x80, 0xbf }, { 0xe0, 0xe0, 3, 0xa0, 0xbf },
	{ 0xe1, 0xec, 3, 0x80, 0xbf }, { 0xed, 0xed, 3, 0x80, 0x9f }, { 0xee, 0xef, 3, 0x80, 0xbf },
	{ 0xf0, 0xf0, 4, 0x90, 0xbf }, { 0xf1, 0xf3, 4, 0x80, 0xbf }, { 0xf4, 0xf4, 4, 0x80, 0x8f },
};

int
kv_utf8_char(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	const struct lead *l = leads;

	if (n == 0)
		return -1;
	while (l < leads + sizeof leads / sizeof *leads && (p[0] < l->from || p[0] > l->to))
		l++;
	if (l == leads + sizeof leads / sizeof *leads)
		return 0;
	for (size_t i = 1; i < l->n; i++) {
		if (i == n)
			return -1;
		if (p[i] < (i == 1 ? l->second_from : 0x80) || p[i] > (i == 1 ? l->second_to : 0xbf))
			return 0;
	}
	return l->n;
}

size_t
kv_utf8_run(const char *text, size_t n, bool *valid)
{
	size_t i = 0;

	*valid = n > 0 && kv_utf8_char(text, n) > 0;
	while (i < n) {
		int k = (unsigned char)text[i] < 0x80 ? 1 : kv_utf8_char(text + i, n - i);

		if ((k > 0) != *valid)
			break;
		i += k > 0 ? (size_t)k : 1;
	}
	return i;
}

size_t
kv_utf8_ready(const char *bytes, size_t n)
{
	for (size_t tail = 1; tail <= 3 && tail <= n; tail++)
		if (kv_utf8_char(bytes + n - tail, tail) == -1)
			return n - tail;
	return n;
}
