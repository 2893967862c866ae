/* SPDX-License-Identifier: MIT */
#include "lib/hash.h"

static uint64_t
splitmix64(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	return x ^ x >> 31;
}

uint64_t
kv_hash_slot(uint64_t seed, uint64_t layer, uint64_t head, uint64_t position)
{
	uint64_t x = splitmix64(seed);

	x = splitmix64(x ^ layer);
	x = splitmix64(x ^ head);
	return splitmix64(x ^ position);
}
