/* SPDX-License-Identifier: MIT */
#include "lib/train/loss.h"

#include <math.h>

#define LEAST 1e-12

static double
sum_of(const float *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)x[i];
	return sum < LEAST ? LEAST : sum;
}

double
kv_loss_head(const float *truth, const float *score, size_t n, double weight, float *gradient)
{
	const double all_g = sum_of(truth, n), all_p = sum_of(score, n);
	double loss = 0;

	for (size_t i = 0; i < n; i++) {
		const double g = (double)truth[i] / all_g;
		double p = (double)score[i] / all_p;

		if (p < LEAST)
			p = LEAST;
		if (g > 0)
			loss += g * log(g / p);
		if (gradient != NULL)
			gradient[i] = (float)(weight * (1 - g / p) / all_p);
	}
	return loss;
}

double
kv_loss(const float *truth, const float *score, size_t n_heads, size_t n, double weight, float *gradient)
{
	double loss = 0;

	for (size_t h = 0; h < n_heads; h++)
		loss += kv_loss_head(truth + h * n, score + h * n, n, weight / (double)n_heads,
		    gradient != NULL ? gradient + h * n : NULL);
	return loss / (double)n_heads;
}
