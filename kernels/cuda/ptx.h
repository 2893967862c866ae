/* SPDX-License-Identifier: MIT
 * All inline PTX, each wrapper with a twin for the shim (tests/cuda-shim) that computes the same from the documented
 * layout of registers over lanes (PTX ISA, "Matrix multiply-accumulate: m16n8k16", "ldmatrix", "cp.async").
 *
 * Fragments of mma.m16n8k16 over a warp, g = lane / 4, t = lane % 4, pairs of 16-bit elements in a register, the lower
 * column (of A) or row (of B) in the low half:
 *   A 16x16: a[0] (g, 2t..), a[1] (g+8, 2t..), a[2] (g, 2t+8..), a[3] (g+8, 2t+8..)
 *   B 16x8:  b[0] (2t.., g), b[1] (2t+8.., g)
 *   C 16x8 f32: c[0], c[1] (g, 2t, 2t+1), c[2], c[3] (g+8, 2t, 2t+1)
 */
#ifndef KVK_PTX_H
#define KVK_PTX_H

#include "kernels/cuda/launch.h"

#ifdef KV_CUDA_SHIM

/* tests/cuda-shim/include: the last lane to arrive computes for all. */
#define ptx_mma_bf16     kv_shim_mma_bf16
#define ptx_mma_f16      kv_shim_mma_f16
#define ptx_ldmatrix     kv_shim_ldmatrix
#define ptx_ldmatrix_t   kv_shim_ldmatrix_t
#define ptx_copy_async   kv_shim_copy_async
#define ptx_copy_commit  kv_shim_copy_commit
#define ptx_copy_wait    kv_shim_copy_wait
#define ptx_exp2         exp2f

static inline float
ptx_reciprocal(float x)
{
	return 1 / x;
}

#else

/* c += a b, f32 sums of bf16 products. */
static __device__ inline void
ptx_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
	             "{%0,%1,%2,%3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same of f16. */
static __device__ inline void
ptx_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
	             "{%0,%1,%2,%3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8x8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8, 16
 * bytes, 16-byte aligned; in r[i] every lane gets elements (lane / 4, 2 (lane % 4) ..) of matrix i. */
static __device__ inline void
ptx_ldmatrix(uint32_t r[4], const void *row)
{
	const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(at)
	             : "memory");
}

/* The same with every matrix turned: elements (2 (lane % 4) .., lane / 4). */
static __device__ inline void
ptx_ldmatrix_t(uint32_t r[4], const void *row)
{
	const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(at)
	             : "memory");
}

/* 16 bytes from global to shared memory, both 16-byte aligned, of which the first `bytes` (0 .. 16) are read and the
 * others become 0; they are there after ptx_copy_commit(), ptx_copy_wait(0) and a barrier. */
static __device__ inline void
ptx_copy_async(void *shared, const void *global, int bytes)
{
	const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);

	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(global), "r"(bytes) : "memory");
}

static __device__ inline void
ptx_copy_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* 2^x, and 1 / x, by one instruction: within 2 units in the last place, results below 2^-126 are 0.  (exp2f() and
 * division call a function for what is rare, around which registers spill.) */
static __device__ inline float
ptx_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

static __device__ inline float
ptx_reciprocal(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Until at most PENDING committed groups are on their way. */
template <int PENDING>
static __device__ inline void
ptx_copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
#endif
