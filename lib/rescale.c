/* SPDX-License-Identifier: MIT */
#include "lib/rescale.h"

#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"

struct place {
	float score;
	size_t at;
};

static int
by_score(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return (x->score > y->score) - (x->score < y->score);
}

int
kv_rescale_rank(float *x, size_t n, struct kv_err *e)
{
	struct place *order = kv_alloc(n, sizeof *order, e);

	if (order == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++)
		order[i] = (struct place){ isnan(x[i]) ? -INFINITY : x[i], i };
	qsort(order, n, sizeof *order, by_score);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && order[end].score == order[i].score;)
			end++;
		for (size_t j = i; j < end; j++) /* ranks i + 1 .. end */
			x[order[j].at] = (float)((double)(i + 1 + end) / 2 / (double)n);
	}
	free(order);
	return KV_OK;
}

static int
check_positive(const float *x, size_t n, struct kv_err *e)
{
	for (size_t i = 0; i < n; i++)
		if (x[i] < 0)
			return kv_fail(e, KV_ESHAPE, "a negative score (%g) cannot be a share: use --normalize range",
			    (double)x[i]);
	return KV_OK;
}

static void
divide(float *x, size_t n, double by)
{
	for (size_t i = 0; by > 0 && i < n; i++)
		x[i] = (float)((double)x[i] / by);
}

int
kv_rescale_sum(float *x, size_t n, struct kv_err *e)
{
	int rc = check_positive(x, n, e);
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += isnan(x[i]) ? 0 : (double)x[i];
	if (rc == KV_OK)
		divide(x, n, sum);
	return rc;
}

int
kv_rescale_max(float *x, size_t n, struct kv_err *e)
{
	int rc = check_positive(x, n, e);
	double max = 0;

	for (size_t i = 0; i < n; i++)
		max = fmax(max, (double)x[i]);
	if (rc == KV_OK)
		divide(x, n, max);
	return rc;
}

int
kv_rescale_range(float *x, size_t n, struct kv_err *e)
{
	double low = INFINITY, high = -INFINITY;

	(void)e;
	for (size_t i = 0; i < n; i++)
		if (isfinite(x[i])) {
			low = fmin(low, (double)x[i]);
			high = fmax(high, (double)x[i]);
		}
	for (size_t i = 0; i < n; i++)
		if (isfinite(x[i]))
			x[i] = high > low ? (float)(((double)x[i] - low) / (high - low)) : 0;
	return KV_OK;
}
