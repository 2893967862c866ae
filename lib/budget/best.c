/* SPDX-License-Identifier: MIT
 * The k best of n by a total order (METHODS 1.4): a radix search over sortable keys, eleven bits at a time over ever
 * fewer of them, so that plateaus and sorted input cost little more than noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/budget/budget.h"

#define DIGIT 11 /* bits; the first are sign and exponent of most scores */

/* Larger key, better score: NaN as -inf, -0 as +0.  Never 0. */
static uint64_t
key_of(double s)
{
	const double canonical = isnan(s) ? -INFINITY : s == 0 ? 0 : s;
	uint64_t u;

	memcpy(&u, &canonical, sizeof u);
	return u ^ ((uint64_t)((int64_t)u >> 63) | (uint64_t)1 << 63);
}

/* The *k-th largest of key [n]; *k becomes how many of those equal to it are needed.  1 <= *k <= n; some [n] is
 * overwritten. */
static uint64_t
find_kth(const uint64_t *key, size_t n, size_t *k, uint64_t *some)
{
	uint64_t digits = 0;

	for (unsigned shift = 64; shift > 0;) {
		const unsigned bits = shift < DIGIT ? shift : DIGIT;
		const uint64_t mask = ((uint64_t)1 << bits) - 1;
		size_t count[1 << DIGIT] = { 0 }, m = 0;
		uint64_t d = mask;

		shift -= bits;
		for (size_t i = 0; i < n; i++)
			count[key[i] >> shift & mask]++;
		for (; count[d] < *k; d--)
			*k -= count[d];
		digits = digits << bits | d;
		for (size_t i = 0; i < n; i++) {
			some[m] = key[i];
			m += (key[i] >> shift & mask) == d;
		}
		key = some;
		n = m;
		if (n == 1)
			return some[0];
	}
	return digits;
}

/* Those above the k-th of key [n] are taken, those equal to it get key 1, the others 0; key 0 never counts.  Returns
 * how many of the equal ones are needed. */
static size_t
narrow(uint64_t *key, size_t n, size_t k, uint64_t *some, uint8_t *taken)
{
	const uint64_t t = find_kth(key, n, &k, some);

	for (size_t i = 0; i < n; i++) {
		taken[i] |= key[i] > t;
		key[i] = key[i] == t;
	}
	return k;
}

int
kv_best(const double *s, const float *tie, size_t n, size_t k, uint8_t *taken, struct kv_err *e)
{
	uint64_t *key;
	size_t members = 0;

	if (k == 0)
		return KV_OK;
	if ((key = kv_alloc_unset(2 * n, sizeof *key, e)) == NULL)
		return KV_EMEM;
	for (size_t i = 0; i < n; i++) {
		key[i] = taken[i] != 0 ? 0 : key_of(s[i]);
		members += taken[i] == 0;
	}
	k = k < members ? k : members;
	if (k > 0)
		k = narrow(key, n, k, key + n, taken);
	if (k > 0 && tie != NULL) {
		for (size_t i = 0; i < n; i++)
			key[i] = key[i] != 0 ? key_of((double)tie[i]) : 0;
		k = narrow(key, n, k, key + n, taken);
	}
	for (size_t i = 0; i < n && k > 0; i++)
		if (key[i] != 0) {
			taken[i] = 1;
			k--;
		}
	free(key);
	return KV_OK;
}

/* One that may be among the best. */
struct near {
	uint64_t key;
	size_t i;
};

/* The upper half of key_of(x) would do, but floats have their own 32 bits. */
static uint32_t
short_key(float x)
{
	uint32_t u;

	x = isnan(x) ? -INFINITY : x;
	memcpy(&u, &x, sizeof u);
	u = u == 0x80000000 ? 0 : u;
	return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000);
}

/* The first digit of the k-th largest of s [n].  *k: how many of those with this digit are needed, *n_near: how many
 * there are. */
static uint32_t
first_digit(const float *s, size_t n, size_t *k, size_t *n_near)
{
	size_t count[2][1 << DIGIT] = { 0 }; /* equal neighbours are counted in different places */
	uint32_t d = (1 << DIGIT) - 1;

	for (size_t i = 0; i < n; i++)
		count[i & 1][short_key(s[i]) >> (32 - DIGIT)]++;
	for (; count[0][d] + count[1][d] < *k; d--)
		*k -= count[0][d] + count[1][d];
	*n_near = count[0][d] + count[1][d];
	return d;
}

/* Those beyond the digit are counted, those with it are put into `near`. */
static void
collect(const float *s, const float *tie, size_t H, size_t n, uint32_t digit, struct near *near, size_t *cnt)
{
	for (size_t h = 0; h < H; h++) {
		cnt[h] = 0;
		for (size_t i = h * n; i < (h + 1) * n; i++) {
			const uint32_t key = short_key(s[i]);

			if (key >> (32 - DIGIT) < digit)
				continue;
			cnt[h] += key >> (32 - DIGIT) > digit;
			if (key >> (32 - DIGIT) == digit)
				*near++ =
				    (struct near){ (uint64_t)key << 32 | (tie != NULL ? short_key(tie[i]) : 0), i };
		}
	}
}

int
kv_best_by_head(const float *s, const float *tie, size_t H, size_t n, size_t k, size_t *cnt, struct kv_err *e)
{
	struct near *near;
	uint64_t *key, t;
	uint32_t digit;
	size_t m;

	memset(cnt, 0, H * sizeof *cnt);
	k = k < H * n ? k : H * n;
	if (k == 0)
		return KV_OK;
	digit = first_digit(s, H * n, &k, &m);
	near = kv_alloc_unset(m, sizeof *near, e);
	key = kv_alloc_unset(2 * m, sizeof *key, e);
	if (near == NULL || key == NULL) {
		free(key);
		free(near);
		return KV_EMEM;
	}
	collect(s, tie, H, n, digit, near, cnt);
	for (size_t i = 0; i < m; i++)
		key[i] = near[i].key;
	t = find_kth(key, m, &k, key + m);
	for (size_t i = 0; i < m; i++) {
		const bool equal = near[i].key == t && k > 0;

		cnt[near[i].i / n] += near[i].key > t || equal;
		k -= equal;
	}
	free(key);
	free(near);
	return KV_OK;
}
