/* SPDX-License-Identifier: MIT
 * Which entries a head keeps: exact, without sorting.
 *
 * An entry's key is its rank and its tie value as 64-bit integers that order like the floats do.  A radix search, eight
 * bits at a time, finds the key of the last entry that is kept; all above it stay, and of those equal to it the lowest
 * positions. */
#include "kernels/cpu/cpu.h"

#include <string.h>

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

static uint64_t
key(const struct head *h, size_t i)
{
	const uint32_t lowest = 0x007fffff; /* -inf */
	const uint32_t above = 0xffffffff;  /* beyond +inf, which is 0xff800000 */

	if (h->protect != NULL && h->protect[i] != 0)
		return (uint64_t)above << 32 | (i < h->n ? ordered(h->rank[i]) : lowest);
	if (i >= h->n)
		return (uint64_t)lowest << 32 | lowest;
	return (uint64_t)ordered(h->rank[i]) << 32 | (h->tie != NULL ? ordered(h->tie[i]) : lowest);
}

/* The key of the candidate that is number `want` (>= 1) from the top; *equal: how many with exactly this key are within
 * the first `want`. */
static uint64_t
threshold(const struct head *h, size_t want, size_t *equal)
{
	uint64_t found = 0, mask = 0;

	for (int shift = 56; shift >= 0; shift -= 8) {
		size_t count[256] = { 0 };
		unsigned digit = 255;

		for (size_t i = h->first; i < h->end; i++) {
			const uint64_t k = key(h, i);

			if ((k & mask) == found)
				count[k >> shift & 255]++;
		}
		for (; digit > 0 && count[digit] < want; digit--)
			want -= count[digit];
		found |= (uint64_t)digit << shift;
		mask |= (uint64_t)255 << shift;
	}
	*equal = want;
	return found;
}

static void
select_head(const struct kvk_select *j, size_t g, int32_t *out)
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
	uint64_t limit = want > 0 ? threshold(&h, want, &equal) : UINT64_MAX;

	for (size_t i = 0; i < sink; i++)
		*out++ = (int32_t)i;
	for (size_t i = h.first; i < h.end && want > 0; i++) {
		const uint64_t k = key(&h, i);

		if (k < limit || (k == limit && equal == 0))
			continue;
		equal -= k == limit;
		want--;
		*out++ = (int32_t)i;
	}
	for (size_t i = h.end; i < T; i++)
		*out++ = (int32_t)i;
}

struct job {
	const struct kvk_select *j;
	int32_t *index;
};

static void
heads(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *p = ctx;

	(void)worker;
	for (size_t g = from; g < to; g++)
		select_head(p->j, g, p->index + p->j->offset[g]);
}

int
cpu_select(struct kvk_dev *dev, const struct kvk_select *j, int32_t *index)
{
	struct job p = { j, index };

	if (j->T > INT32_MAX)
		return cpu_fail(dev, CPU_ESHAPE, "select: %zu tokens are more than 32-bit positions can count", j->T);
	for (size_t g = 0; g < j->H; g++)
		if (j->offset[g + 1] < j->offset[g] || j->offset[g + 1] - j->offset[g] > j->T)
			return cpu_fail(dev, CPU_ESHAPE, "select: head %zu has places %zu to %zu for entries of %zu", g,
			    j->offset[g], j->offset[g + 1], j->T);
	cpu_run(dev, j->H, j->T > 0 ? 4000 / j->T + 1 : 4000, heads, &p);
	return 0;
}
