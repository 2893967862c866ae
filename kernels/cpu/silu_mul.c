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

struct job {
	const float *gate, *up;
	float *y;
};

static void
items(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;

	(void)worker;
	for (size_t i = from; i < to; i++)
		eight(j->gate + 8 * i, j->up + 8 * i, j->y + 8 * i);
}

int
cpu_silu_mul(struct kvk_dev *dev, const float *gate, const float *up, size_t n, float *y)
{
	struct job j = { gate, up, y };
	const size_t whole = n / 8 * 8, rest = n - whole;
	float g[8] = { 0 }, u[8] = { 0 };

	cpu_run(dev, n / 8, 2048, items, &j);
	if (rest > 0) {
		memcpy(g, gate + whole, rest * sizeof *g);
		memcpy(u, up + whole, rest * sizeof *u);
		eight(g, u, g);
		memcpy(y + whole, g, rest * sizeof *y);
	}
	return 0;
}
