/* SPDX-License-Identifier: MIT
 * A block's shared memory: 0xff bytes (NaN) when the block starts; between variables a gap that nobody may touch.  The
 * launch's dynamic part ends where a page without access begins.
 */
#include "block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

enum {
	GAP = 64, /* bytes behind a variable */
	MARK = 0xa5,
	PAGE = 4096,
	DYNAMIC_ROOM = (SHARED_OPTIN + PAGE - 1) / PAGE * PAGE,
	STATIC_ROOM = SHARED_DEFAULT * 2,
	MAX_VARIABLES = 64,
};

struct variable {
	const void *key;
	char *p;
	size_t bytes;
};
static struct variable variables[MAX_VARIABLES];
static unsigned n_variables;
static char *fixed, *dynamic; /* dynamic: its first byte */
static char *dynamic_room;
static size_t used, wanted; /* of fixed, with gaps; without: what a card would need */

static void
open_room(void)
{
	char *p = (char *)mmap(NULL, STATIC_ROOM + DYNAMIC_ROOM + 3 * PAGE, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		complain("no memory for shared memory");
	fixed = p + PAGE;
	dynamic_room = fixed + STATIC_ROOM + PAGE;
	mprotect(fixed, STATIC_ROOM, PROT_READ | PROT_WRITE);
	mprotect(dynamic_room, DYNAMIC_ROOM, PROT_READ | PROT_WRITE);
	shim_poison(fixed, STATIC_ROOM);
	shim_poison(dynamic_room, DYNAMIC_ROOM);
}

/* Fresh pages, for TSan: what a block does with its memory is no business of the next one. */
static void
renew(size_t dynamic_bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	const size_t n = (used + PAGE - 1) / PAGE * PAGE, m = (dynamic_bytes + PAGE - 1) / PAGE * PAGE;

	if (n > 0)
		mmap(fixed, n, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (m > 0)
		mmap(dynamic_room + DYNAMIC_ROOM - m, m, PROT_READ | PROT_WRITE, flags, -1, 0);
}

void
shared_open(size_t dynamic_bytes)
{
	const size_t rounded = (dynamic_bytes + 15) / 16 * 16;

	if (fixed == NULL)
		open_room();
	if (shim_has_tsan())
		renew(rounded);
	n_variables = 0;
	used = wanted = 0;
	dynamic = dynamic_room + DYNAMIC_ROOM - rounded;
	shim_fill(dynamic, 0xff, dynamic_bytes);
	shim_fill(dynamic + dynamic_bytes, MARK, rounded - dynamic_bytes);
	if (rounded < DYNAMIC_ROOM)
		shim_fill(dynamic - 16, MARK, 16);
	shim_unpoison(dynamic, dynamic_bytes);
}

static bool
is_marked(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)p[i] != MARK)
			return false;
	return true;
}

void
shared_close(void)
{
	const size_t bytes = block.job->bytes, rounded = (bytes + 15) / 16 * 16;
	const uint3 b = kv_shim_grid.index;

	for (unsigned i = 0; i < n_variables; i++)
		if (!is_marked(variables[i].p + variables[i].bytes, GAP))
			complain("kernel %s, block (%u, %u, %u): a write behind the shared variable of %zu bytes",
			    block.job->name, b.x, b.y, b.z, variables[i].bytes);
	if (!is_marked(dynamic + bytes, rounded - bytes) || (rounded < DYNAMIC_ROOM && !is_marked(dynamic - 16, 16)))
		complain("kernel %s, block (%u, %u, %u): a write outside the %zu bytes of dynamic shared memory",
		    block.job->name, b.x, b.y, b.z, bytes);
	shim_poison(fixed, used);
	shim_poison(dynamic, rounded);
}

void *
kv_shim_shared(const void *key, size_t bytes, size_t align)
{
	struct variable *v;

	for (unsigned i = 0; i < n_variables; i++)
		if (variables[i].key == key)
			return variables[i].p;
	if (align < 16)
		align = 16;
	used = (used + align - 1) / align * align;
	wanted = (wanted + align - 1) / align * align + bytes;
	if (n_variables == MAX_VARIABLES || wanted > SHARED_DEFAULT || used + bytes + GAP > STATIC_ROOM)
		fault(self(), NULL, "%zu bytes of static shared memory; a block can have %d", wanted, SHARED_DEFAULT);
	if (wanted + block.job->bytes > device_shared())
		fault(self(), NULL, "%zu bytes of static and %zu of dynamic shared memory; a block can have %zu", wanted,
		    block.job->bytes, device_shared());
	v = &variables[n_variables++];
	v->key = key;
	v->p = fixed + used;
	v->bytes = bytes;
	used += bytes + GAP;
	shim_fill(v->p, 0xff, bytes);
	shim_fill(v->p + bytes, MARK, GAP);
	shim_unpoison(v->p, bytes);
	return v->p;
}

void *
kv_shim_dynamic_shared(void)
{
	return dynamic;
}

bool
kv_shim_is_shared(const void *p)
{
	const char *c = (const char *)p;

	return (c >= fixed && c < fixed + STATIC_ROOM) || (c >= dynamic && c < dynamic_room + DYNAMIC_ROOM);
}
