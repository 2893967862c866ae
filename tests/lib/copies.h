/* SPDX-License-Identifier: MIT
 * What copy_rows() is to do, for whichever backend: many shapes, and every byte of the results.
 */
#ifndef TEST_COPIES_H
#define TEST_COPIES_H

#include "kernels/backend.h"

/* Runs a job, whose x and y are host memory of so many bytes; what lies between the rows of y must stay. */
typedef void copies_fn(void *ctx, const struct kvk_copy *job, size_t x_bytes, size_t y_bytes);

void copies_all(copies_fn *run, void *ctx);

#endif
