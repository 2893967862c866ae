/* SPDX-License-Identifier: MIT
 * Matrices of the model: as they stand in the file, and as floats. */
#include "kernels/cpu/cpu.h"

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

		cpu_expand[w->type](w->bytes + r * w->row_bytes, x->y + i * w->cols, w->cols / kvk_types[w->type].block);
	}
}

/* All rows as floats, in memory of the weight's own. */
static int
expand_all(struct kvk_dev *dev, struct kvk_weight *w)
{
	size_t bytes;

	if (__builtin_mul_overflow(w->rows, w->cols, &bytes) || __builtin_mul_overflow(bytes, sizeof(float), &bytes) ||
	    bytes > SIZE_MAX - 64)
		return cpu_fail(dev, CPU_ESHAPE, "a matrix of %zu x %zu is too large", w->rows, w->cols);
	if ((w->owned = aligned_alloc(64, (bytes + 64) / 64 * 64)) == NULL)
		return cpu_fail(dev, CPU_EMEM, "out of memory (%zu bytes wanted for a matrix)", bytes);
	cpu_run(dev, w->rows, 16384 / (w->cols + 1) + 1, expand_rows, &(struct expansion){ w, NULL, w->owned });
	w->f32 = w->owned;
	return 0;
}

int
cpu_weight_open(struct kvk_dev *dev, struct kvk_weight **out, const void *host, enum kvk_type type, size_t rows,
    size_t cols, enum kvk_use use)
{
	struct kvk_weight *w;
	int rc = 0;

	*out = NULL;
	if (type >= KVK_N_TYPES || cpu_expand[type] == NULL)
		return cpu_fail(dev, CPU_ETYPE, "a matrix cannot be of type %s",
		    type < KVK_N_TYPES ? kvk_types[type].name : "unknown");
	if (cols % kvk_types[type].block != 0)
		return cpu_fail(dev, CPU_ESHAPE, "rows of %zu elements are no whole blocks of %s (%zu elements)", cols,
		    kvk_types[type].name, kvk_types[type].block);
	if ((w = calloc(1, sizeof *w)) == NULL)
		return cpu_fail(dev, CPU_EMEM, "out of memory");
	w->type = type;
	w->use = use;
	w->rows = rows;
	w->cols = cols;
	w->row_bytes = cols / kvk_types[type].block * kvk_types[type].bytes;
	w->bytes = host;
	if (type == KVK_F32 && (uintptr_t)host % sizeof(float) == 0)
		w->f32 = host;
	else if (use == KVK_MANY_ROWS || type == KVK_F32)
		rc = expand_all(dev, w);
	if (rc == 0)
		*out = w;
	else
		cpu_weight_close(dev, w);
	return rc;
}

void
cpu_weight_close(struct kvk_dev *dev, struct kvk_weight *w)
{
	(void)dev;
	if (w == NULL)
		return;
	free(w->owned);
	free(w);
}

int
cpu_rows(struct kvk_dev *dev, const struct kvk_weight *w, const int32_t *ids, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (size_t)ids[i] >= w->rows)
			return cpu_fail(dev, CPU_ESHAPE, "row %d of a matrix of %zu rows", (int)ids[i], w->rows);
	cpu_run(dev, n, 16384 / (w->cols + 1) + 1, expand_rows, &(struct expansion){ w, ids, y });
	return 0;
}
