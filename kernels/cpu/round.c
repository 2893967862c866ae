/* SPDX-License-Identifier: MIT
 * Floats rounded to what fits a bf16: precision bf16 by f32 products, whose factors are then exact. */
#include "kernels/cpu/cpu.h"

#define PART 256

void
cpu_round_bf16(const float *x, float *y, size_t n)
{
	uint8_t h[2 * PART];

	for (size_t m; n > 0; n -= m, x += m, y += m) {
		m = n < PART ? n : PART;
		cpu_pack[KVK_BF16](x, h, m);
		cpu_expand[KVK_BF16](h, y, m);
	}
}
