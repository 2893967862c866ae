/* SPDX-License-Identifier: MIT
 * Atomics, relaxed like a card's; real ones, so that TSan knows them.
 */
#ifndef KV_SHIM_ATOMICS_H
#define KV_SHIM_ATOMICS_H

#include <string.h>

/* *p = change(*p, value); returns the old *p. */
template <typename T, typename F>
static inline T
kv_shim_atomic(T *p, T value, F change)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 4 or 8 bytes");
	T old, next;

	__atomic_load(p, &old, __ATOMIC_RELAXED);
	do
		next = change(old, value);
	while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return old;
}

/* For the types that CUDA has, so that others do not compile here either. */
#define KV_SHIM_ATOMIC(name, type, expression)                                                                         \
	static inline type name(type *p, type value)                                                                   \
	{                                                                                                              \
		return kv_shim_atomic(p, value, [](type a, type b) -> type { return expression; });                    \
	}
#define KV_SHIM_ATOMIC_INTEGERS(name, expression)                                                                      \
	KV_SHIM_ATOMIC(name, int, expression)                                                                          \
	KV_SHIM_ATOMIC(name, unsigned, expression)                                                                     \
	KV_SHIM_ATOMIC(name, unsigned long long, expression)

KV_SHIM_ATOMIC(atomicAdd, int, (int)((unsigned)a + (unsigned)b))
KV_SHIM_ATOMIC(atomicAdd, unsigned, a + b)
KV_SHIM_ATOMIC(atomicAdd, unsigned long long, a + b)
KV_SHIM_ATOMIC(atomicAdd, float, a + b)
KV_SHIM_ATOMIC(atomicAdd, double, a + b)
KV_SHIM_ATOMIC(atomicSub, int, (int)((unsigned)a - (unsigned)b))
KV_SHIM_ATOMIC(atomicSub, unsigned, a - b)
KV_SHIM_ATOMIC_INTEGERS(atomicMin, b < a ? b : a)
KV_SHIM_ATOMIC(atomicMin, long long, b < a ? b : a)
KV_SHIM_ATOMIC_INTEGERS(atomicMax, b > a ? b : a)
KV_SHIM_ATOMIC(atomicMax, long long, b > a ? b : a)
KV_SHIM_ATOMIC_INTEGERS(atomicAnd, a & b)
KV_SHIM_ATOMIC_INTEGERS(atomicOr, a | b)
KV_SHIM_ATOMIC_INTEGERS(atomicXor, a ^ b)
KV_SHIM_ATOMIC_INTEGERS(atomicExch, ((void)a, b))
KV_SHIM_ATOMIC(atomicExch, float, ((void)a, b))
KV_SHIM_ATOMIC(atomicInc, unsigned, a >= b ? 0 : a + 1)
KV_SHIM_ATOMIC(atomicDec, unsigned, a == 0 || a > b ? b : a - 1)

#define KV_SHIM_CAS(type)                                                                                              \
	static inline type atomicCAS(type *p, type expected, type value)                                               \
	{                                                                                                              \
		__atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);            \
		return expected;                                                                                       \
	}
KV_SHIM_CAS(int)
KV_SHIM_CAS(unsigned)
KV_SHIM_CAS(unsigned long long)

#undef KV_SHIM_CAS
#undef KV_SHIM_ATOMIC_INTEGERS
#undef KV_SHIM_ATOMIC

#endif
