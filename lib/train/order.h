/* SPDX-License-Identifier: MIT
 * In which order samples are seen: a function of seed and epoch alone, so that a run can go on anywhere.
 */
#ifndef KV_ORDER_H
#define KV_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* A permutation of 0 .. n-1. */
void kv_order(uint64_t seed, uint64_t epoch, size_t *order, size_t n);

#define KV_ORDER_HELD_OUT UINT64_MAX /* the epoch whose first samples are held out */

#endif
