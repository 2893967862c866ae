/* SPDX-License-Identifier: MIT
 * The text of a device that lacks memory: one for its backend and for whoever asked it. */
#ifndef KERNELS_LACK_H
#define KERNELS_LACK_H

#include <stddef.h>
#include <stdio.h>

enum { KVK_LACK_TEXT = 96 };

/* In the largest unit that it has one of: text has KVK_LACK_TEXT / 4 bytes. */
static inline const char *
kvk_lack_amount(char *text, size_t bytes)
{
	const size_t room = KVK_LACK_TEXT / 4;

	if (bytes >= 1000000)
		snprintf(text, room, "%.1f MB", (double)bytes / 1e6);
	else if (bytes >= 1000)
		snprintf(text, room, "%.1f KB", (double)bytes / 1e3);
	else
		snprintf(text, room, "%u bytes", (unsigned)bytes);
	return text;
}

/* text has KVK_LACK_TEXT bytes. */
static inline const char *
kvk_lack(char *text, size_t wanted, size_t free_bytes)
{
	char w[KVK_LACK_TEXT / 4], f[KVK_LACK_TEXT / 4];

	snprintf(text, KVK_LACK_TEXT, "out of device memory (%s wanted, %s free)", kvk_lack_amount(w, wanted),
	    kvk_lack_amount(f, free_bytes));
	return text;
}

#endif
