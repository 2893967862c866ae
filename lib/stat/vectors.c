/* SPDX-License-Identifier: MIT
 * One vector against another, but for Kendall's tau.  Formulas: METHODS 6.2, 6.3. */
#include <math.h>
#include <string.h>

#include "lib/stat/stat.h"

#define LEAST 1e-12 /* of a sum and of a share in a denominator */

uint32_t
kv_score_key(float x)
{
	uint32_t u;

	x = isnan(x) ? -INFINITY : x + 0.0f; /* -0 + 0 is +0 */
	memcpy(&u, &x, sizeof u);
	return u & 0x80000000 ? ~u : u | 0x80000000;
}

double
kv_pearson(const float *x, const float *y, size_t n)
{
	double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
	bool constant_x = true, constant_y = true;

	for (size_t i = 0; i < n; i++) {
		mx += x[i] / (double)n;
		my += y[i] / (double)n;
		constant_x = constant_x && x[i] == x[0];
		constant_y = constant_y && y[i] == y[0];
	}
	if (constant_x || constant_y)
		return 0;
	for (size_t i = 0; i < n; i++) {
		xx += (x[i] - mx) * (x[i] - mx);
		yy += (y[i] - my) * (y[i] - my);
		xy += (x[i] - mx) * (y[i] - my);
	}
	return xy / sqrt(xx * yy);
}

static double
mass(const float *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += isnan(x[i]) ? 0 : x[i];
	return fmax(sum, LEAST);
}

double
kv_kl_scores(const float *g, const float *p, size_t n)
{
	const double all_g = mass(g, n), all_p = mass(p, n);
	double kl = 0;

	for (size_t i = 0; i < n; i++)
		if (g[i] > 0)
			kl += g[i] / all_g * (log(g[i] / all_g) - log(fmax(p[i] > 0 ? p[i] / all_p : 0, LEAST)));
	return kl;
}

size_t
kv_argmax(const float *x, size_t n)
{
	size_t best = 0;

	for (size_t i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* ln of the sum of exp: what turns logits into ln p. */
static double
log_sum(const float *x, size_t n)
{
	const double top = x[kv_argmax(x, n)];
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += exp(x[i] - top);
	return top + log(sum);
}

double
kv_log_softmax(const float *x, size_t n, size_t i)
{
	return x[i] - log_sum(x, n);
}

double
kv_kl_logits(const float *p, const float *q, size_t n)
{
	const double of_p = log_sum(p, n), of_q = log_sum(q, n);
	double kl = 0;

	for (size_t i = 0; i < n; i++) {
		double a = p[i] - of_p, w = exp(a);

		if (w > 0) /* a token that cannot come adds nothing, whatever q says */
			kl += w * (a - (q[i] - of_q));
	}
	return kl;
}
