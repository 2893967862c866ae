/* SPDX-License-Identifier: MIT
 * Arithmetic that nvcc builds in.  What a card approximates is exact to rounding here.
 */
#ifndef KV_SHIM_MATH_H
#define KV_SHIM_MATH_H

#include <cmath>
#include <math.h>
#include <string.h>

/* ---- bits */
template <typename To, typename From>
static inline To
kv_shim_bits(From x)
{
	static_assert(sizeof(To) == sizeof(From), "bits of one size");
	To y;

	memcpy((void *)&y, (const void *)&x, sizeof(y));
	return y;
}

#define KV_SHIM_FUNCTION(type, name, parameters, value)                                                                \
	static inline type name parameters                                                                             \
	{                                                                                                              \
		return value;                                                                                          \
	}

KV_SHIM_FUNCTION(int, __float_as_int, (float x), kv_shim_bits<int>(x))
KV_SHIM_FUNCTION(unsigned, __float_as_uint, (float x), kv_shim_bits<unsigned>(x))
KV_SHIM_FUNCTION(float, __int_as_float, (int x), kv_shim_bits<float>(x))
KV_SHIM_FUNCTION(float, __uint_as_float, (unsigned x), kv_shim_bits<float>(x))
KV_SHIM_FUNCTION(long long, __double_as_longlong, (double x), kv_shim_bits<long long>(x))
KV_SHIM_FUNCTION(double, __longlong_as_double, (long long x), kv_shim_bits<double>(x))

KV_SHIM_FUNCTION(int, __popc, (unsigned x), __builtin_popcount(x))
KV_SHIM_FUNCTION(int, __popcll, (unsigned long long x), __builtin_popcountll(x))
KV_SHIM_FUNCTION(int, __clz, (int x), x == 0 ? 32 : __builtin_clz((unsigned)x))
KV_SHIM_FUNCTION(int, __clzll, (long long x), x == 0 ? 64 : __builtin_clzll((unsigned long long)x))
KV_SHIM_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
KV_SHIM_FUNCTION(int, __ffsll, (long long x), __builtin_ffsll(x))

static inline unsigned
__brev(unsigned x)
{
	unsigned y = 0;

	for (int i = 0; i < 32; i++)
		y |= (x >> i & 1u) << (31 - i);
	return y;
}

KV_SHIM_FUNCTION(unsigned long long, __brevll, (unsigned long long x),
    (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32)))
KV_SHIM_FUNCTION(int, __mulhi, (int a, int b), (int)((long long)a * b >> 32))
KV_SHIM_FUNCTION(unsigned, __umulhi, (unsigned a, unsigned b), (unsigned)((unsigned long long)a * b >> 32))
KV_SHIM_FUNCTION(unsigned, __funnelshift_l, (unsigned low, unsigned high, unsigned by),
    (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32))
KV_SHIM_FUNCTION(unsigned, __funnelshift_r, (unsigned low, unsigned high, unsigned by),
    (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31)))

/* Byte i of the result is byte (selector nibble i) & 7 of high:low; nibbles above 7 repeat that byte's sign. */
static inline unsigned
__byte_perm(unsigned low, unsigned high, unsigned selector)
{
	const unsigned long long from = (unsigned long long)high << 32 | low;
	unsigned y = 0;

	for (int i = 0; i < 4; i++) {
		const unsigned nibble = selector >> (4 * i) & 15u;
		unsigned byte = (unsigned)(from >> (8 * (nibble & 7u))) & 255u;

		if (nibble & 8u)
			byte = byte & 128u ? 255u : 0u;
		y |= byte << (8 * i);
	}
	return y;
}

static inline int
__dp4a(int a, int b, int c)
{
	for (int i = 0; i < 4; i++)
		c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
	return c;
}

/* ---- roundings.  The barrier keeps a compiler from fusing a product with a sum, as the _rn names promise. */
template <typename T>
static inline T
kv_shim_rounded(T x)
{
#if defined(__x86_64__)
	__asm__("" : "+x"(x));
#endif
	return x;
}

KV_SHIM_FUNCTION(float, __fadd_rn, (float a, float b), kv_shim_rounded(a + b))
KV_SHIM_FUNCTION(float, __fsub_rn, (float a, float b), kv_shim_rounded(a - b))
KV_SHIM_FUNCTION(float, __fmul_rn, (float a, float b), kv_shim_rounded(a *b))
KV_SHIM_FUNCTION(float, __fdiv_rn, (float a, float b), a / b)
KV_SHIM_FUNCTION(float, __frcp_rn, (float x), 1.0f / x)
KV_SHIM_FUNCTION(float, __fsqrt_rn, (float x), sqrtf(x))
KV_SHIM_FUNCTION(float, __fmaf_rn, (float a, float b, float c), fmaf(a, b, c))
KV_SHIM_FUNCTION(double, __dadd_rn, (double a, double b), kv_shim_rounded(a + b))
KV_SHIM_FUNCTION(double, __dsub_rn, (double a, double b), kv_shim_rounded(a - b))
KV_SHIM_FUNCTION(double, __dmul_rn, (double a, double b), kv_shim_rounded(a *b))
KV_SHIM_FUNCTION(double, __ddiv_rn, (double a, double b), a / b)
KV_SHIM_FUNCTION(double, __dsqrt_rn, (double x), sqrt(x))
KV_SHIM_FUNCTION(double, __fma_rn, (double a, double b, double c), fma(a, b, c))

/* To the nearest even, towards zero, down, up; what does not fit saturates and NaN becomes 0, as on a card. */
static inline long long
kv_shim_integer(double x, double low, double high)
{
	if (x != x)
		return 0;
	return (long long)(x < low ? low : x > high ? high : x);
}

#define KV_SHIM_INT(x)  ((int)kv_shim_integer(x, -2147483648.0, 2147483647.0))
#define KV_SHIM_UINT(x) ((unsigned)kv_shim_integer(x, 0.0, 4294967295.0))
KV_SHIM_FUNCTION(int, __float2int_rn, (float x), KV_SHIM_INT(rintf(x)))
KV_SHIM_FUNCTION(int, __float2int_rz, (float x), KV_SHIM_INT(truncf(x)))
KV_SHIM_FUNCTION(int, __float2int_rd, (float x), KV_SHIM_INT(floorf(x)))
KV_SHIM_FUNCTION(int, __float2int_ru, (float x), KV_SHIM_INT(ceilf(x)))
KV_SHIM_FUNCTION(unsigned, __float2uint_rn, (float x), KV_SHIM_UINT(rintf(x)))
KV_SHIM_FUNCTION(unsigned, __float2uint_rz, (float x), KV_SHIM_UINT(truncf(x)))
KV_SHIM_FUNCTION(float, __int2float_rn, (int x), (float)x)
KV_SHIM_FUNCTION(float, __uint2float_rn, (unsigned x), (float)x)
KV_SHIM_FUNCTION(float, __double2float_rn, (double x), (float)x)
#undef KV_SHIM_INT
#undef KV_SHIM_UINT

/* ---- approximations */
/* The host's <math.h> has these names for itself. */
#define __expf   kv_shim_expf
#define __exp10f kv_shim_exp10f
#define __logf   kv_shim_logf
#define __log2f  kv_shim_log2f
#define __log10f kv_shim_log10f
#define __powf   kv_shim_powf
#define __sinf   kv_shim_sinf
#define __cosf   kv_shim_cosf
#define __tanf   kv_shim_tanf
KV_SHIM_FUNCTION(float, rsqrtf, (float x), (float)(1.0 / sqrt((double)x)))
KV_SHIM_FUNCTION(double, rsqrt, (double x), 1.0 / sqrt(x))
KV_SHIM_FUNCTION(float, __frsqrt_rn, (float x), rsqrtf(x))
KV_SHIM_FUNCTION(float, __fdividef, (float a, float b), a / b)
KV_SHIM_FUNCTION(float, kv_shim_expf, (float x), expf(x))
KV_SHIM_FUNCTION(float, kv_shim_exp10f, (float x), powf(10.0f, x))
KV_SHIM_FUNCTION(float, kv_shim_logf, (float x), logf(x))
KV_SHIM_FUNCTION(float, kv_shim_log2f, (float x), log2f(x))
KV_SHIM_FUNCTION(float, kv_shim_log10f, (float x), log10f(x))
KV_SHIM_FUNCTION(float, kv_shim_powf, (float x, float y), powf(x, y))
KV_SHIM_FUNCTION(float, kv_shim_sinf, (float x), sinf(x))
KV_SHIM_FUNCTION(float, kv_shim_cosf, (float x), cosf(x))
KV_SHIM_FUNCTION(float, kv_shim_tanf, (float x), tanf(x))
KV_SHIM_FUNCTION(float, __saturatef, (float x), x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)

/* ---- minima and maxima */
#define KV_SHIM_MIN_MAX(type)                                                                                          \
	KV_SHIM_FUNCTION(type, min, (type a, type b), b < a ? b : a)                                                   \
	KV_SHIM_FUNCTION(type, max, (type a, type b), a < b ? b : a)
KV_SHIM_MIN_MAX(int)
KV_SHIM_MIN_MAX(unsigned)
KV_SHIM_MIN_MAX(long)
KV_SHIM_MIN_MAX(unsigned long)
KV_SHIM_MIN_MAX(long long)
KV_SHIM_MIN_MAX(unsigned long long)
KV_SHIM_FUNCTION(float, min, (float a, float b), fminf(a, b))
KV_SHIM_FUNCTION(float, max, (float a, float b), fmaxf(a, b))
KV_SHIM_FUNCTION(double, min, (double a, double b), fmin(a, b))
KV_SHIM_FUNCTION(double, max, (double a, double b), fmax(a, b))
KV_SHIM_FUNCTION(unsigned, min, (int a, unsigned b), min((unsigned)a, b))
KV_SHIM_FUNCTION(unsigned, min, (unsigned a, int b), min(a, (unsigned)b))
KV_SHIM_FUNCTION(unsigned, max, (int a, unsigned b), max((unsigned)a, b))
KV_SHIM_FUNCTION(unsigned, max, (unsigned a, int b), max(a, (unsigned)b))
#undef KV_SHIM_MIN_MAX
#undef KV_SHIM_FUNCTION

/* ---- loads and stores with a hint */
#define KV_SHIM_LOAD(name)                                                                                             \
	template <typename T>                                                                                          \
	static inline T name(const T *p)                                                                               \
	{                                                                                                              \
		return *p;                                                                                             \
	}
#define KV_SHIM_STORE(name)                                                                                            \
	template <typename T>                                                                                          \
	static inline void name(T *p, T value)                                                                         \
	{                                                                                                              \
		*p = value;                                                                                            \
	}
KV_SHIM_LOAD(__ldg)
KV_SHIM_LOAD(__ldca)
KV_SHIM_LOAD(__ldcg)
KV_SHIM_LOAD(__ldcs)
KV_SHIM_LOAD(__ldlu)
KV_SHIM_STORE(__stwb)
KV_SHIM_STORE(__stcg)
KV_SHIM_STORE(__stcs)
KV_SHIM_STORE(__stwt)
#undef KV_SHIM_LOAD
#undef KV_SHIM_STORE

#endif
