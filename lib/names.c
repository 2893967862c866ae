/* SPDX-License-Identifier: MIT */
#include "lib/names.h"

#include <ctype.h>
#include <string.h>

static bool
has_blank(const char *s)
{
	for (; *s != '\0'; s++)
		if (isspace((unsigned char)*s) || iscntrl((unsigned char)*s))
			return true;
	return false;
}

int
kv_names_check(const char *list, struct kv_err *e)
{
	const char *at = list;
	size_t n, plain;

	if (list == NULL)
		return KV_OK;
	if (has_blank(list))
		return kv_fail(
		    e, KV_EARG, "'%s': a space in a list of tensor names, which are separated by commas", list);
	for (;; at += n + 1) {
		n = strcspn(at, ",");
		plain = strcspn(at, "*,");
		if (n == 0 || plain + 1 < n)
			return kv_fail(e, KV_EARG,
			    "'%s' is not a list of tensor names separated by commas, a * at a name's end", list);
		if (at[n] == '\0')
			return KV_OK;
	}
}

const char *
kv_names_next(const char *at)
{
	at += strcspn(at, ",");
	return *at == ',' ? at + 1 : NULL;
}

bool
kv_names_first_is(const char *at, const char *name)
{
	size_t n = strcspn(at, ",");

	return n > 0 && at[n - 1] == '*' ? strncmp(at, name, n - 1) == 0
					 : n == strlen(name) && memcmp(at, name, n) == 0;
}

bool
kv_names_have(const char *list, const char *name)
{
	for (const char *at = list; at != NULL; at = kv_names_next(at))
		if (kv_names_first_is(at, name))
			return true;
	return false;
}
