/* SPDX-License-Identifier: MIT
 * Pinned host memory, and what a pointer points to.
 */
#include <cuda_runtime.h>

#include <map>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "memory.h"
#include "runtime.h"

struct pinned {
	size_t bytes;
	bool ours; /* allocated here, not registered */
};
static std::map<uintptr_t, struct pinned> &pinned = *new std::map<uintptr_t, struct pinned>;

static std::map<uintptr_t, struct pinned>::iterator
find(const void *p)
{
	auto next = pinned.upper_bound((uintptr_t)p);

	if (next == pinned.begin())
		return pinned.end();

	auto here = std::prev(next);

	return (uintptr_t)p < here->first + here->second.bytes ? here : pinned.end();
}

bool
host_is_pinned(const void *p)
{
	return find(p) != pinned.end();
}

cudaError_t
cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	struct lock l;

	(void)flags;
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	*p = NULL;
	if (bytes == 0)
		return cudaSuccess;
	if (posix_memalign(p, PAGE, bytes) != 0)
		return failed(cudaErrorMemoryAllocation);
	memset(*p, 0xff, bytes);
	pinned[(uintptr_t)*p] = { bytes, true };
	return cudaSuccess;
}

cudaError_t
cudaMallocHost(void **p, size_t bytes)
{
	return cudaHostAlloc(p, bytes, 0);
}

static cudaError_t
unpin(void *p, bool ours, const char *who)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	stream_finish_all();

	auto here = pinned.find((uintptr_t)p);

	if (here == pinned.end() || here->second.ours != ours)
		complain("%s: %p is not what it undoes, or no longer", who, p);
	pinned.erase(here);
	return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *p)
{
	cudaError_t status = p == NULL ? cudaSuccess : unpin(p, true, "cudaFreeHost");

	if (status == cudaSuccess)
		free(p);
	return status;
}

cudaError_t
cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	struct lock l;

	(void)flags;
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (p == NULL || bytes == 0)
		return failed(cudaErrorInvalidValue);

	auto next = pinned.lower_bound((uintptr_t)p);

	if (host_is_pinned(p) || (next != pinned.end() && next->first < (uintptr_t)p + bytes))
		return failed(cudaErrorHostMemoryAlreadyRegistered);
	pinned[(uintptr_t)p] = { bytes, false };
	return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *p)
{
	return unpin(p, false, "cudaHostUnregister");
}

cudaError_t
cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	struct lock l;

	(void)flags;
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (!host_is_pinned(host))
		return failed(cudaErrorInvalidValue);
	*device = host;
	return cudaSuccess;
}

cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
	struct lock l;
	const struct allocation *a = memory_find(p);
	const bool is_pinned = host_is_pinned(p);

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	memset(attributes, 0, sizeof(*attributes));
	attributes->type = a != NULL     ? cudaMemoryTypeDevice
	                   : is_pinned ? cudaMemoryTypeHost
	                               : cudaMemoryTypeUnregistered;
	attributes->device = a != NULL ? a->device : device_current();
	attributes->devicePointer = a != NULL || is_pinned ? (void *)p : NULL;
	attributes->hostPointer = is_pinned ? (void *)p : NULL;
	return cudaSuccess;
}
