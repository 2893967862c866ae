/* SPDX-License-Identifier: MIT
 * How kernels are written and launched, so that nvcc and the test shim (tests/cuda-shim, a host compiler) both take the
 * same files.
 *
 * - Blocks are a multiple of 32 threads; warp functions get a full mask with all lanes alive; nobody returns before a
 *   barrier; nobody waits for another thread or block but at a barrier.
 * - Every kernel is `KV_KERNEL(threads) name(...)`, threads the most that a block of it has, or `KV_KERNEL(threads,
 *   blocks)` where so many blocks are to share a multiprocessor: without, ptxas may spill for the sake of a third or
 *   fourth.  Its pointers into device memory are parameters of their own or members of a struct that is passed by
 *   value.
 * - Offsets are size_t: one layer of rows x heads x dim can pass 2^31 elements.
 * - Shared memory by KV_SHARED and KV_DYN_SHARED; inline PTX in kernels/cuda/ptx.h only, each with a twin for the shim.
 */
#ifndef KVK_LAUNCH_H
#define KVK_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define KV_FULL 0xffffffffu /* the mask of all lanes */

#ifdef KV_CUDA_SHIM /* its cuda_runtime.h has the kv_shim_ functions */

#define KV_KERNEL(threads, ...) KV_SHIM_BOUND(threads) static void
/* type name dims, in the block's shared memory: KV_SHARED(float, tile, [32][33]); KV_SHARED(int, first, ); */
#define KV_SHARED(type, name, dims)                                                                                    \
	typedef type name##_shared_t dims;                                                                             \
	static char name##_shared_key;                                                                                 \
	name##_shared_t &name =                                                                                        \
	    *(name##_shared_t *)kv_shim_shared(&name##_shared_key, sizeof(name##_shared_t), alignof(name##_shared_t))
/* type *name: what the launch asked for, 16-byte aligned. */
#define KV_DYN_SHARED(type, name) type *name = (type *)kv_shim_dynamic_shared()
/* kernel may be a template in parentheses.  Evaluates to the launch's cudaError_t. */
#define KV_LAUNCH(kernel, grid, block, bytes, stream, ...)                                                             \
	kv_shim_launch(#kernel, dim3(grid), dim3(block), (size_t)(bytes), stream, kernel, __VA_ARGS__)

#else

#define KV_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)
#define KV_SHARED(type, name, dims) __shared__ type name dims
#define KV_DYN_SHARED(type, name)                                                                                      \
	extern __shared__ __align__(16) unsigned char kv_dynamic_shared[];                                            \
	type *name = (type *)kv_dynamic_shared
#define KV_LAUNCH(kernel, grid, block, bytes, stream, ...)                                                             \
	(kernel<<<grid, block, bytes, stream>>>(__VA_ARGS__), cudaGetLastError())

#endif
#endif
