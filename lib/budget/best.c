/* SPDX-License-Identifier: MIT
 * The k best of n by a total order (METHODS 1.4): a radix walk over sortable keys, eight passes whatever the values, so that
 * plateaus and sorted input cost no more than noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

/* Larger key, better score: NaN as -inf, -0 as +0. */
static uint64_t
key_of(double s)
{
	const double canonical = isnan(s) ? -INFINITY : s == 0 ? 0 : s;
	uint64_t u;

	memcpy(&u, &canonical, sizeof u);
	return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}

/* Among key[i] with in[i]: the *k-th largest; *k becomes how many of those equal to it are needed.  1 <= *k <= members. */
static uint64_t
find_kth(const uint64_t *key, const uint8_t *in, size_t n, size_t *k)
{
	uint64_t prefix = 0, mask = 0;

	for (unsigned shift = 64; shift > 0;) {
		size_t count[256] = { 0 };
		unsigned d = 255;

		shift -= 8;
		for (size_t i = 0; i < n; i++)
			if (in[i] && (key[i] & mask) == prefix)
				count[key[i] >> shift & 255]++;
		for (; count[d] < *k; d--)
			*k -= count[d];
		prefix |= (uint64_t)d << shift;
		mask |= (uint64_t)255 << shift;
	}
	return prefix;
}

/* Those above the k-th are taken, those equal to it stay in, the others are out.  Returns how many of them are needed. */
static size_t
narrow(const uint64_t *key, uint8_t *in, size_t n, size_t k, uint8_t *taken)
{
	const uint64_t t = find_kth(key, in, n, &k);

	for (size_t i = 0; i < n; i++) {
		if (in[i] && key[i] > t)
			taken[i] = 1;
		in[i] = in[i] && key[i] == t;
	}
	return k;
}

int
kv_best(const double *s, const float *tie, size_t n, size_t k, uint8_t *taken, struct kv_err *e)
{
	uint64_t *key = kv_alloc(n + 1, sizeof *key, e);
	uint8_t *in = kv_alloc(n + 1, 1, e);
	size_t members = 0;

	if (key == NULL || in == NULL) {
		free(in);
		free(key);
		return KV_EMEM;
	}
	for (size_t i = 0; i < n; i++) {
		key[i] = key_of(s[i]);
		in[i] = taken[i] == 0;
		members += in[i];
	}
	k = k < members ? k : members;
	if (k > 0)
		k = narrow(key, in, n, k, taken);
	if (k > 0 && tie != NULL) {
		for (size_t i = 0; i < n; i++)
			key[i] = key_of((double)tie[i]);
		k = narrow(key, in, n, k, taken);
	}
	for (size_t i = 0; i < n && k > 0; i++)
		if (in[i]) {
			taken[i] = 1;
			k--;
		}
	free(in);
	free(key);
	return KV_OK;
}
