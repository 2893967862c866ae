/* SPDX-License-Identifier: MIT */
#include "lib/train/order.h"

#include "lib/hash.h"

void
kv_order(uint64_t seed, uint64_t epoch, size_t *order, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const size_t j = (size_t)(kv_hash_slot(seed, epoch, 0, i) % (i + 1));

		if (i != j)
			order[i] = order[j];
		order[j] = i;
	}
}
