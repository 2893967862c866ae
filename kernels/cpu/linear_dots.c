/* SPDX-License-Identifier: MIT
 * Dense products with few rows by a quantised weight, in block fixed point: x is packed, the weight is read once, as it
 * stands in the file (kernels/cpu/dots.h). */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/dots.h"
#include "kernels/cpu/fixed.h"

/* Products of a block with a row that make a piece: some 5 us.  Less than two such pieces stay on one thread. */
#define PIECE 2500
#define AHEAD 1440 /* bytes of the weight between what is fetched and what is used */

struct product {
	const struct cpu_fixed_ops *ops;
	cpu_dots_fn *dots;
	const struct kvk_weight *w;
	const float *x, *bias;
	int add;
	float *y;
	struct cpu_dots_x packed;
};

/* Items: rows of x. */
static void
pack_rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;
	const struct cpu_dots_x *x = &p->packed;

	(void)worker;
	for (size_t i = from; i < to; i++) {
		const size_t at = i * x->blocks;

		p->ops->pack(p->x + i * p->w->cols, p->w->cols, x->q + at * CPU_FIXED_BLOCK, x->scale + at);
		for (size_t b = at; b < at + x->blocks; b++) {
			int32_t sum[2] = { 0 };

			for (size_t j = 0; j < CPU_FIXED_BLOCK / 2; j++) {
				sum[0] += x->q[b * CPU_FIXED_BLOCK + j];
				sum[1] += x->q[b * CPU_FIXED_BLOCK + CPU_FIXED_BLOCK / 2 + j];
			}
			x->sum[b] = x->scale[b] * (float)(sum[0] + sum[1]);
			x->half[b][0] = x->scale[b] * (float)sum[0];
			x->half[b][1] = x->scale[b] * (float)sum[1];
		}
	}
}

/* A row is soon to be read: rows are short, and come faster than the processor finds out by itself. */
static void
fetch(const struct kvk_weight *w, size_t r)
{
	for (size_t i = 0; r < w->rows && i < w->row_bytes; i += 64)
		__builtin_prefetch(w->bytes + r * w->row_bytes + i);
}

/* Items: rows of the weight. */
static void
multiply_rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;
	const struct kvk_weight *w = p->w;
	const size_t ahead = AHEAD / w->row_bytes + 1;

	(void)worker;
	for (size_t r = from; r < to; r++) {
		fetch(w, r + ahead);
		p->dots(w->bytes + r * w->row_bytes, &p->packed, p->bias != NULL ? p->bias + r : NULL, p->add, p->y + r,
		    w->rows);
	}
}

/* Memory for n packed rows. */
static int
take(struct kvk_dev *dev, struct cpu_dots_x *x, size_t n, size_t cols)
{
	const size_t blocks = cpu_fixed_blocks(cols);
	size_t all, bytes, stride;
	char *at;

	if (__builtin_mul_overflow(n, blocks, &all) || __builtin_mul_overflow(all, 128, &bytes))
		return cpu_fail(dev, KVK_ESHAPE, "linear: %zu rows of %zu elements are too many", n, cols);
	if ((at = cpu_scratch(dev, 1, bytes + 4 * 64, &stride)) == NULL)
		return KVK_EMEM;
	x->n = n;
	x->blocks = blocks;
	x->scale = cpu_take_f32(&at, all);
	x->sum = cpu_take_f32(&at, all);
	x->half = (float(*)[2])(void *)cpu_take_f32(&at, 2 * all);
	x->q = (int16_t *)(void *)at;
	return 0;
}

bool
cpu_has_dots(struct kvk_dev *dev, const struct kvk_weight *w)
{
	return dev->precision == KVK_PRECISION_I16 && cpu_dots_portable[w->type] != NULL;
}

int
cpu_linear_dots(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	struct product p = { .ops = cpu_fixed_best(), .w = w, .x = x, .bias = bias, .add = add, .y = y };
	const int rc = take(dev, &p.packed, n, w->cols);
	size_t work, step;

	if (rc != 0)
		return rc;
	p.dots = cpu_dots_best()[w->type];
	work = n * p.packed.blocks + 1;
	step = w->rows < 2 * PIECE / work ? w->rows : PIECE / work + 1;
	cpu_run(dev, n, PIECE / (p.packed.blocks + 1) + 1, pack_rows, &p);
	cpu_run(dev, w->rows, step, multiply_rows, &p);
	return 0;
}
