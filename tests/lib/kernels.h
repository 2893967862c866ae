/* SPDX-License-Identifier: MIT
 * What the tests of the compute kernels share: reproducible inputs, and comparison with double-precision results.
 */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include "kernels/backend.h"

/* The CPU device with so many threads; a failure fails the test. */
struct kvk_dev *test_dev(int threads);
struct kvk_dev *test_dev_of(int threads, enum kvk_precision precision);

/* Memory that the test frees with free(); never NULL, also for n 0. */
void *test_alloc(size_t n, size_t size);

/* n floats, uniform in -scale .. scale, the same for the same seed everywhere. */
float *test_floats(size_t n, float scale, uint64_t seed);
/* The same as another type (F32, F16, BF16), and what those elements are as doubles; both are freed by the test. */
void *test_typed(size_t n, float scale, uint64_t seed, enum kvk_type type, double **values);
/* The same of n floats of the test's own. */
void *test_as(const float *x, size_t n, enum kvk_type type, double **values);

/* |got - want| <= abs + rel * |want| for all n elements; NaN never passes. */
void test_near(const char *what, const float *got, const double *want, size_t n, double abs, double rel);
/* The same bytes; the message says which element differs first. */
void test_same(const char *what, const float *got, const float *want, size_t n);

/* A half or brain float as double, by arithmetic on its fields. */
double test_f16(uint16_t h);
double test_bf16(uint16_t h);

#endif
