/* SPDX-License-Identifier: MIT
 * The way back through the root-mean-square norm: y_j = s w_j x_j with s = (mean x^2 + eps)^(-1/2), so
 * dx_j = s (w_j dy_j - x_j s^2 mean_k(w_k dy_k x_k)). */
#include "kernels/cpu/cpu.h"

#include <math.h>

void
cpu_norm_back(const float *x, const float *w, float eps, const float *dy, size_t d, bool add, float *dx)
{
	const double s = 1.0 / sqrt(cpu_sum_squares(x, d) / (double)d + (double)eps);
	double along[4] = { 0 };
	float scale = (float)s, pull;

	for (size_t j = 0; j < d; j++)
		along[j % 4] += (double)(w[j] * dy[j]) * (double)x[j];
	pull = (float)(s * s * s * ((along[0] + along[2]) + (along[1] + along[3])) / (double)d);
	for (size_t j = 0; j < d; j++) {
		const float g = scale * w[j] * dy[j] - pull * x[j];

		dx[j] = add ? dx[j] + g : g;
	}
}

struct job {
	const float *x, *w, *dy;
	float eps;
	size_t d;
	bool add;
	float *dx;
};

static void
rows(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;

	(void)worker;
	for (size_t i = from; i < to; i++)
		cpu_norm_back(j->x + i * j->d, j->w, j->eps, j->dy + i * j->d, j->d, j->add, j->dx + i * j->d);
}

int
cpu_rms_norm_back(struct kvk_dev *dev, const float *x, const float *w, float eps, const float *dy, size_t n, size_t d,
    int add, float *dx)
{
	struct job j = { x, w, dy, eps, d, add != 0, dx };

	cpu_run(dev, n, 8192 / (d + 1) + 1, rows, &j);
	return 0;
}
