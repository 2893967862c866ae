/* SPDX-License-Identifier: MIT
 * The gate of a SwiGLU feed-forward layer: silu(g) * u with silu(g) = g / (1 + e^-g). */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/cpu/vec.h"

static void
eight(const float *gate, const float *up, float *y)
{
	const f32x8 g = *(const f32x8_mem *)gate, u = *(const f32x8_mem *)up;
	f32x8 e = -g;

	vec_exp(&e);
	*(f32x8_mem *)y = g / (e + 1.0f) * u;
}

int
cpu_silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y)
{
	const size_t whole = n / 8 * 8, rest = n - whole;
	float g[8] = { 0 }, u[8] = { 0 };

#pragma omp parallel for num_threads(dev->threads) schedule(static) if (n > 20000)
	for (size_t i = 0; i < whole; i += 8)
		eight(gate + i, up + i, y + i);
	if (rest > 0) {
		memcpy(g, gate + whole, rest * sizeof *g);
		memcpy(u, up + whole, rest * sizeof *u);
		eight(g, u, g);
		memcpy(y + whole, g, rest * sizeof *y);
	}
	return 0;
}
