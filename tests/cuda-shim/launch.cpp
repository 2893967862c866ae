/* SPDX-License-Identifier: MIT
 * Launches: limits of the card, attributes of kernels, arguments.
 */
#include "block.h"

#include <map>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

/* Dynamic shared memory that a kernel may have, when it is more than SHARED_DEFAULT. */
static std::map<const void *, size_t> &allowed = *new std::map<const void *, size_t>;

static void
check_shape(const struct kv_shim_job *j)
{
	const dim3 g = j->grid, b = j->block;
	const uint64_t n = (uint64_t)b.x * b.y * b.z;

	if (n == 0 || n > MAX_THREADS || b.z > 64)
		complain("kernel %s: a block of %u x %u x %u threads; it has 1 to %d, 64 on z", j->name, b.x, b.y, b.z,
		    MAX_THREADS);
	if (n % LANES != 0)
		complain("kernel %s: a block of %u x %u x %u threads, no multiple of %d", j->name, b.x, b.y, b.z, LANES);
	if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
		complain("kernel %s: a grid of %u x %u x %u blocks; x goes from 1 to 2^31 - 1, y and z to 65535", j->name,
		    g.x, g.y, g.z);
}

extern "C" const uintptr_t __start___patchable_function_entries[]
    __attribute__((weak, visibility("hidden"))); /* the linker's names for KV_SHIM_BOUND's section */
extern "C" const uintptr_t __stop___patchable_function_entries[] __attribute__((weak, visibility("hidden")));

/* Threads that __launch_bounds__ names; MAX_THREADS when the kernel has none. */
static unsigned
find_bound(const void *kernel)
{
	const uintptr_t k = (uintptr_t)kernel;
	uintptr_t nearest = 0;

	for (const uintptr_t *p = __start___patchable_function_entries; p < __stop___patchable_function_entries; p++)
		if (*p < k && *p > nearest)
			nearest = *p;
	if (nearest == 0 || k - nearest > MAX_WARPS)
		return MAX_THREADS;
	for (const unsigned char *no_op = (const unsigned char *)nearest; (uintptr_t)no_op < k; no_op++)
		if (*no_op != 0x90)
			return MAX_THREADS;
	return (unsigned)(k - nearest) * LANES;
}

static void
check_bound(const struct kv_shim_job *j)
{
	const unsigned n = j->block.x * j->block.y * j->block.z, bound = find_bound(j->kernel);

	if (n > bound)
		complain("kernel %s: a block of %u threads, but its launch bounds say %u", j->name, n, bound);
}

static void
check_shared(const struct kv_shim_job *j)
{
	const auto a = allowed.find(j->kernel);
	const size_t limit = a == allowed.end() || a->second < SHARED_DEFAULT ? (size_t)SHARED_DEFAULT : a->second;

	if (j->bytes > limit)
		complain("kernel %s: %zu bytes of dynamic shared memory; its limit is %zu (cudaFuncSetAttribute)",
		    j->name, j->bytes, limit);
}

static void
run(const struct kv_shim_job *j)
{
	memory_open();
	report_open();
	run_grid(j);
	report_close();
	memory_close();
	j->drop(j->arguments);
}

cudaError_t
kv_shim_submit(const struct kv_shim_job *job)
{
	struct lock l;
	const struct kv_shim_job j = *job;

	if (device_ready() != cudaSuccess) {
		j.drop(j.arguments);
		return failed(device_ready());
	}
	check_shape(&j);
	check_bound(&j);
	check_shared(&j);
	return stream_add(j.stream, [j] { run(&j); });
}

static bool
is_mapped(const void *p)
{
	unsigned char in_core;

	return mincore((void *)((uintptr_t)p & ~(uintptr_t)4095), 1, &in_core) == 0;
}

void
kv_shim_check_pointer(const char *kernel, int which, const void *p, bool sure)
{
	struct lock l;
	const uintptr_t x = (uintptr_t)p;

	if (p == NULL || memory_kind(p) != PAGEABLE)
		return;
	/* In a struct: only what no number looks like, the addresses of a program and its libraries, where something
	 * is. */
	if (!sure && (x < (uintptr_t)1 << 40 || x >= (uintptr_t)1 << 47 || !is_mapped(p)))
		return;
	complain("kernel %s: argument %d %s %p, host memory that the device cannot see", kernel, which + 1,
	    sure ? "is" : "contains", p);
}

cudaError_t
cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
	struct lock l;

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
		return cudaSuccess;
	if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
	    (size_t)value > device_shared())
		return failed(cudaErrorInvalidValue);
	allowed[kernel] = (size_t)value;
	return cudaSuccess;
}

cudaError_t
cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel)
{
	struct lock l;
	const auto here = allowed.find(kernel);

	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	memset(a, 0, sizeof(*a));
	a->maxThreadsPerBlock = (int)find_bound(kernel);
	a->numRegs = 32;
	a->maxDynamicSharedSizeBytes = here == allowed.end() ? (int)SHARED_DEFAULT : (int)here->second;
	a->binaryVersion = a->ptxVersion = 90;
	return cudaSuccess;
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *kernel, int threads, size_t bytes,
    unsigned flags)
{
	const size_t per_block = bytes + SHARED_OWN;
	int by_threads, by_memory;

	(void)kernel;
	(void)flags;
	if (device_ready() != cudaSuccess)
		return failed(device_ready());
	if (threads <= 0 || threads > MAX_THREADS)
		return failed(cudaErrorInvalidValue);
	by_threads = 2048 / threads > 32 ? 32 : 2048 / threads;
	by_memory = (int)((device_shared() + SHARED_OWN) / per_block);
	*n = by_memory < by_threads ? by_memory : by_threads;
	return cudaSuccess;
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *kernel, int threads, size_t bytes)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, kernel, threads, bytes, 0);
}
