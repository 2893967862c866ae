/* SPDX-License-Identifier: MIT
 * Tests of paired differences: is the one method better than the other on the same prompts?
 *
 * F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945): rank the differences by size,
 * leave out zeros, give equal sizes their mean rank, and add up the ranks of the positive ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/stat/stat.h"

double
kv_sign_test(const double *d, size_t n)
{
	size_t positive = 0, negative = 0, fewer;
	double p = 0, all;

	for (size_t i = 0; i < n; i++) {
		positive += d[i] > 0;
		negative += d[i] < 0;
	}
	all = (double)(positive + negative);
	fewer = positive < negative ? positive : negative;
	/* binomial, in logarithms: 2^-n is no number any more for n > 1074 */
	for (size_t k = 0; k <= fewer; k++)
		p += exp(lgamma(all + 1) - lgamma((double)k + 1) - lgamma(all - (double)k + 1) - all * M_LN2);
	return fmin(1, 2 * p);
}

static int
by_size(const void *a, const void *b)
{
	const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);

	return (x > y) - (x < y);
}

/* Ranks of what is sorted by size, doubled, so that mean ranks are integers: rank [n].  Returns sum (t^3 - t) over the
 * runs of t equals. */
static double
rank_twice(const double *d, size_t n, size_t *rank)
{
	double ties = 0;

	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && fabs(d[end]) == fabs(d[i]);)
			end++;
		for (size_t j = i; j < end; j++)
			rank[j] = i + 1 + end; /* mean of i + 1 .. end, twice */
		ties += (double)(end - i) * ((double)(end - i) * (double)(end - i) - 1);
	}
	return ties;
}

/* P(sum of ranks whose sign comes out positive <= w), all 2^n signs equally likely.  ways[s]: how many give sum s. */
static double
exact_tail(const size_t *rank, size_t n, size_t w)
{
	double *ways = kv_alloc(w + 1, sizeof *ways, NULL), sum = 0;

	if (ways == NULL)
		return NAN;
	ways[0] = 1;
	for (size_t i = 0; i < n; i++)
		for (size_t s = w; s >= rank[i]; s--)
			ways[s] += ways[s - rank[i]];
	for (size_t s = 0; s <= w; s++)
		sum += ways[s];
	free(ways);
	return ldexp(sum, -(int)n);
}

static double
wilcoxon_p(const double *d, size_t n, size_t *rank)
{
	const double N = (double)n, ties = rank_twice(d, n, rank);
	size_t positive = 0, negative = 0, w;
	double sd;

	for (size_t i = 0; i < n; i++)
		*(d[i] > 0 ? &positive : &negative) += rank[i];
	w = positive < negative ? positive : negative;
	if (n <= KV_WILCOXON_EXACT)
		return fmin(1, 2 * exact_tail(rank, n, w));
	sd = sqrt((N * (N + 1) * (2 * N + 1) - ties / 2) / 24);
	return erfc(fabs((double)w / 2 - N * (N + 1) / 4) / sd / M_SQRT2);
}

double
kv_wilcoxon(const double *d, size_t n)
{
	double *left = kv_alloc(n, sizeof *left, NULL), p = NAN;
	size_t *rank = kv_alloc(n, sizeof *rank, NULL), m = 0;

	if (left == NULL || rank == NULL)
		goto done;
	for (size_t i = 0; i < n; i++)
		if (d[i] < 0 || d[i] > 0)
			left[m++] = d[i];
	qsort(left, m, sizeof *left, by_size);
	p = m == 0 ? 1 : wilcoxon_p(left, m, rank);
done:
	free(rank);
	free(left);
	return p;
}
