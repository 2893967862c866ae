/* SPDX-License-Identifier: MIT
 * Device memory: one range of addresses, backed by one file in memory so that other processes can map parts of it.  New
 * memory is 0xff bytes (NaN); freed addresses are not used again before all others were.
 */
#include "memory.h"

#include <fcntl.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "block.h"
#include "runtime.h"

enum { MARK = 0xa5 };

static const size_t range = (size_t)1 << 37; /* bytes of addresses */
static char *base;
static int file = -1;
static size_t cursor;
static size_t in_use;
static unsigned n_open;
static std::map<uintptr_t, struct allocation> *all; /* by p; never deleted */

static bool
is_guarded(void)
{
	static int guarded = -1;

	if (guarded < 0) {
		const char *text = getenv("KV_SHIM_GUARD");

		guarded = text != NULL && strcmp(text, "1") == 0;
	}
	return guarded;
}

static void
open_range(void)
{
	if (base != NULL)
		return;
	all = new std::map<uintptr_t, struct allocation>;
	file = (int)memfd_create("cuda-shim", MFD_CLOEXEC);
	base = (char *)mmap(NULL, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (file < 0 || base == MAP_FAILED || ftruncate(file, (off_t)range) != 0)
		complain("no range of addresses for device memory");
	if (is_guarded())
		report_open(); /* for good: what the host touches */
}

int
memory_file(void)
{
	return file;
}

struct allocation *
memory_find(const void *p)
{
	if (all == NULL)
		return NULL;

	auto next = all->upper_bound((uintptr_t)p);

	if (next == all->begin())
		return NULL;

	struct allocation *a = &std::prev(next)->second;

	return (const char *)p < a->p + a->n_bytes || p == a->p ? a : NULL;
}

char *
memory_place(size_t page_bytes)
{
	open_range();
	/* Twice around at most: once to the end, once from the start past what is still in use. */
	for (int round = 0; round < 2; round++, cursor = 0) {
		for (const auto &entry : *all) {
			const size_t from = (size_t)(entry.second.pages - base);
			const size_t to = from + entry.second.page_bytes + PAGE;

			if (cursor + page_bytes + PAGE <= from)
				break;
			if (cursor < to && cursor + page_bytes + PAGE > from)
				cursor = to;
		}
		if (cursor + page_bytes + PAGE <= range) {
			char *place = base + cursor;

			cursor += page_bytes + PAGE;
			return place;
		}
	}
	return NULL;
}

bool
memory_map(char *place, size_t page_bytes, int from, off_t at)
{
	return mmap(place, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, from, at) != MAP_FAILED;
}

static void
protect(const struct allocation *a)
{
	if (is_guarded() && n_open == 0)
		mprotect(a->pages, a->page_bytes, PROT_NONE);
}

void
memory_add(const struct allocation *a)
{
	all->emplace((uintptr_t)a->p, *a);
	protect(a);
}

void
memory_drop(struct allocation *a)
{
	shim_unpoison(a->pages, a->page_bytes);
	mmap(a->pages, a->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (!a->imported) {
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, a->at, (off_t)a->page_bytes);
		in_use -= a->page_bytes;
	}
	all->erase((uintptr_t)a->p);
}

void
memory_open(void)
{
	if (n_open++ == 0 && is_guarded() && all != NULL)
		for (const auto &entry : *all)
			mprotect(entry.second.pages, entry.second.page_bytes, PROT_READ | PROT_WRITE);
}

void
memory_close(void)
{
	if (--n_open == 0 && is_guarded() && all != NULL)
		for (const auto &entry : *all)
			protect(&entry.second);
}

static void
check_marks(const struct allocation *a, const char *from, const char *to, const char *where)
{
	if (a->imported || shim_has_asan())
		return;
	for (const char *p = from; p < to; p++)
		if ((unsigned char)*p != MARK)
			complain("a write %s of %zu bytes of device memory at %p", where, a->n_bytes, (void *)a->p);
}

static void
check_end(const struct allocation *a)
{
	check_marks(a, a->p + a->n_bytes, a->pages + a->page_bytes, "behind the end");
}

void
memory_check_ends(void)
{
	if (all == NULL)
		return;
	memory_open();
	for (const auto &entry : *all)
		check_end(&entry.second);
	memory_close();
}

enum kind
memory_kind(const void *p)
{
	if (base != NULL && (const char *)p >= base && (const char *)p < base + range)
		return DEVICE;
	return host_is_pinned(p) ? PINNED : PAGEABLE;
}

size_t
memory_left(const void *p)
{
	const struct allocation *a = memory_find(p);

	return a == NULL ? 0 : (size_t)(a->p + a->n_bytes - (const char *)p);
}

void
memory_check(const void *p, size_t bytes, const char *who, const char *what)
{
	if (memory_kind(p) != DEVICE && bytes > 0)
		complain("%s: %s %p is not device memory", who, what, p);
	if (bytes > memory_left(p))
		complain("%s: %s %p has %zu bytes of device memory left, not %zu", who, what, p, memory_left(p), bytes);
}

int
memory_describe(char *text, size_t room, const void *p)
{
	const char *c = (const char *)p;

	if (memory_kind(p) != DEVICE)
		return snprintf(text, room, "bad access at %p", p);
	for (const auto &entry : *all) {
		const struct allocation *a = &entry.second;

		if (c >= a->p && c < a->p + a->n_bytes)
			return snprintf(text, room, "host code at device memory %p: %td of %zu bytes", p, c - a->p,
			    a->n_bytes);
		if (c >= a->pages && c < a->pages + a->page_bytes + PAGE)
			return snprintf(text, room, "access at %p, outside of device memory: %zu bytes at %p", p,
			    a->n_bytes, (void *)a->p);
	}
	return snprintf(text, room, "access at %p, which is not or no longer allocated on the device", p);
}

/* ---- the library's functions */
cudaError_t
cudaMalloc(void **p, size_t bytes)
{
	struct lock l;
	struct allocation a;
	const size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*p = NULL;
	if (bytes == 0)
		return cudaSuccess;
	memset(&a, 0, sizeof(a));
	a.page_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
	if (bytes > device_memory() || in_use + a.page_bytes > device_memory() ||
	    (a.pages = memory_place(a.page_bytes)) == NULL)
		return failed(cudaErrorMemoryAllocation);
	a.at = a.pages - base;
	if (!memory_map(a.pages, a.page_bytes, file, a.at))
		return failed(cudaErrorMemoryAllocation);
	in_use += a.page_bytes;
	a.n_bytes = bytes;
	a.p = a.pages + a.page_bytes - rounded;
	a.device = device_current();
	memset(a.pages, MARK, (size_t)(a.p - a.pages));
	memset(a.p, 0xff, bytes);
	memset(a.p + bytes, MARK, rounded - bytes);
	shim_poison(a.pages, (size_t)(a.p - a.pages));
	shim_poison(a.p + bytes, rounded - bytes);
	memory_add(&a);
	*p = a.p;
	return cudaSuccess;
}

static void
release(void *p)
{
	struct allocation *a = memory_find(p);

	if (a == NULL || a->p != p || a->imported)
		complain("cudaFree: %p is not an allocation of this process, or no longer", p);
	memory_open();
	check_marks(a, a->pages, a->p, "before the beginning");
	check_end(a);
	memory_drop(a);
	memory_close();
}

/* Waits for all that was queued, as the library does. */
cudaError_t
cudaFree(void *p)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (p == NULL)
		return cudaSuccess;
	stream_finish_all();
	release(p);
	return cudaSuccess;
}

cudaError_t
cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
	(void)stream;
	return cudaMalloc(p, bytes);
}

cudaError_t
cudaFreeAsync(void *p, cudaStream_t stream)
{
	return stream_add(stream, [p] {
		if (p != NULL)
			release(p);
	});
}

cudaError_t
cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*total = device_memory();
	*free_bytes = device_memory() - in_use;
	return cudaSuccess;
}
