/* SPDX-License-Identifier: MIT
 * Every weight type from f32 and back, plainly: tests write files with it and check readers and kernels against it.
 * Rounding is to the nearest step of the simplest scale; real quantisers search for better ones.
 */
#ifndef QUANTISE_H
#define QUANTISE_H

#include "kernels/backend.h"

/* n elements, a multiple of the type's block, to out (kv_type_bytes(type, n) bytes) and back. */
void quantise(enum kvk_type type, const float *x, size_t n, void *out);
void dequantise(enum kvk_type type, const void *in, size_t n, float *y);

/* How far an element may be from the original after quantise and dequantise, for values within [-range, range]. */
double quantise_error(enum kvk_type type, double range);

#endif
