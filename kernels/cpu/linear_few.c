/* SPDX-License-Identifier: MIT
 * Dense products with few rows: the weight is read once and expanded a few rows at a time, close to the core.
 *
 * A product is eight running sums over the columns j, j + 8, ... in ascending order, added up in a fixed order; the
 * columns that are no multiple of eight come last, one by one.  So a result depends on its row of x and of w alone. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/vec.h"

#define GROUP 4 /* rows of the weight that are expanded and multiplied together */

/* out[g] = w[g] . x for n_w rows of w and n_x rows of x; both counts are constants where this is expanded. */
static inline __attribute__((always_inline)) void
dots(const float *const *w, const int n_w, const float *x, const int n_x, size_t cols, float out[2][GROUP])
{
	f32x8 sum[2][GROUP] = { 0 };
	const size_t whole = cols / 8 * 8;

	for (size_t j = 0; j < whole; j += 8) {
		f32x8 a[2];

		for (int i = 0; i < n_x; i++)
			a[i] = *(const f32x8_mem *)(x + (size_t)i * cols + j);
		for (int g = 0; g < n_w; g++) {
			const f32x8 b = *(const f32x8_mem *)(w[g] + j);

			for (int i = 0; i < n_x; i++)
				vec_madd(&sum[i][g], &a[i], &b);
		}
	}
	for (int i = 0; i < n_x; i++)
		for (int g = 0; g < n_w; g++) {
			out[i][g] = vec_sum(&sum[i][g]);
			for (size_t j = whole; j < cols; j++)
				out[i][g] += x[(size_t)i * cols + j] * w[g][j];
		}
}

struct product {
	const struct kvk_weight *w;
	const float *x, *bias;
	size_t n;
	int add;
	float *y;
	bool bf16; /* both factors are rounded to it */
	char *scratch;
	size_t stride;
};

static void
store(const struct product *p, const float *out, size_t i, size_t r0, size_t n_w)
{
	for (size_t g = 0; g < n_w; g++) {
		float *y = p->y + i * p->w->rows + r0 + g;
		float v = p->add ? *y + out[g] : out[g];

		*y = p->bias != NULL ? v + p->bias[r0 + g] : v;
	}
}

/* Rows r0 .. r0 + n_w - 1 of the weight against all rows of x. */
static void
multiply_group(const struct product *p, size_t r0, size_t n_w, float *scratch)
{
	const struct kvk_weight *w = p->w;
	const size_t blocks = w->cols / kvk_types[w->type].block;
	const float *row[GROUP];
	float out[2][GROUP];
	size_t i = 0;

	for (size_t g = 0; g < GROUP; g++) {
		const size_t r = r0 + (g < n_w ? g : n_w - 1); /* the last group repeats its last row */

		row[g] = w->f32 != NULL ? w->f32 + r * w->cols : scratch + g * w->cols;
		if (w->f32 == NULL)
			cpu_expand[w->type](w->bytes + r * w->row_bytes, scratch + g * w->cols, blocks);
		if (p->bf16)
			cpu_round_bf16(row[g], scratch + g * w->cols, w->cols);
	}
	for (; i + 2 <= p->n; i += 2) {
		dots(row, GROUP, p->x + i * w->cols, 2, w->cols, out);
		store(p, out[0], i, r0, n_w);
		store(p, out[1], i + 1, r0, n_w);
	}
	if (i < p->n) {
		dots(row, GROUP, p->x + i * w->cols, 1, w->cols, out);
		store(p, out[0], i, r0, n_w);
	}
}

/* Items: groups of GROUP rows of the weight. */
static void
groups(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct product *p = ctx;
	const size_t rows = p->w->rows;

	for (size_t r = from * GROUP; r < rows && r < to * GROUP; r += GROUP)
		multiply_group(
		    p, r, rows - r < GROUP ? rows - r : GROUP, (float *)(void *)(p->scratch + worker * p->stride));
}

/* Matrices of floats stay as they are at any precision: they are adapters, and small. */
int
cpu_linear_few(
    struct kvk_dev *dev, const struct kvk_weight *w, const float *x, size_t n, const float *bias, int add, float *y)
{
	struct product p = { .w = w, .x = x, .n = n, .bias = bias, .add = add, .y = y };
	const size_t threads = (size_t)dev->threads;
	size_t floats;

	p.bf16 = dev->precision == KVK_PRECISION_BF16 && w->f32 == NULL;
	if (__builtin_mul_overflow(threads * GROUP + (p.bf16 ? n : 0), w->cols, &floats) || floats > SIZE_MAX / 8)
		return cpu_fail(dev, KVK_ESHAPE, "linear: rows of %zu elements are too long", w->cols);
	p.stride = cpu_taken(GROUP * w->cols, sizeof(float));
	if ((p.scratch = cpu_scratch(dev, 1, threads * p.stride + (p.bf16 ? n * w->cols * sizeof *x : 0), &floats)) ==
	    NULL)
		return KVK_EMEM;
	if (p.bf16) {
		float *rounded = (float *)(void *)(p.scratch + threads * p.stride);

		cpu_round_bf16(x, rounded, n * w->cols);
		p.x = rounded;
	}
	cpu_run(dev, (w->rows + GROUP - 1) / GROUP, 10000 / (GROUP * w->cols * n + 1) + 1, groups, &p);
	return 0;
}
