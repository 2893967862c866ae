/* SPDX-License-Identifier: MIT */
#include "lib/checksum.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct kv_summing {
	XXH3_state_t state;
};

uint64_t
kv_checksum(const void *bytes, size_t n)
{
	return XXH3_64bits(n > 0 ? bytes : "", n);
}

struct kv_summing *
kv_summing_new(struct kv_err *e)
{
	struct kv_summing *s = aligned_alloc(_Alignof(struct kv_summing), sizeof *s);

	if (s == NULL)
		kv_no_memory(e, sizeof *s);
	else
		XXH3_64bits_reset(&s->state);
	return s;
}

void
kv_summing_free(struct kv_summing *s)
{
	free(s);
}

void
kv_summing_add(struct kv_summing *s, const void *bytes, size_t n)
{
	XXH3_64bits_update(&s->state, bytes, n);
}

uint64_t
kv_summing_get(const struct kv_summing *s)
{
	return XXH3_64bits_digest(&s->state);
}
