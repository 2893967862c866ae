/* SPDX-License-Identifier: MIT
 * What a kernel sees of the engine: who it is, barriers, shared memory.
 *
 * One fiber per CUDA thread; a fiber gives way only at a barrier, at a warp function and at its end.
 */
#ifndef KV_SHIM_THREAD_H
#define KV_SHIM_THREAD_H

#include <stddef.h>
#include <stdint.h>

struct kv_shim_thread {
	uint3 index;
	unsigned lane;
};
struct kv_shim_grid {
	dim3 grid, block;
	uint3 index; /* of the block that runs */
};

extern struct kv_shim_thread *kv_shim_now; /* the thread that runs */
extern struct kv_shim_grid kv_shim_grid;

#define threadIdx (kv_shim_now->index)
#define blockIdx  (kv_shim_grid.index)
#define blockDim  (kv_shim_grid.block)
#define gridDim   (kv_shim_grid.grid)

/* Last parameters of everything that can be misused: the caller's line, for reports. */
#define KV_SHIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* What a barrier makes of the predicates of a block. */
enum kv_shim_vote { KV_SHIM_NONE, KV_SHIM_COUNT, KV_SHIM_AND, KV_SHIM_OR };
int kv_shim_barrier(enum kv_shim_vote how, int predicate, const char *file, int line);

/* The block's variable with this key: the same memory for all its threads, 0xff bytes at first. */
void *kv_shim_shared(const void *key, size_t bytes, size_t align);
void *kv_shim_dynamic_shared(void);

/* Report a fault of the running thread, and abort. */
void kv_shim_fault(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));

static inline void
__syncthreads(KV_SHIM_SITE)
{
	kv_shim_barrier(KV_SHIM_NONE, 0, file, line);
}

static inline int
__syncthreads_count(int predicate, KV_SHIM_SITE)
{
	return kv_shim_barrier(KV_SHIM_COUNT, predicate, file, line);
}

static inline int
__syncthreads_and(int predicate, KV_SHIM_SITE)
{
	return kv_shim_barrier(KV_SHIM_AND, predicate, file, line);
}

static inline int
__syncthreads_or(int predicate, KV_SHIM_SITE)
{
	return kv_shim_barrier(KV_SHIM_OR, predicate, file, line);
}

static inline void
__threadfence(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void
__threadfence_block(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Device code keeps an address in shared memory in 32 bits only to hand it to PTX, which has no twin here. */
static inline size_t
__cvta_generic_to_shared(const void *p)
{
	return (size_t)p;
}

static const int warpSize = 32; /* not a macro: a member of cudaDeviceProp is called so too */

#endif
