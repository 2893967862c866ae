/* SPDX-License-Identifier: MIT
 * Matrices of the model: as they stand in the file, as floats, and in block fixed point. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/fixed.h"

#include <stdlib.h>

struct expansion {
	const struct kvk_weight *w;
	const int32_t *ids; /* rows wanted; NULL: all */
	float *y;
};

static void
expand_rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct expansion *x = ctx;
	const struct kvk_weight *w = x->w;

	(void)worker;
	for (size_t i = from; i < to; i++) {
		const size_t r = x->ids != NULL ? (size_t)x->ids[i] : i;

		cpu_expand[w->type](
		    w->bytes + r * w->row_bytes, x->y + i * w->cols, w->cols / kvk_types[w->type].block);
	}
}

/* Moves the spare block that `bytes` fill best, at least by half, into w; false if there is none. */
static bool
take_spare(struct kvk_dev *dev, struct kvk_weight *w, size_t bytes)
{
	size_t best = CPU_SPARES;

	for (size_t i = 0; i < CPU_SPARES; i++)
		if (dev->spare[i].bytes >= bytes && dev->spare[i].bytes / 2 <= bytes &&
		    (best == CPU_SPARES || dev->spare[i].bytes < dev->spare[best].bytes))
			best = i;
	if (best == CPU_SPARES)
		return false;
	w->memory = dev->spare[best].p;
	w->memory_bytes = dev->spare[best].bytes;
	dev->spare[best].p = NULL;
	dev->spare[best].bytes = 0;
	return true;
}

/* Memory for n elements of w, or NULL with the error recorded.  The next layer's matrices take the place of those that
 * were closed: fresh pages for every layer would cost as much as filling them. */
static void *
own(struct kvk_dev *dev, struct kvk_weight *w, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 128) {
		cpu_fail(dev, KVK_ESHAPE, "weight_open: a matrix of %zu x %zu is too large", w->rows, w->cols);
		return NULL;
	}
	bytes = (bytes + 64) / 64 * 64;
	if (take_spare(dev, w, bytes))
		return w->memory;
	if ((w->memory = aligned_alloc(64, bytes)) == NULL)
		cpu_fail(dev, KVK_EMEM, "out of memory (%zu bytes wanted for a matrix)", bytes);
	w->memory_bytes = bytes;
	return w->memory;
}

static void
disown(struct kvk_dev *dev, struct kvk_weight *w)
{
	for (size_t i = 0; w->memory != NULL && i < CPU_SPARES; i++)
		if (dev->spare[i].p == NULL) {
			dev->spare[i].p = w->memory;
			dev->spare[i].bytes = w->memory_bytes;
			return;
		}
	free(w->memory);
}

/* Items: rows. */
static void
round_rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct kvk_weight *w = ctx;

	(void)worker;
	cpu_round_bf16(w->owned + from * w->cols, w->owned + from * w->cols, (to - from) * w->cols);
}

/* All rows as floats, in memory of the weight's own. */
static int
expand_all(struct kvk_dev *dev, struct kvk_weight *w, bool bf16)
{
	const size_t step = 16384 / (w->cols + 1) + 1;

	if ((w->owned = own(dev, w, w->rows * w->cols, sizeof(float))) == NULL)
		return KVK_EMEM;
	cpu_run(dev, w->rows, step, expand_rows, &(struct expansion){ w, NULL, w->owned });
	if (bf16)
		cpu_run(dev, w->rows, step, round_rows, w);
	w->f32 = w->owned;
	return 0;
}

struct packing {
	const struct cpu_fixed_ops *ops;
	const struct kvk_weight *w;
	char *scratch; /* [CPU_FIXED_COLS][cols] floats per thread, at multiples of stride */
	size_t stride, blocks;
};

/* Items: panels of CPU_FIXED_COLS rows. */
static void
pack_panels(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct packing *p = ctx;
	const struct kvk_weight *w = p->w;
	float *x = (float *)(void *)(p->scratch + worker * p->stride);

	for (size_t i = from; i < to; i++) {
		const size_t r0 = i * CPU_FIXED_COLS,
			     rows = w->rows - r0 < CPU_FIXED_COLS ? w->rows - r0 : CPU_FIXED_COLS;

		for (size_t r = 0; r < rows; r++)
			cpu_expand[w->type](
			    w->bytes + (r0 + r) * w->row_bytes, x + r * w->cols, w->cols / kvk_types[w->type].block);
		p->ops->pack_right(x, w->cols, rows, w->cols, w->fixed + i * p->blocks);
	}
}

static int
pack_all(struct kvk_dev *dev, struct kvk_weight *w)
{
	const size_t panels = (w->rows + CPU_FIXED_COLS - 1) / CPU_FIXED_COLS;
	struct packing p = { .ops = cpu_fixed_best(), .w = w, .blocks = cpu_fixed_blocks(w->cols) };

	if ((w->fixed = own(dev, w, panels * p.blocks, sizeof *w->fixed)) == NULL)
		return KVK_EMEM;
	p.scratch = cpu_scratch(dev, (size_t)dev->threads, CPU_FIXED_COLS * w->cols * sizeof(float), &p.stride);
	if (p.scratch == NULL)
		return KVK_EMEM;
	cpu_run(dev, panels, 2, pack_panels, &p);
	return 0;
}

/* What products need of w beside the bytes of the file. */
static int
prepare(struct kvk_dev *dev, struct kvk_weight *w)
{
	size_t elements;

	if (__builtin_mul_overflow(w->rows, w->cols, &elements) || elements > SIZE_MAX / 8)
		return cpu_fail(dev, KVK_ESHAPE, "weight_open: a matrix of %zu x %zu is too large", w->rows, w->cols);
	if (w->use == KVK_MANY_ROWS && dev->precision == KVK_PRECISION_I16)
		return pack_all(dev, w);
	if (w->use == KVK_MANY_ROWS && dev->precision == KVK_PRECISION_BF16)
		return expand_all(dev, w, true);
	if (w->type == KVK_F32 && (uintptr_t)w->bytes % sizeof(float) == 0) {
		w->f32 = (const float *)(const void *)w->bytes;
		return 0;
	}
	return w->use == KVK_MANY_ROWS || w->type == KVK_F32 ? expand_all(dev, w, false) : 0;
}

int
cpu_weight_open(struct kvk_dev *dev, struct kvk_weight **out, const void *host, enum kvk_type type, size_t rows,
    size_t cols, enum kvk_use use)
{
	struct kvk_weight *w;
	int rc;

	*out = NULL;
	if (type >= KVK_N_TYPES || cpu_expand[type] == NULL)
		return cpu_fail(dev, KVK_ETYPE, "weight_open: a matrix cannot be of type %s",
		    type < KVK_N_TYPES ? kvk_types[type].name : "unknown");
	if (cols % kvk_types[type].block != 0)
		return cpu_fail(dev, KVK_ESHAPE,
		    "weight_open: rows of %zu elements are no whole blocks of %s (%zu elements)", cols,
		    kvk_types[type].name, kvk_types[type].block);
	if ((w = calloc(1, sizeof *w)) == NULL)
		return cpu_fail(dev, KVK_EMEM, "out of memory");
	w->type = type;
	w->use = use;
	w->rows = rows;
	w->cols = cols;
	w->row_bytes = cols / kvk_types[type].block * kvk_types[type].bytes;
	w->bytes = host;
	if ((rc = prepare(dev, w)) == 0)
		*out = w;
	else
		cpu_weight_close(dev, w);
	return rc;
}

void
cpu_weight_close(struct kvk_dev *dev, struct kvk_weight *w)
{
	if (w == NULL)
		return;
	disown(dev, w);
	free(w);
}

int
cpu_rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (size_t)ids[i] >= w->rows)
			return cpu_fail(dev, KVK_ESHAPE, "rows: row %d of a matrix of %zu rows", (int)ids[i], w->rows);
	cpu_run(dev, n, 16384 / (w->cols + 1) + 1, expand_rows, &(struct expansion){ w, ids, y });
	return 0;
}
