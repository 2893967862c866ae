/* SPDX-License-Identifier: MIT
 * Random numbers that belong to a cache slot and not to an order of work: the same on every machine and for any number
 * of threads.
 */
#ifndef KV_HASH_H
#define KV_HASH_H

#include <stdint.h>

/* 64 bits for one position of one head of one layer: splitmix64, chained over the four numbers (METHODS 2.11). */
uint64_t kv_hash_slot(uint64_t seed, uint64_t layer, uint64_t head, uint64_t position);

#endif
