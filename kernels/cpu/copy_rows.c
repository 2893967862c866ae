/* SPDX-License-Identifier: MIT
 * Rows from one array to another, converted on the way. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#define PIECE 32768 /* elements */
#define SOME  1024  /* elements at a time where both sides are narrow */

/* m elements that follow each other; by way of floats. */
static void
convert(const struct kvk_copy *j, const uint8_t *x, uint8_t *y, size_t m)
{
	const size_t in = kvk_types[j->x_type].bytes, out = kvk_types[j->y_type].bytes;
	float f[SOME];

	for (size_t n; m > 0; m -= n, x += n * in, y += n * out) {
		n = m < SOME ? m : SOME;
		cpu_expand[j->x_type](x, f, n);
		cpu_pack[j->y_type](f, y, n);
	}
}

/* Of the rows from row r on and before row `to`, how many follow each other on both sides. */
static size_t
run(const struct kvk_copy *j, size_t r, size_t to)
{
	const size_t head = j->n - r % j->n, most = head < to - r ? head : to - r;
	size_t m = 1;

	if (j->rows == NULL)
		return most;
	while (m < most && j->rows[r + m] == j->rows[r] + m)
		m++;
	return m;
}

static void
copy(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct kvk_copy *j = ctx;
	const size_t in = j->D * kvk_types[j->x_type].bytes, out = j->D * kvk_types[j->y_type].bytes;

	(void)worker;
	for (size_t m; from < to; from += m) {
		const size_t h = from / j->n, i = from % j->n;
		const uint8_t *x = j->x;
		uint8_t *y = j->y;

		m = run(j, from, to);
		x += (j->rows != NULL ? j->rows[from] : h * j->x_stride + i) * in;
		y += (h * j->y_stride + i) * out;
		if (j->x_type == j->y_type)
			memcpy(y, x, m * in);
		else
			convert(j, x, y, m * j->D);
	}
}

int
cpu_copy_rows(struct kvk_dev *dev, const struct kvk_copy *job)
{
	struct kvk_copy j = *job;

	if (j.x_type != j.y_type ? !cpu_is_float(j.x_type) || !cpu_is_float(j.y_type) : kvk_types[j.x_type].block != 1)
		return cpu_fail(
		    dev, KVK_ETYPE, "copy_rows: types are f32, f16 and bf16, or the same plain type on both sides");
	if (j.H > 1 && j.y_stride < j.n)
		return cpu_fail(dev, KVK_ESHAPE, "copy_rows: %zu rows of a head, and the next one %zu rows behind it",
		    j.n, j.y_stride);
	if (j.D > 0)
		cpu_run(dev, j.H * j.n, (PIECE + j.D - 1) / j.D, copy, &j);
	return 0;
}
