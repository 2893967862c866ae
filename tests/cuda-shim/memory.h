/* SPDX-License-Identifier: MIT
 * The address range of device memory; memory.cpp and ipc.cpp.
 */
#ifndef SHIM_MEMORY_H
#define SHIM_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PAGE = 4096, ALIGN = 256 };

/* Whole pages of a file in memory; the allocation ends within ALIGN bytes of their end, where the next page has no
 * access. */
struct allocation {
	char *pages, *p;
	size_t n_bytes, page_bytes;
	off_t at; /* of the pages in the file */
	int device;
	bool imported;     /* from another process */
	unsigned n_opened; /* of imported ones */
	char handle[64];
};

struct allocation *memory_find(const void *p);
/* A place for page_bytes without access behind it, NULL when addresses are used up. */
char *memory_place(size_t page_bytes);
/* Pages of a file at that place. */
bool memory_map(char *place, size_t page_bytes, int file, off_t at);
void memory_add(const struct allocation *a);
void memory_drop(struct allocation *a);
int memory_file(void);

#endif
