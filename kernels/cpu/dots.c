/* SPDX-License-Identifier: MIT
 * Quantised weights times fixed-point rows in plain C, and which instruction set is used. */
#include "kernels/cpu/dots.h"

#include "kernels/cpu/fixed.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/vec.h"

typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));

static inline void
halves_at(const uint8_t *x, float *y)
{
	y[0] = half_at(x);
	y[1] = half_at(x + 2);
}

static inline void
widen(const i8x16 *x, i16x16 *y)
{
	*y = __builtin_convertvector(*x, i16x16);
}

static inline void
multiply32(const i16x16 *w, const int16_t *x, i32x8 *sum)
{
	for (int l = 0; l < 8; l++)
		(*sum)[l] = w[0][2 * l] * x[2 * l] + w[0][2 * l + 1] * x[2 * l + 1] + w[1][2 * l] * x[16 + 2 * l] +
			    w[1][2 * l + 1] * x[17 + 2 * l];
}

#define DOTS cpu_dots_portable
#define DOTS_TARGET
#include "kernels/cpu/dots_form.h"

cpu_dots_fn *const *
cpu_dots_best(void)
{
#ifdef __x86_64__
	if (cpu_fixed_avx2.works())
		return cpu_dots_avx2;
#endif
	return cpu_dots_portable;
}
