/* SPDX-License-Identifier: MIT
 * Dense products with many rows in block fixed point (kernels/cpu/fixed.h).
 *
 * The rows of x are packed first; then tiles of six rows by sixteen columns are computed, each by itself.  A piece is
 * GROUPS groups of six rows, which stay in the second-level cache, by PANELS panels of sixteen columns, each of which
 * is read part by part, a part that stays in the first-level cache for all of the groups. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/fixed.h"
#include "kernels/cpu/vec.h"

#define ROWS   CPU_FIXED_ROWS
#define COLS   CPU_FIXED_COLS
#define TILE   (ROWS * COLS)
#define GROUPS 8
#define PANELS 8
#define PART   20 /* blocks of a panel, at most: 21 KiB */

struct product {
	const struct cpu_fixed_ops *ops;
	const struct kvk_weight *w;
	const float *x, *bias;
	size_t n;
	int add;
	float *y;
	struct cpu_fixed_left *left; /* [groups][blocks] */
	size_t groups, panels, blocks;
	size_t batches; /* pieces that share their rows */
};

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t
parts_of(size_t n, size_t part)
{
	return (n + part - 1) / part;
}

/* Items: groups of rows. */
static void
pack_groups(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;
	const size_t cols = p->w->cols;

	(void)worker;
	for (size_t g = from; g < to; g++)
		p->ops->pack_left(
		    p->x + g * ROWS * cols, cols, least(p->n - g * ROWS, ROWS), cols, p->left + g * p->blocks);
}

/* The order of the additions is fixed: (y + product) + bias. */
static void
store_row(float *y, const float *tile, const float *bias, int add)
{
	for (size_t j = 0; j < COLS; j += 8) {
		f32x8_mem *to = (f32x8_mem *)(y + j);
		const f32x8 v = *(const f32x8_mem *)(tile + j);
		const f32x8 sum = add ? v + *to : v;

		*to = bias != NULL ? sum + *(const f32x8_mem *)(bias + j) : sum;
	}
}

/* The same for the right edge of the weight. */
static void
store_some(float *y, const float *tile, const float *bias, int add, size_t cols)
{
	for (size_t j = 0; j < cols; j++) {
		const float sum = add ? y[j] + tile[j] : tile[j];

		y[j] = bias != NULL ? sum + bias[j] : sum;
	}
}

static void
store(const struct product *p, const float *tile, size_t group, size_t panel)
{
	const size_t rows = least(p->n - group * ROWS, ROWS), cols = least(p->w->rows - panel * COLS, COLS);
	const float *bias = p->bias != NULL ? p->bias + panel * COLS : NULL;
	float *y = p->y + group * ROWS * p->w->rows + panel * COLS;

	for (size_t i = 0; i < rows; i++, y += p->w->rows, tile += COLS)
		if (cols == COLS)
			store_row(y, tile, bias, p->add);
		else
			store_some(y, tile, bias, p->add, cols);
}

static void
multiply_panel(const struct product *p, size_t g0, size_t g1, size_t panel)
{
	const struct cpu_fixed_right *right = p->w->fixed + panel * p->blocks;
	const size_t part = parts_of(p->blocks, parts_of(p->blocks, PART));
	float tile[GROUPS][TILE] = { 0 };

	for (size_t b = 0; b < p->blocks; b += part)
		for (size_t g = g0; g < g1; g++)
			p->ops->multiply(p->left + g * p->blocks + b, right + b, least(p->blocks - b, part),
			    least(p->n - g * ROWS, ROWS), tile[g - g0]);
	for (size_t g = g0; g < g1; g++)
		store(p, tile[g - g0], g, panel);
}

/* Items: GROUPS groups by PANELS panels, those of the same groups together. */
static void
multiply_pieces(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;

	(void)worker;
	for (size_t u = from; u < to; u++) {
		const size_t g0 = u / p->batches * GROUPS, panel0 = u % p->batches * PANELS;

		for (size_t panel = panel0; panel < p->panels && panel < panel0 + PANELS; panel++)
			multiply_panel(p, g0, least(g0 + GROUPS, p->groups), panel);
	}
}

int
cpu_linear_fixed(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	struct product p = { .ops = cpu_fixed_best(), .w = w, .x = x, .n = n, .bias = bias, .add = add, .y = y };
	size_t row_bytes, stride;

	p.groups = parts_of(n, ROWS);
	p.panels = parts_of(w->rows, COLS);
	p.blocks = cpu_fixed_blocks(w->cols);
	p.batches = parts_of(p.panels, PANELS);
	if (__builtin_mul_overflow(p.blocks, sizeof *p.left, &row_bytes))
		return cpu_fail(dev, KVK_ESHAPE, "linear: rows of %zu elements are too long", w->cols);
	if ((p.left = cpu_scratch(dev, p.groups, (row_bytes + 63) / 64 * 64, &stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, p.groups, 20000 / (w->cols * ROWS + 1) + 1, pack_groups, &p);
	cpu_run(dev, parts_of(p.groups, GROUPS) * p.batches, 1, multiply_pieces, &p);
	return 0;
}
