/* SPDX-License-Identifier: MIT
 * A backend under test beside the CPU: the same operation on both, results compared.
 *
 * The backend is the library that KV_TEST_BACKEND names (libkvcuda.so as nvcc or as the shim built it); without it
 * every test is skipped.  CPU results are the reference where they are exact or double inside; else the test computes
 * its own.
 */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "kernels/backend.h"

struct pair {
	const struct kvk_backend *op; /* under test */
	struct kvk_dev *dev;          /* of op */
	struct kvk_dev *cpu;          /* of kvk_cpu, one thread, precision f32 */
};

/* Opens both, or skips the test (cmocka) when there is no backend to test; a failure fails the test. */
void pair_open(struct pair *p, enum kvk_precision precision);
void pair_close(struct pair *p);

/* A copy of host bytes on the device under test, or room for them (host NULL), filled with 0xff bytes: NaN. */
void *pair_put(struct pair *p, const void *host, size_t bytes);
/* bytes of device memory, as host memory that the test frees. */
void *pair_get(struct pair *p, const void *device, size_t bytes);
void pair_free(struct pair *p, void *device);

/* status is 0, or the test fails with the backend's error text. */
void pair_ok(struct pair *p, int status);

/* |device - want| <= abs + rel * |want| for n floats on the device under test. */
void pair_near(struct pair *p, const char *what, const float *device, const double *want, size_t n, double abs,
    double rel);

#endif
