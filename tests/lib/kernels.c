/* SPDX-License-Identifier: MIT */
#include "tests/lib/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct kvk_dev *
test_dev(int threads)
{
	return test_dev_of(threads, KVK_PRECISION_F32);
}

struct kvk_dev *
test_dev_of(int threads, enum kvk_precision precision)
{
	struct kvk_dev *dev;
	char why[128];

	if (kvk_cpu.open(&dev, 0, threads, precision, why, sizeof why) != 0)
		fail_msg("cannot open the CPU: %s", why);
	return dev;
}

void *
test_alloc(size_t n, size_t size)
{
	void *p = calloc(n * size + 1, 1);

	assert_non_null(p);
	return p;
}

/* splitmix64 */
static uint64_t
next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

float *
test_floats(size_t n, float scale, uint64_t seed)
{
	float *x = test_alloc(n, sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = scale * ((float)(next(&seed) >> 40) * 0x1p-23f - 1.0f);
	return x;
}

double
test_f16(uint16_t h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	double x;

	if (e == 31)
		x = m ? (double)NAN : (double)INFINITY;
	else
		x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return h & 0x8000 ? -x : x;
}

double
test_bf16(uint16_t h)
{
	const int e = h >> 7 & 255, m = h & 127;
	double x;

	if (e == 255)
		x = m ? (double)NAN : (double)INFINITY;
	else
		x = e ? ldexp(128 + m, e - 134) : ldexp(m, -133);
	return h & 0x8000 ? -x : x;
}

void *
test_as(const float *x, size_t n, enum kvk_type type, double **values)
{
	uint8_t *y = test_alloc(n, kvk_types[type].bytes);
	struct kvk_dev *dev = test_dev(1);

	*values = test_alloc(n, sizeof **values);
	assert_int_equal(kvk_cpu.get_as(dev, y, type, x, KVK_F32, n), 0);
	for (size_t i = 0; i < n; i++) {
		uint16_t h;

		memcpy(&h, y + i * kvk_types[type].bytes, sizeof h);
		(*values)[i] = type == KVK_F32 ? (double)x[i] : type == KVK_F16 ? test_f16(h) : test_bf16(h);
	}
	kvk_cpu.close(dev);
	return y;
}

void *
test_typed(size_t n, float scale, uint64_t seed, enum kvk_type type, double **values)
{
	float *x = test_floats(n, scale, seed);
	void *y = test_as(x, n, type, values);

	free(x);
	return y;
}

void
test_near(const char *what, const float *got, const double *want, size_t n, double abs, double rel)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - want[i]) <= abs + rel * fabs(want[i])))
			fail_msg("%s: element %zu of %zu: got %.9g, want %.9g", what, i, n, (double)got[i], want[i]);
}

void
test_same(const char *what, const float *got, const float *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(got + i, want + i, sizeof *got) != 0)
			fail_msg("%s: element %zu of %zu: %a and %a", what, i, n, (double)got[i], (double)want[i]);
}
