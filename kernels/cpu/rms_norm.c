/* SPDX-License-Identifier: MIT
 * Root-mean-square normalisation of rows. */
#include "kernels/cpu/cpu.h"

#include <math.h>

#include "kernels/cpu/vec.h"

double
cpu_sum_squares(const float *x, size_t n)
{
	f64x4 a = { 0 }, b = { 0 };
	const size_t whole = n / 8 * 8;
	double s;

	for (size_t i = 0; i < whole; i += 8) {
		const float *p = x + i;
		const f64x4 u = { p[0], p[1], p[2], p[3] }, v = { p[4], p[5], p[6], p[7] };

		a += u * u;
		b += v * v;
	}
	a += b;
	s = (a[0] + a[2]) + (a[1] + a[3]);
	for (size_t i = whole; i < n; i++)
		s += (double)x[i] * (double)x[i];
	return s;
}

struct job {
	const float *x, *w;
	double eps;
	size_t d;
	float *y;
};

static void
rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *p = ctx;
	const size_t d = p->d;

	(void)worker;
	for (size_t i = from; i < to; i++) {
		const float *a = p->x + i * d;
		const float scale = (float)(1.0 / sqrt(cpu_sum_squares(a, d) / (double)d + p->eps));

		for (size_t j = 0; j < d; j++)
			p->y[i * d + j] = a[j] * scale * p->w[j];
	}
}

int
cpu_rms_norm(struct kvk_dev *dev, const float *x, const float *w, float eps, size_t n, size_t d, float *y)
{
	struct job j = { x, w, (double)eps, d, y };

	cpu_run(dev, n, 16384 / (d + 1) + 1, rows, &j);
	return 0;
}
