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
	size_t pos;
	uint8_t *y;
	enum kvk_type y_type;
	const size_t *at;
	char *scratch;
	size_t stride;
};

/* cos and sin [half] of one position.  The angle is formed in double: in single precision it is off by 1e-3 and more at
 * position 20,000. */
static void
turn_table(const struct kvk_rope *rope, size_t pos, float *c, float *s)
{
	for (size_t i = 0; i < rope->dim / 2; i++) {
		const double angle = (double)pos * (double)rope->inv_freq[i];

		c[i] = (float)cos(angle);
		s[i] = (float)sin(angle);
	}
}

/* Turn the pairs of x; y gets them in half order, and what is not rotated behind them.  x and y do not overlap. */
static void
rotate(const struct kvk_rope *rope, const float *c, const float *s, const float *x, size_t D, float *y)
{
	const size_t half = rope->dim / 2, step = rope->interleaved ? 2 : 1, other = rope->interleaved ? 1 : half;

	for (size_t i = 0; i < half; i++) {
		const float a = x[i * step], b = x[i * step + other];

		y[i] = a * c[i] - b * s[i];
		y[half + i] = b * c[i] + a * s[i];
	}
	memcpy(y + rope->dim, x + rope->dim, (D - rope->dim) * sizeof *y);
}

/* All heads of row i.  Scratch: a, b [D], c, s [dim/2]. */
static void
store_row(const struct job *j, size_t i, float *a, float *b, float *c, float *s)
{
	const size_t D = j->D, row_bytes = D * kvk_types[j->y_type].bytes;

	if (j->rope != NULL)
		turn_table(j->rope, j->pos + i, c, s);
	for (size_t h = 0; h < j->H; h++) {
		const float *x = j->x + (i * j->H + h) * D;

		if (j->norm != NULL) {
			const float scale = (float)(1.0 / sqrt(cpu_sum_squares(x, D) / (double)D + (double)j->eps));

			for (size_t d = 0; d < D; d++)
				a[d] = x[d] * scale * j->norm[d];
			x = a;
		}
		if (j->rope != NULL) {
			rotate(j->rope, c, s, x, D, b);
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
	float *c = cpu_take_f32(&piece, j->D), *s = cpu_take_f32(&piece, j->D);

	for (size_t i = from; i < to; i++)
		store_row(j, i, a, b, c, s);
}

int
cpu_heads(struct kvk_dev *dev, const float *x, size_t n, size_t H, size_t D, const float *norm, float eps,
    const struct kvk_rope *rope, size_t pos, void *y, enum kvk_type y_type, const size_t *at)
{
	struct job job = { x, norm, n, H, D, eps, rope, pos, y, y_type, at, NULL, 0 };

	if (!cpu_is_float(y_type))
		return cpu_fail(dev, CPU_ETYPE, "heads: rows are stored as f32, f16 or bf16");
	if (rope != NULL && (rope->dim % 2 != 0 || rope->dim > D))
		return cpu_fail(dev, CPU_ESHAPE, "heads: %zu of %zu elements cannot be rotated", rope->dim, D);
	job.scratch = cpu_scratch(dev, (size_t)dev->threads, 4 * cpu_room(D, sizeof(float)), &job.stride);
	if (job.scratch == NULL)
		return CPU_EMEM;
	cpu_run(dev, n, 16384 / (H * D + 1) + 1, rows, &job);
	return 0;
}
