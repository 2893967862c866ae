/* SPDX-License-Identifier: MIT
 * The first element that is infinite or no number: its exponent is all ones. */
#include "kernels/cpu/cpu.h"

#define PIECE 65536 /* elements of a thread's */
#define SOME  512   /* elements that are looked at together */

/* The first of n bad ones; n: none. */
static size_t
search_32(const uint32_t *x, size_t n, uint32_t mask)
{
	for (size_t at = 0, m; at < n; at += m) {
		uint32_t any = 0;

		m = n - at < SOME ? n - at : SOME;
		for (size_t i = 0; i < m; i++)
			any |= (uint32_t)((x[at + i] & mask) == mask);
		for (size_t i = 0; any != 0; i++)
			if ((x[at + i] & mask) == mask)
				return at + i;
	}
	return n;
}

static size_t
search_16(const uint16_t *x, size_t n, uint16_t mask)
{
	for (size_t at = 0, m; at < n; at += m) {
		uint16_t any = 0;

		m = n - at < SOME ? n - at : SOME;
		for (size_t i = 0; i < m; i++)
			any |= (uint16_t)((x[at + i] & mask) == mask);
		for (size_t i = 0; any != 0; i++)
			if ((x[at + i] & mask) == mask)
				return at + i;
	}
	return n;
}

struct job {
	const void *x;
	enum kvk_type type;
	char *first; /* a size_t for each thread, `stride` bytes apart */
	size_t stride;
};

static void
search(void *ctx, size_t from, size_t to, size_t worker)
{
	const struct job *j = ctx;
	size_t *first = (size_t *)(void *)(j->first + worker * j->stride), at;

	if (*first < from)
		return;
	at = j->type == KVK_F32 ? search_32((const uint32_t *)j->x + from, to - from, 0x7f800000)
				: search_16((const uint16_t *)j->x + from, to - from,
				      j->type == KVK_F16 ? 0x7c00 : 0x7f80);
	if (at < to - from && from + at < *first)
		*first = from + at;
}

int
cpu_finite(struct kvk_dev *dev, const void *x, enum kvk_type type, size_t n, size_t *first)
{
	struct job j = { .x = x, .type = type };

	if (!cpu_is_float(type))
		return cpu_fail(dev, KVK_ETYPE, "finite: types are f32, f16 and bf16");
	if ((j.first = cpu_scratch(dev, (size_t)dev->threads, sizeof *first, &j.stride)) == NULL)
		return KVK_EMEM;
	for (int i = 0; i < dev->threads; i++)
		*(size_t *)(void *)(j.first + (size_t)i * j.stride) = n;
	cpu_run(dev, n, PIECE, search, &j);
	*first = n;
	for (int i = 0; i < dev->threads; i++) {
		const size_t at = *(size_t *)(void *)(j.first + (size_t)i * j.stride);

		*first = at < *first ? at : *first;
	}
	return 0;
}
