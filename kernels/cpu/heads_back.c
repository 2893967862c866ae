/* SPDX-License-Identifier: MIT
 * The way back from heads to rows [n][H][D]: the rotation turned back, then through the norm of each head. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct job {
	struct kvk_heads_back h;
	float *dx;
	char *scratch;
	size_t stride;
};

static void
turn_back(const struct kvk_rope *rope, size_t pos, const float *y, size_t D, float *x)
{
	const size_t half = rope->dim / 2, step = rope->interleaved ? 2 : 1, other = rope->interleaved ? 1 : half;

	for (size_t i = 0; i < half; i++) {
		const double angle = (double)pos * (double)rope->inv_freq[i];
		const float c = (float)cos(angle), s = (float)sin(angle), a = y[i], b = y[half + i];

		x[i * step] = a * c + b * s;
		x[i * step + other] = b * c - a * s;
	}
	memcpy(x + rope->dim, y + rope->dim, (D - rope->dim) * sizeof *x);
}

/* Items: heads of rows. */
static void
pieces(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	const struct kvk_heads_back *h = &j->h;
	float *turned = (float *)(void *)(j->scratch + worker * j->stride);

	for (size_t u = from; u < to; u++) {
		const size_t i = u / h->H, g = u % h->H, at = u * h->D;
		const float *dy = h->dy + (g * h->n + i) * h->D;

		if (h->rope != NULL) {
			turn_back(h->rope, h->pos + i, dy, h->D, turned);
			dy = turned;
		}
		if (h->norm != NULL)
			cpu_norm_back(h->x + at, h->norm, h->eps, dy, h->D, false, j->dx + at);
		else
			memcpy(j->dx + at, dy, h->D * sizeof *dy);
	}
}

int
cpu_heads_back(struct kvk_dev *dev, const struct kvk_heads_back *h, float *dx)
{
	struct job j = { .h = *h, .dx = dx };

	if (h->rope != NULL && (h->rope->dim % 2 != 0 || h->rope->dim > h->D))
		return cpu_fail(
		    dev, KVK_ESHAPE, "heads_back: %zu of %zu elements cannot be rotated", h->rope->dim, h->D);
	if ((j.scratch = cpu_scratch(dev, (size_t)dev->threads, h->D * sizeof(float), &j.stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, h->n * h->H, 4096 / (h->D + 1) + 1, pieces, &j);
	return 0;
}
