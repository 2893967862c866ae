/* SPDX-License-Identifier: MIT
 * Powers of two, eight at a time. */
#ifndef KVK_EXP2_H
#define KVK_EXP2_H

#include "kernels/cpu/vec.h"

/* 2^x for x <= 1, within 3 units in the last place; below -126 exactly 0; NaN stays NaN.  x = n + f with |f| <= 1/2;
 * 2^f by its Taylor polynomial of degree 6, whose remainder is below 2^-22.9 of it. */
static inline void
vec_exp2(f32x8 *x)
{
	const float to_int = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
	/* (ln 2)^i / i! */
	const float taylor[6] = { 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f, 1 };
	const i32x8 under = *x < -126.0f;
	f32x8 n = *x + to_int, p = VEC_ALL(1.54035304e-4f), f;
	const u32x8 bits = (u32x8)n << 23;

	f = *x - (n - to_int);
	for (int i = 0; i < 6; i++) {
		f32x8 c = VEC_ALL(taylor[i]);

		vec_madd(&c, &p, &f);
		p = c;
	}
	*x = (f32x8)((u32x8)(p * (f32x8)(bits + (127u << 23))) & ~(u32x8)under);
}

#endif
