/* SPDX-License-Identifier: MIT
 * Lists of tensor names as options have them: "k,v,score.*"; behind a star may come whatever.
 */
#ifndef KV_NAMES_H
#define KV_NAMES_H

#include <stdbool.h>

#include "lib/err.h"

/* Fails: KV_EARG (an empty name, a space, a star that is not at a name's end).  NULL is no list and fine. */
int kv_names_check(const char *list, struct kv_err *e);
/* Is this one of them?  Nothing is in NULL. */
bool kv_names_have(const char *list, const char *name);
/* The list behind its first name, NULL if there is no more; and is the first one this? */
const char *kv_names_next(const char *list);
bool kv_names_first_is(const char *list, const char *name);

#endif
