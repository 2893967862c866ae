/* SPDX-License-Identifier: MIT
 * Which entries a head keeps: exact, without sorting.
 *
 * An entry's key is its rank and its tie value as a 64-bit integer that orders like the floats do.  A radix search,
 * eleven bits at a time over ever fewer keys, finds that of the last entry which is kept; all above it stay, and of
 * those equal to it the lowest positions. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#define DIGIT 11 /* bits; the first are sign, exponent and two of the mantissa */
#define FEW   32 /* keys that are sorted instead */

/* An integer that orders like x; NaN as -inf, -0 as +0. */
static uint32_t
ordered(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	if (x != x)
		u = 0xff800000;
	else if (x == 0)
		u = 0;
	return u >> 31 ? ~u : u | 0x80000000;
}

struct head {
	const float *rank, *tie; /* [n], tie may be NULL */
	const uint8_t *protect;  /* [T] or NULL */
	size_t n;
	size_t first, end; /* candidates: the positions between sinks and recents */
};

/* key [end - first] of the candidates. */
static void
make_keys(const struct head *h, uint64_t *key)
{
	const uint32_t lowest = 0x007fffff; /* -inf */
	const uint32_t above = 0xffffffff;  /* beyond +inf, which is 0xff800000 */
	const size_t scored = h->end < h->n ? h->end : h->n;
	size_t i = h->first;

	if (h->tie != NULL)
		for (; i < scored; i++)
			key[i - h->first] = (uint64_t)ordered(h->rank[i]) << 32 | ordered(h->tie[i]);
	for (; i < scored; i++)
		key[i - h->first] = (uint64_t)ordered(h->rank[i]) << 32 | lowest;
	for (; i < h->end; i++)
		key[i - h->first] = (uint64_t)lowest << 32 | lowest;
	for (i = h->first; h->protect != NULL && i < h->end; i++)
		if (h->protect[i] != 0)
			key[i - h->first] = (uint64_t)above << 32 | (i < h->n ? ordered(h->rank[i]) : lowest);
}

/* Falling order. */
static void
sort(uint64_t *key, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		const uint64_t k = key[i];
		size_t j = i;

		for (; j > 0 && key[j - 1] < k; j--)
			key[j] = key[j - 1];
		key[j] = k;
	}
}

/* Number `want` (>= 1) from the top of key [n]; *equal: how many with exactly this key are within the first `want`.
 * some [n] is overwritten. */
static uint64_t
threshold(const uint64_t *key, size_t n, size_t want, uint64_t *some, size_t *equal)
{
	for (unsigned shift = 64; shift > 0 && (n > FEW || key != some);) {
		const unsigned bits = shift < DIGIT ? shift : DIGIT;
		const uint64_t mask = ((uint64_t)1 << bits) - 1;
		uint32_t count[1 << DIGIT] = { 0 };
		uint64_t digit = mask;
		size_t m = 0;

		shift -= bits;
		for (size_t i = 0; i < n; i++)
			count[key[i] >> shift & mask]++;
		for (; count[digit] < want; digit--)
			want -= count[digit];
		for (size_t i = 0; i < n; i++) {
			some[m] = key[i];
			m += (key[i] >> shift & mask) == digit;
		}
		key = some;
		n = m;
	}
	if (n <= FEW)
		sort(some, n);
	*equal = want;
	for (size_t i = 0; i < want - 1; i++)
		*equal -= some[i] > some[want - 1];
	return some[want - 1];
}

static void
select_head(const struct kvk_select *j, size_t g, uint64_t *key, int32_t *out)
{
	const size_t keep = j->offset[g + 1] - j->offset[g], T = j->T;
	const size_t recent = j->n_recent < keep ? j->n_recent : keep;
	const size_t room = keep - recent;
	const size_t sink = j->n_sink < room ? j->n_sink : room;
	const struct head h = {
		.rank = j->rank + g * j->n,
		.tie = j->tie != NULL ? j->tie + g * j->n : NULL,
		.protect = j->protect != NULL ? j->protect + g * T : NULL,
		.n = j->n,
		.first = sink,
		.end = T - recent,
	};
	size_t want = keep - recent - sink, equal = 0;
	uint64_t limit = 0;

	for (size_t i = 0; i < sink; i++)
		*out++ = (int32_t)i;
	if (want > 0) {
		make_keys(&h, key);
		limit = threshold(key, h.end - h.first, want, key + T, &equal);
	}
	for (size_t i = 0; want > 0; i++) {
		if (key[i] < limit || (key[i] == limit && equal == 0))
			continue;
		equal -= key[i] == limit;
		want--;
		*out++ = (int32_t)(h.first + i);
	}
	for (size_t i = h.end; i < T; i++)
		*out++ = (int32_t)i;
}

struct job {
	const struct kvk_select *j;
	int32_t *index;
	char *scratch; /* 2 T keys for every thread */
	size_t stride;
};

static void
heads(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *p = ctx;

	for (size_t g = from; g < to; g++)
		select_head(p->j, g, (uint64_t *)(void *)(p->scratch + worker * p->stride), p->index + p->j->offset[g]);
}

int
cpu_select(struct kvk_dev *dev, const struct kvk_select *j, int32_t *index)
{
	struct job p = { j, index, NULL, 0 };

	if (j->T > INT32_MAX)
		return cpu_fail(dev, KVK_ESHAPE, "select: %zu tokens are more than 32-bit positions can count", j->T);
	for (size_t g = 0; g < j->H; g++)
		if (j->offset[g + 1] < j->offset[g] || j->offset[g + 1] - j->offset[g] > j->T)
			return cpu_fail(dev, KVK_ESHAPE, "select: head %zu has places %zu to %zu for entries of %zu", g,
			    j->offset[g], j->offset[g + 1], j->T);
	if ((p.scratch = cpu_scratch(dev, (size_t)dev->threads, 2 * j->T * sizeof(uint64_t), &p.stride)) == NULL)
		return KVK_EMEM;
	cpu_run(dev, j->H, j->T > 0 ? 4000 / j->T + 1 : 4000, heads, &p);
	return 0;
}
