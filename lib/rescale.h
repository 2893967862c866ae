/* SPDX-License-Identifier: MIT
 * One head's scores on a scale that others can be compared with, in place (METHODS 2.15).
 */
#ifndef KV_RESCALE_H
#define KV_RESCALE_H

#include <stddef.h>

#include "lib/err.h"

/* Ranks from the lowest score, 1/n .. 1; equal scores share the mean of their ranks; NaN ranks as -inf.  Fails:
 * KV_EMEM. */
int kv_rescale_rank(float *x, size_t n, struct kv_err *e);
/* Divided by their sum, or by the largest; all zeros stay.  NaN counts as 0 and stays.  Fails: KV_ESHAPE (a negative
 * score). */
int kv_rescale_sum(float *x, size_t n, struct kv_err *e);
int kv_rescale_max(float *x, size_t n, struct kv_err *e);
/* The finite ones to 0 .. 1 by their least and largest; to 0 when these are equal.  Never fails. */
int kv_rescale_range(float *x, size_t n, struct kv_err *e);

#endif
