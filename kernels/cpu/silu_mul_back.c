/* SPDX-License-Identifier: MIT
 * The way back through y = silu(gate) * up: with s the logistic function of the gate,
 * dup = dy gate s and dgate = dy up s (1 + gate (1 - s)). */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/cpu/vec.h"

struct job {
	const float *gate, *up, *dy;
	size_t n;
	float *dgate, *dup;
};

static void
eight(const float *gate, const float *up, const float *dy, float *dgate, float *dup)
{
	const f32x8 g = *(const f32x8_mem *)gate, u = *(const f32x8_mem *)up, y = *(const f32x8_mem *)dy;
	f32x8 s = -g;

	vec_exp(&s);
	s = 1.0f / (1.0f + s);
	*(f32x8_mem *)dup = y * g * s;
	*(f32x8_mem *)dgate = y * u * s * (1.0f + g * (1.0f - s));
}

/* Items: vectors, the last of them filled up. */
static void
vectors(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	float x[5][8] = { 0 };
	size_t rest;

	(void)worker;
	for (size_t i = 8 * from; i < 8 * to && i + 8 <= j->n; i += 8)
		eight(j->gate + i, j->up + i, j->dy + i, j->dgate + i, j->dup + i);
	if (8 * to <= j->n)
		return;
	rest = j->n % 8;
	memcpy(x[0], j->gate + j->n - rest, rest * sizeof(float));
	memcpy(x[1], j->up + j->n - rest, rest * sizeof(float));
	memcpy(x[2], j->dy + j->n - rest, rest * sizeof(float));
	eight(x[0], x[1], x[2], x[3], x[4]);
	memcpy(j->dgate + j->n - rest, x[3], rest * sizeof(float));
	memcpy(j->dup + j->n - rest, x[4], rest * sizeof(float));
}

int
cpu_silu_mul_back(
    struct kvk_dev *dev, const float *gate, const float *up, const float *dy, size_t n, float *dgate, float *dup)
{
	struct job j = { gate, up, dy, n, dgate, dup };

	cpu_run(dev, (n + 7) / 8, 1024, vectors, &j);
	return 0;
}
