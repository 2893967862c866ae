/* SPDX-License-Identifier: MIT
 * Kendall's tau-b in O(n log n): W. R. Knight, "A computer method for calculating Kendall's tau with ungrouped data",
 * JASA 61 (1966).  Sort by x, then y; the exchanges that a merge sort by y then needs are the discordant pairs. */
#include <math.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/stat/stat.h"

static int
ascending(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Pairs within the runs of equal key >> shift. */
static int64_t
tied(const uint64_t *key, size_t n, unsigned shift)
{
	int64_t pairs = 0, run = 0;

	for (size_t i = 1; i < n; i++) {
		run = key[i] >> shift == key[i - 1] >> shift ? run + 1 : 0;
		pairs += run;
	}
	return pairs;
}

/* Sorts the lower halves of key [n]; returns how many pairs stood the wrong way round. */
static int64_t
sort_counting(uint64_t *key, uint64_t *room, size_t n)
{
	int64_t exchanges = 0;

	for (size_t width = 1; width < n; width *= 2) {
		for (size_t from = 0; from < n; from += 2 * width) {
			const size_t middle = from + width < n ? from + width : n;
			const size_t end = middle + width < n ? middle + width : n;
			size_t left = from, right = middle;

			for (size_t to = from; to < end; to++) {
				if (left < middle && (right == end || (uint32_t)key[left] <= (uint32_t)key[right])) {
					room[to] = key[left++];
				} else {
					exchanges += (int64_t)(middle - left);
					room[to] = key[right++];
				}
			}
		}
		for (size_t i = 0; i < n; i++)
			key[i] = room[i];
	}
	return exchanges;
}

int
kv_kendall(const float *x, const float *y, size_t n, double *tau, struct kv_err *e)
{
	uint64_t *key = kv_alloc(n, sizeof *key, e), *room = kv_alloc(n, sizeof *room, e);
	int64_t all = (int64_t)n * ((int64_t)n - 1) / 2, tied_x, tied_y, tied_both, discordant;
	int rc = KV_EMEM;

	*tau = 0;
	if (key == NULL || room == NULL)
		goto done;
	rc = KV_OK;
	for (size_t i = 0; i < n; i++)
		key[i] = (uint64_t)kv_score_key(x[i]) << 32 | kv_score_key(y[i]);
	qsort(key, n, sizeof *key, ascending);
	tied_x = tied(key, n, 32);
	tied_both = tied(key, n, 0);
	discordant = sort_counting(key, room, n);
	for (size_t i = 0; i < n; i++)
		key[i] &= 0xffffffff;
	tied_y = tied(key, n, 0);
	if (all > tied_x && all > tied_y)
		*tau = (double)(all - tied_x - tied_y + tied_both - 2 * discordant) /
		       sqrt((double)(all - tied_x) * (double)(all - tied_y));
done:
	free(room);
	free(key);
	return rc;
}
