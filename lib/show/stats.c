/* SPDX-License-Identifier: MIT
 * Smallest, mean and largest element of a tensor.
 *
 * Two-byte types are counted by their 65,536 bit patterns first: one increment per element, and a mean that does not
 * depend on the order of the elements. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/show/show.h"

/* x, seen `times` times. */
static void
add(struct kv_stats *st, double *sum, double x, uint64_t times)
{
	if (isnan(x)) {
		st->n_nan += times;
		return;
	}
	if (isinf(x)) {
		st->n_inf += times;
		return;
	}
	x += 0.0; /* -0 as 0 */
	st->min = isnan(st->min) || x < st->min ? x : st->min;
	st->max = isnan(st->max) || x > st->max ? x : st->max;
	*sum += x * (double)times;
}

static int
add_patterns(const struct kv_tensor *t, struct kv_stats *st, double *sum, struct kv_err *e)
{
	const uint16_t *v = t->data;
	uint64_t *times = kv_alloc(1 << 16, sizeof *times, e);

	if (times == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < st->n; i++)
		times[v[i]]++;
	for (unsigned h = 0; h < 1 << 16; h++)
		if (times[h] > 0)
			add(st, sum, t->type == KVK_F16 ? kv_f16_to_f32((uint16_t)h) : kv_bf16_to_f32((uint16_t)h),
			    times[h]);
	free(times);
	return KV_OK;
}

bool
kv_stats_can(const struct kv_tensor *t)
{
	return t->type < KVK_N_TYPES && kvk_types[t->type].block == 1;
}

int
kv_stats_of(const struct kv_tensor *t, struct kv_stats *st, struct kv_err *e)
{
	size_t finite;
	double sum = 0;
	int rc = KV_OK;

	*st = (struct kv_stats){ .n = kv_tensor_n(t), .min = NAN, .mean = NAN, .max = NAN };
	if (kvk_types[t->type].bytes == 2)
		rc = add_patterns(t, st, &sum, e);
	else
		for (size_t i = 0; i < st->n; i++)
			add(st, &sum, kv_tensor_get(t, i), 1);
	finite = st->n - st->n_nan - st->n_inf;
	if (finite > 0)
		st->mean = sum / (double)finite;
	return rc;
}
