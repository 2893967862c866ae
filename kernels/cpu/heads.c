/* SPDX-License-Identifier: MIT
 * From rows [n][H][D] to heads: optional norm of each head, rotary embedding, and the store in the cache's type. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct job {
	const float *x, *norm;
	size_t n, H, D;
	float eps;
	const struct kvk_rope *rope;
	struct cpu_turns *turns;
	size_t pos;
	size_t first; /* row of this run: at most CPU_TURNS at a time */
	uint8_t *y;
	enum kvk_type y_type;
	const size_t *at;
	char *scratch;
	size_t stride;
};

/* Turn the pairs of x; y gets them in half order, and what is not rotated behind them.  x and y do not overlap. */
static void
rotate(const struct kvk_rope *rope, const float *turn, const float *restrict x, size_t D, float *restrict y)
{
	const size_t half = rope->dim / 2;
	const float *c = turn, *s = turn + half;

	for (size_t i = 0; i < half && !rope->interleaved; i++) {
		y[i] = x[i] * c[i] - x[half + i] * s[i];
		y[half + i] = x[half + i] * c[i] + x[i] * s[i];
	}
	for (size_t i = 0; i < half && rope->interleaved; i++) {
		y[i] = x[2 * i] * c[i] - x[2 * i + 1] * s[i];
		y[half + i] = x[2 * i + 1] * c[i] + x[2 * i] * s[i];
	}
	memcpy(y + rope->dim, x + rope->dim, (D - rope->dim) * sizeof *y);
}

/* All heads of row i.  Scratch: a, b [D]. */
static void
store_row(const struct job *j, size_t i, float *a, float *b)
{
	const size_t D = j->D, row_bytes = D * kvk_types[j->y_type].bytes;
	const float *turn = j->rope != NULL ? cpu_turns_at(j->turns, j->pos + i) : NULL;

	for (size_t h = 0; h < j->H; h++) {
		const float *x = j->x + (i * j->H + h) * D;

		if (j->norm != NULL) {
			const float scale = (float)(1.0 / sqrt(cpu_sum_squares(x, D) / (double)D + (double)j->eps));

			for (size_t d = 0; d < D; d++)
				a[d] = x[d] * scale * j->norm[d];
			x = a;
		}
		if (j->rope != NULL) {
			rotate(j->rope, turn, x, D, b);
			x = b;
		}
		cpu_pack[j->y_type](x, j->y + (j->at[h] + i) * row_bytes, D);
	}
}

static void
rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	char *piece = j->scratch + worker * j->stride;
	float *a = cpu_take_f32(&piece, j->D), *b = cpu_take_f32(&piece, j->D);

	for (size_t i = j->first + from; i < j->first + to; i++)
		store_row(j, i, a, b);
}

int
cpu_heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at)
{
	struct job job = { .x = x, .norm = norm, .n = n, .H = H, .D = D, .eps = eps, .rope = rope, .pos = pos, .y = y,
		.y_type = y_type, .at = at };

	if (!cpu_is_float(y_type))
		return cpu_fail(dev, KVK_ETYPE, "heads: rows are stored as f32, f16 or bf16");
	if (rope != NULL && (rope->dim % 2 != 0 || rope->dim > D))
		return cpu_fail(dev, KVK_ESHAPE, "heads: %zu of %zu elements cannot be rotated", rope->dim, D);
	job.scratch = cpu_scratch(dev, (size_t)dev->threads, 2 * cpu_taken(D, sizeof(float)), &job.stride);
	if (job.scratch == NULL)
		return KVK_EMEM;
	if (rope != NULL && (job.turns = cpu_turns_of(dev, rope)) == NULL)
		return KVK_EMEM;
	for (; job.first < n; job.first += CPU_TURNS)
		cpu_run(
		    dev, n - job.first < CPU_TURNS ? n - job.first : CPU_TURNS, 16384 / (H * D + 1) + 1, rows, &job);
	return 0;
}
